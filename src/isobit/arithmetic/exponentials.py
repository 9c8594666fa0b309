"""exp, exp2, expm1, sinh, cosh and tanh. NAME_f32 takes a widened f32 and is rounded to f32 once, by the caller."""

from __future__ import annotations

from isobit.arithmetic.ops import F, I, M, Ops
from isobit.arithmetic.steps import (
    MAGIC,
    MAGIC_BITS,
    Cases,
    clamp,
    copy_sign,
    divide_pairs,
    fast_two_sum,
    hexes,
    nudge,
    polynomial,
    polynomial_by_fours,
    power_of_two,
    scale,
    two_product,
    two_sum,
)  # fmt: skip

LOG2E = float.fromhex("0x1.71547652b82fep+0")
LN2 = float.fromhex("0x1.62e42fefa39efp-1")
LN2_REST = float.fromhex("0x1.abc9e3b39803fp-56")  # ln 2 − LN2
LN2_SHORT = float.fromhex("0x1.62e42fefa3800p-1")  # 42 bits, so n·LN2_SHORT is exact for |n| < 2^11
LN2_SHORT_REST = float.fromhex("0x1.ef35793c76730p-45")
BIAS = MAGIC + 1023  # rounds to an integer n and leaves n + 1023, an exponent field, in the low bits

# tools/fit_polynomials.py; relative errors in units of 2^-53
EXP = hexes(  # exp(r) on |r| ≤ ln2/2: 2.7
    "0x1.0000000000000p+0 0x1.000000000001dp+0 0x1.ffffffffffe17p-2 0x1.555555554bbeap-3"
    " 0x1.555555559346ep-5 0x1.1111112d4dbbep-7 0x1.6c16c0c09543cp-10 0x1.a0197a40e7755p-13"
    " 0x1.a01b6d057b2ddp-16 0x1.72f993b1caebdp-19 0x1.2727a052388d6p-22"
)
EXP2 = hexes(  # 2^r on |r| ≤ ½, 1 at 0: 2.7
    "0x1.0000000000000p+0 0x1.62e42fefa3a28p-1 0x1.ebfbdff82c61fp-3 0x1.c6b08d7039566p-5"
    " 0x1.3b2ab6fb820e0p-7 0x1.5d87fea4a609ep-10 0x1.43091387afb36p-13 0x1.ffcb3f1e6b744p-17"
    " 0x1.62be68a8c58b7p-20 0x1.b689b1cd0b362p-24 0x1.e8b6e10d5d747p-28"
)
EXP2_CASES: Cases = (("-0x1.e7526ep-6", 2),)
SINH_CASES: Cases = (("0x1.250bfep-11", -1),)
EXPM1 = hexes(  # expm1(r) ÷ r on |r| ≤ ln2/2: 0.19
    "0x1.0000000000000p+0 0x1.0000000000005p-1 0x1.5555555555530p-3 0x1.5555555552112p-5"
    " 0x1.111111111a267p-7 0x1.6c16c17f2cdd7p-10 0x1.a01a0170ff6a1p-13 0x1.a019a6a88c13dp-16"
    " 0x1.71de8e6e2d5a4p-19 0x1.28a28847ffbcbp-22 0x1.ae6446524d830p-26"
)
TANH = hexes(  # expm1(2r) ÷ r on |r| ≤ ln2/4: 0.19
    "0x1.0000000000000p+1 0x1.0000000000005p+1 0x1.5555555555530p+0 0x1.5555555552112p-1"
    " 0x1.111111111a267p-2 0x1.6c16c17f2cdd7p-4 0x1.a01a0170ff6a1p-6 0x1.a019a6a88c13dp-8"
    " 0x1.71de8e6e2d5a4p-10 0x1.28a28847ffbcbp-12 0x1.ae6446524d830p-15"
)
EXP_TAIL = hexes(  # (exp(r) − 1 − r − r²/2) ÷ r³ on |r| ≤ ln2/2: 1.0
    "0x1.5555555555556p-3 0x1.5555555555554p-5 0x1.11111111109b7p-7 0x1.6c16c16c1812bp-10"
    " 0x1.a01a01a7c14d0p-13 0x1.a01a0198a45d1p-16 0x1.71de0db7c11aep-19 0x1.27e502cc99702p-22"
    " 0x1.af38963890745p-26 0x1.1f2a1f6c9f9e1p-29"
)


def reduce_f32(o: Ops[F, I, M], x: F, halves: int = 1) -> tuple[F, F]:
    """(r, 2^n) with halves·x = n·ln 2 + halves·r, for |x| < 128; halves is 1, or 2 for exp(2x)."""
    turned = o.fma(x, o.f(LOG2E * halves), o.f(BIAS))
    n = o.sub(turned, o.f(BIAS))
    r = o.fma(n, o.f(-LN2 / halves), x)
    r = o.fma(n, o.f(-LN2_REST / halves), r)
    return r, o.from_bits(o.shl(o.bits(turned), o.i(52)))


