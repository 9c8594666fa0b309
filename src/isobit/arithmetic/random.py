"""Random numbers as a pure function of (key, shape): Philox 4x32-10 and ARITHMETIC.md §6.

J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. The
64-bit key is the pair (low, high half); counter c is (low, high half of c, 0, 0). Word j of the stream is word
j mod 4 of counter j ÷ 4; 64-bit word i is word 2i + 2^32 · word 2i+1. Elements are numbered in row-major order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from isobit.arithmetic.dtypes import DType
from isobit.arithmetic.fma import narrow_bf16, narrow_f16
from isobit.arithmetic.functions import FUNCTIONS

Array = npt.NDArray[Any]
U64Array = npt.NDArray[np.uint64]
I64Array = npt.NDArray[np.int64]
Words = tuple[U64Array, U64Array, U64Array, U64Array]

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_ROUNDS = 10
_TWO_PI = {np.dtype("f4"): np.float32(6.283185307179586), np.dtype("f8"): np.float64(6.283185307179586)}


def philox4x32(counter: Words, key: tuple[U64Array, U64Array]) -> Words:
    """The four 32-bit words of each counter, ten rounds; 32-bit values are held in uint64 arrays."""
    (k0, k1), (c0, c1, c2, c3) = key, counter
    for _ in range(_ROUNDS):
        first, second = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (second >> _HALF) ^ c1 ^ k0, second & _LOW, (first >> _HALF) ^ c3 ^ k1, first & _LOW
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    return c0, c1, c2, c3


def word(key: npt.ArrayLike, j: npt.ArrayLike) -> I64Array:
    """Word j (0 ≤ word < 2^32) of the streams of 64-bit keys; arrays of i64 or u64 that broadcast."""
    key, j = np.broadcast_arrays(_as_u64(key), _as_u64(j))
    counter, zero = j >> np.uint64(2), np.zeros_like(j)
    words = philox4x32((counter & _LOW, counter >> _HALF, zero, zero), (key & _LOW, key >> _HALF))
    return np.choose((j & np.uint64(3)).astype(np.int64), words).astype(np.int64)


def _as_u64(x: npt.ArrayLike) -> U64Array:
    x = np.asarray(x)
    return x.astype(np.int64).view(np.uint64) if x.dtype.kind == "i" else x.astype(np.uint64)


def _words(key: int, n: int) -> U64Array:
    """The first n words of the key's stream."""
    return word(np.uint64(key), np.arange(n, dtype=np.uint64)).view(np.uint64)


def words64(key: int, n: int) -> U64Array:
    """The first n 64-bit words of the key's stream."""
    w = _words(key, 2 * n)
    return w[0::2] | (w[1::2] << _HALF)


def _size(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64))


def _narrow(x: Array, dtype: DType) -> Array:
    if dtype == DType.BF16:
        return narrow_bf16(x)
    return narrow_f16(x) if dtype == DType.F16 else x


_UNIFORM_BITS = {DType.F32: 24, DType.F16: 11, DType.BF16: 8}


def _require_float(name: str, dtype: DType) -> None:
    if not dtype.is_float:
        raise TypeError(f"{name}: dtype {dtype} is no float; draw f32 or f64 and convert")


def uniform(key: int, shape: Sequence[int], dtype: DType = DType.F32) -> Array:
    """Uniform on [0, 1) in the dtype's representation (bf16: uint16 patterns). Raises TypeError unless a float."""
    _require_float("uniform", dtype)
    n = _size(shape)
    if dtype == DType.F64:
        return ((words64(key, n) >> np.uint64(11)).astype(np.float64) * 2.0**-53).reshape(shape)
    bits = _UNIFORM_BITS[dtype]
    value = (_words(key, n) >> np.uint64(32 - bits)).astype(np.float32) * np.float32(2.0**-bits)
    return _narrow(value.reshape(shape), dtype)


