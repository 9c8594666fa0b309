"""Steps that several elementary functions share, written against `Ops`.

A pair (hi, lo) is an unevaluated sum, "double-double", with |lo| far below |hi|. The error-free transformations
are Knuth's and Dekker's; T. J. Dekker, "A floating-point technique for extending the available precision",
Numerische Mathematik 18, 1971.
"""

from __future__ import annotations

from isobit.arithmetic.ops import F, I, M, Ops

MAGIC = 1.5 * 2.0**52  # added to |x| < 2^51 it leaves the rounded integer x in the low bits
MAGIC_BITS = 0x4338000000000000
INF = float("inf")
NAN = float("nan")


def hexes(text: str) -> tuple[float, ...]:
    """The constants of a polynomial, lowest power first, from hexadecimal text."""
    return tuple(float.fromhex(word) for word in text.split())


def polynomial(o: Ops[F, I, M], c: tuple[float, ...], x: F) -> F:
    """Σ c_i x^i by Horner's rule with fma."""
    total = o.f(c[-1])
    for v in reversed(c[:-1]):
        total = o.fma(total, x, o.f(v))
    return total


def polynomial_by_fours(o: Ops[F, I, M], c: tuple[float, ...], x: F) -> F:
    """Σ c_i x^i: cubics, then Horner's rule in x⁴. Two more products, but a chain of a third of the length."""
    square = o.mul(x, x)
    fourth = o.mul(square, square)
    cubics = [_cubic(o, c[i : i + 4], x, square) for i in range(0, len(c), 4)]
    total = cubics[-1]
    for cubic in reversed(cubics[:-1]):
        total = o.fma(total, fourth, cubic)
    return total


def _cubic(o: Ops[F, I, M], c: tuple[float, ...], x: F, square: F) -> F:
    """The sum of up to four terms."""
    low = o.fma(o.f(c[1]), x, o.f(c[0])) if len(c) > 1 else o.f(c[0])
    if len(c) < 3:
        return low
    high = o.fma(o.f(c[3]), x, o.f(c[2])) if len(c) > 3 else o.f(c[2])
    return o.fma(high, square, low)


def clamp(o: Ops[F, I, M], x: F, low: float, high: float) -> F:
    """x limited to [low, high]; NaN stays."""
    bound = o.f(high)
    x = o.select(o.gt(x, bound), bound, x)
    bound = o.f(low)
    return o.select(o.lt(x, bound), bound, x)


def between_f32(o: Ops[F, I, M], y: F) -> M:
    """True where y lies exactly halfway between two normal f32: there, rounding y again may go astray."""
    return o.ieq(o.shl(o.bits(y), o.i(35)), o.i(1 << 63))


Cases = tuple[tuple[str, int], ...]


def nudge(o: Ops[F, I, M], x: F, y: F, cases: Cases) -> F:
    """y, but for each case (argument in hexadecimal, ulps) moved away from 0 by as many ulps at the argument."""
    for argument, step in cases:
        moved = o.from_bits(o.iadd(o.bits(y), o.i(step)))
        y = o.select(o.eq(x, o.f(float.fromhex(argument))), moved, y)
    return y


def fast_two_sum(o: Ops[F, I, M], a: F, b: F) -> tuple[F, F]:
    """(s, e) with s + e = a + b exactly, if |a| ≥ |b| or a = 0."""
    s = o.add(a, b)
    return s, o.sub(b, o.sub(s, a))


def two_sum(o: Ops[F, I, M], a: F, b: F) -> tuple[F, F]:
    """(s, e) with s + e = a + b exactly."""
    s = o.add(a, b)
    t = o.sub(s, a)
    return s, o.add(o.sub(a, o.sub(s, t)), o.sub(b, t))


def two_product(o: Ops[F, I, M], a: F, b: F) -> tuple[F, F]:
    """(p, e) with p + e = a·b exactly, barring underflow."""
    p = o.mul(a, b)
    return p, o.fma(a, b, o.neg(p))


def divide_pairs(o: Ops[F, I, M], a: tuple[F, F], b: tuple[F, F]) -> tuple[F, F]:
    """(q, e) with q + e ≈ a ÷ b to about 2^-100."""
    q = o.div(a[0], b[0])
    rest = o.fma(o.neg(q), b[0], a[0])
    rest = o.add(rest, o.fma(o.neg(q), b[1], a[1]))
    return q, o.div(rest, b[0])


def multiply_pairs(o: Ops[F, I, M], a: tuple[F, F], b: tuple[F, F]) -> tuple[F, F]:
    """(p, e) with p + e ≈ a·b to about 2^-102."""
    product, error = two_product(o, a[0], b[0])
    return product, o.add(error, o.fma(a[0], b[1], o.mul(a[1], b[0])))


def sqrt_pair(o: Ops[F, I, M], a: tuple[F, F]) -> tuple[F, F]:
    """(s, e) with s + e ≈ √a to about 2^-100, for a > 0."""
    root = o.sqrt(a[0])
    rest = o.add(o.fma(o.neg(root), root, a[0]), a[1])
    return root, o.div(rest, o.add(root, root))


def copy_sign(o: Ops[F, I, M], magnitude: F, sign: F) -> F:
    """`magnitude`, which is not negative, with the sign bit of `sign`."""
    bit = o.iand(o.bits(sign), o.i(1 << 63))
    return o.from_bits(o.ior(o.bits(magnitude), bit))


def power_of_two(o: Ops[F, I, M], n: I) -> F:
    """2^n for −1022 ≤ n ≤ 1023."""
    return o.from_bits(o.shl(o.iadd(n, o.i(1023)), o.i(52)))


def scale(o: Ops[F, I, M], x: F, n: I) -> F:
    """x·2^n for |n| ≤ 2044 in two factors, rounded where the result is subnormal."""
    half = o.ashr(n, o.i(1))
    return o.mul(o.mul(x, power_of_two(o, half)), power_of_two(o, o.isub(n, half)))


def distil(o: Ops[F, I, M], terms: list[F]) -> list[F]:
    """The same exact sum with the leading part first: one pass of two_sum from the last term to the first."""
    total = terms[-1]
    errors: list[F] = []
    for term in reversed(terms[:-1]):
        total, error = two_sum(o, term, total)
        errors.insert(0, error)
    return [total, *errors]
