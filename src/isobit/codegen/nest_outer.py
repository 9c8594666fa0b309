"""Stages of a nest vectorised across its last outer axis: every lane is an outer point, inner axes are plain loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from isobit.codegen.emit import Builder, Value, Variable, i64
from isobit.codegen.expr import Evaluator
from isobit.codegen.memory import Memory
from isobit.codegen.nest_column import ColumnBlock, column_fold
from isobit.codegen.nest_frame import Launch, NestFrame, advance
from isobit.codegen.nest_plan import BLOCK, FOLD_LANES, Plan, is_blocked, stage_values
from isobit.ir.kernel import Loop, Nest, Point, RowElement, Store

_TRUE = Value("true", "i1")


@dataclass
class _Copy:
    """One vector of outer points on its way through the stages."""

    frame: NestFrame
    point: Evaluator


class OuterNest:
    """Emits the units of work of an "outer" nest: `width` neighbouring points of the last outer axis."""

    def __init__(self, launch: Launch, root: NestFrame, whole: Evaluator) -> None:
        self.launch, self.root, self.whole = launch, root, whole
        self.b: Builder = launch.b
        self.plan: Plan = launch.plan
        self.nest: Nest = launch.nest
        self.axis = self.nest.n_outer - 1

    def unit_sizes(self) -> list[Value]:
        """Extents of the units' index: the outer axes but the last, and the last in units."""
        b, width = self.b, self.plan.width
        last = b.add(self.launch.sizes[self.axis], width - 1)
        return [*self.launch.sizes[: self.axis], b.binary("udiv", last, i64(width))]

    def unit(self, indices: Sequence[Value]) -> None:
        """Whole units side by side; a last one that is cut short vector by vector."""
        b, plan = self.b, self.plan
        start = b.mul(indices[-1], plan.width)
        size = self.launch.sizes[self.axis]
        outer = dict(enumerate(indices[: self.axis]))
        whole = b.compare("sle", b.add(start, plan.width), size)
        b.either(whole, lambda: self._whole(outer, start), lambda: self._rest(outer, start, size))

    def _whole(self, outer: dict[int, Value], start: Value) -> None:
        starts = [self.b.add(start, slot * self.plan.lanes) for slot in range(self.plan.copies)]
        self._stages([self._copy(outer, s, None, slot) for slot, s in enumerate(starts)], outer)

    def _rest(self, outer: dict[int, Value], start: Value, size: Value) -> None:
        b, lanes = self.b, self.plan.lanes
        with b.loop(start, size, lanes) as at:
            rest = b.minimum(b.sub(size, at), i64(lanes))
            self._stages([self._copy(outer, at, rest, 0)], outer)

    def _copy(self, outer: dict[int, Value], start: Value, rest: Value | None, slot: int) -> _Copy:
        b = self.b
        memory = Memory(b, self.plan.lanes, self.launch.dummy, rest)
        indices = {**outer, self.axis: start}
        frame = NestFrame(self.launch, memory, self.root, indices, {}, None, slot * self.plan.lanes)
        frame.settle()
        point = Evaluator(b, frame, self.plan.number, self.whole, lambda e: self.plan.level(e) <= 1)
        return _Copy(frame, point)

    def _stages(self, copies: list[_Copy], outer: dict[int, Value]) -> None:
        low, high = self._bounds(outer)
        for stage in self.nest.stages:
            if isinstance(stage, Point):
                for c in copies:
                    self._point(stage, c)
            else:
                _Pass(self, stage, copies).run(low, high)

    def _bounds(self, outer: dict[int, Value]) -> tuple[Value, Value]:
        """The inner positions: all of them, or a segment's."""
        b, total = self.b, i64(1)
        for n in self.launch.sizes[self.nest.n_outer :]:
            total = b.mul(total, n)
        if self.nest.segment is None:
            return i64(0), total
        low = b.mul(outer[self.nest.segment], self.launch.segment_length)
        return b.minimum(low, total), b.minimum(b.add(low, self.launch.segment_length), total)

    def _point(self, stage: Point, c: _Copy) -> None:
        for temp, value in stage.lets:
            c.frame.temps[temp] = c.point.vector(value)
        values = [c.point.vector(s.value) for s in stage.stores]
        for store, stored in zip(stage.stores, values, strict=True):
            c.frame.memory.store(stored, c.frame.operand(store.target), self.nest.operands[store.target].dtype)


