"""Where in which epoch a loader is, as a checkpoint keeps it, and how a loader goes on from there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _DatasetKind

from isobit.torch.generators import Source, set_shared_states, set_states, shared_states, states
from isobit.torch.loader_order import EpochOrder, generators_of, samplers_of

Loader = DataLoader[Any]


class LoaderPlace:
    """The running iteration of one loader, or the one that a checkpoint broke off.

    An iteration is repeated from the state of all generators before it: the same indices are drawn, those that the
    script had are dropped unfetched (an iterable dataset has none: there they are fetched), and the generators are set
    to what they were when the state was taken.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self._start: dict[str, Any] = {}
        self._running: tuple[ref[Any], EpochOrder] | None = None
        self._broken_off: dict[str, Any] | None = None
        self.skip = 0  # batches that the iterator being made is to leave out
        self.begun = 0

    def begin(
        self, loader: Loader, iterate: Callable[[Loader], Any], order_of: Callable[[Any], EpochOrder | None]
    ) -> Any:
        """Begins an iteration, or goes on with the one that was broken off."""
        resumed, self._broken_off = self._broken_off, None
        if resumed is not None:
            set_shared_states(self._sources, resumed["start"]["shared"])
            _set_own_states(loader, resumed["start"])
        self._start = {"shared": shared_states(self._sources), **_own_states(loader)}
        self.begun += 1
        iterator = self._begun_at(0 if resumed is None else resumed["delivered"], loader, iterate)
        if resumed is not None:
            set_shared_states(self._sources, resumed["shared"])
            set_states(generators_of(loader), resumed["generators"])
        handle = PersistentEpoch(iterator) if loader.persistent_workers else iterator
        order = order_of(iterator)
        self._running = None if order is None else (ref(handle), order)
        return handle

    def _begun_at(self, batches: int, loader: Loader, iterate: Callable[[Loader], Any]) -> Any:
        stream = loader._dataset_kind == _DatasetKind.Iterable
        self.skip = 0 if stream else batches
        try:
            iterator = iterate(loader)
            for _ in range(batches if stream else 0):
                next(iterator)
        except StopIteration:
            raise RuntimeError(f"the loader has fewer than the {batches} batches it had given before") from None
        finally:
            self.skip = 0
        return iterator

    def running(self) -> EpochOrder | None:
        """The order of the iteration that somebody holds and that has not ended."""
        if self._running is None:
            return None
        handle, order = self._running
        return None if handle() is None or order.ended else order

    @property
    def in_the_middle(self) -> bool:
        """Whether the loader's next batch belongs to an iteration that has begun."""
        return self._broken_off is not None or self.running() is not None

    def state(self, loader: Loader) -> dict[str, Any]:
        """All of it, as plain values and tensors."""
        middle = self._broken_off
        order = self.running()
        if middle is None and order is not None:
            middle = {
                "start": self._start,
                "delivered": order.delivered,
                "shared": shared_states(self._sources),
                "generators": states(generators_of(loader)),
                "shape": _shape(loader),
            }
        return {**_own_states(loader), "middle": middle}

    def problem(self, loader: Loader, state: dict[str, Any]) -> str | None:
        """Why this loader cannot go on from `state`, if it cannot."""
        for what, here in (("generators", generators_of(loader)), ("samplers", samplers_of(loader))):
            if len(state[what]) != len(here):
                return f"it had {len(state[what])} {what}, now it has {len(here)}"
        middle = state["middle"]
        for what, here in _shape(loader).items() if middle is not None else ():
            if middle["shape"].get(what) != here:
                return f"saved in the middle of an epoch with {what} {middle['shape'].get(what)}, which is now {here}"
        return None

    def resume(self, loader: Loader, state: dict[str, Any]) -> None:
        """The next iteration goes on where `state` was taken."""
        _set_own_states(loader, state)
        self._broken_off = state["middle"]
        self._running = None


class PersistentEpoch:
    """One epoch of an iterator that its loader keeps for the next: whoever drops this has ended the epoch."""

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator

    def __iter__(self) -> PersistentEpoch:
        return self

    def __next__(self) -> Any:
        return next(self._iterator)

    def __len__(self) -> int:
        return len(self._iterator)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)


def _own_states(loader: Loader) -> dict[str, Any]:
    """The state of what belongs to the loader alone."""
    samplers = [s.state_dict() if hasattr(s, "state_dict") else None for s in samplers_of(loader)]
    return {"generators": states(generators_of(loader)), "samplers": samplers}


def _set_own_states(loader: Loader, state: dict[str, Any]) -> None:
    set_states(generators_of(loader), state["generators"])
    for sampler, held in zip(samplers_of(loader), state["samplers"], strict=True):
        if held is not None:
            sampler.load_state_dict(held)


def _shape(loader: Loader) -> dict[str, Any]:
    """What decides which samples the n-th batch holds."""
    if loader._dataset_kind == _DatasetKind.Iterable:
        return {"batch_size": loader.batch_size, "workers (of an iterable dataset)": max(1, loader.num_workers)}
    kinds = [type(s).__name__ for s in samplers_of(loader)]
    try:
        length = len(loader)
    except TypeError:
        length = None
    return {"samplers": kinds, "batch_size": loader.batch_size, "batches": length}
