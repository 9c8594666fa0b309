"""NumpyOps and the shared steps against Python's integers and exact rationals."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from isobit.arithmetic import steps
from isobit.arithmetic.ops import NumpyOps

O = NumpyOps()
WORDS = st.integers(-(2**63), 2**63 - 1)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e100, max_value=1e100)
MASK = 2**64 - 1


def signed(v: int) -> int:
    return (v + 2**63) % 2**64 - 2**63


@settings(max_examples=200)
@given(WORDS, WORDS, st.integers(0, 63))
def test_integers_wrap(a: int, b: int, count: int) -> None:
    x, y, n = O.i(a), O.i(b), O.i(count)
    with np.errstate(all="ignore"):
        got = [
            O.iadd(x, y), O.isub(x, y), O.imul(x, y), O.umulhi(x, y), O.shl(x, n), O.lshr(x, n), O.ashr(x, n),
            O.iand(x, y), O.ior(x, y), O.ixor(x, y),
        ]  # fmt: skip
    u, v = a & MASK, b & MASK
    expected = [a + b, a - b, a * b, (u * v) >> 64, a << count, u >> count, a >> count, a & b, a | b, a ^ b]
    assert [int(g[0]) for g in got] == [signed(e) for e in expected]
    assert (bool(O.ilt(x, y)[0]), bool(O.iult(x, y)[0]), bool(O.ieq(x, y)[0])) == (a < b, u < v, a == b)


def test_comparisons_on_nan() -> None:
    nan, one = O.f(math.nan), O.f(1.0)
    results = [op(nan, one)[0] for op in (O.lt, O.le, O.eq, O.gt, O.ge, O.ne)]
    assert [bool(r) for r in results] == [False] * 5 + [True]


def test_conversions_select_and_table() -> None:
    assert O.f2i(np.array([2.9, -2.9, -0.0, 2.0**50])).tolist() == [2, -2, 0, 2**50]
    assert O.i2f(np.array([-(2**53) + 1])).tolist() == [-(2.0**53) + 1]
    assert O.table((5, MASK, 7), np.array([2, 1, 0])).tolist() == [7, -1, 5]
    mask = O.mand(O.mnot(np.array([True, False])), np.array([True, True]))
    assert O.rare(mask, lambda: O.f(1.0), np.array([2.0, 3.0])).tolist() == [2.0, 1.0]
    assert O.bits(O.f(1.0))[0] == 0x3FF0000000000000 and O.from_bits(O.i(1 << 63))[0] == 0.0


@settings(max_examples=200)
@given(NUMBERS, NUMBERS)
def test_error_free_sums(a: float, b: float) -> None:
    s, e = steps.two_sum(O, np.array([a]), np.array([b]))
    assert Fraction(float(s[0])) + Fraction(float(e[0])) == Fraction(a) + Fraction(b)
    high, low = (a, b) if abs(a) >= abs(b) else (b, a)
    s, e = steps.fast_two_sum(O, np.array([high]), np.array([low]))
    assert Fraction(float(s[0])) + Fraction(float(e[0])) == Fraction(a) + Fraction(b)


@settings(max_examples=100)
@given(st.lists(NUMBERS, min_size=2, max_size=6))
def test_distilling_keeps_the_sum(terms: list[float]) -> None:
    parts = steps.distil(O, [np.array([t]) for t in terms])
    assert sum(Fraction(float(p[0])) for p in parts) == sum(map(Fraction, terms))


@settings(max_examples=100)
@given(st.integers(1, 2**53), st.integers(1, 2**53))
def test_quotients_of_pairs(a: int, b: int) -> None:
    zero = np.array([0.0])
    q, e = steps.divide_pairs(O, (np.array([float(a)]), zero), (np.array([float(b)]), zero))
    apart = (Fraction(float(q[0])) + Fraction(float(e[0]))) * b - a
    assert abs(apart) <= Fraction(a, 2**100)


@settings(max_examples=100)
@given(st.floats(1, 2), st.integers(-1100, 1023))
def test_scale_is_ldexp(x: float, n: int) -> None:
    assert steps.scale(O, np.array([x]), O.i(n))[0] == math.ldexp(x, n)


def test_clamp_keeps_nan_and_copy_sign_takes_any_sign() -> None:
    got = steps.clamp(O, np.array([math.nan, -9.0, 9.0, 0.5]), -1.0, 1.0)
    assert math.isnan(got[0]) and got[1:].tolist() == [-1.0, 1.0, 0.5]
    assert np.signbit(steps.copy_sign(O, np.array([0.0, 1.0]), np.array([-0.0, 3.0]))).tolist() == [True, False]


def test_between_f32() -> None:
    x = np.array([1 + 2.0**-24, 1 + 2.0**-23, 1 + 2.0**-24 + 2.0**-52, 1.0])
    assert steps.between_f32(O, x).tolist() == [True, False, False, False]
