"""asin, acos and atan. NAME_f32 takes a widened f32 and is rounded to f32 once, by the caller."""

from __future__ import annotations

from isobit.arithmetic.ops import F, I, M, Ops
from isobit.arithmetic.steps import (
    copy_sign,
    divide_pairs,
    fast_two_sum,
    hexes,
    polynomial,
    polynomial_by_fours,
    two_sum,
)
from isobit.arithmetic.trigonometric import PI, PI_REST

HALF_PI_ABOVE = float.fromhex("0x1.921fb54442d19p+0")  # PI / 2 is below π/2, this is above; acos needs this one

# tools/fit_polynomials.py; relative errors in units of 2^-53
ASIN = hexes(  # asin(s) ÷ s in s² on s² ≤ ¼: 0.26
    "0x1.0000000000000p+0 0x1.55555555552aap-3 0x1.333333337cba3p-4 0x1.6db6db3c09e06p-5"
    " 0x1.f1c72dd851fc2p-6 0x1.6e89d4016a807p-6 0x1.1c6d8391d253fp-6 0x1.c6e1585e99f1ap-7"
    " 0x1.8f6a4f0813074p-7 0x1.a6ab4ffa799fbp-8 0x1.43303f6f573adp-6 -0x1.0e872e58e5fd8p-6"
    " 0x1.06eebd3e9cfd6p-5"
)
ATAN_P = hexes(  # atan(t) ÷ t = P(t²) ÷ Q(t²) on t ≤ 1: 0.44
    "0x1.0000000000000p+0 0x1.4096e8d6a6026p+1 0x1.23f75c9b4b65fp+1 0x1.d6de996b4deb5p-1"
    " 0x1.455450fab072ap-3 0x1.31c0c6f80aa97p-7 0x1.5113ee36452f4p-14"
)
ATAN_Q = hexes(
    "0x1.0000000000000p+0 0x1.6b41938150ac9p+1 0x1.83739ed7777bdp+1 0x1.81013c361caa5p+0"
    " 0x1.65743516c5c46p-2 0x1.0d9af2430569ep-5 0x1.afd5faa462984p-11"
)
ASIN_TAIL = hexes(  # (asin(s) − s) ÷ s³ on s² ≤ ¼: 0.5
    "0x1.5555555555555p-3 0x1.333333333338dp-4 0x1.6db6db6dab86ap-5 0x1.f1c71c7abb958p-6"
    " 0x1.6e8ba1110b0bcp-6 0x1.1c4efee5f43a8p-6 0x1.c9906688b898ap-7 0x1.7b05bd902cbaap-7"
    " 0x1.3b2fcc3dd7d5fp-7 0x1.31f1d6ed5f480p-7 0x1.86bfda811f983p-9 0x1.42e218390cdcdp-6"
    " -0x1.3ebf418dd0cf9p-6 0x1.e75159c837570p-6"
)
ATAN_TAIL = hexes(  # (atan(t) − t) ÷ t³ on |t| ≤ 0.438: 0.5
    "-0x1.5555555555555p-2 0x1.99999999998c3p-3 -0x1.249249248532bp-3 0x1.c71c71bd141d1p-4"
    " -0x1.745d1547f25b9p-4 0x1.3b13754ce2bd8p-4 -0x1.110c942945e98p-4 0x1.e16fc0e65ea8dp-5"
    " -0x1.ab54866c99c1bp-5 0x1.6feb6c78d1fbcp-5 -0x1.0f2df37365bd6p-5 0x1.e33e01a4c48b2p-7"
)
ATAN_CENTRES = (  # (argument from which it serves, centre c, atan(c) as a pair)
    (0.4375, 0.5, ("0x1.dac670561bb4fp-2", "0x1.a2b7f222f65e2p-56")),
    (0.6875, 1.0, ("0x1.921fb54442d18p-1", "0x1.1a62633145c07p-55")),
    (1.1875, 1.5, ("0x1.f730bd281f69bp-1", "0x1.007887af0cbbdp-56")),
)
ATAN_FAR = 2.4375  # from here on atan(a) = π/2 − atan(1/a)


def _half_angle(o: Ops[F, I, M], size: F) -> tuple[F, M]:
    """(z, big): asin(size) = asin(√z), or π/2 − 2·asin(√z) where size > ½; z ≤ ¼ is exact or size²."""
    big = o.gt(size, o.f(0.5))
    return o.select(big, o.mul(o.f(0.5), o.sub(o.f(1.0), size)), o.mul(size, size)), big


def asin_f32(o: Ops[F, I, M], x: F) -> F:
    """asin; NaN outside [−1, 1] by the square root."""
    size = o.fabs(x)
    z, big = _half_angle(o, size)
    s = o.select(big, o.sqrt(z), size)
    part = o.mul(s, polynomial_by_fours(o, ASIN, z))
    return copy_sign(o, o.select(big, o.fma(part, o.f(-2.0), o.f(PI / 2)), part), x)


