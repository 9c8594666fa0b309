"""`DataLoader` under the loader's law: the same samples in one order, whatever the workers' number and start method.

`loader_order.py` says where the random numbers come from. Here it is put into PyTorch's classes: an iterator hands out
each index with its place in the epoch; the fetchers, in workers and without, seed by it. A persistent loader draws a
base seed for every epoch, as others do. The law also knows where in which epoch each loader is, for checkpoints.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.utils.data import DataLoader, IterDataPipe
from torch.utils.data._utils.fetch import _IterableDatasetFetcher, _MapDatasetFetcher
from torch.utils.data.dataloader import _BaseDataLoaderIter, _MultiProcessingDataLoaderIter

from isobit.torch.generators import SOURCES, Source
from isobit.torch.loader_fetch import SeededFetch
from isobit.torch.loader_order import EpochOrder, Placed
from isobit.torch.loader_place import LoaderPlace

Method = Callable[..., Any]
_ORDER = "_isobit_order"


class LoaderLaw:
    """The law, in force while there have been more calls of `install` than of `remove`."""

    def __init__(self, sources: Sequence[Source] = SOURCES) -> None:
        self.sources = sources
        self._fetch = SeededFetch(sources)
        self._places: WeakKeyDictionary[DataLoader[Any], LoaderPlace] = WeakKeyDictionary()
        self._installed = 0
        self._originals: list[tuple[type, str, Method]] = []

    def install(self) -> None:
        self._installed += 1
        if self._installed > 1:
            return
        for owner, name, replacement in self._replacements():
            original = owner.__dict__[name]
            self._originals.append((owner, name, original))
            setattr(owner, name, functools.wraps(original)(replacement(original)))

    def remove(self) -> None:
        self._installed -= 1
        if self._installed:
            return
        for owner, name, original in self._originals:
            setattr(owner, name, original)
        self._originals = []

    def place(self, loader: DataLoader[Any]) -> LoaderPlace:
        """Where the loader is."""
        if loader not in self._places:
            self._places[loader] = LoaderPlace(self.sources)
        return self._places[loader]

    def _replacements(self) -> tuple[tuple[type, str, Callable[[Method], Method]], ...]:
        return (
            (DataLoader, "__iter__", self._iter),
            (_BaseDataLoaderIter, "__init__", self._init),
            (_BaseDataLoaderIter, "_reset", self._reset),
            (_BaseDataLoaderIter, "_next_index", self._next_index),
            (_BaseDataLoaderIter, "__next__", self._next),
            (_MultiProcessingDataLoaderIter, "__init__", self._init_workers),
            (_MapDatasetFetcher, "fetch", self._fetch_map),
            (_IterableDatasetFetcher, "__init__", self._init_stream),
            (_IterableDatasetFetcher, "fetch", self._fetch_stream),
        )

    def _iter(self, original: Method) -> Method:
        def __iter__(loader: DataLoader[Any]) -> Any:
            if loader._iterator is not None and not hasattr(loader._iterator, _ORDER):
                loader._iterator = None  # its workers were started before the law was in force
            return self.place(loader).begin(loader, original, lambda iterator: getattr(iterator, _ORDER, None))

        return __iter__

    def _init(self, original: Method) -> Method:
        def __init__(iterator: _BaseDataLoaderIter, loader: DataLoader[Any]) -> None:
            original(iterator, loader)
            self._begin_epoch(iterator, loader)

        return __init__

    def _reset(self, original: Method) -> Method:
        """PyTorch asks a sampler for two iterators if there are workers, and draws no base seed if they are kept."""

        def _reset(iterator: _BaseDataLoaderIter, loader: DataLoader[Any], first_iter: bool = False) -> None:
            if hasattr(iterator, "_in_order"):
                iterator._in_order = True  # otherwise time decides which batch comes first
            with _without_sampler(iterator), _without_draws(loader, first_iter):
                original(iterator, loader, first_iter)
            if first_iter:
                iterator._sampler_iter = getattr(iterator, _ORDER).indices
            else:
                iterator._sampler_iter = iter(iterator._index_sampler)
                drawn = torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
                iterator._base_seed = int(drawn.item())
                self._begin_epoch(iterator, loader)

        return _reset

    def _begin_epoch(self, iterator: _BaseDataLoaderIter, loader: DataLoader[Any]) -> None:
        order = EpochOrder(iterator._sampler_iter, int(iterator._base_seed), loader, self.sources)
        order.skip(self.place(loader).skip)
        setattr(iterator, _ORDER, order)

    def _next_index(self, original: Method) -> Method:
        def _next_index(iterator: _BaseDataLoaderIter) -> Any:
            order = _order_of(iterator)
            return original(iterator) if order is None else order.next()

        return _next_index

    def _next(self, original: Method) -> Method:
        def __next__(iterator: _BaseDataLoaderIter) -> Any:
            order = _order_of(iterator)
            if order is None:
                return original(iterator)
            try:
                data = original(iterator)
            except StopIteration:
                order.end()
                raise
            except Exception:
                order.deliver()  # the batch is gone, whatever came of it
                raise
            order.deliver()
            return data

        return __next__

    def _init_workers(self, original: Method) -> Method:
        """Workers that are started afresh get the law with the script's own `worker_init_fn`."""

        def __init__(iterator: _MultiProcessingDataLoaderIter, loader: DataLoader[Any]) -> None:
            own = loader.worker_init_fn
            loader.worker_init_fn = functools.partial(begin_worker, own)
            try:
                original(iterator, loader)
            finally:
                loader.worker_init_fn = own

        return __init__

    def _fetch_map(self, original: Method) -> Method:
        def fetch(fetcher: _MapDatasetFetcher, index: Any) -> Any:
            if type(index) is Placed:
                return self._fetch.fetch_map(original, fetcher, index)
            return original(fetcher, index)

        return fetch

    def _init_stream(self, original: Method) -> Method:
        def __init__(fetcher: _IterableDatasetFetcher, dataset: Any, *options: Any) -> None:
            original(fetcher, (), *options)
            fetcher.dataset = dataset
            self._fetch.begin_stream(fetcher)

        return __init__

    def _fetch_stream(self, original: Method) -> Method:
        def fetch(fetcher: _IterableDatasetFetcher, index: Any) -> Any:
            if type(index) is Placed:
                return self._fetch.fetch_stream(original, fetcher, index)
            return original(fetcher, index)

        return fetch


