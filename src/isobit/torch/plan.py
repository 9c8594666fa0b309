"""Plans: what to run for one operator, argument layouts and attributes. Made once, then looked up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import addressof, c_double
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from isobit.arithmetic.dtypes import DType
from isobit.ir.graph import Graph, Value
from isobit.ir.layout import Layout, contiguous_strides
from isobit.operators.registry import recast
from isobit.runtime.engine import Engine, Executable
from isobit.torch.dtypes import TO_TORCH, is_plain, layout_of
from isobit.torch.lowering import (
    is_run_time,
    map_tensors,
    number_input,
    write_statement,
)
from isobit.torch.memory import OVERLAPS_ITSELF, fresh_strides, is_elementwise, overlaps_itself, span
from isobit.torch.signature import Kind, Signature, Slot
from isobit.torch.table import Result, Statement

empty = torch._C._dynamo.guards._empty_strided_cpu  # torch.empty_strided without the dispatcher: 1 µs less

Fresh = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]


@dataclass(frozen=True)
class Target:
    """A tensor the call overwrites. `direct`: the program may write it while it reads the inputs in `shared`."""

    layout: Layout
    direct: bool
    shared: frozenset[int]

    @property
    def span(self) -> int:
        return span(self.layout)


class Plan:
    """A compiled call. `targets` are the overwritten tensors, in the order of the program's last outputs."""

    __slots__ = ("executable", "fresh", "spans", "targets")

    def __init__(
        self, executable: Executable, fresh: Sequence[Fresh | None], targets: Sequence[Target], inputs: Sequence[Layout]
    ) -> None:
        self.executable = executable
        self.fresh = tuple(fresh)
        self.targets = tuple(targets)
        self.spans = tuple(map(span, inputs))

    def run(self, tensors: Sequence[Any], numbers: Sequence[float], written: Sequence[Any] = ()) -> list[Any]:
        """Runs on `tensors` and `numbers`; overwrites `written` and gives the fresh results (None where absent)."""
        inputs = [t.data_ptr() for t in tensors]
        if numbers:
            cells = (c_double * len(numbers))(*numbers)
            base = addressof(cells)
            inputs += range(base, base + 8 * len(numbers), 8)
        results = [empty(*f) if f is not None else None for f in self.fresh]
        outputs = [r.data_ptr() for r in results if r is not None]
        if written:
            self._overwrite(inputs, len(tensors), outputs, written)
        else:
            self.executable.run(inputs, outputs)
        return results

    def _overwrite(self, inputs: list[int], n_tensors: int, outputs: list[int], written: Sequence[Any]) -> None:
        places = [self._place(t, w, inputs[:n_tensors]) for t, w in zip(self.targets, written, strict=True)]
        self.executable.run(inputs, outputs + [p.data_ptr() for p in places])
        for place, w in zip(places, written, strict=True):
            if place is not w:
                copy_bits(place, w)

    def _place(self, target: Target, written: Any, inputs: list[int]) -> Any:
        """`written` itself where that is safe, else memory to be copied from."""
        low = written.data_ptr()
        high = low + target.span
        for k, (address, length) in enumerate(zip(inputs, self.spans, strict=False)):
            if address < high and low < address + length:
                if not (target.direct and address == low and k in target.shared):
                    return empty(target.layout.shape, target.layout.strides, written.dtype)
        return written


def copy_bits(source: torch.Tensor, target: torch.Tensor) -> None:
    """target's elements become source's; both have one dtype and one shape, so that only bits move."""
    torch.ops.aten.copy_.default(target, source)


@dataclass(frozen=True)
class Collected:
    """A call's arguments as a plan takes them."""

    tensors: list[Any]
    numbers: list[float]


def collect(values: Sequence[Any], run_time: Sequence[bool]) -> Collected:
    """Tensors in slot order, lists flattened; then run-time numbers in slot order."""
    tensors: list[Any] = []
    numbers: list[float] = []
    for value, is_number in zip(values, run_time, strict=True):
        if is_number:
            numbers.append(value)
        elif isinstance(value, torch.Tensor):
            tensors.append(value)
        elif type(value) in (list, tuple):
            tensors += [t for t in value if isinstance(t, torch.Tensor)]
    return Collected(tensors, numbers)


def shapes_of(full: Signature, values: Sequence[Any]) -> tuple[list[Any], tuple[Any, ...]]:
    """The arguments without data, and the results that PyTorch's shape function gives for them on the CPU.

    PyTorch's own errors about arguments that do not fit come from here.
    """
    with _modes_allowed(), FakeTensorMode():
        fakes = [map_tensors(_without_data, v) for v in values]
        if not full.returns:
            return fakes, ()
        args, kwargs = full.unbind(as_tensors(fakes, full.slots))
        result = full.overload(*args, **kwargs)
    return fakes, tuple(result) if isinstance(result, (tuple, list)) else (result,)


@contextmanager
def _modes_allowed() -> Iterator[None]:
    """Lets dispatch modes act inside code that has switched them off, such as PyTorch's own tracer."""
    excluded = torch._C._dispatch_tls_local_exclude_set()
    for key in (torch._C.DispatchKey.Python, torch._C.DispatchKey.PythonTLSSnapshot):
        excluded = excluded.remove(key)
    with torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), excluded):
        yield


