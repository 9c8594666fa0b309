"""Folds along the lanes ("inner" mode): accumulators of one run, fed vector by vector in ascending positions."""

from __future__ import annotations

from typing import Protocol

from isobit.codegen.convert import REGISTER, round_narrow
from isobit.codegen.emit import Builder, Value, Variable, bits_of, const, const_vector, i64, zero
from isobit.codegen.nest_accumulate import Extreme, accumulator, computed, shift_term
from isobit.codegen.nest_plan import FOLD_LANES
from isobit.codegen.nest_tree import Monoid, TreeCounter, lane_tree
from isobit.ir.kernel import Fold


class RunFold(Protocol):
    """One fold of "inner" mode. `slot` is which of the side-by-side vectors of a loop's body x is; `position`, that of
    its lane 0; `present`, its existing lanes where some are missing.
    """

    fold: Fold

    def begin(self, low: Value) -> None: ...
    def add(self, x: Value, slot: int, position: Value) -> None: ...
    def settle(self) -> None:
        """The body's copies are over; what remains comes by `add_rest`."""

    def add_rest(self, x: Value, position: Value, present: Value) -> None: ...
    def resume(self) -> None:
        """Nothing remains."""

    def result(self) -> Value: ...


class LaneSum:
    """Sum or product of a block by 32 lanes (lane = position mod 32).

    With one vector per body, lanes live in an array; with 32 lanes' worth, in registers, and in the array for the rest.
    """

    def __init__(self, b: Builder, monoid: Monoid, lanes: int, copies: int) -> None:
        self.b, self.monoid, self.lanes = b, monoid, lanes
        self._size = bits_of(monoid.element) // 8
        self._array = b.alloca(f"[{FOLD_LANES} x {monoid.element}]")
        nothing = monoid.nothing(lanes)
        self._registers = [b.variable(nothing) for _ in range(copies)] if copies > 1 else []

    def begin(self) -> None:
        nothing = self.monoid.nothing(self.lanes)
        for r in self._registers:
            r.set(nothing)
        if not self._registers:
            for i in range(0, FOLD_LANES, self.lanes):
                self.b.store(nothing, self._cell(i64(i)))

    def add(self, x: Value, slot: int, position: Value) -> None:
        if self._registers:
            r = self._registers[slot]
            r.set(self.monoid.apply(self.b, r.get(), x))
        else:
            self._add_to_array(x, position)

    def settle(self) -> None:
        for i, r in enumerate(self._registers):
            self.b.store(r.get(), self._cell(i64(i * self.lanes)))

    def add_rest(self, x: Value, position: Value, present: Value) -> None:
        # A lane is never −0, so that adding +0 for a missing element changes nothing; nor does multiplying by 1.
        self._add_to_array(self.b.select(present, x, self.monoid.nothing(self.lanes)), position)

    def resume(self) -> None:
        for i, r in enumerate(self._registers):
            r.set(self._load(i64(i * self.lanes)))

    def result(self) -> Value:
        parts = [r.get() for r in self._registers] or [self._load(i64(i)) for i in range(0, FOLD_LANES, self.lanes)]
        return lane_tree(self.b, parts, self.monoid)

    def _add_to_array(self, x: Value, position: Value) -> None:
        lane = self.b.binary("and", position, i64(FOLD_LANES - 1))
        self.b.store(self.monoid.apply(self.b, self._load(lane), x), self._cell(lane))

    def _cell(self, lane: Value) -> Value:
        return self.b.offset(self._array, self.b.mul(lane, self._size))

    def _load(self, lane: Value) -> Value:
        return self.b.load(self._cell(lane), self.monoid.element, self.lanes)


class BlockFold:
    """sum, prod or m2 of floats: blocks by lanes, their results in the neighbour tree."""

    def __init__(self, b: Builder, fold: Fold, lanes: int, copies: int) -> None:
        self.b, self.fold = b, fold
        dtype = computed(fold.value.dtype)
        self.monoid = Monoid(fold.kind, dtype, REGISTER[dtype])
        self._sum = LaneSum(b, self.monoid, lanes, copies)
        self._lanes = lanes
        self._tree = TreeCounter(b, self.monoid, 1)
        self._total = b.variable(self.monoid.nothing(1))
        self._mean = b.variable(self.monoid.nothing(1)) if fold.kind == "m2" else None

    def begin(self, low: Value) -> None:
        self._tree.clear()

    def begin_block(self) -> None:
        self._sum.begin()

    def add(self, x: Value, slot: int, position: Value) -> None:
        self._sum.add(self._term(x), slot, position)

    def add_rest(self, x: Value, position: Value, present: Value) -> None:
        self._sum.add_rest(self._term(x), position, present)

    def settle(self) -> None:
        self._sum.settle()

    def resume(self) -> None:
        self._sum.resume()

    def end_block(self, count: Value, only: Value, aux: Value | None) -> None:
        """`count` elements made the block; `only`: it is the run's only one."""
        b = self.b
        x = self._sum.result()
        if self._mean is not None and aux is not None:
            x = shift_term(b, x, count, self._mean.get(), aux)
        self._total.set(x)
        with b.when(b.binary("xor", only, const(True, "i1"))):
            self._tree.push(x)

    def finish(self, only: Value) -> None:
        with self.b.when(self.b.binary("xor", only, const(True, "i1"))):
            self._total.set(self._tree.total())

    def result(self) -> Value:
        return round_narrow(self.b, self._total.get(), self.fold.value.dtype)

    def first_pass(self) -> LaneSum:
        """The sum that a block's mean is taken from, for m2; `end_first_pass` follows."""
        return self._sum

    def end_first_pass(self, count: Value) -> None:
        assert self._mean is not None
        b = self.b
        n = b.convert("sitofp", count, self.monoid.element)
        self._mean.set(b.binary("fdiv", self._sum.result(), n))

    def _term(self, x: Value) -> Value:
        if self._mean is None:
            return x
        b = self.b
        apart = b.binary("fsub", x, b.splat(self._mean.get(), x.lanes))
        return b.binary("fmul", apart, apart)