def normal(key: int, shape: Sequence[int], dtype: DType = DType.F32, mean: float = 0.0, std: float = 1.0) -> Array:
    """Box-Muller pairs of §6, ·std, +mean, each step rounded in f32 (f64 for f64); narrow dtypes round once at the end.

    In f64, u and v are the upper 53 bits of 64-bit words 2j and 2j+1 in place of the upper 24 of words.
    Raises TypeError unless the dtype is a float.
    """
    _require_float("normal", dtype)
    n = _size(shape)
    u, v = _unit_pairs(key, (n + 1) // 2, dtype)
    minus_two = u.dtype.type(-2)
    radius = np.sqrt(minus_two * FUNCTIONS["log"](u))
    angle = _TWO_PI[u.dtype] * v
    pairs = np.stack([radius * FUNCTIONS["cos"](angle), radius * FUNCTIONS["sin"](angle)], -1)
    value = pairs.reshape(-1)[:n].reshape(shape)
    return _narrow(value * value.dtype.type(std) + value.dtype.type(mean), dtype)


def _unit_pairs(key: int, pairs: int, dtype: DType) -> tuple[Array, Array]:
    """u on (0, 1] and v on [0, 1) of each pair."""
    if dtype == DType.F64:
        w = words64(key, 2 * pairs) >> np.uint64(11)
        return (w[0::2] + np.uint64(1)).astype(np.float64) * 2.0**-53, w[1::2].astype(np.float64) * 2.0**-53
    w = _words(key, 2 * pairs) >> np.uint64(8)
    unit = np.float32(2.0**-24)
    return (w[0::2] + np.uint64(1)).astype(np.float32) * unit, w[1::2].astype(np.float32) * unit


def bernoulli(key: int, shape: Sequence[int], p: npt.ArrayLike = 0.5) -> npt.NDArray[np.bool_]:
    """uniform < p in binary64, with the 24-bit uniform of f32 whatever the output's dtype; p broadcasts."""
    return np.asarray(uniform(key, shape).astype(np.float64) < np.asarray(p, np.float64))


def dropout_mask(key: int, shape: Sequence[int], p: float) -> npt.NDArray[np.bool_]:
    """True where an element is kept, which has probability 1 − p; multiply by f32(1/(1−p)) (§6)."""
    return bernoulli(key, shape, 1.0 - p)


def exponential(key: int, shape: Sequence[int], dtype: DType = DType.F32, rate: float = 1.0) -> Array:
    """−log(u) ÷ rate with u = (2·(w >> 9) + 1)·2^−24, which is exact and neither 0 nor 1, so no result is 0 or ∞.

    In f64 u = (2·(w >> 12) + 1)·2^−53 from 64-bit words. Raises TypeError unless the dtype is a float.
    """
    _require_float("exponential", dtype)
    n = _size(shape)
    u: Array
    if dtype == DType.F64:
        u = ((words64(key, n) >> np.uint64(12)) * np.uint64(2) + np.uint64(1)).astype(np.float64) * 2.0**-53
    else:
        odd = (_words(key, n) >> np.uint64(9)) * np.uint64(2) + np.uint64(1)
        u = odd.astype(np.float32) * np.float32(2.0**-24)
    return _narrow((-FUNCTIONS["log"](u) / u.dtype.type(rate)).reshape(shape), dtype)


def randint(key: int, shape: Sequence[int], low: int, high: int) -> I64Array:
    """Integers in [low, high): (64-bit word · range) >> 64, + low (§6). Raises ValueError for an empty range."""
    span = high - low
    if not 0 < span <= 2**64:
        raise ValueError(f"randint: the range [{low}, {high}) is empty or longer than 2^64")
    words = words64(key, _size(shape)).tolist()
    values = [((w * span) >> 64) + low for w in words]
    return np.array(values, np.int64).reshape(shape)


def randperm(key: int, n: int) -> I64Array:
    """A permutation of 0..n−1: the stable argsort of n unsigned 64-bit words (§6)."""
    return np.argsort(words64(key, n), kind="stable").astype(np.int64)
