"""Stages of a nest vectorised along its one inner axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from isobit.codegen.emit import Builder, Value, i64
from isobit.codegen.expr import Evaluator
from isobit.codegen.memory import Memory
from isobit.codegen.nest_fold import AnyOrderFold, ArgFold, BlockFold, NeighbourFold, RunFold, TruthFold
from isobit.codegen.nest_frame import Launch, NestFrame
from isobit.codegen.nest_plan import BLOCK, CHUNK, Plan, is_blocked, stage_values
from isobit.ir.kernel import Fold, Loop, Nest, Point, RowElement, Store


class InnerNest:
    """Emits the units of work of an "inner" nest: an outer point, or a chunk of its row."""

    def __init__(self, launch: Launch, root: NestFrame, whole: Evaluator) -> None:
        self.launch, self.root, self.whole = launch, root, whole
        self.b: Builder = launch.b
        self.plan: Plan = launch.plan
        self.nest: Nest = launch.nest

    def unit_sizes(self) -> list[Value]:
        """Extents of the units' index: the outer axes, and the chunks of a row that is split."""
        b, sizes = self.b, self.launch.sizes
        out = sizes[: self.nest.n_outer]
        if self.plan.splits_rows:
            out.append(b.binary("lshr", b.add(sizes[-1], CHUNK - 1), i64(CHUNK.bit_length() - 1)))
        return out

    def unit(self, indices: Sequence[Value]) -> None:
        b, nest = self.b, self.nest
        low, high = self._bounds(indices)
        outer = dict(enumerate(indices[: nest.n_outer]))
        frame = NestFrame(self.launch, Memory(b, 1, self.launch.dummy), self.root, outer, {})
        frame.settle()
        point = Evaluator(b, frame, self.plan.number, self.whole, lambda e: self.plan.level(e) <= 1)
        for stage in nest.stages:
            if isinstance(stage, Point):
                self._point(stage, point, frame)
            else:
                point.prepare(stage_values(stage))
                _Pass(self, stage, point, frame).run(low, high)

    def _bounds(self, indices: Sequence[Value]) -> tuple[Value, Value]:
        b, n = self.b, self.launch.sizes[-1]
        if self.plan.splits_rows:
            low = b.mul(indices[-1], CHUNK)
            return low, b.minimum(b.add(low, CHUNK), n)
        if self.nest.segment is None:
            return i64(0), n
        low = b.mul(indices[self.nest.segment], self.launch.segment_length)
        return b.minimum(low, n), b.minimum(b.add(low, self.launch.segment_length), n)

    def _point(self, stage: Point, point: Evaluator, frame: NestFrame) -> None:
        for temp, value in stage.lets:
            frame.temps[temp] = point.value(value)
        values = [point.value(s.value) for s in stage.stores]
        for store, stored in zip(stage.stores, values, strict=True):
            frame.memory.store(stored, frame.operand(store.target), self.nest.operands[store.target].dtype)