class AnyOrderFold:
    """max, min, and sums and products of integers: one accumulator per vector of the body."""

    def __init__(self, b: Builder, fold: Fold, lanes: int, copies: int) -> None:
        self.b, self.fold, self.lanes = b, fold, lanes
        dtype = computed(fold.value.dtype)
        self.monoid = Monoid(fold.kind, dtype, REGISTER[dtype])
        self._totals = [accumulator(b, fold.kind, dtype, lanes) for _ in range(copies)]

    def begin(self, low: Value) -> None:
        for t in self._totals:
            t.clear()

    def add(self, x: Value, slot: int, position: Value) -> None:
        self._totals[slot].add(x)

    def settle(self) -> None: ...
    def resume(self) -> None: ...

    def add_rest(self, x: Value, position: Value, present: Value) -> None:
        self.add(self.b.select(present, x, self.monoid.nothing(self.lanes)), 0, position)

    def result(self) -> Value:
        total = lane_tree(self.b, [t.value() for t in self._totals], self.monoid)
        return round_narrow(self.b, total, self.fold.value.dtype)


class TruthFold:
    """any, all: the lanes' bits in one integer."""

    def __init__(self, b: Builder, fold: Fold, lanes: int) -> None:
        self.b, self.fold, self.lanes = b, fold, lanes
        self._start = i64((1 << lanes) - 1 if fold.kind == "all" else 0)
        self._bits = b.variable(self._start)

    def begin(self, low: Value) -> None:
        self._bits.set(self._start)

    def add(self, x: Value, slot: int, position: Value) -> None:
        b = self.b
        bits = b.convert("zext", x if x.lanes == 1 else b.bitcast(x, f"i{x.lanes}", 1), "i64")
        self._bits.set(b.binary("and" if self.fold.kind == "all" else "or", self._bits.get(), bits))

    def settle(self) -> None: ...
    def resume(self) -> None: ...

    def add_rest(self, x: Value, position: Value, present: Value) -> None:
        self.add(self.b.select(present, x, const(self.fold.kind == "all", "i1", self.lanes)), 0, position)

    def result(self) -> Value:
        return self.b.compare("eq" if self.fold.kind == "all" else "ne", self._bits.get(), self._start)


class ArgFold:
    """argmax, argmin: each lane keeps its best value and that value's position."""

    def __init__(self, b: Builder, fold: Fold, lanes: int) -> None:
        self.b, self.fold, self.lanes = b, fold, lanes
        self.extreme = Extreme(b, fold.kind, fold.value.dtype)
        self._start = const(self.extreme.start, self.extreme.element, lanes)
        self._best: Variable = b.variable(self._start)
        self._where: Variable = b.variable(zero("i64", lanes))

    def begin(self, low: Value) -> None:
        self._best.set(self._start)
        self._where.set(self._positions(low))  # right if every element is the start value

    def add(self, x: Value, slot: int, position: Value) -> None:
        b = self.b
        x = self.extreme.ready(x)
        better = self.extreme.better(x, self._best.get())
        self._best.set(b.select(better, x, self._best.get()))
        self._where.set(b.select(better, self._positions(position), self._where.get()))

    def settle(self) -> None: ...
    def resume(self) -> None: ...

    def add_rest(self, x: Value, position: Value, present: Value) -> None:
        b = self.b
        x = self.extreme.ready(x)
        better = b.binary("and", present, self.extreme.better(x, self._best.get()))
        self._best.set(b.select(better, x, self._best.get()))
        self._where.set(b.select(better, self._positions(position), self._where.get()))

    def result(self) -> Value:
        b = self.b
        best, where = self._best.get(), self._where.get()
        while best.lanes > 1:
            half = best.lanes // 2
            (x, y), (i, j) = ((b.part(v, 0, half), b.part(v, half, half)) for v in (best, where))
            tie = b.binary("xor", self.extreme.better(x, y), const(True, "i1", half))
            take = b.binary("or", self.extreme.better(y, x), b.binary("and", tie, b.compare("slt", j, i)))
            best, where = b.select(take, y, x), b.select(take, j, i)
        return where

    def _positions(self, position: Value) -> Value:
        return self.b.add(self.b.splat(position, self.lanes), const_vector(range(self.lanes), "i64"))


class NeighbourFold:
    """tree_sum, tree_prod: the tree of neighbours alone, one element at a time."""

    def __init__(self, b: Builder, fold: Fold) -> None:
        self.b, self.fold = b, fold
        dtype = computed(fold.value.dtype)
        self._tree = TreeCounter(b, Monoid(fold.kind, dtype, REGISTER[dtype]), 1)

    def begin(self, low: Value) -> None:
        self._tree.clear()

    def add(self, x: Value, slot: int, position: Value) -> None:
        self._tree.push(x)

    def settle(self) -> None: ...
    def resume(self) -> None: ...

    def add_rest(self, x: Value, position: Value, present: Value) -> None:
        self.add(x, 0, position)

    def result(self) -> Value:
        return round_narrow(self.b, self._tree.total(), self.fold.value.dtype)
