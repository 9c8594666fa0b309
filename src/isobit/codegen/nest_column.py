"""Folds across lanes ("outer" mode): every lane is a run of its own, fed one position at a time.

Several vectors of runs go side by side; `copy` says which of them a value belongs to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from isobit.codegen.convert import REGISTER, round_narrow
from isobit.codegen.emit import Builder, Value, bits_of, const, i64, zero
from isobit.codegen.nest_accumulate import Extreme, accumulator, computed, shift_term
from isobit.codegen.nest_plan import FOLD_LANES, is_blocked
from isobit.codegen.nest_tree import Monoid, TreeCounter
from isobit.ir.kernel import Fold


class ColumnFold(Protocol):
    """One fold of `copies` vectors of runs."""

    fold: Fold

    def begin(self, low: Value) -> None: ...
    def add(self, x: Value, copy: int, position: Value) -> None: ...
    def result(self, copy: int) -> Value: ...


def column_fold(b: Builder, fold: Fold, lanes: int, copies: int, by_lanes: bool) -> ColumnFold:
    """`by_lanes`: positions come lane after lane of ARITHMETIC.md §3, between `begin_lane` and `end_lane`."""
    if is_blocked(fold.kind, fold.value.dtype):
        return ColumnBlock(b, fold, lanes, copies, by_lanes)
    if fold.kind in ("argmax", "argmin"):
        return ColumnArg(b, fold, lanes, copies)
    if fold.kind in ("tree_sum", "tree_prod"):
        return ColumnNeighbours(b, fold, lanes, copies)
    if fold.kind in ("any", "all"):
        return ColumnTruth(b, fold, lanes, copies)
    return ColumnAny(b, fold, lanes, copies)


class ColumnBlock:
    """sum, prod or m2 of floats. The 32 lanes of ARITHMETIC.md §3 are an array of vectors, indexed by position mod 32,
    each as wide as all copies together.

    A block of fewer than 32 elements has only so many lanes: an absent one is +0 (or 1), and a lane's sum is never −0,
    so that adding it would change nothing.
    """

    def __init__(self, b: Builder, fold: Fold, lanes: int, copies: int, by_lanes: bool) -> None:
        self.b, self.fold, self.lanes, self.width = b, fold, lanes, lanes * copies
        dtype = computed(fold.value.dtype)
        self.monoid = Monoid(fold.kind, dtype, REGISTER[dtype])
        self._size = bits_of(self.monoid.element) // 8
        self._nothing = self.monoid.nothing(self.width)
        self._array = b.alloca(f"[{FOLD_LANES} x {self._nothing.type}]")
        self._tree = TreeCounter(b, self.monoid, self.width)
        self._total = b.variable(self._nothing)
        self._mean = b.variable(self._nothing) if fold.kind == "m2" else None
        self._registers = [b.variable(self.monoid.nothing(lanes)) for _ in range(copies if by_lanes else 0)]

    def begin_lane(self) -> None:
        for r in self._registers:
            r.set(self.monoid.nothing(self.lanes))

    def end_lane(self, lane: Value) -> None:
        """What the registers hold is the sum of `lane`."""
        for copy, r in enumerate(self._registers):
            self.b.store(r.get(), self._cell(lane, copy))

    def begin(self, low: Value) -> None:
        self._tree.clear()
        self._total.set(self._nothing)

    def add(self, x: Value, copy: int, position: Value) -> None:
        b = self.b
        if self._mean is not None:
            apart = b.binary("fsub", x, self._slice(self._mean.get(), copy))
            x = b.binary("fmul", apart, apart)
        self.add_plain(x, copy, position)

    def add_plain(self, x: Value, copy: int, position: Value) -> None:
        """Add to the lane of `position` without m2's square."""
        b = self.b
        if self._registers:
            r = self._registers[copy]
            r.set(self.monoid.apply(b, r.get(), x))
            return
        lane = b.binary("and", position, i64(FOLD_LANES - 1))
        at = self._cell(lane, copy)
        b.store(self.monoid.apply(b, b.load(at, self.monoid.element, self.lanes), x), at)

    @staticmethod
    def clear_lanes(b: Builder, folds: Sequence[ColumnBlock], count: Value) -> None:
        """Before a block of `count` elements."""
        with b.loop(0, b.minimum(count, i64(FOLD_LANES))) as lane:
            for f in folds:
                b.store(f._nothing, f._at(lane))

    @staticmethod
    def fold_lanes(b: Builder, folds: Sequence[ColumnBlock], count: Value) -> None:
        """The tree of lanes into lane 0; `count` elements made the block."""
        for apart in (16, 8, 4, 2, 1):
            pairs = b.sub(b.minimum(count, i64(2 * apart)), apart)
            with b.loop(0, pairs) as lane:
                for f in folds:
                    other = f._get(b.add(lane, apart))
                    b.store(f.monoid.apply(b, f._get(lane), other), f._at(lane))

    def end_first_pass(self, count: Value) -> None:
        assert self._mean is not None
        b = self.b
        n = b.splat(b.convert("sitofp", count, self.monoid.element), self.width)
        self._mean.set(b.binary("fdiv", self._get(i64(0)), n))

    def end_block(self, count: Value, only: Value, aux: Sequence[Value]) -> None:
        """`count` elements made the block; `only`: it is the run's only one; `aux`: that of m2, per copy."""
        b = self.b
        x = self._get(i64(0))
        if self._mean is not None:
            x = shift_term(b, x, count, self._mean.get(), b.concat(aux))
        self._total.set(x)
        with b.when(b.binary("xor", only, const(True, "i1"))):
            self._tree.push(x)

    def finish(self) -> None:
        """The run had several blocks, or none."""
        self._total.set(self._tree.total())

    def result(self, copy: int) -> Value:
        return round_narrow(self.b, self._slice(self._total.get(), copy), self.fold.value.dtype)

    def _slice(self, x: Value, copy: int) -> Value:
        return self.b.part(x, copy * self.lanes, self.lanes)

    def _cell(self, lane: Value, copy: int) -> Value:
        return self.b.offset(self._at(lane), copy * self.lanes * self._size)

    def _get(self, lane: Value) -> Value:
        return self.b.load(self._at(lane), self.monoid.element, self.width)

    def _at(self, lane: Value) -> Value:
        return self.b.offset(self._array, self.b.mul(lane, self._size * self.width))


