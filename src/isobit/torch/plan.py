"""Plans: what to run for one operator, argument layouts and attributes. Made once, then looked up."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from ctypes import addressof, c_double
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from isobit.arithmetic.dtypes import DType
from isobit.ir.graph import Graph, Value
from isobit.ir.layout import Layout
from isobit.operators.registry import recast
from isobit.runtime.engine import Engine, Executable
from isobit.torch.dtypes import TO_TORCH, Unowned, layout_of
from isobit.torch.lowering import is_run_time, number_input, write_statement
from isobit.torch.memory import OVERLAPS_ITSELF, fresh_strides, overlaps_itself, span
from isobit.torch.signature import Signature
from isobit.torch.table import Result, Statement

# torch.empty_strided without the dispatcher: 1 µs less. The shape and the strides must be plain tuples.
empty: Any = torch._C._dynamo.guards._empty_strided_cpu  # type: ignore[attr-defined]

Fresh = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]
Call = Callable[..., Any]

_MANY = 4  # targets from which on overlaps are looked for all at once


@dataclass(frozen=True)
class Target:
    """A tensor that the program overwrites: number `position` among the call's tensors.

    Inputs in `shared` may lie right under it: the program reads their elements before it overwrites them, and no
    other target is theirs.
    """

    position: int
    layout: Layout
    shared: frozenset[int]
    span: int


def caller(executable: Executable) -> Call:
    """The cheapest way into a program: the addresses of its inputs, then of its outputs, as arguments."""
    direct: Call | None = getattr(executable, "call", None)
    if direct is not None:
        return direct
    n: int = len(executable.inputs)  # type: ignore[attr-defined]
    return lambda *addresses: executable.run(addresses[:n], addresses[n:])


class Plan:
    """A compiled call.

    It takes the call's tensors in schema order, lists flattened: `n_inputs` that are read, then those that are only
    written. The program's outputs are the `fresh` ones (None: a result that does not exist), then the `targets`. Where
    targets share memory the last one stands; with `apart` such a call is Unowned.
    """

    __slots__ = ("apart", "call", "executable", "fresh", "n_inputs", "spans", "targets")

    def __init__(
        self, executable: Executable, fresh: Sequence[Fresh | None], targets: Sequence[Target],
        inputs: Sequence[Layout], apart: bool = False,
    ) -> None:  # fmt: skip
        self.executable = executable
        self.call = caller(executable)
        self.fresh = tuple(fresh)
        self.targets = tuple(targets)
        self.spans = tuple(map(span, inputs))
        self.n_inputs = len(inputs)
        self.apart = apart

    def run(self, tensors: Sequence[Any], numbers: Sequence[float]) -> list[Any]:
        """Runs; gives the fresh results, or the overwritten tensors where there are none."""
        addresses = [t.data_ptr() for t in tensors]
        if self.targets:
            return self._overwrite(tensors, numbers, addresses)
        results = [empty(*f) if f is not None else None for f in self.fresh]
        outputs = [r.data_ptr() for r in results if r is not None]
        if numbers:
            cells = (c_double * len(numbers))(*numbers)
            base = addressof(cells)
            self.call(*addresses, *range(base, base + 8 * len(numbers), 8), *outputs)
        else:
            self.call(*addresses, *outputs)
        return results

    def _overwrite(self, tensors: Sequence[Any], numbers: Sequence[float], addresses: list[int]) -> list[Any]:
        targets = [addresses[t.position] for t in self.targets]
        del addresses[self.n_inputs :]
        moved: list[tuple[Any, Any]] = []
        many = len(self.targets) > _MANY and self._all_apart(targets, addresses)
        covered = set() if many else self._covered(targets)
        if covered and self.apart:
            raise Unowned("two of the tensors to be overwritten share memory")
        for k, t in enumerate(() if many else self.targets):
            if k in covered or self._is_in_the_way(t, targets[k], addresses):
                place = empty(t.layout.shape, t.layout.strides, tensors[t.position].dtype)
                moved.append((place, tensors[t.position]))
                targets[k] = place.data_ptr()
        results = [empty(*f) if f is not None else None for f in self.fresh]
        outputs = [r.data_ptr() for r in results if r is not None]
        cells = (c_double * len(numbers))(*numbers)
        base = addressof(cells)
        self.call(*addresses, *range(base, base + 8 * len(numbers), 8), *outputs, *targets)
        for place, tensor in moved:
            copy_bits(place, tensor)
        return results or [tensors[t.position] for t in self.targets]

    def _all_apart(self, targets: list[int], inputs: list[int]) -> bool:
        """Whether no two tensors overlap, but for inputs right under a target that may lie there. One sort, where
        comparing each target with each input would cost more than an optimizer's step.
        """
        at: dict[int, list[int]] = {}
        ends: dict[int, int] = {}
        taken: set[int] = set()
        for k, (address, length) in enumerate(zip(inputs, self.spans, strict=True)):
            if length:
                at.setdefault(address, []).append(k)
                ends[address] = max(ends.get(address, 0), address + length)
        for target, address in zip(self.targets, targets, strict=True):
            if target.span:
                if address in taken or any(k not in target.shared for k in at.get(address, ())):
                    return False
                taken.add(address)
                ends[address] = max(ends.get(address, 0), address + target.span)
        order = sorted(ends)
        return all(ends[a] <= b for a, b in pairwise(order))

    def _covered(self, targets: list[int]) -> set[int]:
        """The targets that overlap with an earlier one."""
        found: set[int] = set()
        for k in range(1, len(targets)):
            low, length = targets[k], self.targets[k].span
            for t, address in zip(self.targets[:k], targets, strict=False):
                if low < address + t.span and address < low + length:
                    found.add(k)
        return found

    def _is_in_the_way(self, target: Target, low: int, inputs: list[int]) -> bool:
        """Whether an input lies where `target`, at address `low`, is to be written, and not safely right under it."""
        high = low + target.span
        spans, shared = self.spans, target.shared
        for k, address in enumerate(inputs):
            if address == low:
                if k not in shared and target.span and spans[k]:
                    return True
            elif address < high and low < address + spans[k]:
                return True
        return False


def copy_bits(source: torch.Tensor, target: torch.Tensor) -> None:
    """target's elements become source's; both have one dtype and one shape, so that only bits move."""
    torch.ops.aten.copy_.default(target, source)


class PlanMaker:
    """Writes and compiles the plans of one statement."""

    def __init__(self, engine: Engine, statement: Statement, functional: Signature) -> None:
        self.engine = engine
        self.statement = statement
        self.functional = functional

    def run_time(self, values: Sequence[Any], given: Container[str], any_float: bool) -> tuple[bool, ...]:
        """Which slots hold numbers that the program reads when it runs: none but those `given` with the call."""
        slots = zip(self.functional.slots, values, strict=True)
        return tuple(s.name in given and is_run_time(s, v, self.statement, any_float) for s, v in slots)

    def make(
        self, values: Sequence[Any], fakes: Sequence[Any], results: Sequence[Any], run_time: Sequence[bool],
        outs: Sequence[tuple[int, torch.Tensor]],
    ) -> Plan:  # fmt: skip
        """The plan for `values`. `outs` are (position, tensor) that take the results, in place of fresh tensors."""
        graph = Graph(origin=self.functional.name)
        operands, layouts, n_numbers = _inputs(graph, values, run_time)
        result = write_statement(self.statement.build, self.functional, graph, operands, fakes, results)
        pairs = [(v, p, t) for v, (p, t) in zip(result.outputs, outs, strict=bool(outs)) if v is not None]
        pairs += self._mutated(result, values)
        new = [] if outs else list(result.outputs)
        fresh = [None if v is None else _fresh(v, m) for v, m in zip(new, results, strict=not outs)]
        moved = [recast(v, layout_of(t).dtype) for v, _, t in pairs]
        kept = [v for v in new if v is not None] + moved
        graph.outputs = [v.id for v in kept]
        into = [_writable(layout_of(t)) for _, _, t in pairs]
        made = [Layout(v.dtype, f[0], f[1]) for v, f in zip(new, fresh, strict=True) if v is not None and f is not None]
        executable = self.engine.compile(
            graph,
            (*layouts, *(Layout(DType.F64, (), ()) for _ in range(n_numbers))),
            (*made, *into),
        )
        positions = [p for _, p, _ in pairs]
        under = _shared(executable, len(made), positions)
        targets = [Target(p, x, u, span(x)) for p, x, u in zip(positions, into, under, strict=True)]
        return Plan(executable, fresh, targets, layouts, self.statement.own)

    def _mutated(self, result: Result, values: Sequence[Any]) -> list[tuple[Value, int, torch.Tensor]]:
        """(new value, position, tensor) of the arguments that the functional form overwrites."""
        found, position = [], 0
        for slot, value in zip(self.functional.slots, values, strict=True):
            items = value if type(value) in (list, tuple) else [value]
            new = result.writes.get(slot.name, ())
            news = [new] if isinstance(new, Value) else list(new)
            for k, t in enumerate(items):
                if isinstance(t, torch.Tensor):
                    found += [(news[k], position, t)] if news else []
                    position += 1
        return [(v, p, t) for v, p, t in found if v is not None]


def _shared(executable: Executable, n_fresh: int, positions: Sequence[int]) -> list[frozenset[int]]:
    """For the target at each of the positions the inputs that may lie right under it, other targets excepted."""
    under: list[set[int]] = [set() for _ in positions]
    overwritten = set(positions)
    for k, o in executable.in_place:
        if o >= n_fresh and (k not in overwritten or positions[o - n_fresh] == k):
            under[o - n_fresh].add(k)
    return list(map(frozenset, under))


def _inputs(graph: Graph, values: Sequence[Any], run_time: Sequence[bool]) -> tuple[list[Any], list[Layout], int]:
    """Declares the graph's inputs, the tensors first, then the run-time numbers."""
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


def _fresh(value: Value, fake: Any) -> Fresh:
    return value.shape, fresh_strides(value.shape, tuple(fake.stride())), TO_TORCH[value.dtype]


def _writable(layout: Layout) -> Layout:
    if overlaps_itself(layout):
        raise RuntimeError(OVERLAPS_ITSELF)
    return layout