def exp_f32(o: Ops[F, I, M], x: F) -> F:
    """exp: beyond the clamp the result is 0 or overflows f32 all the same."""
    r, power = reduce_f32(o, clamp(o, x, -105.0, 90.0))
    return o.mul(polynomial_by_fours(o, EXP, r), power)


def exp2_f32(o: Ops[F, I, M], x: F) -> F:
    """2^x; exact for integers."""
    x = clamp(o, x, -152.0, 129.0)
    turned = o.add(x, o.f(BIAS))
    r = o.sub(x, o.sub(turned, o.f(BIAS)))
    value = o.mul(polynomial_by_fours(o, EXP2, r), o.from_bits(o.shl(o.bits(turned), o.i(52))))
    return nudge(o, x, value, EXP2_CASES)


def _expm1_of_reduced(o: Ops[F, I, M], c: tuple[float, ...], r: F, power: F) -> F:
    """2^n·(r·c(r)) + (2^n − 1). With n = 0 the last term is −0, so that r = −0 keeps its sign."""
    return o.fma(power, o.mul(r, polynomial_by_fours(o, c, r)), o.neg(o.sub(o.f(1.0), power)))


def expm1_f32(o: Ops[F, I, M], x: F) -> F:
    """exp(x) − 1."""
    r, power = reduce_f32(o, clamp(o, x, -20.0, 90.0))
    return _expm1_of_reduced(o, EXPM1, r, power)


def tanh_f32(o: Ops[F, I, M], x: F) -> F:
    """expm1(2x) ÷ (expm1(2x) + 2); ±1 beyond 9.02."""
    r, power = reduce_f32(o, clamp(o, x, -9.25, 9.25), halves=2)
    e = _expm1_of_reduced(o, TANH, r, power)
    return o.div(e, o.add(e, o.f(2.0)))


def sinh_f32(o: Ops[F, I, M], x: F) -> F:
    """(E + E ÷ (E + 1)) ÷ 2 with E = expm1(|x|)."""
    size = clamp(o, o.fabs(x), 0.0, 90.0)
    r, power = reduce_f32(o, size)
    e = _expm1_of_reduced(o, EXPM1, r, power)
    value = o.fma(o.f(0.5), o.div(e, o.add(e, o.f(1.0))), o.mul(o.f(0.5), e))
    return copy_sign(o, nudge(o, size, value, SINH_CASES), x)


def cosh_f32(o: Ops[F, I, M], x: F) -> F:
    """(E + 1 ÷ E) ÷ 2 with E = exp(|x|)."""
    r, power = reduce_f32(o, clamp(o, o.fabs(x), 0.0, 90.0))
    e = o.mul(polynomial_by_fours(o, EXP, r), power)
    return o.mul(o.f(0.5), o.add(e, o.div(o.f(1.0), e)))


def reduce_f64(o: Ops[F, I, M], x: F) -> tuple[F, F, I]:
    """(r, rest, n) with x = n·ln 2 + r + rest to about 2^-95, for |x| < 1100."""
    turned = o.fma(x, o.f(LOG2E), o.f(MAGIC))
    n = o.sub(turned, o.f(MAGIC))
    r = o.fma(n, o.f(-LN2_SHORT), x)  # exact
    r, rest = two_sum(o, r, o.mul(n, o.f(-LN2_SHORT_REST)))
    return r, rest, o.isub(o.bits(turned), o.i(MAGIC_BITS))


def expm1_pair(o: Ops[F, I, M], r: F, rest: F) -> tuple[F, F]:
    """exp(r + rest) − 1 for |r| ≤ ln2/2 as a pair, relative error about 2^-58."""
    square, square_rest = two_product(o, r, r)
    high, low = fast_two_sum(o, r, o.mul(square, o.f(0.5)))
    low = o.add(low, o.fma(square_rest, o.f(0.5), o.fma(r, rest, rest)))
    tail = o.mul(o.mul(square, r), polynomial(o, EXP_TAIL, r))
    return fast_two_sum(o, high, o.add(low, tail))


def exp_pair(o: Ops[F, I, M], r: F, rest: F) -> tuple[F, F]:
    """exp(r + rest) for |r| ≤ ln2/2 as a pair."""
    high, low = expm1_pair(o, r, rest)
    high, error = fast_two_sum(o, o.f(1.0), high)
    return high, o.add(error, low)