def _order_of(iterator: _BaseDataLoaderIter) -> EpochOrder | None:
    """The order of the iterator's epoch, if that began under the law."""
    order: EpochOrder | None = iterator.__dict__.get(_ORDER)
    return order if order is not None and order.indices is iterator._sampler_iter else None


@contextmanager
def _without_sampler(iterator: _BaseDataLoaderIter) -> Iterator[None]:
    """`iter` of a sampler may draw: not here."""
    sampler = iterator._index_sampler
    iterator._index_sampler = ()
    try:
        yield
    finally:
        iterator._index_sampler = sampler


@contextmanager
def _without_draws(loader: DataLoader[Any], wanted: bool) -> Iterator[None]:
    """PyTorch draws a pipe's shared seed a second time if there are workers: that draw is taken back."""
    if not (wanted and isinstance(loader.dataset, IterDataPipe)):
        yield
        return
    generator = loader.generator if loader.generator is not None else torch.default_generator
    state = generator.get_state()
    try:
        yield
    finally:
        generator.set_state(state)


LOADER_LAW = LoaderLaw()  # one per process, as the classes are that it changes


def begin_worker(own: Callable[[int], None] | None, worker: int) -> None:
    """Runs first in every worker."""
    LOADER_LAW.install()
    if own is not None:
        own(worker)
