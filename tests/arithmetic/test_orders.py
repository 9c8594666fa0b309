"""Reductions and contractions against ARITHMETIC.md §3 and §4 spelled again, one scalar at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isobit.arithmetic import orders
from isobit.arithmetic.fma import fma_f32, fma_f64

Array = npt.NDArray[Any]
Scalar = Any
LENGTHS = [1, 2, 3, 31, 32, 33, 63, 64, 255, 256, 257, 1023, 1024, 1025, 2048, 3000, 5 * 1024 + 7]
DTYPES = [np.float32, np.float64]


def values(seed: int, *shape: int, dtype: type = np.float32) -> Array:
    """Values of many magnitudes, so that the order shows."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) * 10.0 ** rng.integers(-3, 4, shape)).astype(dtype)


def tree(parts: list[Scalar], combine: Callable[[Scalar, Scalar], Scalar]) -> Scalar:
    while len(parts) > 1:
        paired = [combine(parts[i], parts[i + 1]) for i in range(0, len(parts) - 1, 2)]
        parts = paired + ([parts[-1]] if len(parts) % 2 else [])
    return parts[0]


def block(x: Sequence[Scalar], combine: Callable[[Scalar, Scalar], Scalar], start: Scalar) -> Scalar:
    lanes = [start] * 32
    for i, v in enumerate(x):
        lanes[i % 32] = combine(lanes[i % 32], v)
    for step in (16, 8, 4, 2, 1):
        for lane in range(step):
            lanes[lane] = combine(lanes[lane], lanes[lane + step])
    return lanes[0]


def run(x: Array, combine: Callable[[Scalar, Scalar], Scalar], start: int) -> Scalar:
    first = x.dtype.type(start)
    with np.errstate(all="ignore"):
        return tree([block(list(x[k : k + 1024]), combine, first) for k in range(0, len(x), 1024)], combine)


def add(a: Scalar, b: Scalar) -> Scalar:
    return a + b


def multiply(a: Scalar, b: Scalar) -> Scalar:
    return a * b


def same(a: Array, b: Array) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", LENGTHS)
def test_sum_is_the_page(n: int, dtype: type) -> None:
    x = values(n, n, dtype=dtype)
    assert same(orders.sum_run(x), run(x, add, 0))


@pytest.mark.parametrize("n", LENGTHS)
def test_prod_is_the_page(n: int) -> None:
    x = (1 + np.random.default_rng(n).normal(size=n) / 100).astype(np.float32)
    assert same(orders.prod_run(x), run(x, multiply, 1))


def test_the_order_shows() -> None:
    """Otherwise the tests above could not fail."""
    x = values(1, 3000)
    backwards, plain = run(x[::-1], add, 0), np.add.accumulate(x)[-1]
    assert len({float(orders.sum_run(x)), float(backwards), float(plain)}) == 3


def test_runs_along_any_axis_do_not_see_each_other() -> None:
    x = values(2, 3, 1500, 2)
    expected = np.array([[run(x[i, :, j], add, 0) for j in range(2)] for i in range(3)])
    assert same(orders.sum_run(x, 1), expected)
    assert same(orders.sum_run(x[1:2], 1), expected[1:2])


@settings(max_examples=30)
@given(st.integers(0, 3), st.integers(0, 4), st.integers(1, 700))
def test_a_run_may_be_split_at_1024_times_a_power_of_two(seed: int, j: int, rest: int) -> None:
    head, total = 1024 << j, (1024 << j) + rest
    x = values(seed, total)
    split = np.stack([orders.sum_run(x[:head]), orders.sum_run(x[head:])])
    assert same(orders.sum_run(x), orders.tree_sum(split))


def test_empty_runs() -> None:
    empty = np.zeros((2, 0), np.float32)
    assert same(orders.sum_run(empty), np.zeros(2, np.float32))
    assert same(orders.prod_run(empty), np.ones(2, np.float32))
    assert same(orders.tree_sum(empty), np.zeros(2, np.float32))
    assert np.isnan(orders.mean(empty)).all()
    for reduce in (orders.max_run, orders.min_run, orders.argmax, orders.argmin):
        with pytest.raises(ValueError, match="empty"):
            reduce(empty)


def test_negative_zeros_sum_to_zero() -> None:
    assert not np.signbit(orders.sum_run(np.full(5, -0.0, np.float32)))


def test_integers_wrap() -> None:
    x = np.full(3, 2**31 - 1, np.int32)
    assert orders.sum_run(x) == np.int32(2**31 - 3)
    assert orders.prod_run(np.full(3, 2**16, np.int32)) == 0
    assert orders.contract(x, x) == np.int32(3)


def test_several_dims_are_the_laws_of_the_page() -> None:
    x = values(3, 3, 5, 40, 30)
    assert same(orders.sum_dims(x, (0, 2, 3)), orders.sum_dims(orders.sum_dims(x, (2, 3)), (0,)))
    assert same(orders.sum_dims(x, (0, 1, 2, 3)), orders.sum_run(x.reshape(-1)))
    assert same(orders.sum_dims(x, (2, -1)), orders.sum_run(x.reshape(3, 5, 1200)))
    wide = x[:, :, None, :, None]
    assert same(orders.sum_dims(wide.reshape(3, 1, 5, 40, 30), (0, 1, 3)), orders.sum_dims(x, (0, 2)))


