"""Which inputs of a plan may lie in the memory of which outputs: read off the finished launches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from isobit.compiler.lower import Launch
from isobit.ir.expr import Const, Expr, Op
from isobit.ir.kernel import ContractionCall, Fetch, Loop, NestCall, Place, Point, Store
from isobit.ir.layout import Layout


@dataclass(frozen=True)
class Access:
    """Launch `launch` touches a slot in stage `stage`, one element per point at `place` on the axes longer than one.

    `place` is None where elements are touched that the point does not own: factors of a contraction, or reads whose
    position depends on data or on a bound.
    """

    launch: int
    stage: int
    place: Place | None


def in_place_pairs(
    launches: Sequence[Launch], inputs: Sequence[Layout], outputs: Sequence[Layout]
) -> frozenset[tuple[int, int]]:
    """The pairs (input, output) of one layout that may share their memory, element on element.

    An output may overwrite an input if no launch reads the input after the first one that writes the output, and
    that one reads each element only where it writes it, no later than it writes it. Kernels read all that a point
    needs before they write it, so other pairs may share memory at the same time.
    """
    reads: dict[int, list[Access]] = defaultdict(list)
    writes: dict[int, list[Access]] = defaultdict(list)
    for k, launch in enumerate(launches):
        _collect(k, launch.call, reads, writes)
    return frozenset(
        (i, o)
        for o, target in enumerate(outputs)
        for i, source in enumerate(inputs)
        if source == target and _may_overwrite(reads[i], writes[len(inputs) + o])
    )


def _may_overwrite(reads: Iterable[Access], writes: Sequence[Access]) -> bool:
    if not writes:
        return True
    first = writes[0]
    return all(
        r.launch < first.launch
        or (len(writes) == 1 and r.launch == first.launch and r.stage <= first.stage and _same(r.place, first.place))
        for r in reads
    )


def _same(a: Place | None, b: Place | None) -> bool:
    return a is not None and b is not None and (a.offset, a.strides) == (b.offset, b.strides)


Accesses = dict[int, list[Access]]


def _collect(k: int, call: NestCall | ContractionCall, reads: Accesses, writes: Accesses) -> None:
    """Files the accesses of launch `k` by slot."""
    if isinstance(call, ContractionCall):
        for factor in (call.lhs, call.rhs):
            reads[factor.slot].append(Access(k, 0, None))
        sizes = call.sizes[: sum(call.contraction.n_axes[:3])]
        _collect_stage(k, 0, call.contraction.stores, (), sizes, call.places, reads, writes)
        return
    for number, stage in enumerate(call.nest.stages):
        _collect_stage(k, number, stage.stores, _values(stage), call.sizes, call.places, reads, writes)


def _values(stage: Loop | Point) -> list[Expr]:
    if isinstance(stage, Point):
        return [value for _, value in stage.lets]
    return [e for f in stage.folds for e in (f.value, f.aux) if e is not None]


def _collect_stage(
    k: int, stage: int, stores: Sequence[Store], values: Sequence[Expr], sizes: Sequence[int],
    places: Sequence[Place], reads: Accesses, writes: Accesses,
) -> None:  # fmt: skip
    for fetch in _fetches([*values, *(s.value for s in stores)]):
        place = places[fetch.operand]
        moves = bool(fetch.guards or fetch.dynamic)
        reads[place.slot].append(Access(k, stage, None if moves else _on(place, sizes)))
    for store in stores:
        if not store.row:
            place = places[store.target]
            writes[place.slot].append(Access(k, stage, _on(place, sizes)))


def _on(place: Place, sizes: Sequence[int]) -> Place:
    strides = tuple(s for s, n in zip(place.strides, sizes, strict=True) if n != 1)
    return Place(place.slot, place.offset, strides)


def _fetches(roots: Iterable[Expr]) -> Iterable[Fetch]:
    seen: set[int] = set()
    todo = list(roots)
    while todo:
        e = todo.pop()
        if id(e) in seen or isinstance(e, Const):
            continue
        seen.add(id(e))
        if isinstance(e, Fetch):
            yield e
            todo += [position for position, _ in e.dynamic]
        elif isinstance(e, Op):
            todo += e.args