class _Pass:
    """One Loop stage for all copies."""

    def __init__(self, owner: OuterNest, loop: Loop, copies: list[_Copy]) -> None:
        self.b, self.launch, self.plan, self.loop, self.copies = owner.b, owner.launch, owner.plan, loop, copies
        self.nest = owner.nest
        blocked = all(is_blocked(f.kind, f.value.dtype) for f in loop.folds)
        self.by_lanes = self.nest.n_inner == 1 and blocked  # argmax wants positions in order
        self.folds = [column_fold(self.b, f, self.plan.lanes, len(copies), self.by_lanes) for f in loop.folds]
        self.blocked = [f for f in self.folds if isinstance(f, ColumnBlock)]

    def run(self, low: Value, high: Value) -> None:
        b = self.b
        for c in self.copies:
            c.point.prepare(stage_values(self.loop))
        for f in self.folds:
            f.begin(low)
        state = [b.variable(i64(0)) for _ in self.launch.sizes[self.nest.n_outer :]]
        if len(state) == 1:
            state[0].set(low)
        if self.blocked:
            self._blocks(low, high, state)
        else:
            with self._positions(low, high, state) as (indices, position):
                self._add_all(indices, position)
        for copy, c in enumerate(self.copies):
            for f in self.folds:
                c.frame.temps[f.fold.temp] = f.result(copy)

    def _blocks(self, low: Value, high: Value, state: list[Variable]) -> None:
        b = self.b
        only = b.compare("sle", b.sub(high, low), BLOCK)
        with b.loop(low, high, BLOCK) as start:
            end = b.minimum(b.add(start, BLOCK), high)
            count = b.sub(end, start)
            if any(f.fold.kind == "m2" for f in self.blocked):
                self._first_pass(start, end, count, state)
            self._sweep(self.blocked, start, end, state, self._add_all)
            for f in self.blocked:
                aux = [] if f.fold.aux is None else [c.point.vector(f.fold.aux) for c in self.copies]
                f.end_block(count, only, aux)
        many = b.binary("xor", b.binary("and", only, b.compare("slt", low, high)), _TRUE)
        with b.when(many):
            for f in self.blocked:
                f.finish()

    def _sweep(
        self,
        folds: Sequence[ColumnBlock],
        start: Value,
        end: Value,
        state: list[Variable],
        add: Callable[[dict[int, Value], Value], None],
    ) -> None:
        """A block's positions, and the lanes' tree. Lane after lane, each summed in registers, if nothing hinders."""
        b, count = self.b, self.b.sub(end, start)
        if self.by_lanes:
            with b.loop(start, b.minimum(end, b.add(start, FOLD_LANES))) as first:
                for f in folds:
                    f.begin_lane()
                with b.loop(first, end, FOLD_LANES) as position:
                    add({self.nest.n_outer: position}, position)
                for f in folds:
                    f.end_lane(b.sub(first, start))
        else:
            ColumnBlock.clear_lanes(b, folds, count)
            with self._positions(start, end, state) as (indices, position):
                add(indices, position)
        ColumnBlock.fold_lanes(b, folds, count)

    def _first_pass(self, start: Value, end: Value, count: Value, state: list[Variable]) -> None:
        """The means of a block, for m2; the place in the inner axes is kept for the second pass."""
        b = self.b
        twice = [f for f in self.blocked if f.fold.kind == "m2"]
        place = [b.variable(v.get()) for v in state]

        def add(indices: dict[int, Value], position: Value) -> None:
            for copy, c in enumerate(self.copies):
                here, frame = self._here(c, indices, position)
                self._store_all(here, frame, False)
                for f in twice:
                    f.add_plain(here.vector(f.fold.value), copy, position)

        self._sweep(twice, start, end, place, add)
        for f in twice:
            f.end_first_pass(count)

    def _add_all(self, indices: dict[int, Value], position: Value) -> None:
        """The body at one inner position for every copy."""
        for copy, c in enumerate(self.copies):
            here, frame = self._here(c, indices, position)
            pending = self._store_all(here, frame, True)
            values = [here.vector(f.fold.value) for f in self.folds]
            for store, value in pending:
                operand = self.nest.operands[store.target]
                frame.memory.store(value, frame.operand(store.target), operand.dtype)
            for f, x in zip(self.folds, values, strict=True):
                f.add(x, copy, position)

    def _here(self, c: _Copy, indices: dict[int, Value], position: Value) -> tuple[Evaluator, NestFrame]:
        b = self.b
        elements = b.mul(position, self.plan.width) if self.nest.rows else i64(0)
        frame = NestFrame(
            self.launch, c.frame.memory, c.frame, indices, c.frame.temps, b.add(elements, c.frame.lane_offset)
        )
        return Evaluator(b, frame, self.plan.number, c.point), frame

    def _store_all(self, here: Evaluator, frame: NestFrame, operands: bool) -> list[tuple[Store, Value]]:
        """Rows are stored; what goes to operands is returned, to be stored when everything has been read."""
        pending: list[tuple[Store, Value]] = []
        for store in self.loop.stores:
            if store.row:
                dtype = self.nest.rows[store.target]
                value = here.vector(store.value)
                frame.memory.store(value, frame.row(store.target), dtype)
                here.define(RowElement(dtype, store.target), value)
            elif operands:
                pending.append((store, here.vector(store.value)))
        return pending

    @contextmanager
    def _positions(self, low: Value, high: Value, state: list[Variable]) -> Iterator[tuple[dict[int, Value], Value]]:
        """Inner positions low … high in row-major order: yields the axes' indices, and the position.

        `state` holds the indices at `low` and afterwards those at `high`; runs along the last axis are plain loops.
        """
        b, first = self.b, self.nest.n_outer
        sizes = self.launch.sizes[first:]
        if len(sizes) <= 1:
            with b.loop(low, high) as r:
                yield ({first: r} if sizes else {}), r
            return
        at = b.variable(low)
        with b.repeat_while(lambda: b.compare("slt", at.get(), high)):
            fixed = [v.get() for v in state]
            position = at.get()
            run = b.minimum(b.sub(sizes[-1], fixed[-1]), b.sub(high, position))
            with b.loop(0, run) as step:
                last = b.add(fixed[-1], step)
                yield dict(enumerate([*fixed[:-1], last], first)), b.add(position, step)
            at.set(b.add(position, run))
            state[-1].set(b.add(fixed[-1], b.sub(run, 1)))
            advance(b, state, sizes)
