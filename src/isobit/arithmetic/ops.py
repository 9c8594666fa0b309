"""The operations in which elementary functions are written once and run twice.

`functions` is written against the protocol `Ops`. `NumpyOps` executes it here on whole arrays; an emitter
in `codegen` turns the same calls into vector instructions. Values are opaque lane-wise vectors of three
kinds: binary64 (`F`), 64-bit integers that wrap (`I`) and masks (`M`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from isobit.arithmetic.fma import fma_f64

F = TypeVar("F")
I = TypeVar("I")
M = TypeVar("M")

_WORD = 1 << 64


class Ops(Protocol[F, I, M]):
    """Lane-wise operations: IEEE binary64 with one rounding each, or 64-bit two's complement that wraps."""

    def f(self, c: float) -> F: ...
    def i(self, c: int) -> I:
        """The constant c modulo 2^64."""

    def add(self, a: F, b: F) -> F: ...
    def sub(self, a: F, b: F) -> F: ...
    def mul(self, a: F, b: F) -> F: ...
    def div(self, a: F, b: F) -> F: ...
    def sqrt(self, a: F) -> F: ...
    def neg(self, a: F) -> F: ...
    def fabs(self, a: F) -> F: ...
    def fma(self, a: F, b: F, c: F) -> F:
        """a · b + c with one rounding."""

    def lt(self, a: F, b: F) -> M: ...
    def le(self, a: F, b: F) -> M: ...
    def eq(self, a: F, b: F) -> M: ...
    def ne(self, a: F, b: F) -> M:
        """True on NaN, as the only comparison of floats."""

    def gt(self, a: F, b: F) -> M: ...
    def ge(self, a: F, b: F) -> M: ...
    def ilt(self, a: I, b: I) -> M:
        """Signed a < b."""

    def ieq(self, a: I, b: I) -> M: ...
    def iult(self, a: I, b: I) -> M:
        """Unsigned a < b."""

    def mand(self, a: M, b: M) -> M: ...
    def mor(self, a: M, b: M) -> M: ...
    def mnot(self, a: M) -> M: ...
    def select(self, mask: M, a: F, b: F) -> F:
        """a where the mask is set, b elsewhere."""

    def iselect(self, mask: M, a: I, b: I) -> I: ...
    def rare(self, mask: M, expensive: Callable[[], F], cheap: F) -> F:
        """select(mask, expensive(), cheap); `expensive` may be skipped where no lane is set."""

    def bits(self, a: F) -> I: ...
    def from_bits(self, a: I) -> F: ...
    def iadd(self, a: I, b: I) -> I: ...
    def isub(self, a: I, b: I) -> I: ...
    def imul(self, a: I, b: I) -> I: ...
    def iand(self, a: I, b: I) -> I: ...
    def ior(self, a: I, b: I) -> I: ...
    def ixor(self, a: I, b: I) -> I: ...
    def shl(self, a: I, count: I) -> I:
        """Shift counts are 0..63 in every lane, here and below."""

    def lshr(self, a: I, count: I) -> I: ...
    def ashr(self, a: I, count: I) -> I: ...
    def umulhi(self, a: I, b: I) -> I:
        """The upper 64 bits of the unsigned product."""

    def i2f(self, a: I) -> F:
        """Exact for |a| < 2^53."""

    def f2i(self, a: F) -> I:
        """Truncates where |a| < 2^51; other lanes may hold any value."""

    def table(self, values: tuple[int, ...], index: I) -> I:
        """values[index], 64-bit patterns; every index is in range."""


FArray = npt.NDArray[np.float64]
IArray = npt.NDArray[np.int64]
MArray = npt.NDArray[np.bool_]


def _unsigned(a: IArray) -> npt.NDArray[np.uint64]:
    return np.asarray(a, np.int64).view(np.uint64)


def _signed(a: npt.NDArray[np.uint64]) -> IArray:
    return np.asarray(a, np.uint64).view(np.int64)