class ColumnAny:
    """Folds that any order gives alike: max, min, sums and products of integers."""

    def __init__(self, b: Builder, fold: Fold, lanes: int, copies: int) -> None:
        self.b, self.fold = b, fold
        self._totals = [accumulator(b, fold.kind, computed(fold.value.dtype), lanes) for _ in range(copies)]

    def begin(self, low: Value) -> None:
        for t in self._totals:
            t.clear()

    def add(self, x: Value, copy: int, position: Value) -> None:
        self._totals[copy].add(x)

    def result(self, copy: int) -> Value:
        return round_narrow(self.b, self._totals[copy].value(), self.fold.value.dtype)


class ColumnTruth:
    """any, all; truth values are kept as i32, which CPUs have vectors of."""

    def __init__(self, b: Builder, fold: Fold, lanes: int, copies: int) -> None:
        self.b, self.fold = b, fold
        self._opcode = "and" if fold.kind == "all" else "or"
        self._start = const(-1 if fold.kind == "all" else 0, "i32", lanes)
        self._totals = [b.variable(self._start) for _ in range(copies)]

    def begin(self, low: Value) -> None:
        for t in self._totals:
            t.set(self._start)

    def add(self, x: Value, copy: int, position: Value) -> None:
        total = self._totals[copy]
        total.set(self.b.binary(self._opcode, total.get(), self.b.convert("sext", x, "i32")))

    def result(self, copy: int) -> Value:
        total = self._totals[copy].get()
        return self.b.compare("ne", total, zero("i32", total.lanes))


class ColumnArg:
    """argmax, argmin."""

    def __init__(self, b: Builder, fold: Fold, lanes: int, copies: int) -> None:
        self.b, self.fold, self.lanes = b, fold, lanes
        self.extreme = Extreme(b, fold.kind, fold.value.dtype)
        self._start = const(self.extreme.start, self.extreme.element, lanes)
        self._best = [b.variable(self._start) for _ in range(copies)]
        self._where = [b.variable(zero("i64", lanes)) for _ in range(copies)]

    def begin(self, low: Value) -> None:
        for best, where in zip(self._best, self._where, strict=True):
            best.set(self._start)
            where.set(self.b.splat(low, self.lanes))

    def add(self, x: Value, copy: int, position: Value) -> None:
        b, best, where = self.b, self._best[copy], self._where[copy]
        x = self.extreme.ready(x)
        better = self.extreme.better(x, best.get())
        best.set(b.select(better, x, best.get()))
        where.set(b.select(better, b.splat(position, self.lanes), where.get()))

    def result(self, copy: int) -> Value:
        return self._where[copy].get()


class ColumnNeighbours:
    """tree_sum, tree_prod."""

    def __init__(self, b: Builder, fold: Fold, lanes: int, copies: int) -> None:
        self.b, self.fold = b, fold
        dtype = computed(fold.value.dtype)
        self._trees = [TreeCounter(b, Monoid(fold.kind, dtype, REGISTER[dtype]), lanes) for _ in range(copies)]

    def begin(self, low: Value) -> None:
        for t in self._trees:
            t.clear()

    def add(self, x: Value, copy: int, position: Value) -> None:
        self._trees[copy].push(x)

    def result(self, copy: int) -> Value:
        return round_narrow(self.b, self._trees[copy].total(), self.fold.value.dtype)
