"""Elementary functions against MPFR: correctly rounded on f32, below 1 ulp on f64."""

from __future__ import annotations

import itertools
import math

import numpy as np
import numpy.typing as npt
import pytest

from isobit.arithmetic import exponentials, inverse_hyperbolic, logarithms, trigonometric
from isobit.arithmetic.functions import FUNCTIONS, Function, algorithm, evaluate
from tests.arithmetic import oracle

EXTRA = {  # written and tested, but not yet in the table of operations
    f.name: f
    for f in (
        Function("asinh", 1, inverse_hyperbolic.asinh_f32, inverse_hyperbolic.asinh_f64),
        Function("acosh", 1, inverse_hyperbolic.acosh_f32, inverse_hyperbolic.acosh_f64),
        Function("atanh", 1, inverse_hyperbolic.atanh_f32, inverse_hyperbolic.atanh_f64),
    )
}
ALL = FUNCTIONS | EXTRA
UNARY = sorted(name for name, f in ALL.items() if f.arity == 1)
F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, 10.0, 100.0, 1000.0]


def f32_arguments(seed: int, n: int) -> F32:
    """Random bit patterns, ordinary numbers, and the edges of f32 and of the functions' ranges."""
    rng = np.random.default_rng(seed)
    patterns = rng.integers(0, 2**32, n, dtype=np.uint64).astype(np.uint32).view(np.float32)
    ordinary = rng.normal(size=n) * 4.0 ** rng.integers(-6, 4, n)
    near_one = np.abs(1 + rng.normal(size=n // 4) * 2.0 ** -rng.integers(1, 24, n // 4))
    edges = [1e-45, -1e-45, 1.1754942e-38, 1.1754944e-38, 3.4028235e38, 88.72284, 88.72283, -103.97208, -103.97207]
    edges += [-87.33655, 128.0, 127.99999, -149.0, -150.0, -149.99998, 9.010913, 3.9192059, 10.05, 10.06, 89.4159]
    with np.errstate(all="ignore"):
        return np.concatenate([patterns, ordinary, near_one, SPECIAL, edges]).astype(np.float32)


def f64_arguments(seed: int, n: int) -> F64:
    rng = np.random.default_rng(seed)
    patterns = rng.integers(0, 2**64, n, dtype=np.uint64, endpoint=False).view(np.float64)
    ordinary = rng.normal(size=2 * n) * 4.0 ** rng.integers(-6, 6, 2 * n)
    near_one = 1 + rng.normal(size=n // 2) * 2.0 ** -rng.integers(1, 52, n // 2)
    tiny = rng.normal(size=n // 4) * 2.0 ** -rng.integers(20, 1060, n // 4)
    quarter_turns = rng.integers(1, 2**40, n // 4) * (math.pi / 2)
    edges = [5e-324, -5e-324, 2.2e-308, 1.79e308, 709.78, 709.79, 710.4758, 710.476, -745.13, -745.14, 1024.0, -1074.0]
    edges += [-1074.9, 26.5, 27.2, 27.3, 0.75, 19.0, 40.0, 2.0**22, 2.0**52, 2.0**53, 6381956970095103.0 * 2.0**797]
    return np.concatenate([patterns, ordinary, near_one, tiny, quarter_turns, SPECIAL, edges])


@pytest.mark.parametrize("name", UNARY)
def test_f32_is_correctly_rounded(name: str) -> None:
    x = f32_arguments(1, 1500)
    got = ALL[name](x)
    assert got.dtype == np.float32
    wrong = [a for a, v in zip(x.tolist(), got, strict=True) if not oracle.same(v, oracle.f32(name, a))]
    assert not wrong


@pytest.mark.parametrize("name", UNARY)
def test_f64_error_is_below_one_ulp(name: str) -> None:
    x = f64_arguments(2, 600)
    got = ALL[name](x)
    errors = [oracle.ulps(name, v, a) for a, v in zip(x.tolist(), got.tolist(), strict=True)]
    worst = int(np.argmax(errors))
    assert errors[worst] < 1, (x[worst], got[worst])


LISTED = {
    "log": logarithms.LOG_CASES,
    "log1p": logarithms.LOG1P_CASES,
    "log10": logarithms.LOG10_CASES,
    "sin": trigonometric.SIN_CASES,
    "cos": trigonometric.COS_CASES,
    "exp2": exponentials.EXP2_CASES,
    "sinh": exponentials.SINH_CASES,
}


@pytest.mark.parametrize("name", sorted(LISTED))
def test_listed_hard_cases(name: str) -> None:
    """They are right, would be wrong if they were not listed, and stay within 4 ulp of binary64."""
    for argument, step in LISTED[name]:
        x = float.fromhex(argument)
        value = float(evaluate(FUNCTIONS[name].f32, np.array([x]))[0])
        unlisted = float((np.float64(value).view(np.int64) - step).view(np.float64))
        assert np.float32(value) == oracle.f32(name, x) != np.float32(unlisted)
        assert oracle.ulps(name, value, x) < 4


ZERO_AT_ZERO = ["expm1", "tanh", "log1p", "sin", "erf", "sinh", "tan", "asin", "atan", "asinh", "atanh"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ZERO_AT_ZERO)
def test_odd_functions_keep_the_sign_of_zero(name: str, dtype: type[np.generic]) -> None:
    got = ALL[name](np.array([0.0, -0.0], dtype))
    assert not got.any() and np.signbit(got).tolist() == [False, True]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_poles_at_zero(dtype: type[np.generic]) -> None:
    zeros = np.array([0.0, -0.0], dtype)
    assert FUNCTIONS["rsqrt"](zeros).tolist() == [math.inf, -math.inf]
    for name in ("log", "log2", "log10"):
        assert FUNCTIONS[name](zeros).tolist() == [-math.inf, -math.inf]


@pytest.mark.parametrize("name", UNARY)
def test_every_nan_gives_nan(name: str) -> None:
    for dtype, patterns in ((np.uint32, [0x7F800001, 0xFFFFFFFF]), (np.uint64, [0x7FF0000000000001, 2**64 - 1])):
        bits = np.array(patterns, dtype)
        assert np.isnan(ALL[name](bits.view(f"f{bits.itemsize}"))).all()


def pow_arguments(seed: int, n: int) -> tuple[F64, F64]:
    """Pairs of f32, many with exact or halfway powers."""
    rng = np.random.default_rng(seed)
    odd = 2 * rng.integers(0, 30, n) + 1.0
    squares = 2.0 * rng.integers(2**11, 2**12, n) + 1
    pairs = [
        (np.exp(3 * rng.normal(size=n)), 8 * rng.normal(size=n)),
        (np.exp2(rng.integers(-30, 30, n)) * odd, rng.integers(-8, 9, n) / 2),
        (squares, np.full(n, 2.0)),
        (odd**4, rng.integers(1, 8, n) / 4),
        (-odd, rng.integers(-9, 10, n).astype(np.float64)),
        (np.exp2(rng.normal(size=n)), rng.normal(size=n) * -140),
    ]
    x, y = (np.concatenate(side).astype(np.float32) for side in zip(*pairs, strict=True))
    return x.astype(np.float64), y.astype(np.float64)


def test_pow_f32_is_correctly_rounded() -> None:
    x, y = pow_arguments(3, 500)
    got = FUNCTIONS["pow"](x.astype(np.float32), y.astype(np.float32))
    wrong = [(a, b) for a, b, v in zip(x, y, got, strict=True) if not oracle.same(v, oracle.f32("pow", a, b))]
    assert not wrong


def test_pow_f64_error_is_below_one_ulp() -> None:
    x, y = pow_arguments(4, 300)
    rng = np.random.default_rng(5)
    x = np.concatenate([x, 1 + rng.normal(size=500) * 2.0 ** -rng.integers(2, 50, 500), np.exp(rng.normal(size=500))])
    y = np.concatenate([y, rng.normal(size=500) * 2.0 ** rng.integers(1, 50, 500), 700 * rng.normal(size=500)])
    got = FUNCTIONS["pow"](x, y)
    assert max(oracle.ulps("pow", v, a, b) for a, b, v in zip(x, y, got.tolist(), strict=True)) < 1


def libm_pow(x: float, y: float) -> float:
    try:
        return math.pow(x, y)
    except OverflowError:
        return math.copysign(math.inf, x if y % 2 == 1 else 1.0)
    except ValueError:  # Python raises where C divides by zero or has no real result
        return math.copysign(math.inf, x if y % 2 == 1 else 1.0) if x == 0 else math.nan


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pow_special_cases_are_those_of_c(dtype: type[np.generic]) -> None:
    values = [*SPECIAL, -3.0, 2.5, -2.5, 2.0**24 - 1, 2.0**24, -(2.0**24 - 1), 1e30, -1e30, 2.0**52 + 1, 2.0**53 + 2]
    x, y = (np.array(v).astype(dtype) for v in zip(*itertools.product(values, values), strict=True))
    for a, b, got in zip(x.tolist(), y.tolist(), FUNCTIONS["pow"](x, y), strict=True):
        with np.errstate(all="ignore"):
            expected = np.float64(libm_pow(a, b)).astype(dtype)
        close = np.isfinite(expected) and expected != 0 and abs(got / expected - 1) < 1e-6
        assert close or oracle.same(got, expected), (a, b)


def test_results_keep_shape_and_broadcast() -> None:
    assert FUNCTIONS["exp"](np.ones((2, 3, 1), np.float32)).shape == (2, 3, 1)
    assert FUNCTIONS["exp"](np.float64(1)).shape == ()
    assert FUNCTIONS["pow"](np.ones((2, 1), np.float32), np.ones(3, np.float32)).shape == (2, 3)
    assert FUNCTIONS["exp"](np.ones((0, 2))).shape == (0, 2)


def test_errors_name_the_function_and_the_dtypes() -> None:
    with pytest.raises(TypeError, match=r"exp: wants 1 arrays of one dtype.*int64"):
        FUNCTIONS["exp"](np.ones(2, np.int64))
    with pytest.raises(TypeError, match=r"pow: .*float32, float64"):
        FUNCTIONS["pow"](np.ones(2, np.float32), np.ones(2))


def test_algorithms_are_found_by_name_and_dtype() -> None:
    x = np.array([0.5, 2.0])
    assert np.array_equal(evaluate(algorithm("exp", "f64"), x), FUNCTIONS["exp"](x))
    with pytest.raises(KeyError):
        algorithm("exp", "f16")