class _Pass:
    """One Loop stage of an outer point."""

    def __init__(self, owner: InnerNest, loop: Loop, point: Evaluator, frame: NestFrame) -> None:
        self.b, self.launch, self.plan, self.loop = owner.b, owner.launch, owner.plan, loop
        self.point, self.frame = point, frame
        self.lanes = self.plan.stage_lanes(loop)
        self.copies = self.plan.stage_copies(loop)
        self.folds = [self._fold(f) for f in loop.folds]

    def run(self, low: Value, high: Value) -> None:
        b = self.b
        blocked = [f for f in self.folds if isinstance(f, BlockFold)]
        for f in self.folds:
            f.begin(low)
        if blocked:
            only = b.compare("sle", b.sub(high, low), BLOCK)
            with b.loop(low, high, BLOCK) as start:
                self._block(blocked, start, b.minimum(b.add(start, BLOCK), high), only)
            empty = b.compare("eq", low, high)
            for f in blocked:
                f.finish(b.binary("and", only, b.binary("xor", empty, _TRUE)))
        else:
            self._sweep(low, high, self._add_all, self._add_all_rest)
        for f in self.folds:
            self.frame.temps[f.fold.temp] = f.result()

    def _block(self, blocked: list[BlockFold], start: Value, end: Value, only: Value) -> None:
        count = self.b.sub(end, start)
        twice = [f for f in blocked if f.fold.kind == "m2"]
        if twice:
            self._first_pass(twice, start, end, count)
        for f in blocked:
            f.begin_block()
        self._sweep(start, end, self._add_all, self._add_all_rest)
        for f in blocked:
            aux = None if f.fold.aux is None else self.point.value(f.fold.aux)
            f.end_block(count, only, aux)

    def _first_pass(self, twice: list[BlockFold], start: Value, end: Value, count: Value) -> None:
        """The sums that the means of a block are taken from."""
        sums = [f.first_pass() for f in twice]

        def add(position: Value, slot: int) -> None:
            for s, x in zip(sums, self._values(position, None, [f.fold for f in twice], False)[0], strict=True):
                s.add(x, slot, position)

        def add_rest(position: Value, rest: Value) -> None:
            values, present = self._values(position, rest, [f.fold for f in twice], False)
            for s, x in zip(sums, values, strict=True):
                s.add_rest(x, position, present)

        for s in sums:
            s.begin()
        self._sweep(start, end, add, add_rest, sums)
        for f in twice:
            f.end_first_pass(count)

    def _sweep(
        self,
        low: Value,
        high: Value,
        add: Callable[[Value, int], None],
        add_rest: Callable[[Value, Value], None],
        folds: Sequence[object] | None = None,
    ) -> None:
        """Whole bodies, then vector by vector what remains, the last one perhaps in part."""
        b, lanes = self.b, self.lanes
        settling = self.folds if folds is None else folds
        step = lanes * self.copies
        stop = b.add(low, b.binary("and", b.sub(high, low), i64(-step)))
        with b.loop(low, stop, step) as position:
            for slot in range(self.copies):
                add(b.add(position, slot * lanes), slot)
        if step == 1:
            return
        with b.when(b.compare("slt", stop, high)):
            for f in settling:
                f.settle()  # type: ignore[attr-defined]
            with b.loop(stop, high, lanes) as position:
                add_rest(position, b.minimum(b.sub(high, position), i64(lanes)))
            for f in settling:
                f.resume()  # type: ignore[attr-defined]

    def _add_all(self, position: Value, slot: int) -> None:
        values, _ = self._values(position, None, self.loop.folds, True)
        for f, x in zip(self.folds, values, strict=True):
            f.add(x, slot, position)

    def _add_all_rest(self, position: Value, rest: Value) -> None:
        values, present = self._values(position, rest, self.loop.folds, True)
        for f, x in zip(self.folds, values, strict=True):
            f.add_rest(x, position, present)

    def _values(
        self, position: Value, rest: Value | None, folds: Sequence[Fold], stores: bool
    ) -> tuple[list[Value], Value]:
        """Run the body at `position`: the folds' values, and which lanes exist. Operands are written last, so that
        a tensor updated in place is read before.
        """
        b, nest = self.b, self.launch.nest
        memory = Memory(b, self.lanes, self.launch.dummy, rest)
        frame = NestFrame(self.launch, memory, self.frame, {nest.n_outer: position}, self.frame.temps, position)
        here = Evaluator(b, frame, self.plan.number, self.point)
        pending: list[tuple[Store, Value]] = []
        for store in self.loop.stores:
            if store.row:
                self._store_row(here, frame, store)
            elif stores:
                pending.append((store, here.vector(store.value)))
        values = [here.vector(f.value) for f in folds]
        for store, value in pending:
            memory.store(value, frame.operand(store.target), nest.operands[store.target].dtype)
        return values, memory.present if memory.present is not None else _TRUE

    def _store_row(self, here: Evaluator, frame: NestFrame, store: Store) -> None:
        dtype = self.launch.nest.rows[store.target]
        value = here.vector(store.value)
        frame.memory.store(value, frame.row(store.target), dtype)
        here.define(RowElement(dtype, store.target), value)

    def _fold(self, fold: Fold) -> RunFold:
        b = self.b
        if is_blocked(fold.kind, fold.value.dtype):
            return BlockFold(b, fold, self.lanes, self.copies)
        if fold.kind in ("any", "all"):
            return TruthFold(b, fold, self.lanes)
        if fold.kind in ("argmax", "argmin"):
            return ArgFold(b, fold, self.lanes)
        if fold.kind in ("tree_sum", "tree_prod"):
            return NeighbourFold(b, fold)
        return AnyOrderFold(b, fold, self.lanes, self.copies)


_TRUE = Value("true", "i1")
