"""Which sample comes when, and the random words of each: the order of one epoch.

Where the random numbers of a loader come from. An epoch has a base seed, a 64-bit integer that a `DataLoader` draws
from its generator each time it is iterated. With Philox 4x32-10 (arithmetic/random.py), key = the base seed and
counter = (low half of n, high half of n, lane, domain), four words w0 … w3 are

    domain 1, sample     n = the sample's position in the epoch, over all batches; lane 0
    domain 2, collation  n = the position of the batch's first sample; lane 0
    domain 3, stream     n = how many samples this worker has drawn from an iterable dataset before; lane = the worker
    domain 4, start      n = 0: `iter(dataset)` of an iterable dataset; lane = the worker
    domain 5, sampler    n = which call of `next` on the sampler; call 0 draws from the process's own generators; lane 0

and seed torch with w0 + 2^32·w1, NumPy's legacy generator with w2 and `random` with w3. (The collation of an iterable
dataset takes n and lane of domain 3.) Since the base seed is drawn anew for every epoch it stands for the epoch as
well: a number of the epoch beside it would tell apart two iterations that start from the same state of the generators,
which users expect to be one. `__getitems__` takes a batch at once, so the batch has its first sample's seed. No
worker's number enters, except where an iterable dataset has one stream for each worker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.dataloader import _DatasetKind
from torch.utils.data.distributed import DistributedSampler

from isobit.arithmetic.random import philox4x32
from isobit.torch.generators import (
    KINDS,
    Generator,
    Source,
    Words,
    is_shared,
    same_state,
    set_shared_states,
    set_states,
    shared_states,
    states,
)

SAMPLE, COLLATION, STREAM, START, SAMPLER = 1, 2, 3, 4, 5
_BLOCK = 256  # positions whose words are computed at once: for a single one NumPy costs as much
_HALF = 0xFFFFFFFF

# What these draw, they draw when the first index is asked for, or from a generator of their own.
_QUIET = (SequentialSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler, DistributedSampler)


def seed_words(seed: int, domain: int, lane: int, position: int) -> Words:
    """The four words of the module's docstring."""
    number, at = divmod(position, _BLOCK)
    return _block(seed, domain, lane, number)[at]


@lru_cache(64)
def _block(seed: int, domain: int, lane: int, number: int) -> list[Words]:
    n = np.arange(number * _BLOCK, (number + 1) * _BLOCK, dtype=np.uint64)
    counter = (n & np.uint64(_HALF), n >> np.uint64(32), np.full_like(n, lane), np.full_like(n, domain))
    key = (np.full_like(n, seed & _HALF), np.full_like(n, seed >> 32 & _HALF))
    return list(zip(*(w.tolist() for w in philox4x32(counter, key)), strict=True))


@dataclass(frozen=True, slots=True)
class Placed:
    """What a sampler gave, an index or a batch of them, with where in which epoch it stands. It goes to workers."""

    index: Any
    seed: int
    position: int


class EpochOrder:
    """One epoch's indices. However far workers run ahead, the script sees generators as if none did.

    The first index is drawn on the generators as they are, as PyTorch does. Later ones are drawn in private: the
    process's own generators are seeded for the call and put back; the sampler's and loader's `generator` goes on from
    its private state, which the script gets to see when the batch is delivered, unless it has drawn from it itself.
    """

    def __init__(self, indices: Iterator[Any], seed: int, loader: DataLoader[Any], sources: Sequence[Source]) -> None:
        self.indices = indices
        self.seed = seed
        self.delivered = 0
        self.ended = False
        self._batched = loader.batch_sampler is not None and loader._dataset_kind == _DatasetKind.Map
        self._generators = generators_of(loader)
        self._sources = () if _is_quiet(loader) else sources
        self._calls = 0
        self._position = 0
        self._exhausted = False
        self._held: list[Placed] = []
        self._draw_first()

    def _draw_first(self) -> None:
        try:
            self._held.append(self._placed(next(self.indices)))
        except StopIteration:
            self._exhausted = True
        self._private = self._published = states(self._generators)
        self._waiting: deque[list[Any]] = deque([self._private])

    def next(self) -> Placed:
        """The next index; raises StopIteration after the last."""
        if self._held:
            return self._held.pop()
        if self._exhausted:
            raise StopIteration
        return self._in_private()

    def _in_private(self) -> Placed:
        seen, shared = states(self._generators), shared_states(self._sources)
        set_states(self._generators, self._private)
        if self._sources:
            seed_all(self._sources, seed_words(self.seed, SAMPLER, 0, self._calls))
        try:
            return self._placed(next(self.indices))
        except StopIteration:
            self._exhausted = True
            raise
        finally:
            self._private = states(self._generators)
            self._waiting.append(self._private)
            set_states(self._generators, seen)
            set_shared_states(self._sources, shared)

    def _placed(self, index: Any) -> Placed:
        if self._batched and not hasattr(index, "__len__"):
            index = list(index)
        placed = Placed(index, self.seed, self._position)
        self._position += len(index) if self._batched else 1
        self._calls += 1
        return placed

    def deliver(self) -> None:
        """The script gets the next batch."""
        self.delivered += 1
        self._publish()

    def end(self) -> None:
        """The script is told that there is no more."""
        if not self.ended:
            self.ended = True
            self._publish()

    def _publish(self) -> None:
        if self._generators and self._waiting:
            state = self._waiting.popleft()
            if same_state(states(self._generators), self._published):
                set_states(self._generators, state)
                self._published = state

    def skip(self, batches: int) -> None:
        """Goes on as if so many had been delivered; raises StopIteration where there are fewer."""
        for _ in range(batches):
            self.next()
            self.deliver()


def seed_all(sources: Sequence[Source], words: Words) -> None:
    """Seeds every source."""
    for source in sources:
        source.seed(words)


def samplers_of(loader: DataLoader[Any]) -> list[Any]:
    """The loader's samplers and those inside them, each once, in a fixed order."""
    found: list[Any] = []
    waiting = [loader.batch_sampler, loader.sampler]
    while waiting:
        sampler = waiting.pop(0)
        if sampler is None or any(sampler is s for s in found):
            continue
        found.append(sampler)
        waiting += [v for v in vars(sampler).values() if isinstance(v, Sampler)] if hasattr(sampler, "__dict__") else []
    return found


def generators_of(loader: DataLoader[Any]) -> list[Generator]:
    """The generators that the loader and its samplers hold, except the process's own."""
    found: list[Generator] = []
    for holder in (loader, *samplers_of(loader)):
        for value in vars(holder).values() if hasattr(holder, "__dict__") else ():
            if isinstance(value, KINDS) and not is_shared(value) and not any(value is g for g in found):
                found.append(value)
    return found


def _is_quiet(loader: DataLoader[Any]) -> bool:
    """Whether only the first index is drawn from the process's own generators."""
    if loader._dataset_kind != _DatasetKind.Map:  # an iterable dataset has no indices
        return True
    outer, inner = loader.batch_sampler, loader.sampler
    if outer is not None and type(outer) is not BatchSampler:
        return False
    innermost = outer.sampler if outer is not None else inner
    return type(innermost) in _QUIET and not is_shared(getattr(innermost, "generator", None))
