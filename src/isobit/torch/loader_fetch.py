"""Fetching a batch, in a worker or not: every sample from the random numbers of its own place in the epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import ConcatDataset, StackDataset, Subset, TensorDataset, get_worker_info
from torch.utils.data._utils.collate import default_collate, default_convert
from torch.utils.data._utils.fetch import _IterableDatasetFetcher, _MapDatasetFetcher

from isobit.torch.generators import Source, set_shared_states, shared_states
from isobit.torch.loader_order import COLLATION, SAMPLE, START, STREAM, Placed, seed_all, seed_words

Fetch = Callable[[Any, Any], Any]


class SeededFetch:
    """Fetches what a `Placed` names. Afterwards `sources` are as they were before."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self._inside = False

    def fetch_map(self, original: Fetch, fetcher: _MapDatasetFetcher, placed: Placed) -> Any:
        """One sample, or a batch of them, of a map-style dataset."""
        quiet_dataset, quiet_collation = draws_nothing(fetcher.dataset), _is_default(fetcher.collate_fn)
        if quiet_dataset and quiet_collation:
            return original(fetcher, placed.index)
        with self._restored():
            data = self._unseeded(fetcher, placed.index) if quiet_dataset else self._samples(fetcher, placed)
            if not quiet_collation:
                self._seed(placed.seed, COLLATION, 0, placed.position)
            return fetcher.collate_fn(data)

    def _unseeded(self, fetcher: _MapDatasetFetcher, index: Any) -> Any:
        dataset = fetcher.dataset
        return [dataset[one] for one in index] if fetcher.auto_collation else dataset[index]

    def _samples(self, fetcher: _MapDatasetFetcher, placed: Placed) -> Any:
        dataset, index, n = fetcher.dataset, placed.index, placed.position
        if not fetcher.auto_collation:
            self._seed(placed.seed, SAMPLE, 0, n)
            return dataset[index]
        if takes_batches(dataset):
            self._seed(placed.seed, SAMPLE, 0, n)
            return dataset.__getitems__(index)
        samples = []
        for offset, one in enumerate(index):
            self._seed(placed.seed, SAMPLE, 0, n + offset)
            samples.append(dataset[one])
        return samples

    def fetch_stream(self, original: Fetch, fetcher: _IterableDatasetFetcher, placed: Placed) -> Any:
        """The next of an iterable dataset, whose iterator and collation are ours (see `begin_stream`)."""
        fetcher.dataset_iter.epoch = placed.seed
        with self._restored():
            return original(fetcher, placed.index)

    def begin_stream(self, fetcher: _IterableDatasetFetcher) -> None:
        """Puts seeded ones in place of the dataset's iterator and the collation."""
        stream = SeededStream(fetcher.dataset, self._seed)
        fetcher.dataset_iter = stream
        if not _is_default(fetcher.collate_fn):
            fetcher.collate_fn = stream.collating(fetcher.collate_fn)

    def _seed(self, seed: int, domain: int, lane: int, position: int) -> None:
        seed_all(self._sources, seed_words(seed, domain, lane, position))

    @contextmanager
    def _restored(self) -> Iterator[None]:
        """Around a fetch. Nothing else draws in a worker, so only a fetch inside a fetch has what to restore there."""
        if get_worker_info() is not None and not self._inside:
            self._inside = True
            try:
                yield
            finally:
                self._inside = False
            return
        before = shared_states(self._sources)
        try:
            yield
        finally:
            set_shared_states(self._sources, before)


class SeededStream:
    """An iterable dataset's iterator. `epoch` is set before each fetch; without it nothing is seeded."""

    def __init__(self, dataset: Any, seed: Callable[[int, int, int, int], None]) -> None:
        self.epoch: int | None = None
        self._dataset = dataset
        self._seed = seed
        self._iterator: Iterator[Any] | None = None
        self._drawn = 0

    def __iter__(self) -> SeededStream:
        return self

    def __next__(self) -> Any:
        if self._iterator is None:  # as late as this, since only a fetch knows the epoch
            self._seed_for(START, 0)
            self._iterator = iter(self._dataset)
        self._seed_for(STREAM, self._drawn)
        self._drawn += 1
        return next(self._iterator)

    def collating(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The collation `function`, seeded."""

        def collate(data: Any) -> Any:
            self._seed_for(COLLATION, self._drawn)
            return function(data)

        return collate

    def _seed_for(self, domain: int, position: int) -> None:
        if self.epoch is not None:
            worker = get_worker_info()
            self._seed(self.epoch, domain, worker.id if worker is not None else 0, position)


def takes_batches(dataset: Any) -> bool:
    """Whether `__getitems__` is more than a loop over `__getitem__`, as a Subset's is."""
    if type(dataset) is Subset:
        return takes_batches(dataset.dataset)
    return bool(getattr(dataset, "__getitems__", None))


def draws_nothing(dataset: Any) -> bool:
    """Whether a dataset is known to use no random numbers, so that seeding for its samples would be in vain."""
    kind = type(dataset)
    if kind is Subset:
        return draws_nothing(dataset.dataset)
    if kind is ConcatDataset:
        return all(draws_nothing(d) for d in dataset.datasets)
    if kind is StackDataset:
        inner = dataset.datasets
        return all(draws_nothing(d) for d in (inner.values() if isinstance(inner, dict) else inner))
    return kind in (TensorDataset, torch.Tensor, list, tuple, range)


def _is_default(collation: Any) -> bool:
    return collation is default_collate or collation is default_convert
