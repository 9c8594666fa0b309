"""erf and erfc. NAME_f32 takes a widened f32 and is rounded to f32 once, by the caller."""

from __future__ import annotations

from isobit.arithmetic import exponentials
from isobit.arithmetic.ops import F, I, M, Ops
from isobit.arithmetic.steps import (
    clamp,
    copy_sign,
    divide_pairs,
    fast_two_sum,
    hexes,
    polynomial,
    polynomial_by_fours,
    scale,
    two_product,
    two_sum,
)  # fmt: skip

# tools/fit_polynomials.py; relative errors in units of 2^-53
ERF_P = hexes(  # erf(x) ÷ x = P(x²) ÷ Q(x²) on |x| ≤ 3.93: 1.7; last bits as f32 needs
    "0x1.20dd750429b6ep+0 0x1.99d8d4a376408p-3 0x1.f8d85bc281603p-5 0x1.70d239ec470a7p-8"
    " 0x1.718ee61d73b03p-11 0x1.4e27a2dd36e6dp-15 0x1.61cd761d74179p-19 0x1.8e272bd40fc2ep-24"
    " 0x1.c305f3a49ede0p-29 0x1.068687e5579e2p-34 0x1.c6b04065c561ep-41 0x1.b93059c62bc13p-50"
)
ERF_Q = hexes(
    "0x1.0000000000000p+0 0x1.0578953c3fb3fp-1 0x1.ff5c18e7b7c89p-4 0x1.3cea705646c7ep-6"
    " 0x1.158c89e0a8488p-9 0x1.69fa82fae49acp-13 0x1.68135e1b1c4bfp-17 0x1.123b0477edc1fp-21"
    " 0x1.3a4744467e4cep-26 0x1.01c6ac246d89fp-31 0x1.0bdac38a469e9p-37 0x1.decb2452e2661p-45"
)
ERFC_P = hexes(  # exp(a²)·erfc(a) = P(a) ÷ Q(a) on 0 ≤ a ≤ 10.2: 0.18
    "0x1.0000000000000p+0 0x1.0c262cbc79cd9p+1 0x1.1758292dc567ap+1 0x1.71dd65326548ap+0"
    " 0x1.5305cd3ac078dp-1 0x1.bbd128aab6a3fp-3 0x1.9e5bb18f0244dp-5 0x1.0a8f8ea501b9dp-7"
    " 0x1.af2d62ac7e2dcp-11 0x1.5176decebf665p-15"
)
ERFC_Q = hexes(
    "0x1.0000000000000p+0 0x1.9c94e73e8ea8ep+1 0x1.34724b3b45149p+2 0x1.1a5d36ce39126p+2"
    " 0x1.5f74bd6bb0744p+1 0x1.37bd640d8fdbfp+0 0x1.90ab1d1121be7p-2 0x1.723360439ae00p-4"
    " 0x1.d9a289531a00fp-7 0x1.7e1ef4ac68f2ap-10 0x1.2b11ea5976457p-14"
)
ERF_NEAR = hexes(  # erf(x) ÷ x − 1 in x² on |x| ≤ ¾: 0.1
    "0x1.06eba8214db69p-3 -0x1.812746b0379e7p-2 0x1.ce2f21a042bc4p-4 -0x1.b82ce31287c33p-6"
    " 0x1.565bcd0e29ea9p-8 -0x1.c02db3ebf9cf3p-11 0x1.f9a322ebe122ep-14 -0x1.f4d1d356611a6p-17"
    " 0x1.b9dab3e849aa6p-20 -0x1.5ebedb572e75dp-23 0x1.ef296f1d40c81p-27 -0x1.04f6be11d406ep-30"
)
ERFCX = hexes(  # (1 + 2a)·exp(a²)·erfc(a) − 1 in q = (a − 4) ÷ (a + 4) on 0 ≤ a ≤ 27.6, against 1 + it: 0.4
    "0x1.dd2c8b74febf6p-3 -0x1.1df1ad154a29bp-3 0x1.f7f5df66fd796p-7 0x1.16ecefcfa5fcep-4"
    " -0x1.9ddb23c3e8dc9p-4 0x1.7fee004df7853p-4 -0x1.0fb06dfe53b6ep-4 0x1.3079edf9e44ddp-5"
    " -0x1.0962388169dc5p-6 0x1.49c67195b0200p-8 -0x1.8d4a9f1ef9c86p-11 -0x1.a1de85106bcafp-13"
    " 0x1.3be0c55d96535p-13 -0x1.9969dff1e7836p-16 -0x1.78a6501be4092p-17 0x1.7fb0577db68c2p-18"
    " 0x1.43d4b1b0b2fb7p-22 -0x1.c00891698cc3cp-21 0x1.0d18a0601a902p-24 0x1.ed6cb879d3fc8p-24"
    " -0x1.0c600538eb95dp-27 -0x1.d0cc302ab9d6fp-27 -0x1.e4545c73a602bp-30"
)


