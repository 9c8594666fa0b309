"""rsqrt and pow. NAME_f32 takes widened f32 and is rounded to f32 once, by the caller."""

from __future__ import annotations

from fractions import Fraction

from isobit.arithmetic.exponentials import LN2_SHORT, LN2_SHORT_REST, exp_pair, reduce_f64
from isobit.arithmetic.logarithms import split, split_f64
from isobit.arithmetic.ops import F, I, M, Ops
from isobit.arithmetic.steps import (
    INF,
    NAN,
    between_f32,
    clamp,
    divide_pairs,
    fast_two_sum,
    hexes,
    multiply_pairs,
    polynomial,
    scale,
    two_product,
    two_sum,
)  # fmt: skip

LN2_LAST = float.fromhex("0x1.f97b57a079a19p-103")  # ln 2 − LN2_SHORT − LN2_SHORT_REST
TWO_FIFTHS = (float.fromhex("0x1.999999999999ap-2"), float.fromhex("-0x1.999999999999ap-56"))
TWO_THIRDS = (float.fromhex("0x1.5555555555555p-1"), float.fromhex("0x1.5555555555555p-55"))

# tools/fit_polynomials.py; relative error in units of 2^-53
LOG_FAR_TAIL = hexes(  # (log((1+s) ÷ (1−s)) − 2s − 2s³/3 − 2s⁵/5) ÷ s⁷ in s²
    "0x1.2492492492497p-2 0x1.c71c71c715427p-3 0x1.745d17550b22dp-3 0x1.3b13a525c9882p-3"
    " 0x1.11159fa92d04cp-3 0x1.e01ff5dd76100p-4 0x1.d9c3bda150985p-4"
)
PLAIN_TERMS = range(20, 9, -1)  # of Σ z^j ÷ (2j + 1), z < 0.0295: below 2^-50, so binary64 suffices
PAIR_TERMS = range(9, -1, -1)
TIE = 2.0**-92  # the accurate logarithms are good to 2^-96 where the power is in range


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


def _log_pair(o: Ops[F, I, M], k: F, m: F) -> tuple[F, F]:
    """k·ln 2 + log(m) as a pair, relative error about 2^-68: 2s + s³·(2/3 + z·(2/5 + ...)) in double-double."""
    f = o.sub(m, o.f(1.0))
    s = divide_pairs(o, (f, o.f(0.0)), two_sum(o, o.f(2.0), f))
    z = multiply_pairs(o, s, s)
    high, low = fast_two_sum(o, o.f(TWO_FIFTHS[0]), o.mul(z[0], polynomial(o, LOG_FAR_TAIL, z[0])))
    part = multiply_pairs(o, (high, o.add(low, o.f(TWO_FIFTHS[1]))), z)
    high, low = fast_two_sum(o, o.f(TWO_THIRDS[0]), part[0])
    part = (high, o.add(low, o.add(part[1], o.f(TWO_THIRDS[1]))))
    part = multiply_pairs(o, multiply_pairs(o, s, z), part)
    high, e1 = fast_two_sum(o, o.mul(k, o.f(LN2_SHORT)), o.add(s[0], s[0]))
    high, e2 = fast_two_sum(o, high, part[0])
    small = o.fma(k, o.f(LN2_SHORT_REST), o.add(o.add(s[1], s[1]), part[1]))
    return fast_two_sum(o, high, o.add(o.add(e1, e2), small))


def _accurate_log(o: Ops[F, I, M], x: F) -> tuple[F, F]:
    """log of a positive normal f64 of at most 51 bits as a pair, relative error about 2^-102.

    2s·Σ z^j ÷ (2j + 1) with s = f ÷ (2 + f), z = s²; the leading terms in double-double.
    """
    k, m = split(o, x)
    f = o.sub(m, o.f(1.0))
    s = divide_pairs(o, (f, o.f(0.0)), (o.add(f, o.f(2.0)), o.f(0.0)))
    z = multiply_pairs(o, s, s)
    total, rest = polynomial(o, tuple(1 / (2 * j + 1) for j in reversed(PLAIN_TERMS)), z[0]), o.f(0.0)
    for j in PAIR_TERMS:
        exact = Fraction(1, 2 * j + 1)
        first = float(exact)
        total, rest = multiply_pairs(o, (total, rest), z)
        total, error = fast_two_sum(o, o.f(first), total)
        rest = o.add(error, o.add(rest, o.f(float(exact - Fraction(first)))))
    part, part_rest = multiply_pairs(o, (o.add(s[0], s[0]), o.add(s[1], s[1])), (total, rest))
    second, second_rest = two_product(o, k, o.f(LN2_SHORT_REST))
    high, e1 = fast_two_sum(o, o.mul(k, o.f(LN2_SHORT)), part)
    high, e2 = two_sum(o, high, second)
    low = o.add(o.add(e1, e2), o.add(part_rest, o.fma(k, o.f(LN2_LAST), second_rest)))
    return fast_two_sum(o, high, low)


