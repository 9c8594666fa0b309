"""What folds along and across the lanes share: accumulators that take values in any order, comparisons, m2's terms."""

from __future__ import annotations

from typing import Protocol

from isobit.arithmetic.dtypes import DType
from isobit.codegen.convert import NARROW, REGISTER
from isobit.codegen.emit import Builder, Value, bits_of, const, zero
from isobit.codegen.nest_tree import Monoid, identity
from isobit.codegen.vector import operation


def computed(dtype: DType) -> DType:
    """The dtype a fold computes in: narrow floats are summed as f32, bool counts as a byte."""
    return DType.F32 if dtype in NARROW else dtype


class Accumulator(Protocol):
    """A vector of totals."""

    def clear(self) -> None: ...
    def add(self, x: Value) -> None: ...
    def value(self) -> Value: ...


def accumulator(b: Builder, kind: str, dtype: DType, lanes: int) -> Accumulator:
    """For max, min, and integer sums and products, in the dtype they are computed in."""
    if kind in ("max", "min") and dtype.is_float:
        return FloatExtreme(b, kind, dtype, lanes)
    return Plain(b, Monoid(kind, dtype, REGISTER[dtype]), lanes)


class Plain:
    """total = total ∘ x."""

    def __init__(self, b: Builder, monoid: Monoid, lanes: int) -> None:
        self.b, self.monoid = b, monoid
        self._nothing = monoid.nothing(lanes)
        self._total = b.variable(self._nothing)

    def clear(self) -> None:
        self._total.set(self._nothing)

    def add(self, x: Value) -> None:
        self._total.set(self.monoid.apply(self.b, self._total.get(), x))

    def value(self) -> Value:
        return self._total.get()


class FloatExtreme:
    """max or min of floats in four quick instructions a vector, where llvm.maximum takes seven on x86.

    The comparison leaves NaNs out and takes −0 and +0 for equal. Both are mended in the end: NaNs from a mask of where
    some were seen; a zero's sign from the signs of all values, since if the maximum is a zero, then +0 was there just
    if some value had no minus sign (and −0 for the minimum, if some had one).
    """

    def __init__(self, b: Builder, kind: str, dtype: DType, lanes: int) -> None:
        self.b, self.lanes = b, lanes
        self._element = REGISTER[dtype]
        self._bits = f"i{bits_of(self._element)}"
        self._better, self._join = ("ogt", "and") if kind == "max" else ("olt", "or")
        self._start = const(identity(kind, dtype), self._element, lanes)
        self._no_sign = const(-1 if kind == "max" else 0, self._bits, lanes)
        self._best = b.variable(self._start)
        self._nans = b.variable(zero(self._bits, lanes))
        self._signs = b.variable(self._no_sign)

    def clear(self) -> None:
        self._best.set(self._start)
        self._nans.set(zero(self._bits, self.lanes))
        self._signs.set(self._no_sign)

    def add(self, x: Value) -> None:
        b, best = self.b, self._best.get()
        self._best.set(b.select(b.compare(self._better, x, best), x, best))
        nan = b.convert("sext", b.compare("uno", x, x), self._bits)
        self._nans.set(b.binary("or", self._nans.get(), nan))
        self._signs.set(b.binary(self._join, self._signs.get(), b.bitcast(x, self._bits)))

    def value(self) -> Value:
        b, n, best = self.b, self.lanes, self._best.get()
        sign = b.binary("and", self._signs.get(), const(-(1 << (bits_of(self._element) - 1)), self._bits, n))
        is_zero = b.compare("oeq", best, zero(self._element, n))
        best = b.select(is_zero, b.bitcast(sign, self._element), best)
        nan = b.compare("ne", self._nans.get(), zero(self._bits, n))
        return b.select(nan, const(float("nan"), self._element, n), best)


def shift_term(b: Builder, q: Value, count: Value, mean: Value, aux: Value) -> Value:
    """q_b + n_b·((m_b − m)·(m_b − m))."""
    n = b.splat(b.convert("sitofp", count, q.element), q.lanes)
    shift = b.binary("fsub", mean, aux)
    return b.binary("fadd", q, b.binary("fmul", n, b.binary("fmul", shift, shift)))


class Extreme:
    """Comparison for argmax and argmin: by ==, a NaN beats every number, the lowest position wins among equals."""

    def __init__(self, b: Builder, kind: str, dtype: DType) -> None:
        self.b = b
        self.is_bool = dtype == DType.BOOL
        self.dtype = DType.U8 if self.is_bool else computed(dtype)
        self.element = REGISTER[self.dtype]
        self.start = identity(kind, self.dtype)
        self._name = "gt" if kind == "argmax" else "lt"

    def ready(self, x: Value) -> Value:
        return self.b.convert("zext", x, "i8") if self.is_bool else x

    def better(self, x: Value, y: Value) -> Value:
        """Whether x comes before y whatever their positions."""
        b = self.b
        wins = operation(b, self._name, DType.BOOL, [x, y], self.dtype)
        if not self.dtype.is_float:
            return wins
        first_nan = b.binary("and", b.compare("uno", x, x), b.compare("ord", y, y))
        return b.binary("or", wins, first_nan)