class NumpyOps(Ops[FArray, IArray, MArray]):
    """`Ops` on NumPy arrays that broadcast; used under `np.errstate(all="ignore")`, as by `evaluate`."""

    def f(self, c: float) -> FArray:
        return np.array([c], np.float64)

    def i(self, c: int) -> IArray:
        return _signed(np.array([c % _WORD], np.uint64))

    def add(self, a: FArray, b: FArray) -> FArray:
        return a + b

    def sub(self, a: FArray, b: FArray) -> FArray:
        return a - b

    def mul(self, a: FArray, b: FArray) -> FArray:
        return a * b

    def div(self, a: FArray, b: FArray) -> FArray:
        return a / b

    def sqrt(self, a: FArray) -> FArray:
        return np.sqrt(a)

    def neg(self, a: FArray) -> FArray:
        return -a

    def fabs(self, a: FArray) -> FArray:
        return np.abs(a)

    def fma(self, a: FArray, b: FArray, c: FArray) -> FArray:
        return fma_f64(a, b, c)

    def lt(self, a: FArray, b: FArray) -> MArray:
        return a < b

    def le(self, a: FArray, b: FArray) -> MArray:
        return a <= b

    def eq(self, a: FArray, b: FArray) -> MArray:
        return np.equal(a, b)

    def ne(self, a: FArray, b: FArray) -> MArray:
        return np.not_equal(a, b)

    def gt(self, a: FArray, b: FArray) -> MArray:
        return a > b

    def ge(self, a: FArray, b: FArray) -> MArray:
        return a >= b

    def ilt(self, a: IArray, b: IArray) -> MArray:
        return np.less(a, b)

    def ieq(self, a: IArray, b: IArray) -> MArray:
        return np.equal(a, b)

    def iult(self, a: IArray, b: IArray) -> MArray:
        return np.less(_unsigned(a), _unsigned(b))

    def mand(self, a: MArray, b: MArray) -> MArray:
        return a & b

    def mor(self, a: MArray, b: MArray) -> MArray:
        return a | b

    def mnot(self, a: MArray) -> MArray:
        return ~a

    def select(self, mask: MArray, a: FArray, b: FArray) -> FArray:
        return np.where(mask, a, b)

    def iselect(self, mask: MArray, a: IArray, b: IArray) -> IArray:
        return np.where(mask, a, b)

    def rare(self, mask: MArray, expensive: Callable[[], FArray], cheap: FArray) -> FArray:
        return np.where(mask, expensive(), cheap)

    def bits(self, a: FArray) -> IArray:
        return np.ascontiguousarray(a).view(np.int64)

    def from_bits(self, a: IArray) -> FArray:
        return np.ascontiguousarray(a).view(np.float64)

    def iadd(self, a: IArray, b: IArray) -> IArray:
        return a + b

    def isub(self, a: IArray, b: IArray) -> IArray:
        return a - b

    def imul(self, a: IArray, b: IArray) -> IArray:
        return a * b

    def iand(self, a: IArray, b: IArray) -> IArray:
        return a & b

    def ior(self, a: IArray, b: IArray) -> IArray:
        return a | b

    def ixor(self, a: IArray, b: IArray) -> IArray:
        return a ^ b

    def shl(self, a: IArray, count: IArray) -> IArray:
        return a << count

    def lshr(self, a: IArray, count: IArray) -> IArray:
        return _signed(_unsigned(a) >> _unsigned(count))

    def ashr(self, a: IArray, count: IArray) -> IArray:
        return a >> count

    def umulhi(self, a: IArray, b: IArray) -> IArray:
        low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
        a0, a1 = _unsigned(a) & low, _unsigned(a) >> half
        b0, b1 = _unsigned(b) & low, _unsigned(b) >> half
        middle = a1 * b0 + (a0 * b0 >> half)
        other = a0 * b1 + (middle & low)
        return _signed(a1 * b1 + (middle >> half) + (other >> half))

    def i2f(self, a: IArray) -> FArray:
        return a.astype(np.float64)

    def f2i(self, a: FArray) -> IArray:
        return np.where(np.abs(a) < 2.0**51, a, 0.0).astype(np.int64)

    def table(self, values: tuple[int, ...], index: IArray) -> IArray:
        return _signed(np.array([v % _WORD for v in values], np.uint64))[index]
