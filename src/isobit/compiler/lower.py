"""Groups → kernel calls: order and merge the axes, choose the vector axis, cut long runs into segments."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from isobit.compiler.fuse import Group, cost
from isobit.compiler.members import GroupBody
from isobit.compiler.operands import OperandTable, Reference, Run, extent, linear, merge, operand, place
from isobit.compiler.simplify import Program
from isobit.compiler.storage import Storage
from isobit.ir.expr import Axis
from isobit.ir.kernel import ContractionCall, Fetch, Fold, Loop, Nest, NestCall, Point, Store, Temp

SEGMENT = 16384
"""Elements of a segment of a long run: 1024·2^j, as ARITHMETIC.md §3 allows."""
SERIAL_WORK = 32768
"""Instructions below which a launch is not worth a second thread."""


@dataclass(frozen=True)
class Launch:
    """One kernel call; `parallel` says whether it is worth more than one thread."""

    call: NestCall | ContractionCall
    parallel: bool


@dataclass(frozen=True)
class Context:
    """What lowering a group needs to know."""

    p: Program
    storage: dict[int, Storage]
    stored: set[int]
    arena: int
    workspace: int

    def body(self, group: Group) -> GroupBody:
        return GroupBody(self.p, group, self.storage, self.stored)


@dataclass(frozen=True)
class Lowered:
    """The launches of one group and the bytes of shared workspace they use between them."""

    launches: tuple[Launch, ...]
    workspace: int = 0


def lower_nest(group: Group, c: Context) -> Lowered:
    """A nest group as one launch, or two if its run is cut into segments; none if nothing is to be computed."""
    body = c.body(group)
    stages = body.stages()
    if any(a.extent == 0 for a in group.outer) or not stages:
        return Lowered(())
    if group.inner is None:
        if any(a.extent == 0 for a in group.axes):
            return Lowered(())
        return Lowered((_pointwise(body, stages),))
    if group.big:
        segmented = _segmented(body, stages, c)
        if segmented is not None:
            return segmented
    return Lowered((_rows(body, stages),))


def _pointwise(body: GroupBody, stages: tuple[Loop | Point, ...]) -> Launch:
    primary = body.table.references[_first_store(stages)]
    order = sorted(body.group.axes, key=lambda a: -abs(primary.stride(a)))
    runs = merge(order, body.table) or [()]
    return _launch(body, stages, runs[:-1], runs[-1:], "inner")


def _first_store(stages: tuple[Loop | Point, ...]) -> int:
    return next(s.target for stage in stages for s in stage.stores if not getattr(s, "row", False))


def _rows(body: GroupBody, stages: tuple[Loop | Point, ...]) -> Launch:
    group = body.group
    assert group.inner is not None
    inner = merge(group.inner, body.table) or [()]
    dominant = _dominant(body.table, group)
    order = sorted(group.outer, key=lambda a: -abs(dominant.stride(a)))
    outer = merge(order, body.table)
    vector = _vector_axis(body.table, outer, inner)
    if vector == "outer":
        outer = _wide_last(outer) or [()]
    return _launch(body, stages, outer, inner, vector)


def _wide_last(outer: list[Run]) -> list[Run]:
    """The axis across lanes should fill a vector, even if its elements then lie apart in memory."""
    if not outer or extent(outer[-1]) >= 8:
        return outer
    widest = max(range(len(outer)), key=lambda k: extent(outer[k]))
    if extent(outer[widest]) < 8:
        return outer
    return [run for k, run in enumerate(outer) if k != widest] + [outer[widest]]


def _dominant(table: OperandTable, group: Group) -> Reference:
    """The operand that moves most memory: the one that varies over most points."""
    return max(table.references, key=lambda r: math.prod(a.extent for a in group.axes if r.stride(a)))


def _vector_axis(table: OperandTable, outer: list[Run], inner: list[Run]) -> Literal["inner", "outer"]:
    if len(inner) > 1 or extent(inner[0]) <= 1:
        return "outer"
    if not outer:
        return "inner"

    def unit(run: Run) -> int:
        return sum(r.stride(run[-1]) == r.dtype.itemsize for r in table.references) if run else 0

    along, across = unit(inner[0]), unit(outer[-1])
    if extent(inner[0]) < 32 and across and extent(outer[-1]) >= 8:
        return "outer"
    return "inner" if along >= across else "outer"


def _launch(
    body: GroupBody,
    stages: tuple[Loop | Point, ...],
    outer: list[Run],
    inner: list[Run],
    vector: Literal["inner", "outer"],
) -> Launch:
    call = _call(body, stages, outer, inner, vector)
    return Launch(call, _work(stages, call.sizes) > SERIAL_WORK)


def _call(
    body: GroupBody,
    stages: tuple[Loop | Point, ...],
    outer: list[Run],
    inner: list[Run],
    vector: Literal["inner", "outer"],
    segment: int | None = None,
) -> NestCall:
    runs = outer + inner
    known = [k >= len(outer) or (vector == "outer" and k == len(outer) - 1) for k in range(len(runs))]
    places = tuple(place(r, runs) for r in body.table.references)
    linears = [linear(f, runs, known) for f in body.table.linears]
    sizes = tuple(extent(run) for run in runs)
    nest = Nest(
        n_outer=len(outer),
        n_inner=len(inner),
        vector=vector,
        operands=tuple(operand(r, at, known) for r, at in zip(body.table.references, places, strict=True)),
        linears=tuple(f for f, _ in linears),
        guards=tuple(g for g, _ in body.table.guards),
        n_dynamic=len(body.table.dynamics),
        rows=tuple(body.row_dtypes),
        stages=stages,
        segment=segment,
    )
    return NestCall(
        nest,
        sizes,
        places,
        tuple(numbers for _, numbers in linears),
        tuple(bound for _, bound in body.table.guards),
        tuple(body.table.dynamics),
    )


def _work(stages: tuple[Loop | Point, ...], sizes: tuple[int, ...]) -> int:
    loops = [s for s in stages if isinstance(s, Loop)]
    values = [s.value for loop in loops for s in loop.stores] + [f.value for loop in loops for f in loop.folds]
    return math.prod(sizes) * max(sum(cost(v) + 1 for v in values), 1)


def _segmented(body: GroupBody, stages: tuple[Loop | Point, ...], c: Context) -> Lowered | None:
    """Two launches: parts of the run for each segment, then the tree over the parts."""
    group = body.group
    assert group.inner is not None
    inner = merge(group.inner, body.table)
    total = extent(inner[0]) if len(inner) == 1 else 0
    count = -(-total // SEGMENT)
    if count < 2:
        return None
    dominant = _dominant(body.table, group)
    outer = merge(sorted(group.outer, key=lambda a: -abs(dominant.stride(a))), body.table)
    pieces = Axis(count, "s")
    folds = [f for stage in stages for f in getattr(stage, "folds", ())]
    stores = [s for stage in stages if isinstance(stage, Point) for s in stage.stores]
    first, parts, used = _partial_stage(body, stages, folds, outer, pieces, c)
    segment_run: Run = (pieces,)
    call = _call(body, first, [*outer, segment_run], inner, "inner", segment=len(outer))
    sized = replace(call, segment_length=SEGMENT)
    return Lowered((Launch(sized, True), _combine(body, folds, stores, parts, outer, segment_run)), used)


def _partial_stage(
    body: GroupBody,
    stages: tuple[Loop | Point, ...],
    folds: list[Fold],
    outer: list[Run],
    pieces: Axis,
    c: Context,
) -> tuple[tuple[Loop | Point, ...], list[Reference], int]:
    parts: list[Reference] = []
    at = c.workspace
    for f in folds:
        dtype = f.value.dtype
        step = dtype.itemsize
        strides = [(pieces, step)]
        step *= pieces.extent
        for run in reversed(outer):
            strides.append((run[-1], step))
            step *= extent(run)
        parts.append(Reference(dtype, c.arena, at, tuple(strides)))
        at += -(-step // 64) * 64
    first = len(body.table.references)
    body.table.references += parts
    saves = tuple(Store(first + k, Temp(f.value.dtype, f.temp)) for k, f in enumerate(folds))
    loops = tuple(s for s in stages if isinstance(s, Loop))
    return (*loops, Point((), saves)), parts, at - c.workspace


_TREE = {"sum": "tree_sum", "prod": "tree_prod", "m2": "tree_sum"}


def _combine(
    body: GroupBody,
    folds: list[Fold],
    stores: list[Store],
    parts: list[Reference],
    outer: list[Run],
    segments: Run,
) -> Launch:
    second = replace(body, table=OperandTable(), row_dtypes=[])
    second.table.references += parts
    targets = {}
    for s in stores:
        assert isinstance(s.value, Temp)
        targets[s.value.index] = len(second.table.references)
        second.table.references.append(body.table.references[s.target])
    loop = Loop(
        (),
        tuple(Fold(f.temp, _TREE.get(f.kind, f.kind), Fetch(f.value.dtype, k)) for k, f in enumerate(folds)),
    )
    point = Point((), tuple(Store(targets[f.temp], Temp(f.value.dtype, f.temp)) for f in folds if f.temp in targets))
    return replace(_launch(second, (loop, point), outer, [segments], "inner"), parallel=False)
