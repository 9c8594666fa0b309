"""sin, cos and tan. NAME_f32 takes a widened f32 and is rounded to f32 once, by the caller.

sin and cos on f32 reduce by π and need one polynomial; tan and f64 reduce by π/2, f64 into a pair. Huge arguments are
reduced in integers, after M. H. Payne and R. N. Hanek, "Radian reduction for trigonometric functions", ACM
SIGNUM Newsletter 18(1), 1983.
"""

from __future__ import annotations

from isobit.arithmetic.ops import F, I, M, Ops
from isobit.arithmetic.steps import (
    INF,
    MAGIC,
    NAN,
    Cases,
    distil,
    divide_pairs,
    fast_two_sum,
    hexes,
    nudge,
    polynomial,
    polynomial_by_fours,
    two_product,
    two_sum,
)  # fmt: skip

PI = float.fromhex("0x1.921fb54442d18p+1")
PI_REST = float.fromhex("0x1.1a62633145c07p-53")  # π − PI
PI_LAST = float.fromhex("-0x1.f1976b7ed8fbcp-109")  # π − PI − PI_REST
INVERSE_PI = float.fromhex("0x1.45f306dc9c883p-2")
LARGE_F32 = 2.0**20  # from here on f32 arguments are reduced in integers
LARGE_F64 = 2.0**22

TWO_OVER_PI = (  # the first 1280 bits of 2/π, after the binary point
    0xA2F9836E4E441529, 0xFC2757D1F534DDC0, 0xDB6295993C439041, 0xFE5163ABDEBBC561, 0xB7246E3A424DD2E0,
    0x6492EEA09D1921C, 0xFE1DEB1CB129A73E, 0xE88235F52EBB4484, 0xE99C7026B45F7E41, 0x3991D639835339F4,
    0x9C845F8BBDF9283B, 0x1FF897FFDE05980F, 0xEF2F118B5A0A6D1F, 0x6D367ECF27CB09B7, 0x4F463F669E5FEA2D,
    0x7527BAC7EBE5F17B, 0x3D0739F78A5292EA, 0x6BFB5FB11F8D5D08, 0x56033046FC7B6BAB, 0xF0CFBC209AF4361D,
)  # fmt: skip

# tools/fit_polynomials.py; relative errors in units of 2^-53; z = r²
SIN = hexes(  # sin(r) ÷ r on |r| ≤ π/2: 2.7; last bits as f32 needs
    "0x1.0000000000000p+0 -0x1.555555555555cp-3 0x1.11111111110a3p-7 -0x1.a01a01a01395fp-13"
    " 0x1.71de3a52472bap-19 -0x1.ae6454b174c87p-26 0x1.6123c5abbf227p-33 -0x1.ae41bbecf3481p-41"
    " 0x1.8802a2dfd480bp-49"
)
TAN_P = hexes(  # tan(r) ÷ r = P(z) ÷ Q(z) on |r| ≤ π/4: 0.4
    "0x1.0000000000000p+0 -0x1.06b9902bddffap-3 0x1.6fc78e58e17f5p-9 -0x1.f63aa6d23f2bcp-18"
)
TAN_Q = hexes("0x1.0000000000000p+0 -0x1.d8b21d6b44520p-2 0x1.7e7bb0d3fb250p-6 -0x1.b526fbe104edcp-13")
SIN_TAIL = hexes(  # (sin(r) − r) ÷ r³ on |r| ≤ π/4: 0.5
    "-0x1.5555555555555p-3 0x1.1111111111110p-7 -0x1.a01a01a019918p-13 0x1.71de3a545cf2ap-19"
    " -0x1.ae64540cb92fap-26 0x1.61217a6d468f7p-33 -0x1.ab153123584dfp-41"
)
SIN_CASES: Cases = (
    ("0x1.95f654p+44", 3),
    ("0x1.8d9d80p+73", 2),
    ("0x1.7ec1fep+85", 1),
    ("0x1.487e0cp+103", 2),
)
COS_CASES: Cases = (("0x1.b3a7fcp+38", 1), ("0x1.455500p+51", 1), ("0x1.2b9622p+67", 3))
COS_TAIL = hexes(  # (cos(r) − 1 + r²/2) ÷ r⁴ on |r| ≤ π/4: 0.5
    "0x1.5555555555555p-5 -0x1.6c16c16c16c16p-10 0x1.a01a01a019cfep-16 -0x1.27e4fb7711735p-22"
    " 0x1.1eed8de943442p-29 -0x1.9394b675b4cbap-37 0x1.ab764a1780ad8p-45"
)


