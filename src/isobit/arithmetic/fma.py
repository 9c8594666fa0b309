"""Exact fused multiply-add on NumPy arrays; widening and singly rounded narrowing of narrow floats.

NumPy has no `fma`, so it is built from error-free transformations. The last step rounds to odd before
it rounds to nearest, after S. Boldo and G. Melquiond, "Emulation of a FMA and correctly rounded sums:
proved algorithms using rounding to odd", IEEE Transactions on Computers 57(4), 2008.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

F64Array = npt.NDArray[np.float64]
F32Array = npt.NDArray[np.float32]
F16Array = npt.NDArray[np.float16]
U16Array = npt.NDArray[np.uint16]

_SPLITTER = 134217729.0  # 2^27 + 1
_HUGE = 2.0**960  # beyond this, splitting a factor or summing may overflow
_TINY = 2.0**-960  # below this, the low part of a product may underflow


def two_sum(a: F64Array, b: F64Array) -> tuple[F64Array, F64Array]:
    """(s, e) with s = fl(a + b) and s + e = a + b exactly (Knuth)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def _split(a: F64Array) -> tuple[F64Array, F64Array]:
    c = _SPLITTER * a
    high = c - (c - a)
    return high, a - high


def two_product(a: F64Array, b: F64Array) -> tuple[F64Array, F64Array]:
    """(p, e) with p = fl(a · b) and p + e = a · b exactly, away from over- and underflow (Dekker)."""
    p = a * b
    (ah, al), (bh, bl) = _split(a), _split(b)
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def _add_round_to_odd(a: F64Array, b: F64Array) -> F64Array:
    """a + b, rounded to the neighbour with an odd last bit unless it is exact."""
    s, e = two_sum(a, b)
    bits = np.ascontiguousarray(s).view(np.int64)
    step = np.where((e > 0) == (s > 0), 1, -1)
    fix = (e != 0) & (bits & 1 == 0)
    return np.asarray((bits + np.where(fix, step, 0)).view(np.float64))


def _exact(a: float, b: float, c: float) -> float:
    total = Fraction(a) * Fraction(b) + Fraction(c)
    try:
        return float(total) if total else 0.0
    except OverflowError:
        return float("inf") if total > 0 else float("-inf")


def fma_f64(a: npt.ArrayLike, b: npt.ArrayLike, c: npt.ArrayLike) -> F64Array:
    """a · b + c in binary64 with one rounding, elementwise with broadcasting."""
    a, b, c = np.broadcast_arrays(*(np.asarray(v, np.float64) for v in (a, b, c)))
    shape, (a, b, c) = a.shape, (np.atleast_1d(v) for v in (a, b, c))
    with np.errstate(all="ignore"):
        product, low = two_product(a, b)
        high_sum, high_error = two_sum(c, low)
        value, error = two_sum(product, high_sum)
        result = value + _add_round_to_odd(high_error, error)
        plain = ~(np.isfinite(a) & np.isfinite(b) & np.isfinite(c)) | (a == 0) | (b == 0)
        result = np.where(plain, a * b + c, result)
        largest = np.maximum(np.maximum(np.abs(a), np.abs(b)), np.maximum(np.abs(c), np.abs(product)))
        easy = (np.abs(product) > _TINY) & (largest < _HUGE)
    hard = ~(plain | easy)
    if hard.any():
        lanes = zip(a[hard].tolist(), b[hard].tolist(), c[hard].tolist(), strict=True)
        result[hard] = [_exact(*lane) for lane in lanes]
    return result.reshape(shape)


def fma_f32(a: npt.ArrayLike, b: npt.ArrayLike, c: npt.ArrayLike) -> F32Array:
    """a · b + c in binary32 with one rounding: an exact product, a sum rounded to odd, both in binary64."""
    a, b, c = (np.asarray(v, np.float32).astype(np.float64) for v in (a, b, c))
    with np.errstate(all="ignore"):
        product, c = np.broadcast_arrays(a * b, c)
        shape, product, c = product.shape, np.atleast_1d(product), np.atleast_1d(c)
        total = product + c
        odd = np.isfinite(total) & (total != 0)  # an exact zero keeps the sign that the addition gave it
        return np.where(odd, _add_round_to_odd(product, c), total).astype(np.float32).reshape(shape)


def widen_f16(x: F16Array) -> F32Array:
    """binary16 to binary32, exact."""
    return x.astype(np.float32)


def narrow_f16(x: F32Array) -> F16Array:
    """binary32 to binary16, to nearest, ties to even."""
    with np.errstate(all="ignore"):
        return x.astype(np.float16)


def widen_bf16(bits: U16Array) -> F32Array:
    """bfloat16 patterns to binary32, exact."""
    return (np.asarray(bits, np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def narrow_bf16(x: F32Array) -> U16Array:
    """binary32 to bfloat16 patterns, to nearest, ties to even; NaN becomes 0x7FC0."""
    x = np.asarray(x, np.float32)
    bits = np.atleast_1d(x).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(x), 0x7FC0, rounded.reshape(x.shape)).astype(np.uint16)
