"""Folds across lanes ("outer" mode): every lane is a run of its own, fed one position at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from isobit.codegen.convert import REGISTER, round_narrow
from isobit.codegen.emit import Builder, Value, bits_of, const, i64
from isobit.codegen.nest_fold import Extreme, computed, shift_term
from isobit.codegen.nest_plan import FOLD_LANES, is_blocked
from isobit.codegen.nest_tree import Monoid, TreeCounter
from isobit.ir.kernel import Fold


class ColumnFold(Protocol):
    """One fold of a vector of runs."""

    fold: Fold

    def begin(self, low: Value) -> None: ...
    def add(self, x: Value, position: Value) -> None: ...
    def result(self) -> Value: ...


def column_fold(b: Builder, fold: Fold, lanes: int) -> ColumnFold:
    if is_blocked(fold.kind, fold.value.dtype):
        return ColumnBlock(b, fold, lanes)
    if fold.kind in ("argmax", "argmin"):
        return ColumnArg(b, fold, lanes)
    if fold.kind in ("tree_sum", "tree_prod"):
        return ColumnNeighbours(b, fold, lanes)
    return ColumnAny(b, fold, lanes)


class ColumnBlock:
    """sum, prod or m2 of floats. The 32 lanes of ARITHMETIC.md §3 are an array of vectors, indexed by position mod 32.

    A block of fewer than 32 elements has only so many lanes: an absent one is +0 (or 1), and a lane's sum is never −0,
    so that adding it would change nothing.
    """

    def __init__(self, b: Builder, fold: Fold, lanes: int) -> None:
        self.b, self.fold, self.lanes = b, fold, lanes
        dtype = computed(fold.value.dtype)
        self.monoid = Monoid(fold.kind, dtype, REGISTER[dtype])
        self._bytes = bits_of(self.monoid.element) // 8 * lanes
        self._nothing = self.monoid.nothing(lanes)
        self._array = b.alloca(f"[{FOLD_LANES} x {self._nothing.type}]")
        self._tree = TreeCounter(b, self.monoid, lanes)
        self._total = b.variable(self._nothing)
        self._mean = b.variable(self._nothing) if fold.kind == "m2" else None

    def begin(self, low: Value) -> None:
        self._tree.clear()
        self._total.set(self._nothing)

    def add(self, x: Value, position: Value) -> None:
        b = self.b
        if self._mean is not None:
            apart = b.binary("fsub", x, self._mean.get())
            x = b.binary("fmul", apart, apart)
        self.add_plain(x, position)

    def add_plain(self, x: Value, position: Value) -> None:
        """Add to the lane of `position` without m2's square."""
        lane = self.b.binary("and", position, i64(FOLD_LANES - 1))
        self._set(lane, self.monoid.apply(self.b, self._get(lane), x))

    @staticmethod
    def clear_lanes(b: Builder, folds: Sequence[ColumnBlock], count: Value) -> None:
        """Before a block of `count` elements."""
        with b.loop(0, b.minimum(count, i64(FOLD_LANES))) as lane:
            for f in folds:
                f._set(lane, f._nothing)

    @staticmethod
    def fold_lanes(b: Builder, folds: Sequence[ColumnBlock], count: Value) -> None:
        """The tree of lanes into lane 0; `count` elements made the block."""
        for apart in (16, 8, 4, 2, 1):
            pairs = b.sub(b.minimum(count, i64(2 * apart)), apart)
            with b.loop(0, pairs) as lane:
                for f in folds:
                    other = f._get(b.add(lane, apart))
                    f._set(lane, f.monoid.apply(b, f._get(lane), other))

    def end_first_pass(self, count: Value) -> None:
        assert self._mean is not None
        b = self.b
        n = b.splat(b.convert("sitofp", count, self.monoid.element), self.lanes)
        self._mean.set(b.binary("fdiv", self._get(i64(0)), n))

    def end_block(self, count: Value, only: Value, aux: Value | None) -> None:
        b = self.b
        x = self._get(i64(0))
        if self._mean is not None and aux is not None:
            x = shift_term(b, x, count, self._mean.get(), aux)
        self._total.set(x)
        with b.when(b.binary("xor", only, const(True, "i1"))):
            self._tree.push(x)

    def finish(self) -> None:
        """The run had several blocks, or none."""
        self._total.set(self._tree.total())

    def result(self) -> Value:
        return round_narrow(self.b, self._total.get(), self.fold.value.dtype)

    def _get(self, lane: Value) -> Value:
        return self.b.load(self._at(lane), self.monoid.element, self.lanes)

    def _set(self, lane: Value, x: Value) -> None:
        self.b.store(x, self._at(lane))

    def _at(self, lane: Value) -> Value:
        return self.b.offset(self._array, self.b.mul(lane, self._bytes))


class ColumnAny:
    """Folds that any order gives alike: max, min, any, all, integer sums and products."""

    def __init__(self, b: Builder, fold: Fold, lanes: int) -> None:
        self.b, self.fold, self.lanes = b, fold, lanes
        dtype = computed(fold.value.dtype)
        self._truth = fold.kind in ("any", "all")
        self.monoid = Monoid(fold.kind, dtype, "i1" if self._truth else REGISTER[dtype])
        self._total = b.variable(self._hold(self.monoid.nothing(lanes)))

    def begin(self, low: Value) -> None:
        self._total.set(self._hold(self.monoid.nothing(self.lanes)))

    def add(self, x: Value, position: Value) -> None:
        total = self._total.get()
        if self._truth:
            self._total.set(self.b.binary("and" if self.fold.kind == "all" else "or", total, self._hold(x)))
        else:
            self._total.set(self.monoid.apply(self.b, total, x))

    def result(self) -> Value:
        total = self._total.get()
        if self._truth:
            return self.b.compare("ne", total, const(0, "i32", self.lanes))
        return round_narrow(self.b, total, self.fold.value.dtype)

    def _hold(self, x: Value) -> Value:
        """Truth values are kept as i32, which CPUs have vectors of."""
        if not self._truth:
            return x
        return self.b.convert("sext", x, "i32")


class ColumnArg:
    """argmax, argmin."""

    def __init__(self, b: Builder, fold: Fold, lanes: int) -> None:
        self.b, self.fold, self.lanes = b, fold, lanes
        self.extreme = Extreme(b, fold.kind, fold.value.dtype)
        self._start = const(self.extreme.start, self.extreme.element, lanes)
        self._best = b.variable(self._start)
        self._where = b.variable(const(0, "i64", lanes))

    def begin(self, low: Value) -> None:
        self._best.set(self._start)
        self._where.set(self.b.splat(low, self.lanes))

    def add(self, x: Value, position: Value) -> None:
        b = self.b
        x = self.extreme.ready(x)
        better = self.extreme.better(x, self._best.get())
        self._best.set(b.select(better, x, self._best.get()))
        self._where.set(b.select(better, b.splat(position, self.lanes), self._where.get()))

    def result(self) -> Value:
        return self._where.get()


class ColumnNeighbours:
    """tree_sum, tree_prod."""

    def __init__(self, b: Builder, fold: Fold, lanes: int) -> None:
        self.b, self.fold = b, fold
        dtype = computed(fold.value.dtype)
        self._tree = TreeCounter(b, Monoid(fold.kind, dtype, REGISTER[dtype]), lanes)

    def begin(self, low: Value) -> None:
        self._tree.clear()

    def add(self, x: Value, position: Value) -> None:
        self._tree.push(x)

    def result(self) -> Value:
        return round_narrow(self.b, self._tree.total(), self.fold.value.dtype)
