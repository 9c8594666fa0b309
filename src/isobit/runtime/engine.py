"""From a graph and the layouts of its tensors to something that runs on addresses."""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from isobit.codegen.contraction import contraction_args, contraction_key, contraction_needs, lower_contraction
from isobit.codegen.kernel import KernelSource
from isobit.codegen.nest import nest_kernel, nest_key, row_lanes
from isobit.codegen.target import Target, host_target
from isobit.compiler.pipeline import Plan, compile_graph
from isobit.ir.graph import Graph
from isobit.ir.interpreter import interpret
from isobit.ir.kernel import Contraction, ContractionCall, Nest, NestCall
from isobit.ir.layout import Layout
from isobit.runtime.program import Launch, ProgramSpec, Runtime, RuntimeOptions

__all__ = ["Engine", "EngineOptions", "Executable", "Layout", "ReferenceExecutable"]


class Executable(Protocol):
    """Runs on the addresses of tensors that have the layouts it was made for.

    `in_place`: the pairs (input, output) that may be one tensor; else no output may overlap with anything.
    """

    @property
    def in_place(self) -> frozenset[tuple[int, int]]: ...

    def run(self, inputs: Sequence[int], outputs: Sequence[int]) -> None: ...


@dataclass(frozen=True)
class EngineOptions:
    """`threads` (None: all cores), `cpu` level (None: the best here), `cache_dir` for object code (None: no cache);
    `reference` runs the interpreter instead of compiled code."""

    threads: int | None = None
    cpu: str | None = None
    cache_dir: Path | None = None
    reference: bool = False


class Engine:
    """Compiles graphs for one target and number of threads."""

    def __init__(self, options: EngineOptions | None = None) -> None:
        self.options = options or EngineOptions()
        self.target = host_target(self.options.cpu)
        self.runtime = Runtime(RuntimeOptions(self.options.threads, self.target.level, self.options.cache_dir))
        self._linker = Linker(self.target, self.runtime.threads)

    def compile(self, graph: Graph, inputs: tuple[Layout, ...], outputs: tuple[Layout, ...]) -> Executable:
        """A program for tensors that lie in memory as `inputs` and `outputs` say.

        Raises ValueError if the layouts do not fit the graph.
        """
        if self.options.reference:
            return ReferenceExecutable(graph, inputs, outputs)
        return self.runtime.load(self._linker.link(compile_graph(graph, inputs, outputs)))


class Linker:
    """Plans to program specs: kernels generated once per structure, addresses and scratch filled in."""

    def __init__(self, target: Target, threads: int) -> None:
        self.target, self.threads = target, threads
        self._nests: dict[str, KernelSource] = {}
        self._contractions: dict[str, tuple[KernelSource, ...]] = {}

    def link(self, plan: Plan) -> ProgramSpec:
        """All launches of a plan with their argument arrays, and the sizes of the arena's regions."""
        needs = [self._needs(launch.call) for launch in plan.launches]
        shared = plan.arena_bytes + max([plan.workspace_bytes, *(n.shared for n in needs)])
        shared = -(-shared // 64) * 64
        scratch = (plan.arena_slot, shared, max((n.thread for n in needs), default=0))
        workspace = (plan.arena_slot, plan.arena_bytes)
        launches = [
            Launch(kernel, args, launch.parallel)
            for launch, need in zip(plan.launches, needs, strict=True)
            for kernel, args in self._pieces(launch.call, need, scratch, workspace)
        ]
        parallel = any(launch.parallel for launch in launches)
        memory = (shared, scratch[2])
        return ProgramSpec(tuple(launches), plan.n_inputs, plan.n_outputs, *memory, parallel, plan.in_place)

    def _needs(self, call: NestCall | ContractionCall) -> _Needs:
        if isinstance(call, ContractionCall):
            shared, thread = contraction_needs(call.contraction, call.sizes, self.target, self.threads)
            return _Needs(shared, thread)
        return _row_buffers(call, row_lanes(call.nest, self.target))

    def _pieces(
        self, call: NestCall | ContractionCall, need: _Needs, scratch: tuple[int, int, int], workspace: tuple[int, int]
    ) -> list[tuple[KernelSource, tuple[int, ...]]]:
        if isinstance(call, NestCall):
            filled = replace(call, scratch=scratch, row_offsets=need.rows)
            return [(self._nest(call.nest), filled.args())]
        placed = replace(call, scratch=scratch, workspace=workspace)
        args = contraction_args(placed, self.target, self.threads)
        return list(zip(self._contraction(call.contraction), args, strict=True))

    def _nest(self, nest: Nest) -> KernelSource:
        key = nest_key(nest)
        if key not in self._nests:
            self._nests[key] = nest_kernel(nest, self.target)
        return self._nests[key]

    def _contraction(self, c: Contraction) -> tuple[KernelSource, ...]:
        key = contraction_key(c)
        if key not in self._contractions:
            self._contractions[key] = lower_contraction(c, self.target)
        return self._contractions[key]


@dataclass(frozen=True)
class _Needs:
    """Bytes of shared workspace and of scratch per thread; offsets of a nest's row buffers in the latter."""

    shared: int
    thread: int
    rows: tuple[int, ...] = ()


def _row_buffers(call: NestCall, lanes: int) -> _Needs:
    """Each row buffer holds `lanes` elements for every inner position, aligned for vectors."""
    count = math.prod(call.sizes[call.nest.n_outer :]) * lanes
    offsets, total = [], 0
    for dtype in call.nest.rows:
        offsets.append(total)
        total += -(-count * dtype.itemsize // 64) * 64
    return _Needs(0, total, tuple(offsets))


@dataclass(frozen=True)
class ReferenceExecutable:
    """The interpreter behind the interface of compiled programs: slow, and right by definition."""

    graph: Graph
    inputs: tuple[Layout, ...]
    outputs: tuple[Layout, ...]

    @property
    def in_place(self) -> frozenset[tuple[int, int]]:
        """All pairs of one layout: the inputs are copied first."""
        pairs = itertools.product(enumerate(self.inputs), enumerate(self.outputs))
        return frozenset((i, o) for (i, x), (o, y) in pairs if x == y)

    def run(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Read the inputs, interpret, write the outputs."""
        arrays = [_view(a, lay).copy() for a, lay in zip(inputs, self.inputs, strict=True)]
        for result, address, layout in zip(interpret(self.graph, arrays), outputs, self.outputs, strict=True):
            _view(address, layout)[...] = result


def _view(address: int, layout: Layout) -> np.ndarray[Any, Any]:
    dtype = layout.dtype.numpy
    if layout.size == 0:
        return np.empty(layout.shape, dtype)
    span = 1 + sum((n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True))
    raw = (ctypes.c_char * (span * dtype.itemsize)).from_address(address)
    flat: np.ndarray[Any, Any] = np.frombuffer(memoryview(raw), dtype)
    byte_strides = tuple(s * dtype.itemsize for s in layout.strides)
    return np.lib.stride_tricks.as_strided(flat, layout.shape, byte_strides)