@pytest.mark.parametrize(
    "shape,dims,joined",
    [
        ((2, 3, 4), (1, 2), ((2, 12), (1,))),
        ((2, 3, 4), (0, 2), ((2, 3, 4), (0, 2))),
        ((2, 1, 4), (0, 1, 2), ((8,), (0,))),
        ((2, 1, 4), (0, 2), ((2, 1, 4), (0, 2))),  # a kept dim separates, of size 1 too
        ((1, 1), (0, 1), ((), ())),
    ],
)
def test_runs(shape: tuple[int, ...], dims: tuple[int, ...], joined: tuple[tuple[int, ...], ...]) -> None:
    assert orders.runs(shape, dims) == joined


@pytest.mark.parametrize("dims", [(0, 0), (0, -2), (2,), (-3,)])
def test_wrong_dims(dims: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="distinct dims of shape"):
        orders.runs((2, 3), dims)


def variance(x: Array, correction: int) -> Scalar:
    n = len(x)
    m = run(x, add, 0) / x.dtype.type(n)
    terms = []
    for k in range(0, n, 1024):
        part = x[k : k + 1024]
        count = x.dtype.type(len(part))
        m_b = block(list(part), add, x.dtype.type(0)) / count
        q_b = block([(v - m_b) * (v - m_b) for v in part], add, x.dtype.type(0))
        terms.append(q_b + count * ((m_b - m) * (m_b - m)))
    return tree(terms, add) / x.dtype.type(n - correction)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [2, 33, 1024, 1025, 3000])
def test_mean_and_var_are_the_page(n: int, dtype: type) -> None:
    x = values(n, n, dtype=dtype) + dtype(5)
    assert same(orders.mean(x), run(x, add, 0) / dtype(n))
    assert same(orders.var(x), variance(x, 1))
    assert same(orders.var(x, correction=0), variance(x, 0))
    exact = np.var(x.astype(np.float64), ddof=1)
    assert abs(float(orders.var(x)) - exact) < 1e-5 * exact


def test_var_over_separated_dims() -> None:
    x = values(4, 3, 4, 50)
    got = orders.var_dims(x, (0, 2))
    assert same(orders.var_dims(x.reshape(12, 50), (0, 1)), orders.var(x.reshape(-1)))
    assert got.shape == (4,)
    np.testing.assert_allclose(got, np.var(x.astype(np.float64), axis=(0, 2), ddof=1), rtol=1e-5)
    with np.errstate(all="ignore"):
        assert np.isnan(orders.var_dims(np.ones((2, 1), np.float32), (1,))).all()
        assert same(orders.var_dims(np.ones((2, 1), np.float32), (1,), 0), np.zeros(2, np.float32))


@settings(max_examples=60)
@given(st.lists(st.sampled_from([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45]), min_size=1, max_size=40))
def test_extremes(items: list[float]) -> None:
    x = np.array(items, np.float32)
    nan = next((i for i, v in enumerate(items) if v != v), None)
    ordered = sorted(items, key=lambda v: (v, not np.signbit(v)))
    high, low = orders.max_run(x), orders.min_run(x)
    if nan is not None:
        assert np.isnan(high) and np.isnan(low) and orders.argmax(x) == orders.argmin(x) == nan
    else:
        assert same(high, np.float32(ordered[-1])) and same(low, np.float32(ordered[0]))
        assert orders.argmax(x) == items.index(max(items)) and orders.argmin(x) == items.index(min(items))


def test_extremes_of_integers_and_along_an_axis() -> None:
    x = np.array([[3, 1], [3, 5]], np.int64)
    assert orders.max_run(x, 0).tolist() == [3, 5] and orders.argmax(x, 0).tolist() == [0, 1]
    y = np.array([[1.0, np.nan], [-0.0, 0.0]])
    assert same(orders.max_run(y, 1), np.array([np.nan, 0.0])) and orders.argmin(y, 1).tolist() == [1, 0]


def contraction(a: Array, b: Array) -> Scalar:
    fma = fma_f32 if a.dtype == np.float32 else fma_f64
    chunks = []
    for k in range(0, len(a), 256):
        total = a.dtype.type(0)
        for u, v in zip(a[k : k + 256], b[k : k + 256], strict=True):
            total = fma(u, v, total)[()]
        chunks.append(total)
    return tree(chunks, add) + a.dtype.type(0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [1, 7, 256, 257, 800])
def test_contraction_is_the_page(k: int, dtype: type) -> None:
    a, b = values(k, 2, k, dtype=dtype), values(k + 1, k, 3, dtype=dtype)
    expected = np.array([[contraction(a[i], b[:, j]) for j in range(3)] for i in range(2)])
    assert same(orders.matmul(a, b), expected)


def test_contraction_edges() -> None:
    minus = np.full(3, -0.0, np.float32)
    assert same(orders.contract(minus, np.ones(3, np.float32)), np.float32(0))
    assert same(orders.contract(minus[:0], minus[:0]), np.float32(0))
    for wrong in (np.ones(4, np.float32), np.ones(3)):
        with pytest.raises(ValueError, match="one dtype and one k"):
            orders.contract(minus, wrong)


@settings(max_examples=20)
@given(st.integers(0, 1000), st.integers(1, 600))
def test_contraction_is_near_the_exact_sum(seed: int, k: int) -> None:
    a, b = values(seed, k), values(seed + 1, k)
    terms = [Fraction(float(u)) * Fraction(float(v)) for u, v in zip(a, b, strict=True)]
    size = float(sum(map(abs, terms)))
    assert abs(float(orders.contract(a, b)) - float(sum(terms))) <= 2.0**-23 * 300 * size
