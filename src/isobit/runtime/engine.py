"""From a graph and the layouts of its tensors to something that runs on addresses."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from isobit.ir.graph import Graph
from isobit.ir.interpreter import interpret
from isobit.ir.layout import Layout

__all__ = ["Engine", "Executable", "Layout", "ReferenceExecutable"]


class Executable(Protocol):
    """Runs on the addresses of tensors that have the layouts it was made for."""

    def run(self, inputs: Sequence[int], outputs: Sequence[int]) -> None: ...


@dataclass(frozen=True)
class ReferenceExecutable:
    """The interpreter behind the interface of compiled programs: slow, and right by definition."""

    graph: Graph
    inputs: tuple[Layout, ...]
    outputs: tuple[Layout, ...]

    def run(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        arrays = [_view(a, lay).copy() for a, lay in zip(inputs, self.inputs, strict=True)]
        for result, address, layout in zip(interpret(self.graph, arrays), outputs, self.outputs, strict=True):
            _view(address, layout)[...] = result


def _view(address: int, layout: Layout) -> np.ndarray[Any, Any]:
    dtype = layout.dtype.numpy
    if layout.size == 0:
        return np.empty(layout.shape, dtype)
    span = 1 + sum((n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True))
    raw = (ctypes.c_char * (span * dtype.itemsize)).from_address(address)
    flat = np.frombuffer(raw, dtype)
    byte_strides = tuple(s * dtype.itemsize for s in layout.strides)
    return np.lib.stride_tricks.as_strided(flat, layout.shape, byte_strides)


class Engine:
    """Compiles graphs for one target and number of threads."""

    def __init__(self, options: Any = None) -> None:
        self.options = options

    def compile(self, graph: Graph, inputs: tuple[Layout, ...], outputs: tuple[Layout, ...]) -> Executable:
        """A program for tensors that lie in memory as `inputs` and `outputs` say."""
        return ReferenceExecutable(graph, inputs, outputs)
