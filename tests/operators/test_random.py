"""Random operators are the reference's bits, whatever the shape."""

from __future__ import annotations

import numpy as np
import pytest

from isobit.arithmetic import random as reference
from isobit.arithmetic.dtypes import DType
from isobit.operators import random as r
from tests.operators.running import run

KEYS = [0, 1, 0x0123456789ABCDEF, -5]
SHAPES = [(), (1,), (7,), (3, 5), (2, 3, 4)]
FLOATS = [DType.F32, DType.F64, DType.F16, DType.BF16]


def of_key(fn, key):
    return run(fn, np.array(key, np.int64))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("key", KEYS)
def test_uniform_and_normal(key, dtype):
    for shape in SHAPES:
        word = key % 2**64
        ours = of_key(lambda k, s=shape: r.uniform(k, s, dtype), key)
        assert np.array_equal(ours, reference.uniform(word, shape, dtype))
        ours = of_key(lambda k, s=shape: r.normal(k, s, dtype, 0.5, 2.0), key)
        assert np.array_equal(ours, reference.normal(word, shape, dtype, 0.5, 2.0))
        ours = of_key(lambda k, s=shape: r.exponential(k, s, 1.5, dtype), key)
        assert np.array_equal(ours, reference.exponential(word, shape, dtype, 1.5))


@pytest.mark.parametrize("key", KEYS)
def test_bernoulli_and_dropout(key):
    shape, word = (4, 9), key % 2**64
    assert np.array_equal(of_key(lambda k: r.bernoulli(k, shape, 0.3), key), reference.bernoulli(word, shape, 0.3))
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    y, mask = run(lambda k, v: r.dropout(k, v, 0.25), np.array(key), x)
    assert np.array_equal(mask, reference.dropout_mask(word, shape, 0.25))
    assert np.array_equal(y, x * (mask * np.float32(1 / 0.75)))
    dy = run(lambda g, m: r.dropout_backward(g, m, 1 / 0.75), x, mask)
    assert np.array_equal(dy, y)
    p = np.random.default_rng(1).random(shape).astype(np.float32)
    assert np.array_equal(
        run(lambda k, v: r.bernoulli(k, shape, v), np.array(key), p), reference.bernoulli(word, shape, p)
    )


def test_dropout_of_everything():
    y, mask = run(lambda k, v: r.dropout(k, v, 1.0), np.array(3), np.ones(5, np.float32))
    assert not mask.any() and not y.any()


@pytest.mark.parametrize("bounds", [(0, 10), (-5, 5), (0, 2**40), (-(2**62), 2**62), (3, 4)])
@pytest.mark.parametrize("key", KEYS)
def test_randint(key, bounds):
    ours = of_key(lambda k: r.randint(k, (50,), *bounds), key)
    assert np.array_equal(ours, reference.randint(key % 2**64, (50,), *bounds))


def test_a_run_time_bound_is_a_literal():
    literal = of_key(lambda k: r.uniform(k, (9,), DType.F32, -0.1, 0.2), 7)
    given = run(lambda k, a, b: r.uniform(k, (9,), DType.F32, a, b), np.array(7), np.array(-0.1), np.array(0.2))
    u = reference.uniform(7, (9,))
    assert np.array_equal(literal, given)
    assert np.array_equal(literal, u * np.float32(0.2 - -0.1) + np.float32(-0.1))


def test_empty_range_is_named():
    with pytest.raises(ValueError, match="randint"):
        of_key(lambda k: r.randint(k, (2,), 3, 3), 0)
