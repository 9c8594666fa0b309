"""BLAKE3 digests of an optimizer's parameters: before its first step, after every so many, and at its end."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from weakref import ref

import torch
from torch.optim.optimizer import Optimizer

from isobit.torch.fingerprint import blake3_digest


def parameters(optimizer: Optimizer) -> list[torch.Tensor]:
    """All parameters of the optimizer, in the order of its groups."""
    return [p for group in optimizer.param_groups for p in group["params"]]


@dataclass
class _Watched:
    """One optimizer: its number, its steps, those that the last digest was taken after, and its parameters."""

    number: int
    steps: int = 0
    digested: int = 0
    groups: int = 0
    parameters: tuple[ref[torch.Tensor], ...] = ()


class LastDigests:
    """Says the digest of an optimizer's parameters after every `every` steps of it, and when the optimizer or the run
    ends, whichever comes first. Keeps nothing alive: an optimizer whose end is seen too late has no last digest.
    """

    def __init__(self, every: int, reporting: Callable[[], bool], say: Callable[[int, str], None]) -> None:
        self._every = every
        self._reporting = reporting
        self._say = say
        self._watched: dict[ref[Optimizer], _Watched] = {}

    def first(self, optimizer: Optimizer, number: int) -> None:
        """An optimizer is about to make its first step: say the digest of what its parameters were before."""
        self._take(_Watched(number, parameters=tuple(map(weakref.ref, parameters(optimizer)))))

    def stepped(self, optimizer: Optimizer, number: int) -> None:
        """An optimizer has made a step."""
        key = ref(optimizer, self._ended)
        watched = self._watched.get(key)
        if watched is None:
            watched = self._watched.setdefault(key, _Watched(number))
        watched.steps += 1
        if watched.groups != len(optimizer.param_groups):
            watched.groups = len(optimizer.param_groups)
            watched.parameters = tuple(map(weakref.ref, parameters(optimizer)))
        if watched.steps % self._every == 0:
            self._take(watched)

    def steps(self, optimizer: Optimizer) -> int:
        """How many steps an optimizer has made."""
        watched = self._watched.get(ref(optimizer))
        return watched.steps if watched is not None else 0

    def close(self) -> None:
        """The run ends: say the digests of all that have made steps since their last."""
        for watched in [*self._watched.values()]:
            self._end(watched)
        self._watched.clear()

    def _ended(self, optimizer: ref[Optimizer]) -> None:
        """The optimizer is about to go; its parameters are still there, unless a cycle holds all of them."""
        watched = self._watched.pop(optimizer, None)
        if watched is not None:
            self._end(watched)

    def _end(self, watched: _Watched) -> None:
        if watched.digested < watched.steps and self._reporting():
            self._take(watched)

    def _take(self, watched: _Watched) -> None:
        held = [reference() for reference in watched.parameters]
        tensors = [tensor for tensor in held if tensor is not None]
        if len(tensors) < len(held):
            return
        try:
            with torch._C.DisableTorchFunction():
                digest = blake3_digest(tensors)
        except (TypeError, RuntimeError):
            return  # the digest of the step, over the same tensors, has had a note
        watched.digested = watched.steps
        self._say(watched.number, digest)