def erf_f32(o: Ops[F, I, M], x: F) -> F:
    """One rational in x²; ±1 beyond 3.92."""
    x = clamp(o, x, -3.93, 3.93)
    z = o.mul(x, x)
    return o.div(o.mul(x, polynomial_by_fours(o, ERF_P, z)), polynomial_by_fours(o, ERF_Q, z))


def erfc_f32(o: Ops[F, I, M], x: F) -> F:
    """exp(−a²)·(P ÷ Q)(a) with a = |x|, whose square is exact; 2 − that for negative x."""
    a = clamp(o, o.fabs(x), 0.0, 10.125)
    r, power = exponentials.reduce_f32(o, o.neg(o.mul(a, a)))
    numerator = o.mul(polynomial_by_fours(o, exponentials.EXP, r), polynomial_by_fours(o, ERFC_P, a))
    value = o.div(o.mul(numerator, power), polynomial_by_fours(o, ERFC_Q, a))
    return o.select(o.lt(x, o.f(0.0)), o.sub(o.f(2.0), value), value)


def _erfc_pair(o: Ops[F, I, M], a: F) -> tuple[F, F, I]:
    """(hi, lo, n) with erfc(a) = (hi + lo)·2^n, for 0 ≤ a ≤ 27.6.

    exp(−a²) in double-double, times a scaled erfcx in q = (a − 4) ÷ (a + 4), after M. M. Shepherd and J. G.
    Laframboise, "Chebyshev approximation of (1 + 2x) exp(x²) erfc x", Math. Comp. 36(153), 1981.
    """
    square, square_rest = two_product(o, a, a)
    r, rest, n = exponentials.reduce_f64(o, o.neg(square))
    power = exponentials.exp_pair(o, *two_sum(o, r, o.sub(rest, square_rest)))
    q, q_rest = divide_pairs(o, two_sum(o, a, o.f(-4.0)), two_sum(o, a, o.f(4.0)))
    slope = polynomial(o, ERFCX[1:], q)
    step, step_rest = two_product(o, q, slope)
    high, low = fast_two_sum(o, o.f(1.0 + ERFCX[0]), step)
    rest = o.add(o.fma(q_rest, slope, step_rest), o.f(ERFCX[0] - ((1.0 + ERFCX[0]) - 1.0)))
    top = fast_two_sum(o, high, o.add(low, rest))
    product, error = two_product(o, power[0], top[0])
    error = o.add(error, o.fma(power[0], top[1], o.mul(power[1], top[0])))
    high, low = divide_pairs(o, (product, error), fast_two_sum(o, o.f(1.0), o.add(a, a)))
    return high, low, n


def _erf_tail(o: Ops[F, I, M], x: F) -> F:
    """erf(x) − x for |x| ≤ ¾."""
    return o.mul(x, polynomial(o, ERF_NEAR, o.mul(x, x)))


def erfc_f64(o: Ops[F, I, M], x: F) -> F:
    """1 − erf(x) to |x| = ¾, where q would be too inexact; error below 1 ulp."""
    high, low, n = _erfc_pair(o, clamp(o, o.fabs(x), 0.75, 27.5))
    far = scale(o, o.add(high, low), n)
    far = o.select(o.lt(x, o.f(0.0)), o.sub(o.f(2.0), far), far)
    high, low = fast_two_sum(o, o.f(1.0), o.neg(x))
    near = o.add(high, o.sub(low, _erf_tail(o, x)))
    return o.select(o.lt(o.fabs(x), o.f(0.75)), near, far)


def erf_f64(o: Ops[F, I, M], x: F) -> F:
    """x + x·P(x²) to |x| = ¾, then 1 − erfc(|x|); error below 0.9 ulp."""
    near = o.add(x, _erf_tail(o, x))
    high, low, n = _erfc_pair(o, clamp(o, o.fabs(x), 0.75, 6.0))
    far = o.sub(o.f(1.0), scale(o, o.add(high, low), n))
    return o.select(o.lt(o.fabs(x), o.f(0.75)), near, copy_sign(o, far, x))
