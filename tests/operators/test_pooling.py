"""Pooling against PyTorch, and the corners that ARITHMETIC.md decides."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from isobit.arithmetic import orders
from isobit.operators import pooling as p
from tests.operators.running import close64, run

RNG = np.random.default_rng(6)
SPATIAL = (8, 7, 6)
MAX = (F.max_pool1d, F.max_pool2d, F.max_pool3d)
AVG = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)
ADAPTIVE_AVG = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)
ADAPTIVE_MAX = (F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d)


def geometries(dims):
    for k, s, pad, d, ceil in itertools.product((1, 2, 3), (1, 2, 3), (0, 1), (1, 2), (False, True)):
        if 2 * pad <= k and (dims == 1 or (k + s + pad + d + ceil) % dims == 0):
            yield k, s, pad, d, ceil


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_maximum(dims):
    for k, s, pad, d, ceil in geometries(dims):
        x = RNG.integers(-3, 3, (2, 3, *SPATIAL[:dims])).astype(np.float64)  # many ties
        x[0, 0] = -np.inf  # padding must not win
        t = torch.tensor(x, requires_grad=True)
        y, index = MAX[dims - 1](t, k, s, pad, d, ceil, return_indices=True)
        geometry = ([k] * dims, [s], [pad], [d], ceil)
        top, where = run(lambda v: p.max_pool(v, *geometry), x)  # noqa: B023
        assert np.array_equal(top, y.detach().numpy()) and np.array_equal(where, index.numpy()), geometry
        dy = RNG.standard_normal(y.shape)
        y.backward(torch.tensor(dy))
        close64(run(lambda g, v, i: p.max_pool_backward(g, v, i, *geometry), dy, x, where), t.grad)  # noqa: B023


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_average(dims):
    for (k, s, pad, d, ceil), (count, divisor) in itertools.product(
        geometries(dims), ((True, None), (False, None), (True, 3))
    ):
        if d > 1 or (dims == 1 and divisor):
            continue
        x = RNG.standard_normal((2, 3, *SPATIAL[:dims]))
        t = torch.tensor(x, requires_grad=True)
        extra = {} if dims == 1 else {"divisor_override": divisor}
        y = AVG[dims - 1](t, k, s, pad, ceil, count, **extra)
        dy = RNG.standard_normal(y.shape)
        y.backward(torch.tensor(dy))
        geometry = ([k] * dims, [s], [pad], ceil, count, divisor)
        close64(run(lambda v: p.avg_pool(v, *geometry), x), y.detach())  # noqa: B023
        close64(run(lambda g, v: p.avg_pool_backward(g, v, *geometry), dy, x), t.grad)  # noqa: B023


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 11])
def test_adaptive(dims, size):
    x = RNG.standard_normal((2, 3, *SPATIAL[:dims]))
    t = torch.tensor(x, requires_grad=True)
    y = ADAPTIVE_AVG[dims - 1](t, size)
    dy = RNG.standard_normal(y.shape)
    y.backward(torch.tensor(dy))
    close64(run(lambda v: p.adaptive_avg_pool(v, [size] * dims), x), y.detach())
    close64(run(lambda g, v: p.adaptive_avg_pool_backward(g, v, dims), dy, x), t.grad)
    t = torch.tensor(x, requires_grad=True)
    y, index = ADAPTIVE_MAX[dims - 1](t, size, True)
    y.backward(torch.tensor(dy))
    top, where = run(lambda v: p.adaptive_max_pool(v, [size] * dims), x)
    assert np.array_equal(top, y.detach().numpy()) and np.array_equal(where, index.numpy())
    close64(run(lambda g, v, i: p.adaptive_max_pool_backward(g, v, i, dims), dy, x, where), t.grad)


def test_ties_and_nan():
    x = np.array([[[1, 3, 3, 0], [np.nan, 1, np.nan, 9]]], np.float32)
    top, where = run(lambda v: p.max_pool(v, [4]), x)
    assert top[0, 0, 0] == 3 and np.isnan(top[0, 1, 0]) and where.ravel().tolist() == [1, 0]


def test_average_is_the_window_as_a_run():
    x = RNG.standard_normal((1, 1, 9, 9)).astype(np.float32)
    ours = run(lambda v: p.avg_pool(v, [7, 7], [1], [3]), x)
    padded = np.pad(x[0, 0], 3)
    window = padded[0:7, 0:7].ravel()  # excluded cells keep their position as +0
    assert ours[0, 0, 0, 0] == orders.sum_run(window) / np.float32(49)


def test_dims_without_batch():
    x = RNG.standard_normal((3, 8, 7))
    assert np.array_equal(run(lambda v: p.avg_pool(v, [2, 2]), x), run(lambda v: p.avg_pool(v, [2, 2]), x[None])[0])


def test_geometry_is_checked():
    x = RNG.standard_normal((1, 1, 4, 4))
    with pytest.raises(ValueError, match="padding 2"):
        run(lambda v: p.max_pool(v, [3, 3], padding=[2]), x)
    with pytest.raises(ValueError, match="leaves none"):
        run(lambda v: p.avg_pool(v, [5, 5]), x)