def _product_words(o: Ops[F, I, M], x: F) -> tuple[I, I, I]:
    """|x|·(2/π) modulo 4 as a 192-bit fixed-point number with two integer bits, for |x| ≥ 2^20.

    |x| = m·2^e with an integer m < 2^53. The bits of 2/π from 2^(1-e) down matter: those above give multiples
    of 4. Of the product only the lowest 192 bits are kept, and its error is below 2^53 units in the last.
    """
    bits = o.iand(o.bits(x), o.i((1 << 63) - 1))
    m = o.ior(o.iand(bits, o.i((1 << 52) - 1)), o.i(1 << 52))
    exponent = o.isub(o.lshr(bits, o.i(52)), o.i(1075))
    inside = o.mand(o.ilt(o.i(-56), exponent), o.ilt(exponent, o.i(972)))
    start = o.iadd(o.iselect(inside, exponent, o.i(0)), o.i(62))  # first bit that matters, behind 64 zeros
    index, shift = o.lshr(start, o.i(6)), o.iand(start, o.i(63))
    padded = (0, *TWO_OVER_PI)
    words = [o.table(padded, o.iadd(index, o.i(j))) for j in range(4)]
    w = [_funnel(o, words[j], words[j + 1], shift) for j in range(3)]
    return _multiply_192(o, m, w)


def _funnel(o: Ops[F, I, M], high: I, low: I, shift: I) -> I:
    """The 64 bits that begin `shift` bits into (high, low)."""
    rest = o.lshr(o.lshr(low, o.i(1)), o.isub(o.i(63), shift))
    return o.ior(o.shl(high, shift), rest)


def _multiply_192(o: Ops[F, I, M], m: I, w: list[I]) -> tuple[I, I, I]:
    """m·(w0, w1, w2) modulo 2^192."""
    low = o.imul(m, w[2])
    middle = o.imul(m, w[1])
    carried = o.iadd(middle, o.umulhi(m, w[2]))
    carry = o.iselect(o.iult(carried, middle), o.i(1), o.i(0))
    high = o.iadd(o.iadd(o.imul(m, w[0]), o.umulhi(m, w[1])), carry)
    return high, carried, low


def _signed_pieces(o: Ops[F, I, M], high: I, middle: I, low: I, unit: float) -> list[F]:
    """The fixed-point number (signed `high`, middle, low), `high` in units of `unit`, as exact floats."""
    half = o.i(32)
    pieces = [o.ashr(high, half), o.iand(high, o.i(0xFFFFFFFF))]
    for w in (middle, low):
        pieces += [o.lshr(w, half), o.iand(w, o.i(0xFFFFFFFF))]
    return [o.mul(o.i2f(p), o.f(unit * 2.0 ** (32 - 32 * j))) for j, p in enumerate(pieces)]


def _huge_f32(o: Ops[F, I, M], x: F, halvings: int, offset: int = 0) -> tuple[F, I]:
    """(r, n) with |x| = (n + offset/2)·p + r, |r| ≤ p/2, p = π ÷ 2^halvings, for |x| ≥ 2^20; halvings 0 or 1.

    n counts modulo 2^(1 + halvings).
    """
    fraction = 63 - halvings  # bits of `high` after the point, where the number counts p
    high, middle, low = _product_words(o, x)
    high = o.isub(high, o.i(offset << (fraction - 1)))
    n = o.lshr(o.iadd(high, o.i(1 << (fraction - 1))), o.i(fraction))
    high = o.isub(high, o.shl(n, o.i(fraction)))
    pieces = _signed_pieces(o, high, middle, low, 2.0**-63)
    turns = o.add(o.add(pieces[0], pieces[1]), o.add(pieces[2], o.add(pieces[3], pieces[4])))
    return o.mul(turns, o.f(PI)), n


def _sin_reduced(o: Ops[F, I, M], r: F, n: I) -> F:
    """(−1)^n·sin(r); only the last bit of n counts."""
    value = o.mul(r, polynomial_by_fours(o, SIN, o.mul(r, r)))
    return o.from_bits(o.ixor(o.bits(value), o.shl(n, o.i(63))))


