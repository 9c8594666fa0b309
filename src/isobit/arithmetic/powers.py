"""rsqrt. NAME_f32 takes a widened f32 and is rounded to f32 once, by the caller."""

from __future__ import annotations

from isobit.arithmetic.ops import F, I, M, Ops
from isobit.arithmetic.steps import INF, two_product


def rsqrt_f32(o: Ops[F, I, M], x: F) -> F:
    """1 ÷ √x; ±∞ at ±0."""
    return o.div(o.f(1.0), o.sqrt(x))


def rsqrt_f64(o: Ops[F, I, M], x: F) -> F:
    """1 ÷ √x and one Newton step with an exact residual, error below 0.51 ulp."""
    y = o.div(o.f(1.0), o.sqrt(x))
    product, rest = two_product(o, x, y)
    residual = o.sub(o.fma(o.neg(product), y, o.f(1.0)), o.mul(rest, y))
    better = o.fma(o.mul(y, o.f(0.5)), residual, y)
    ordinary = o.mand(o.gt(x, o.f(0.0)), o.lt(x, o.f(INF)))
    return o.select(ordinary, better, y)
