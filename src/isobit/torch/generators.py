"""The states of random generators: the three that a process has for everybody, and those that belong to one object."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import torch

Words = tuple[int, int, int, int]
Generator = torch.Generator | np.random.Generator | np.random.RandomState | random.Random
KINDS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)


class Source(Protocol):
    """Random numbers that belong to the whole process. `name` stands in checkpoints."""

    name: str

    def state(self) -> Any:
        """The state, as plain values and arrays."""

    def set_state(self, state: Any) -> None:
        """Goes back to what `state` gave."""

    def seed(self, words: Words) -> None:
        """Begins anew from 128 bits."""


class TorchSource:
    """PyTorch's default CPU generator. `torch.manual_seed` would visit every other device, too."""

    name = "torch"

    def state(self) -> Any:
        return torch.default_generator.get_state()

    def set_state(self, state: Any) -> None:
        torch.default_generator.set_state(state)

    def seed(self, words: Words) -> None:
        torch.default_generator.manual_seed(words[0] | words[1] << 32)


class NumpySource:
    """NumPy's legacy functions, `np.random.rand` and its like."""

    name = "numpy"

    def state(self) -> Any:
        return np.random.get_state(legacy=False)

    def set_state(self, state: Any) -> None:
        np.random.set_state(state)

    def seed(self, words: Words) -> None:
        np.random.seed(words[2])


class PythonSource:
    """The functions of the module `random`."""

    name = "random"

    def state(self) -> Any:
        return random.getstate()

    def set_state(self, state: Any) -> None:
        random.setstate(state)

    def seed(self, words: Words) -> None:
        random.seed(words[3])


SOURCES: tuple[Source, ...] = (TorchSource(), NumpySource(), PythonSource())


def shared_states(sources: Iterable[Source]) -> dict[str, Any]:
    """The states of `sources`, by name."""
    return {source.name: source.state() for source in sources}


def set_shared_states(sources: Iterable[Source], states: dict[str, Any]) -> None:
    """The inverse of `shared_states`."""
    for source in sources:
        source.set_state(states[source.name])


def generator_state(generator: Generator) -> Any:
    """The state of one generator, as plain values and arrays."""
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    return generator.get_state(legacy=False) if isinstance(generator, np.random.RandomState) else generator.getstate()


def set_generator_state(generator: Generator, state: Any) -> None:
    """The inverse of `generator_state`."""
    if isinstance(generator, torch.Generator):
        generator.set_state(state)
    elif isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(state)
    else:
        generator.setstate(state)


def states(generators: Sequence[Generator]) -> list[Any]:
    """The states of several generators."""
    return [generator_state(g) for g in generators]


def set_states(generators: Sequence[Generator], values: Sequence[Any]) -> None:
    """The inverse of `states`."""
    for generator, value in zip(generators, values, strict=True):
        set_generator_state(generator, value)


def same_state(a: Any, b: Any) -> bool:
    """Whether two states are one, without PyTorch's operators."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and np.array_equal(a.numpy(), b.numpy())
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same_state(v, b[k]) for k, v in a.items())
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(same_state(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def is_shared(generator: object) -> bool:
    """Whether this object is behind one of SOURCES."""
    return any(generator is g for g in (torch.default_generator, random._inst, np.random.mtrand._rand))
