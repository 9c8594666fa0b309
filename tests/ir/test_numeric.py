"""Scalar operations and conversions against exact arithmetic."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from isobit.arithmetic.dtypes import DType
from isobit.ir import numeric, ops

INTS = [DType.I64, DType.I32, DType.I16, DType.I8, DType.U8]


def test_every_operation_has_an_implementation():
    assert set(numeric.TABLE) | numeric.SPECIAL | ops.ELEMENTARY == set(ops.TABLE)


@given(st.floats(), st.sampled_from(INTS))
def test_float_to_integer_saturates(x, target):
    info = np.iinfo(target.numpy)
    exact = 0 if x != x else info.max if x > info.max else info.min if x < info.min else int(x)
    assert numeric.cast(np.array([x]), DType.F64, target).tolist() == [exact]


@given(st.floats(width=32), st.sampled_from(INTS))
def test_f32_to_integer_saturates(x, target):
    info = np.iinfo(target.numpy)
    exact = 0 if x != x else info.max if x > info.max else info.min if x < info.min else int(x)
    assert numeric.cast(np.array([x], np.float32), DType.F32, target).tolist() == [exact]


def nearest_bf16(x) -> float:
    """By search among the neighbours, ties to even."""
    with np.errstate(over="ignore"):
        bits = int(np.array(float(x), np.float32).view(np.uint32)) >> 16
    found = []
    for b in range(max(bits & 0x7FFF, 1) - 1, min(bits & 0x7FFF, 0x7F7F) + 3):
        pattern = (bits & 0x8000) | b
        value = float(np.array(pattern << 16, np.uint32).view(np.float32))
        size = 2.0**128 if abs(value) == float("inf") else abs(value)
        found.append((abs(abs(x) - int(size)) if isinstance(x, int) else abs(abs(x) - size), b & 1, pattern))
    return min(found)[2]


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-3e38, max_value=3e38))
def test_binary64_to_bf16_rounds_once(x):
    assert numeric.cast(np.array([x]), DType.F64, DType.BF16).tolist() == [nearest_bf16(x)]
    constant = ops.round_scalar(x, DType.BF16)
    assert numeric.cast(np.array([constant]), DType.F64, DType.BF16).tolist() == [nearest_bf16(x)]


@given(st.integers(-(2**63), 2**63 - 1))
def test_i64_to_bf16_rounds_once(x):
    assert numeric.cast(np.array([x]), DType.I64, DType.BF16).tolist() == [nearest_bf16(x)]


def test_i64_just_above_a_bf16_tie():
    x = 2**62 + 2**54 + 1  # binary64 would round it to the tie itself
    assert numeric.cast(np.array([x]), DType.I64, DType.BF16).tolist() == [nearest_bf16(2**62 + 2**55)]


def test_to_bool_and_back():
    x = np.array([0.0, -0.0, np.nan, 1e-45], np.float32)
    assert numeric.cast(x, DType.F32, DType.BOOL).tolist() == [False, False, True, True]
    assert numeric.cast(np.array([True, False]), DType.BOOL, DType.BF16).tolist() == [0x3F80, 0]


def test_integer_division_by_zero_is_zero():
    a, b = np.array([7, -7, 7, -7]), np.array([2, 2, 0, -2])
    assert numeric.apply("floordiv", DType.I64, (a, b), DType.I64).tolist() == [3, -4, 0, 3]
    assert numeric.apply("mod", DType.I64, (a, b), DType.I64).tolist() == [1, 1, 0, -1]


def test_extremes_order_zeros_and_pass_nan():
    a, b = np.array([0.0, -0.0, np.nan, 1]), np.array([-0.0, 0.0, 1, np.nan])
    high, low = numeric.maximum(a, b), numeric.minimum(a, b)
    assert not np.signbit(high[:2]).any() and np.signbit(low[:2]).all()
    assert np.isnan(high[2:]).all() and np.isnan(low[2:]).all()


def test_results_keep_the_shape_of_their_arguments():
    for name in ("add", "fma", "exp", "sqrt"):
        for shape in ((), (1,), (0,), (2, 3)):
            args = (np.ones(shape, np.float32),) * ops.TABLE[name].arity
            out = numeric.apply(name, DType.F32, args, DType.F32)
            assert out.shape == shape and out.dtype == np.float32, name