def _finite(o: Ops[F, I, M], x: F, result: F) -> F:
    return o.select(o.eq(o.fabs(x), o.f(INF)), o.f(NAN), result)


def sin_f32(o: Ops[F, I, M], x: F) -> F:
    """sin by x = n·π + r."""
    turned = o.fma(x, o.f(INVERSE_PI), o.f(MAGIC))
    n = o.sub(turned, o.f(MAGIC))
    r = o.fma(n, o.f(-PI_REST), o.fma(n, o.f(-PI), x))

    def huge() -> F:
        r, n = _huge_f32(o, x, halvings=0)
        sign = o.lshr(o.bits(x), o.i(63))
        value = nudge(o, o.fabs(x), _sin_reduced(o, r, o.iadd(n, sign)), SIN_CASES)
        return _finite(o, x, value)

    return o.rare(o.ge(o.fabs(x), o.f(LARGE_F32)), huge, _sin_reduced(o, r, o.bits(turned)))


def cos_f32(o: Ops[F, I, M], x: F) -> F:
    """cos by x = (n + ½)·π + r: cos(x) = (−1)^(n+1)·sin(r)."""
    turned = o.add(o.fma(x, o.f(INVERSE_PI), o.f(-0.5)), o.f(MAGIC + 1.0))  # leaves n + 1
    half = o.add(o.sub(turned, o.f(MAGIC + 1.0)), o.f(0.5))
    r = o.fma(half, o.f(-PI_REST), o.fma(half, o.f(-PI), x))

    def huge() -> F:
        r, n = _huge_f32(o, x, halvings=0, offset=1)
        value = nudge(o, o.fabs(x), _sin_reduced(o, r, o.iadd(n, o.i(1))), COS_CASES)
        return _finite(o, x, value)

    return o.rare(o.ge(o.fabs(x), o.f(LARGE_F32)), huge, _sin_reduced(o, r, o.bits(turned)))


def _tan_reduced(o: Ops[F, I, M], r: F, n: I) -> F:
    """tan(r + n·π/2) for |r| ≤ π/4: N ÷ D or −D ÷ N; only the last bit of n counts."""
    z = o.mul(r, r)
    top, bottom = o.mul(r, polynomial_by_fours(o, TAN_P, z)), polynomial_by_fours(o, TAN_Q, z)
    odd = o.ieq(o.iand(n, o.i(1)), o.i(1))
    return o.div(o.select(odd, bottom, top), o.select(odd, o.neg(top), bottom))


def tan_f32(o: Ops[F, I, M], x: F) -> F:
    """tan by x = n·π/2 + r."""
    turned = o.fma(x, o.f(2 * INVERSE_PI), o.f(MAGIC))
    n = o.sub(turned, o.f(MAGIC))
    r = o.fma(n, o.f(-PI_REST / 2), o.fma(n, o.f(-PI / 2), x))

    def huge() -> F:
        r, n = _huge_f32(o, x, halvings=1)
        value = _tan_reduced(o, r, n)
        sign = o.iand(o.bits(x), o.i(1 << 63))
        return _finite(o, x, o.from_bits(o.ixor(o.bits(value), sign)))

    return o.rare(o.ge(o.fabs(x), o.f(LARGE_F32)), huge, _tan_reduced(o, r, o.bits(turned)))


def reduce_f64(o: Ops[F, I, M], x: F) -> tuple[F, F, I]:
    """(r, rest, n) with |x| = n·π/2 + r + rest, |r| ≤ π/4, relative error below 2^-62; n counts modulo 4."""
    size = o.fabs(x)
    turned = o.fma(size, o.f(2 * INVERSE_PI), o.f(MAGIC))
    n = o.sub(turned, o.f(MAGIC))
    product, product_rest = two_product(o, n, o.f(PI / 2))
    r = o.sub(size, product)  # exact, as the two are close
    r, e1 = two_sum(o, r, o.neg(product_rest))
    second, second_rest = two_product(o, n, o.f(PI_REST / 2))
    r, e2 = two_sum(o, r, o.neg(second))
    rest = o.fma(n, o.f(-PI_LAST / 2), o.sub(o.add(e1, e2), second_rest))
    r, rest = fast_two_sum(o, r, rest)
    large = o.ge(size, o.f(LARGE_F64))
    r_all = o.rare(large, lambda: _huge_f64(o, x)[0], r)
    rest_all = o.rare(large, lambda: _huge_f64(o, x)[1], rest)
    n_all = o.bits(o.rare(large, lambda: o.from_bits(_huge_f64(o, x)[2]), turned))
    return r_all, rest_all, n_all


