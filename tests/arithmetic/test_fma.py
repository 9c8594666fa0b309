"""Fused multiply-add and narrow conversions against exact rationals."""

from __future__ import annotations

import struct
from fractions import Fraction

import gmpy2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isobit.arithmetic.fma import fma_f32, fma_f64, narrow_bf16, narrow_f16, widen_bf16, widen_f16

F64 = st.integers(0, 2**64 - 1).map(lambda b: struct.unpack("<d", struct.pack("<Q", b))[0])
F32 = st.integers(0, 2**32 - 1).map(lambda b: struct.unpack("<f", struct.pack("<I", b))[0])
MANTISSA = st.integers(-(2**53), 2**53)
NEAR = st.builds(lambda m, e: float(np.ldexp(float(m), e)), MANTISSA, st.integers(-60, 10))


def same_bits(a: float, b: float) -> bool:
    return (a != a and b != b) or (a == b and np.signbit(a) == np.signbit(b))


def mpfr_fma(a: float, b: float, c: float, precision: int, emin: int, emax: int) -> float:
    with gmpy2.context(precision=precision, emin=emin, emax=emax, subnormalize=True):
        return float(gmpy2.fma(gmpy2.mpfr(a), gmpy2.mpfr(b), gmpy2.mpfr(c)))


@settings(max_examples=600, deadline=None)
@given(F64 | NEAR, F64 | NEAR, F64 | NEAR)
def test_fma_f64_matches_mpfr(a: float, b: float, c: float) -> None:
    got = float(fma_f64(a, b, c))
    assert same_bits(got, mpfr_fma(a, b, c, 53, -1073, 1024)), (a, b, c)


@settings(max_examples=300, deadline=None)
@given(NEAR, NEAR)
def test_fma_f64_returns_the_exact_error_of_a_product(a: float, b: float) -> None:
    product = a * b
    assert Fraction(float(fma_f64(a, b, -product))) == Fraction(a) * Fraction(b) - Fraction(product)


@settings(max_examples=600, deadline=None)
@given(F32, F32, F32)
def test_fma_f32_matches_mpfr(a: float, b: float, c: float) -> None:
    got = float(fma_f32(a, b, c))
    assert same_bits(got, mpfr_fma(a, b, c, 24, -148, 128)), (a, b, c)


def test_fma_keeps_shape_and_broadcasts() -> None:
    assert fma_f64(np.ones((3, 1)), np.ones(4), 1.0).shape == (3, 4)
    assert fma_f32(np.ones((3, 1)), np.ones(4), 1.0).shape == (3, 4)
    assert fma_f64(2.0, 3.0, 4.0).shape == ()


@pytest.mark.parametrize("a,b,c", [(-0.0, 1.0, -0.0), (0.0, -1.0, 0.0), (1.0, 1.0, -1.0), (-1.0, 0.0, -0.0)])
def test_fma_signs_of_zero(a: float, b: float, c: float) -> None:
    expected = a * b + c
    assert same_bits(float(fma_f64(a, b, c)), expected)
    assert same_bits(float(fma_f32(a, b, c)), expected)


def test_bf16_round_trip_is_exact_and_rounds_to_even() -> None:
    patterns = np.arange(2**16, dtype=np.uint32).astype(np.uint16)
    wide = widen_bf16(patterns)
    expected = np.where(np.isnan(wide), np.uint16(0x7FC0), patterns)
    assert np.array_equal(narrow_bf16(wide), expected)
    halfway = (patterns[:0x7F80].astype(np.uint32) << 16 | 0x8000).view(np.float32)
    assert not (narrow_bf16(halfway) & 1).any()


def test_f16_round_trip_is_exact() -> None:
    patterns = np.arange(2**16, dtype=np.uint32).astype(np.uint16)
    wide = widen_f16(patterns.view(np.float16))
    back = narrow_f16(wide).view(np.uint16)
    assert np.array_equal(back[~np.isnan(wide)], patterns[~np.isnan(wide)])
