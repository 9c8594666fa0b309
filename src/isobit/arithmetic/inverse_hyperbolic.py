"""asinh, acosh and atanh. NAME_f32 takes a widened f32 and is rounded to f32 once, by the caller."""

from __future__ import annotations

from isobit.arithmetic.logarithms import log1p_core_f32, log1p_pair
from isobit.arithmetic.ops import F, I, M, Ops
from isobit.arithmetic.steps import (
    INF,
    NAN,
    copy_sign,
    divide_pairs,
    fast_two_sum,
    multiply_pairs,
    sqrt_pair,
    two_product,
    two_sum,
)  # fmt: skip

LARGE = 2.0**30  # from here on asinh(a) and acosh(a) are log(2a) to 2^-61
TINY = 2.0**-28  # below, asinh(a) and atanh(a) are a to 2^-57


def asinh_f32(o: Ops[F, I, M], x: F) -> F:
    """log1p(a + a² ÷ (1 + √(1 + a²))) with a = |x|, whose square is exact."""
    a = o.fabs(x)
    square = o.mul(a, a)
    root = o.sqrt(o.add(square, o.f(1.0)))
    value = log1p_core_f32(o, o.add(a, o.div(square, o.add(root, o.f(1.0)))))
    return copy_sign(o, o.select(o.lt(a, o.f(INF)), value, a), x)


def acosh_f32(o: Ops[F, I, M], x: F) -> F:
    """log1p(d + √(d·(x + 1))) with d = x − 1; NaN below 1."""
    d = o.sub(x, o.f(1.0))
    value = log1p_core_f32(o, o.add(d, o.sqrt(o.mul(d, o.add(x, o.f(1.0))))))
    inside = o.mand(o.ge(x, o.f(1.0)), o.lt(x, o.f(INF)))
    outside = o.select(o.eq(x, o.f(INF)), x, o.f(NAN))
    return o.select(inside, value, outside)


def _atanh_ends(o: Ops[F, I, M], a: F, value: F) -> F:
    """`value` for a < 1, ∞ at 1, NaN beyond."""
    ends = o.select(o.eq(a, o.f(1.0)), o.f(INF), o.f(NAN))
    return o.select(o.lt(a, o.f(1.0)), value, ends)


def atanh_f32(o: Ops[F, I, M], x: F) -> F:
    """log1p(2a ÷ (1 − a)) ÷ 2 with a = |x|."""
    a = o.fabs(x)
    value = o.mul(o.f(0.5), log1p_core_f32(o, o.div(o.add(a, a), o.sub(o.f(1.0), a))))
    return copy_sign(o, _atanh_ends(o, a, value), x)


def _log_2a_or_1_plus(o: Ops[F, I, M], a: F, value: tuple[F, F]) -> F:
    """log(1 + value), or log(2a) where a ≥ 2^30."""
    large, zero, one = o.ge(a, o.f(LARGE)), o.f(0.0), o.f(1.0)
    high, low = log1p_pair(
        o,
        o.select(large, zero, value[0]),
        o.select(large, zero, value[1]),
        o.select(large, a, one),
        o.select(large, one, zero),
    )
    return o.select(o.lt(a, o.f(INF)), o.add(high, low), a)


def asinh_f64(o: Ops[F, I, M], x: F) -> F:
    """As on f32, in double-double; log(2a) from 2^30 on. Error below 0.6 ulp."""
    a = o.fabs(x)
    square = two_product(o, a, a)
    high, low = two_sum(o, o.f(1.0), square[0])
    root = sqrt_pair(o, (high, o.add(low, square[1])))
    high, low = two_sum(o, o.f(1.0), root[0])
    part = divide_pairs(o, square, fast_two_sum(o, high, o.add(low, root[1])))
    high, low = two_sum(o, a, part[0])
    value = _log_2a_or_1_plus(o, a, (high, o.add(low, part[1])))
    return copy_sign(o, o.select(o.lt(a, o.f(TINY)), a, value), x)


def acosh_f64(o: Ops[F, I, M], x: F) -> F:
    """As on f32, in double-double; log(2x) from 2^30 on. Error below 0.6 ulp."""
    d = o.sub(x, o.f(1.0))  # exact for 1 ≤ x ≤ 2^53
    root = sqrt_pair(o, multiply_pairs(o, (d, o.f(0.0)), two_sum(o, x, o.f(1.0))))
    high, low = two_sum(o, d, root[0])
    value = _log_2a_or_1_plus(o, x, (high, o.add(low, root[1])))
    value = o.select(o.eq(x, o.f(1.0)), o.f(0.0), value)
    return o.select(o.ge(x, o.f(1.0)), value, o.f(NAN))


def atanh_f64(o: Ops[F, I, M], x: F) -> F:
    """As on f32, in double-double. Error below 0.6 ulp."""
    a = o.fabs(x)
    ratio = divide_pairs(o, (o.add(a, a), o.f(0.0)), two_sum(o, o.f(1.0), o.neg(a)))
    high, low = log1p_pair(o, *fast_two_sum(o, *ratio), o.f(1.0), o.f(0.0))
    value = o.select(o.lt(a, o.f(TINY)), a, o.mul(o.f(0.5), o.add(high, low)))
    return copy_sign(o, _atanh_ends(o, a, value), x)
