"""Elementwise operators: values against PyTorch's binary64, and the corners that ARITHMETIC.md decides."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from isobit.arithmetic.dtypes import DType
from isobit.arithmetic.functions import FUNCTIONS
from isobit.ir.graph import Graph
from isobit.ir.ops import ELEMENTARY
from isobit.operators import pointwise as p
from tests.operators.running import check, close64, reference, run

NAN, INF = math.nan, math.inf
RNG = np.random.default_rng(1)
WIDE = np.concatenate([RNG.standard_normal(60), RNG.standard_normal(60) * 10.0 ** RNG.integers(-8, 8, 60)])
EDGES = np.array([0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 1e-40, -1e-40, 3e38])

UNARY = [
    (p.neg, torch.neg), (p.absolute, torch.abs), (p.sqrt, torch.sqrt), (p.rsqrt, torch.rsqrt), (p.exp, torch.exp),
    (p.expm1, torch.expm1), (p.log, torch.log), (p.log1p, torch.log1p), (p.sin, torch.sin), (p.cos, torch.cos),
    (p.tanh, torch.tanh), (p.erf, torch.erf), (p.erfc, torch.erfc), (p.floor, torch.floor), (p.ceil, torch.ceil),
    (p.trunc, torch.trunc), (p.round_, torch.round), (p.reciprocal, torch.reciprocal), (p.square, torch.square),
]  # fmt: skip


@pytest.mark.parametrize(("ours", "theirs"), UNARY, ids=lambda f: getattr(f, "__name__", "?"))
def test_unary(ours, theirs):
    x = np.concatenate([WIDE, EDGES]).astype(np.float32)
    exact = reference(theirs, x)
    check(run(ours, x), reference(theirs, x, dtype=torch.float32), exact, allowed=0.51, floor=1e-38)
    moderate = np.concatenate([WIDE[np.abs(WIDE) < 1e3], EDGES[:7]])
    close64(run(ours, moderate), reference(theirs, moderate), rtol=1e-14)


@pytest.mark.parametrize("name", ["add", "sub", "rsub"])
@pytest.mark.parametrize("alpha", [1, 0.3])
def test_alpha_is_one_more_rounding(name, alpha):
    x, y = WIDE.astype(np.float32), WIDE[::-1].astype(np.float32)
    a, b = (y, x) if name == "rsub" else (x, y)
    scaled = np.float32(alpha) * b
    expected = a + scaled if name == "add" else a - scaled
    assert np.array_equal(run(lambda u, v: getattr(p, name)(u, v, alpha), x, y), expected)


def test_a_run_time_scalar_is_a_literal():
    x, k = WIDE.astype(np.float32), np.array(0.3)
    assert np.array_equal(run(lambda a: p.mul(a, 0.3), x), run(lambda a, b: p.mul(a, b), x, k))
    assert np.array_equal(run(lambda a: p.lerp(a, a, 0.3), x), run(lambda a, b: p.lerp(a, a, b), x, k))


def test_broadcasting_and_its_errors():
    x, y = RNG.standard_normal((3, 1, 4)), RNG.standard_normal((5, 1))
    assert np.array_equal(run(p.mul, x, y), x * y)
    with pytest.raises(ValueError, match="broadcast"):
        run(p.add, np.zeros(3), np.zeros(4))
    with pytest.raises(TypeError, match="convert"):
        run(p.add, np.zeros(3), np.zeros(3, np.float32))


@pytest.mark.parametrize("mode", ["floor", "trunc"])
def test_division_that_rounds_to_integers_is_exact(mode):
    x = np.concatenate([RNG.integers(-50, 50, 200) / 10, RNG.standard_normal(100) * 9]).astype(np.float32)
    y = np.concatenate([RNG.choice([0.1, -0.1, 0.3, 0.7], 200), RNG.standard_normal(100)]).astype(np.float32)
    towards = math.floor if mode == "floor" else math.trunc
    exact = [towards(Fraction(float(a)) / Fraction(float(b))) for a, b in zip(x, y, strict=True)]
    assert np.array_equal(run(lambda a, b: p.div(a, b, mode), x, y), np.array(exact, np.float32))


@pytest.mark.parametrize("mode", ["floor", "trunc"])
def test_integer_division(mode):
    x, y = RNG.integers(-20, 20, 200), RNG.choice([-7, -3, -1, 1, 2, 5], 200)
    theirs = torch.div(torch.tensor(x), torch.tensor(y), rounding_mode=mode).numpy()
    assert np.array_equal(run(lambda a, b: p.div(a, b, mode), x, y), theirs)
    assert np.array_equal(run(p.remainder, x, y), torch.remainder(torch.tensor(x), torch.tensor(y)).numpy())


@pytest.mark.parametrize("k", [0, 0.5, -0.5, 1, -1, 2] + [3, -2, 1.7] * ("pow" in FUNCTIONS))
def test_power(k):
    x = np.concatenate([np.abs(WIDE), EDGES]).astype(np.float32)
    exact = reference(lambda t: torch.pow(t, float(np.float32(k))), x)  # a Python scalar is rounded to the dtype first
    with np.errstate(over="ignore"):
        rounded = exact.astype(np.float32)
    check(run(lambda a: p.pow_(a, k), x), rounded, exact, allowed=0.51, floor=1e-38)


def test_integer_power():
    x = RNG.integers(-9, 9, 30)
    assert np.array_equal(run(lambda a: p.pow_(a, 5), x), x**5)
    with pytest.raises(ValueError, match="integer"):
        run(lambda a: p.pow_(a, -1), x)


def test_extremes_and_signs_of_zero():
    x = np.array([0.0, -0.0, NAN, 1.0, -0.0], np.float32)
    y = np.array([-0.0, 0.0, 1.0, NAN, -0.0], np.float32)
    high, low = run(p.maximum, x, y), run(p.minimum, x, y)
    assert np.array_equal(np.signbit(high[[0, 1, 4]]), [False, False, True])
    assert np.array_equal(np.signbit(low[[0, 1, 4]]), [True, True, True])
    assert np.isnan(high[2:4]).all() and np.isnan(low[2:4]).all()
    clamped = run(lambda a: p.clamp(a, -0.5, 0.5), np.array([NAN, 2, -2, 0.25], np.float32))
    assert np.array_equal(clamped, np.array([NAN, 0.5, -0.5, 0.25], np.float32), equal_nan=True)


def test_reading_signs_takes_nan_as_positive():
    x = np.array([NAN, -NAN, 0.0, -0.0, -3.0, INF], np.float32)
    assert run(p.signbit, x).tolist() == [False, False, False, True, True, False]
    signed = run(lambda a: p.copysign(2.0, a), x)
    assert signed.tolist() == [2, 2, 2, -2, -2, 2]
    assert run(p.sign, x).tolist() == [0, 0, 0, 0, -1, 1]


def test_predicates_and_replacement():
    x = np.array([NAN, INF, -INF, 1.0], np.float32)
    assert run(p.isnan, x).tolist() == [True, False, False, False]
    assert run(p.isinf, x).tolist() == [False, True, True, False]
    assert run(p.isfinite, x).tolist() == [False, False, False, True]
    assert np.array_equal(run(p.nan_to_num, x), torch.nan_to_num(torch.tensor(x)).numpy())
    half = np.array([NAN, INF, -INF], np.float16)
    assert np.array_equal(run(p.nan_to_num, half), torch.nan_to_num(torch.tensor(half)).numpy())


def test_comparisons_and_where():
    x, y = np.array([1.0, NAN, 0.0]), np.array([1.0, NAN, -0.0])
    assert run(p.eq, x, y).tolist() == [True, False, True]
    assert run(p.ne, x, y).tolist() == [False, True, False]
    assert run(lambda a, b: p.where(p.lt(a, b), a, 7.0), np.array([1.0, 9.0]), np.array([2.0, 2.0])).tolist() == [1, 7]


def test_logic_and_bits():
    a, b = np.array([True, True, False, False]), np.array([True, False, True, False])
    assert np.array_equal(run(p.logical_and, a, b), a & b) and np.array_equal(run(p.logical_xor, a, b), a ^ b)
    assert run(p.logical_not, np.array([0.0, NAN, 2.0])).tolist() == [True, False, False]
    assert np.array_equal(run(p.add, a, b), a | b) and np.array_equal(run(p.mul, a, b), a & b)
    i, j = RNG.integers(-99, 99, 9), RNG.integers(0, 9, 9)
    assert np.array_equal(run(p.bitwise_xor, i, j), i ^ j) and np.array_equal(run(p.shift_right, i, j), i >> j)
    assert np.array_equal(run(p.bitwise_not, i), ~i)


def test_fused_and_unfused_multiply_add():
    x, y, z = (RNG.standard_normal(50).astype(np.float32) for _ in range(3))
    exact = x.astype(np.float64) * y + z
    assert np.array_equal(run(p.fma, x, y, z), exact.astype(np.float32))
    assert np.array_equal(run(lambda a, b, c: p.addcmul(a, b, c, 0.3), z, x, y), z + (np.float32(0.3) * x) * y)
    assert np.array_equal(run(lambda a, b, c: p.addcdiv(a, b, c, 0.3), z, x, y), z + (np.float32(0.3) * x) / y)


def test_lerp_reaches_both_ends():
    x, y = WIDE.astype(np.float32), WIDE[::-1].astype(np.float32)
    assert np.array_equal(run(lambda a, b: p.lerp(a, b, 0.0), x, y), x)
    assert np.array_equal(run(lambda a, b: p.lerp(a, b, 1.0), x, y), y)
    w = RNG.random(120)
    close64(run(p.lerp, WIDE, WIDE[::-1], w), reference(torch.lerp, WIDE, WIDE[::-1].copy(), w))


def test_round_with_decimals():
    x = (WIDE[np.abs(WIDE) < 1e4]).astype(np.float32)
    for d in (2, -1):
        theirs = torch.round(torch.tensor(x), decimals=d).numpy()
        assert np.array_equal(run(lambda a, d=d: p.round_(a, d), x), theirs)


def test_casts_saturate():
    x = np.array([NAN, INF, -INF, 3e9, -3e9, 1.9, -1.9], np.float32)
    cast = run(lambda a: p.cast(a, DType.I32), x)
    assert cast.tolist() == [0, 2**31 - 1, -(2**31), 2**31 - 1, -(2**31), 1, -1]
    assert run(lambda a: p.cast(a, DType.BOOL), x[:1]).tolist() == [True]


def test_full():
    assert run(lambda a: p.full(a.graph, (2, 3), a, DType.F32), np.array(0.1)).tolist() == [[np.float32(0.1)] * 3] * 2
    graph = Graph()
    assert p.full(graph, (2,), 3, DType.I64).dtype == DType.I64 and graph.nodes[0].origin == "full"


def test_narrow_operands_round_once():
    x, y = (RNG.standard_normal(200).astype(np.float16) for _ in range(2))
    expected = (x.astype(np.float32) + np.float32(0.3) * y.astype(np.float32)).astype(np.float16)
    assert np.array_equal(run(lambda a, b: p.add(a, b, 0.3), x, y), expected)


@pytest.mark.skipif(not ELEMENTARY - set(FUNCTIONS), reason="the reference has every function")
def test_a_function_that_the_reference_lacks_is_named():
    name = min(ELEMENTARY - set(FUNCTIONS))
    with pytest.raises(NotImplementedError, match=name):
        p.function(name)