def _magnitude(o: Ops[F, I, M], size: F, k: F, m: F, y: F) -> F:
    """size^y = exp(y·log(size)) for size = 2^k·m ≥ 0; rounded once more if subnormal."""
    high, low = _log_pair(o, k, m)
    zero, finite = o.eq(size, o.f(0.0)), o.lt(size, o.f(INF))
    high = o.select(zero, o.f(-INF), o.select(finite, high, size))
    power, rest = two_product(o, y, high)
    rest = o.fma(y, low, rest)
    inside = o.mand(o.lt(o.fabs(power), o.f(760.0)), o.mand(finite, o.mnot(zero)))
    r, r_rest, n = reduce_f64(o, clamp(o, power, -760.0, 710.0))
    r, r_rest = two_sum(o, r, o.add(r_rest, o.select(inside, rest, o.f(0.0))))
    high, low = exp_pair(o, r, r_rest)
    return scale(o, o.add(high, low), n)


def _round(o: Ops[F, I, M], size: F) -> F:
    """size ≥ 0 rounded to an integer; exact from 2^52 on."""
    step = o.f(2.0**52)
    return o.select(o.lt(size, step), o.sub(o.add(size, step), step), size)


def _with_special_cases(o: Ops[F, I, M], x: F, y: F, magnitude: F) -> F:
    """The sign, NaN where x < 0 and y is no integer, and the cases that are 1 (C99 F.10.4.4, as PyTorch)."""
    size, y_size = o.fabs(x), o.fabs(y)
    half, one = o.mul(y_size, o.f(0.5)), o.f(1.0)
    integer = o.eq(_round(o, y_size), y_size)
    odd = o.mand(integer, o.ne(_round(o, half), half))
    sign = o.iselect(odd, o.iand(o.bits(x), o.i(1 << 63)), o.i(0))
    value = o.from_bits(o.ixor(o.bits(magnitude), sign))
    undefined = o.mand(o.mand(o.lt(x, o.f(0.0)), o.gt(x, o.f(-INF))), o.mnot(integer))
    value = o.select(undefined, o.f(NAN), value)
    unit = o.mor(o.eq(x, one), o.mor(o.eq(y, o.f(0.0)), o.mand(o.eq(size, one), o.eq(y_size, o.f(INF)))))
    return o.select(unit, one, value)


def pow_f64(o: Ops[F, I, M], x: F, y: F) -> F:
    """x^y, error below 0.8 ulp."""
    size = o.fabs(x)
    k, m = split_f64(o, size)
    return _with_special_cases(o, x, y, _magnitude(o, size, k, m, y))


def _break_tie(o: Ops[F, I, M], size: F, y: F, value: F) -> F:
    """`value`, halfway between two f32, moved by an ulp to where size^y lies; kept if size^y is `value` itself.

    y·log(size) − log(value) is known to 2^-96. A power that is no tie but closer to one is not known to exist.
    """
    log_size, log_value = _accurate_log(o, size), _accurate_log(o, value)
    power, rest = two_product(o, y, log_size[0])
    rest = o.sub(o.fma(y, log_size[1], rest), log_value[1])
    apart = o.add(o.sub(power, log_value[0]), rest)
    up = o.iselect(o.gt(apart, o.f(TIE)), o.i(1), o.i(0))
    down = o.iselect(o.lt(apart, o.f(-TIE)), o.i(1), o.i(0))
    return o.from_bits(o.iadd(o.bits(value), o.isub(up, down)))


def pow_f32(o: Ops[F, I, M], x: F, y: F) -> F:
    """x^y: the f64 algorithm, whose error is below 2^-52, and an accurate decision where that is a tie."""
    size = o.fabs(x)
    k, m = split(o, size)
    value = _magnitude(o, size, k, m, y)
    # below 2^-126 results are multiples of 2^-149 and ties multiples of 2^-150
    unit = o.f(1.5 * 2.0 ** (52 - 150))
    coarse = o.mand(o.lt(value, o.f(2.0**-126)), o.eq(o.sub(o.add(value, unit), unit), value))
    finite = o.mand(o.gt(value, o.f(2.0**-152)), o.lt(value, o.f(2.0**129)))
    tie = o.mand(finite, o.mor(between_f32(o, value), coarse))
    return _with_special_cases(o, x, y, o.rare(tie, lambda: _break_tie(o, size, y, value), value))