def exp_f64(o: Ops[F, I, M], x: F) -> F:
    """exp, error below 0.6 ulp (0.8 where the result is subnormal)."""
    r, rest, n = reduce_f64(o, clamp(o, x, -760.0, 710.0))
    high, low = exp_pair(o, r, rest)
    return scale(o, o.add(high, low), n)


def _expm1_scaled(o: Ops[F, I, M], r: F, rest: F, power: F, one: F) -> tuple[F, F]:
    """power·exp(r + rest) − one as a pair, where one ÷ power is 2^-n."""
    high, low = expm1_pair(o, r, rest)
    level, level_rest = two_sum(o, power, o.neg(one))
    high, error = two_sum(o, level, o.mul(power, high))
    return high, o.add(error, o.fma(power, low, level_rest))


def expm1_f64(o: Ops[F, I, M], x: F) -> F:
    """exp(x) − 1, error below 0.6 ulp. Everything is halved until the end, as 2^1024 is no number."""
    r, rest, n = reduce_f64(o, clamp(o, x, -50.0, 710.0))
    power = power_of_two(o, o.isub(n, o.i(1)))
    high, low = _expm1_scaled(o, r, rest, power, o.f(0.5))
    result = o.mul(o.f(2.0), o.add(high, low))
    return o.select(o.lt(o.fabs(x), o.f(2.0**-54)), x, result)


def tanh_f64(o: Ops[F, I, M], x: F) -> F:
    """E ÷ (E + 2) with E = expm1(2|x|) in double-double, error below 0.6 ulp."""
    size = clamp(o, o.fabs(x), 0.0, 20.0)
    r, rest, n = reduce_f64(o, o.add(size, size))
    high, low = _expm1_scaled(o, r, rest, power_of_two(o, n), o.f(1.0))
    high, low = fast_two_sum(o, high, low)
    below, below_rest = two_sum(o, o.f(2.0), high)
    quotient, error = divide_pairs(o, (high, low), (below, o.add(below_rest, low)))
    return copy_sign(o, o.add(quotient, error), x)


def exp2_f64(o: Ops[F, I, M], x: F) -> F:
    """2^x, error below 0.6 ulp (0.8 where the result is subnormal)."""
    x = clamp(o, x, -1100.0, 1025.0)
    turned = o.add(x, o.f(MAGIC))
    r = o.sub(x, o.sub(turned, o.f(MAGIC)))
    product, error = two_product(o, r, o.f(LN2))
    high, low = exp_pair(o, product, o.fma(r, o.f(LN2_REST), error))
    return scale(o, o.add(high, low), o.isub(o.bits(turned), o.i(MAGIC_BITS)))


def _half_exp(o: Ops[F, I, M], size: F) -> tuple[F, F, F]:
    """(exp(size) ÷ 2 for any size, and as a pair for size ≤ 40)."""
    r, rest, n = reduce_f64(o, size)
    high, low = exp_pair(o, r, rest)
    half = o.isub(n, o.i(1))
    power = power_of_two(o, o.iselect(o.ilt(half, o.i(100)), half, o.i(0)))
    return scale(o, o.add(high, low), half), o.mul(high, power), o.mul(low, power)


def cosh_f64(o: Ops[F, I, M], x: F) -> F:
    """H + 1 ÷ (4H) with H = exp(|x|) ÷ 2; H alone beyond 40. Error below 0.6 ulp."""
    size = clamp(o, o.fabs(x), 0.0, 711.0)
    far, high, low = _half_exp(o, size)
    inverse, inverse_rest = divide_pairs(o, (o.f(0.25), o.f(0.0)), (high, low))
    high, error = fast_two_sum(o, high, inverse)
    near = o.add(high, o.add(error, o.add(low, inverse_rest)))
    return o.select(o.gt(size, o.f(40.0)), far, near)


def sinh_f64(o: Ops[F, I, M], x: F) -> F:
    """(E + E ÷ (E + 1)) ÷ 2 with E = expm1(|x|) to 40, then exp(|x|) ÷ 2. Error below 0.6 ulp."""
    size = clamp(o, o.fabs(x), 0.0, 711.0)
    far, _, _ = _half_exp(o, size)
    r, rest, n = reduce_f64(o, clamp(o, size, 0.0, 40.0))
    high, low = fast_two_sum(o, *_expm1_scaled(o, r, rest, power_of_two(o, n), o.f(1.0)))
    above, above_rest = two_sum(o, o.f(1.0), high)
    quotient, quotient_rest = divide_pairs(o, (high, low), (above, o.add(above_rest, low)))
    high, error = fast_two_sum(o, high, quotient)
    near = o.mul(o.f(0.5), o.add(high, o.add(error, o.add(low, quotient_rest))))
    result = o.select(o.gt(size, o.f(40.0)), far, near)
    return o.select(o.lt(size, o.f(2.0**-28)), x, copy_sign(o, result, x))