def _huge_f64(o: Ops[F, I, M], x: F) -> tuple[F, F, I]:
    """`reduce_f64` for |x| ≥ 2^22 in integers."""
    high, middle, low = _product_words(o, x)
    n = o.lshr(o.iadd(high, o.i(1 << 61)), o.i(62))
    high = o.isub(high, o.shl(n, o.i(62)))
    turns = distil(o, distil(o, distil(o, _signed_pieces(o, high, middle, low, 2.0**-62))))
    product, product_rest = two_product(o, turns[0], o.f(PI / 2))
    rest = o.fma(turns[0], o.f(PI_REST / 2), o.fma(turns[1], o.f(PI / 2), product_rest))
    r, rest = fast_two_sum(o, product, rest)
    return r, rest, n


def sin_pair_tail(o: Ops[F, I, M], r: F, rest: F) -> F:
    """sin(r + rest) − r for |r| ≤ π/4."""
    z = o.mul(r, r)
    tail = o.mul(o.mul(r, z), polynomial(o, SIN_TAIL, z))
    return o.add(tail, o.fma(o.mul(z, o.f(-0.5)), rest, rest))


def cos_pair(o: Ops[F, I, M], r: F, rest: F) -> tuple[F, F]:
    """cos(r + rest) for |r| ≤ π/4 as a pair."""
    z, z_rest = two_product(o, r, r)
    high, error = fast_two_sum(o, o.f(1.0), o.mul(z, o.f(-0.5)))
    low = o.fma(z_rest, o.f(-0.5), o.fma(o.neg(r), rest, error))
    return high, o.fma(o.mul(z, z), polynomial(o, COS_TAIL, z), low)


def _quadrant(o: Ops[F, I, M], x: F, shift: int) -> tuple[F, I]:
    """(sin(|x| + shift·π/2), the quadrant's number)."""
    r, rest, n = reduce_f64(o, x)
    n = o.iadd(n, o.i(shift))
    high, low = cos_pair(o, r, rest)
    odd = o.ieq(o.iand(n, o.i(1)), o.i(1))
    return o.select(odd, o.add(high, low), o.add(r, sin_pair_tail(o, r, rest))), n


def sin_f64(o: Ops[F, I, M], x: F) -> F:
    """sin, error below 0.8 ulp."""
    value, n = _quadrant(o, x, 0)
    sign = o.ixor(o.shl(o.lshr(n, o.i(1)), o.i(63)), o.iand(o.bits(x), o.i(1 << 63)))
    return _finite(o, x, o.from_bits(o.ixor(o.bits(value), sign)))


def cos_f64(o: Ops[F, I, M], x: F) -> F:
    """cos, error below 0.8 ulp."""
    value, n = _quadrant(o, x, 1)
    return _finite(o, x, o.from_bits(o.ixor(o.bits(value), o.shl(o.lshr(n, o.i(1)), o.i(63)))))


def tan_f64(o: Ops[F, I, M], x: F) -> F:
    """tan as a quotient of pairs, error below 0.8 ulp."""
    r, rest, n = reduce_f64(o, x)
    sine, cosine = fast_two_sum(o, r, sin_pair_tail(o, r, rest)), fast_two_sum(o, *cos_pair(o, r, rest))
    odd = o.ieq(o.iand(n, o.i(1)), o.i(1))
    top = (o.select(odd, cosine[0], sine[0]), o.select(odd, cosine[1], sine[1]))
    bottom = (o.select(odd, sine[0], cosine[0]), o.select(odd, sine[1], cosine[1]))
    quotient, error = divide_pairs(o, top, bottom)
    sign = o.ixor(o.shl(n, o.i(63)), o.iand(o.bits(x), o.i(1 << 63)))
    value = o.from_bits(o.ixor(o.bits(o.add(quotient, error)), sign))
    return _finite(o, x, o.select(o.lt(o.fabs(x), o.f(2.0**-28)), x, value))