def _without_data(t: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype)


def as_tensors(fakes: Sequence[Any], slots: Sequence[Slot]) -> list[Any]:
    """`fakes` with numbers in tensor slots as tensors that promote as the numbers do."""
    beside = next((m for m in fakes if isinstance(m, torch.Tensor)), None)

    def convert(fake: Any, slot: Slot) -> Any:
        if slot.kind is not Kind.TENSOR or not isinstance(fake, (int, float)):
            return fake
        return torch.empty((), dtype=torch.result_type(beside, fake) if beside is not None else None)

    return [convert(m, s) for m, s in zip(fakes, slots, strict=True)]


class PlanMaker:
    """Writes and compiles the plans of one statement."""

    def __init__(self, engine: Engine, statement: Statement, functional: Signature) -> None:
        self.engine = engine
        self.statement = statement
        self.functional = functional

    def run_time(self, values: Sequence[Any], any_float: bool) -> tuple[bool, ...]:
        """Which slots hold numbers that the program reads when it runs."""
        slots = self.functional.slots
        return tuple(
            is_run_time(s, v, self.statement, any_float) for s, v in zip(slots, values, strict=True)
        )

    def make(
        self, values: Sequence[Any], metas: Sequence[Any], results: Sequence[Any], run_time: Sequence[bool],
        outs: Sequence[Any],
    ) -> tuple[Plan, list[str]]:  # fmt: skip
        """The plan for `values`, and the names of the arguments it overwrites after `outs`.

        `outs` are the existing tensors that take the results, in place of fresh ones.
        """
        graph = Graph(origin=self.functional.name)
        operands, layouts, n_numbers = _inputs(graph, values, run_time)
        result = write_statement(self.statement.build, self.functional, graph, operands, metas, results)
        named = _named_writes(result, dict(zip((s.name for s in self.functional.slots), values, strict=True)))
        pairs = [(v, t) for v, t in zip(result.outputs, outs, strict=bool(outs)) if v is not None]
        pairs += [(v, t) for _, v, t in named]
        new = [] if outs else list(result.outputs)
        fresh = [None if v is None else _fresh(v, m) for v, m in zip(new, results, strict=not outs)]
        moved = [recast(v, layout_of(t).dtype) for v, t in pairs]
        graph.outputs = [v.id for v in (*new, *moved) if v is not None]
        single = len(graph.outputs) == 1
        targets = [_target(graph, v, t, layouts, single) for v, (_, t) in zip(moved, pairs, strict=True)]
        made = [Layout(v.dtype, f[0], f[1]) for v, f in zip(new, fresh, strict=True) if v is not None and f is not None]
        executable = self.engine.compile(
            graph,
            (*layouts, *(Layout(DType.F64, (), ()) for _ in range(n_numbers))),
            (*made, *(t.layout for t in targets)),
        )
        return Plan(executable, fresh, targets, layouts), [n for n, _, _ in named]


def _named_writes(result: Result, arguments: dict[str, Any]) -> list[tuple[str, Value, Any]]:
    """(place, new value, tensor) of what a functional form overwrites; item k of a list is called name#k."""
    found: list[tuple[str, Value, Any]] = []
    for name, value in result.writes.items():
        if isinstance(value, Value):
            found.append((name, value, arguments[name]))
        else:
            items = zip(value, arguments[name], strict=True)
            found += [(f"{name}#{k}", v, t) for k, (v, t) in enumerate(items) if v is not None]
    return found


def _inputs(
    graph: Graph, values: Sequence[Any], run_time: Sequence[bool]
) -> tuple[list[Any], list[Layout], int]:
    """Declares the graph's inputs: tensors first, then run-time numbers, as `collect` orders them."""
    layouts: list[Layout] = []

    def declare(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            layouts.append(layout_of(value))
            return graph.input(layouts[-1].dtype, layouts[-1].shape)
        if type(value) in (list, tuple):
            return type(value)(declare(v) for v in value)
        return value

    operands = [v if r else declare(v) for v, r in zip(values, run_time, strict=True)]
    with_numbers = [number_input(graph) if r else o for o, r in zip(operands, run_time, strict=True)]
    return with_numbers, layouts, sum(run_time)


def _fresh(value: Value, meta: Any) -> Fresh:
    return value.shape, fresh_strides(value.shape, tuple(meta.stride())), TO_TORCH[value.dtype]


def _target(graph: Graph, value: Value, tensor: Any, inputs: Sequence[Layout], single: bool) -> Target:
    layout = layout_of(tensor)
    if overlaps_itself(layout):
        raise RuntimeError(OVERLAPS_ITSELF)
    same = [k for k, given in enumerate(inputs) if given == layout]
    shared = frozenset(k for k in same if single and is_elementwise(graph, k, [value.id]))
    return Target(layout, bool(shared), shared)


__all__ = ["Collected", "Kind", "Plan", "PlanMaker", "collect", "contiguous_strides", "is_plain"]