def acos_f32(o: Ops[F, I, M], x: F) -> F:
    """π/2 − asin(x), 2·asin(√z) or π − 2·asin(√z) in one fma; NaN outside [−1, 1] by the square root."""
    z, big = _half_angle(o, o.fabs(x))
    s = o.select(big, o.sqrt(z), x)
    minus = o.lt(x, o.f(0.0))
    factor = o.select(big, o.select(minus, o.f(-2.0), o.f(2.0)), o.f(-1.0))
    offset = o.select(big, o.select(minus, o.f(PI), o.f(0.0)), o.f(HALF_PI_ABOVE))
    return o.fma(o.mul(factor, s), polynomial_by_fours(o, ASIN, z), offset)


def atan_f32(o: Ops[F, I, M], x: F) -> F:
    """atan of |x| or, beyond 1, π/2 − atan(1 ÷ |x|)."""
    size, one = o.fabs(x), o.f(1.0)
    far = o.gt(size, one)
    t = o.div(o.select(far, one, size), o.select(far, size, one))
    z = o.mul(t, t)
    part = o.div(o.mul(t, polynomial_by_fours(o, ATAN_P, z)), polynomial_by_fours(o, ATAN_Q, z))
    return copy_sign(o, o.select(far, o.sub(o.f(PI / 2), part), part), x)


def _asin_core(o: Ops[F, I, M], size: F) -> tuple[F, F, M]:
    """(s, rest, big): asin(√z) = s + rest for the z and `big` of `_half_angle`."""
    z, big = _half_angle(o, size)
    root = o.sqrt(z)
    root_rest = o.div(o.fma(o.neg(root), root, z), o.add(root, root))
    root_rest = o.select(o.eq(root, o.f(0.0)), o.f(0.0), root_rest)
    s = o.select(big, root, size)
    tail = o.mul(o.mul(s, z), polynomial(o, ASIN_TAIL, z))
    return s, o.select(big, o.add(root_rest, tail), tail), big


def asin_f64(o: Ops[F, I, M], x: F) -> F:
    """asin, error below 0.6 ulp."""
    s, rest, big = _asin_core(o, o.fabs(x))
    high, low = fast_two_sum(o, o.f(PI / 2), o.mul(s, o.f(-2.0)))
    far = o.add(high, o.add(low, o.fma(rest, o.f(-2.0), o.f(PI_REST / 2))))
    return copy_sign(o, o.select(big, far, o.add(s, rest)), x)


def acos_f64(o: Ops[F, I, M], x: F) -> F:
    """acos, error below 0.6 ulp."""
    s, rest, big = _asin_core(o, o.fabs(x))
    minus = o.lt(x, o.f(0.0))
    twice, twice_rest = o.add(s, s), o.add(rest, rest)
    high, low = fast_two_sum(o, o.f(PI), o.neg(twice))
    beyond = o.add(high, o.add(low, o.sub(o.f(PI_REST), twice_rest)))
    far = o.select(minus, beyond, o.add(twice, twice_rest))
    high, low = fast_two_sum(o, o.f(PI / 2), o.neg(x))
    near = o.add(high, o.add(low, o.sub(o.f(PI_REST / 2), o.select(minus, o.neg(rest), rest))))
    return o.select(big, far, near)


def atan_f64(o: Ops[F, I, M], x: F) -> F:
    """atan(c) + atan((a − c) ÷ (1 + a·c)) for the c of ATAN_CENTRES, error below 0.6 ulp."""
    size = o.fabs(x)
    c = base = base_rest = o.f(0.0)
    for start, centre, value in ATAN_CENTRES:
        here = o.ge(size, o.f(start))
        c = o.select(here, o.f(centre), c)
        base = o.select(here, o.f(float.fromhex(value[0])), base)
        base_rest = o.select(here, o.f(float.fromhex(value[1])), base_rest)
    far = o.ge(size, o.f(ATAN_FAR))
    base, base_rest = o.select(far, o.f(PI / 2), base), o.select(far, o.f(PI_REST / 2), base_rest)
    top = o.select(far, o.f(-1.0), o.sub(size, c))
    product = o.mul(size, c)
    bottom, bottom_rest = two_sum(o, o.f(1.0), product)
    bottom_rest = o.add(bottom_rest, o.fma(size, c, o.neg(product)))
    bottom, bottom_rest = o.select(far, size, bottom), o.select(far, o.f(0.0), bottom_rest)
    t, t_rest = divide_pairs(o, (top, o.f(0.0)), (bottom, bottom_rest))
    z = o.mul(t, t)
    tail = o.fma(o.mul(t, z), polynomial(o, ATAN_TAIL, z), t_rest)
    high, low = two_sum(o, base, t)
    result = o.add(high, o.add(low, o.add(base_rest, tail)))
    result = o.select(o.gt(size, o.f(2.0**60)), o.f(PI / 2), result)
    return copy_sign(o, o.select(o.lt(size, o.f(2.0**-28)), size, result), x)
