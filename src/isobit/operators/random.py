"""Random numbers as pure functions of (key, shape), ARITHMETIC.md §6. `key` is a 0-d i64 tensor."""

from __future__ import annotations

import math
from collections.abc import Iterable

from isobit.arithmetic.dtypes import DType
from isobit.ir.expr import Affine, Axis, Expr, axes, call, coord
from isobit.ir.expr import where as select
from isobit.ir.graph import Value
from isobit.operators.elements import Operand, pointwise, read
from isobit.operators.registry import bit_move, operator

TAU = 2 * math.pi
_BITS = {DType.F32: 24, DType.F16: 11, DType.BF16: 8}


def _compute(dtype: DType) -> DType:
    return DType.F64 if dtype == DType.F64 else DType.F32


def _flat(at: Iterable[Axis]) -> Affine:
    """The row-major position."""
    total = Affine()
    for a in at:
        total = total * a.extent + a
    return total


def _word(key: Value, j: Expr) -> Expr:
    """32 random bits, as i64."""
    return call("philox", key[()], j)


def _wide_word(key: Value, i: Expr) -> tuple[Expr, Expr]:
    """(upper, lower) 32 bits of the i-th 64-bit word: words 2i + 1 and 2i."""
    j = i * 2
    return _word(key, j + 1), _word(key, j)


def _unit(key: Value, i: Expr, dtype: DType, offset: int = 0) -> Expr:
    """Element i uniform in [0, 1), in the compute dtype; `offset` counts steps of its grid to add."""
    if dtype == DType.F64:
        upper, lower = _wide_word(key, i)
        steps = (call("shl", upper, upper.like(21)) | call("shr", lower, lower.like(11))) + offset
        return steps.cast(DType.F64) * 2.0**-53
    bits = _BITS[dtype]
    w = _word(key, i)
    return (call("shr", w, w.like(32 - bits)) + offset).cast(DType.F32) * 2.0**-bits


@bit_move
def uniform(
    key: Value, shape: Iterable[int], dtype: DType = DType.F32, low: Operand = 0.0, high: Operand = 1.0
) -> Value:
    """u·(high − low) + low with u in [0, 1); high − low in binary64. Left out where they are 1 and 0."""
    at = axes(*shape)
    u = _unit(key, coord(_flat(at)), dtype)
    if isinstance(low, Value) or isinstance(high, Value) or (low, high) != (0, 1):
        span: Operand = pointwise(lambda a, b: b - a, *_binary64(key, low, high))
        u = u * read(span, at, u.dtype) + read(low, at, u.dtype)
    return key.graph.map(at, u.cast(dtype))


def _binary64(key: Value, *numbers: Operand) -> list[Value]:
    return [n if isinstance(n, Value) else key.graph.constant(n, DType.F64) for n in numbers]


@bit_move
def normal(
    key: Value, shape: Iterable[int], dtype: DType = DType.F32, mean: Operand = 0.0, std: Operand = 1.0
) -> Value:
    """z·std + mean; z of the pair (2j, 2j + 1) is r·cos θ, r·sin θ with r = √(−2·log u), θ = 2π·v.

    u in (0, 1] and v in [0, 1) are elements 2j and 2j + 1 of the uniform numbers (narrow dtypes: of f32's).
    """
    at = axes(*shape)
    i = coord(_flat(at))
    wide = _compute(dtype)
    odd = i & 1
    first = i - odd
    u, v = _unit(key, first, wide, offset=1), _unit(key, first + 1, wide)
    r, theta = call("sqrt", -2 * call("log", u)), TAU * v
    z = r * select(odd.eq(0), call("cos", theta), call("sin", theta))
    return key.graph.map(at, (z * read(std, at, wide) + read(mean, at, wide)).cast(dtype))


def _chance(key: Value, at: tuple[Axis, ...], p: Operand) -> Expr:
    """uniform (f32's) < p, in binary64."""
    u = _unit(key, coord(_flat(at)), DType.F32)
    chance = read(p, at, DType.F64)
    return u.cast(DType.F64) < chance.cast(DType.F64)


@bit_move
def bernoulli(key: Value, shape: Iterable[int], p: Operand, dtype: DType = DType.F32) -> Value:
    """1 with probability p (a number, or a tensor of `shape`), else 0."""
    at = axes(*shape)
    return key.graph.map(at, _chance(key, at, p).cast(dtype))


@operator
def dropout(key: Value, x: Value, p: float) -> tuple[Value, Value]:
    """(x·(mask·(1 ÷ (1 − p))), mask); mask, bool, is uniform < 1 − p. 1 − p and its reciprocal are binary64."""
    at = x.axes()
    mask = key.graph.map(at, _chance(key, at, 1 - p))
    return _dropped(x, mask, 0.0 if p == 1 else 1 / (1 - p)), mask


@operator
def dropout_backward(dy: Value, mask: Value, scale: float) -> Value:
    """dy·(mask·scale)."""
    return _dropped(dy, mask, scale)


def _dropped(x: Value, mask: Value, scale: float) -> Value:
    at = x.axes()
    return x.graph.map(at, x[at] * select(mask[at], x[at].like(scale), 0))


@bit_move
def randint(key: Value, shape: Iterable[int], low: int, high: int, dtype: DType = DType.I64) -> Value:
    """(64-bit word × (high − low)) >> 64, + low: every integer in [low, high)."""
    if high <= low:
        raise ValueError(f"randint from {low} to {high}")
    at = axes(*shape)
    upper, lower = _wide_word(key, coord(_flat(at)))
    return key.graph.map(at, (_high_product(upper, lower, high - low) + low).cast(dtype))


def _high_product(upper: Expr, lower: Expr, factor: int) -> Expr:
    """The upper 64 bits of the unsigned product of a 64-bit word, given in halves, and `factor` < 2^64."""
    f0, f1 = factor & 0xFFFFFFFF, factor >> 32
    middle = upper * f0 + _upper_half(lower * f0)
    if not f1:
        return _upper_half(middle)
    other = lower * f1 + (middle & 0xFFFFFFFF)
    return upper * f1 + _upper_half(middle) + _upper_half(other)


def _upper_half(e: Expr) -> Expr:
    """The upper 32 of 64 bits, unsigned."""
    return call("shr", e, e.like(32)) & 0xFFFFFFFF


@bit_move
def exponential(key: Value, shape: Iterable[int], rate: Operand = 1.0, dtype: DType = DType.F32) -> Value:
    """−log(u) ÷ rate with u an odd multiple of 2^−24 (f64: 2^−53) in (0, 1): no result is 0 or infinite."""
    at = axes(*shape)
    i, wide = coord(_flat(at)), _compute(dtype)
    if wide == DType.F64:
        upper, lower = _wide_word(key, i)
        steps, scale = call("shl", upper, upper.like(20)) | call("shr", lower, lower.like(12)), 2.0**-53
    else:
        w = _word(key, i)
        steps, scale = call("shr", w, w.like(9)), 2.0**-24
    u = (steps * 2 + 1).cast(wide) * scale
    return key.graph.map(at, (-call("log", u) / read(rate, at, wide)).cast(dtype))
