"""Reductions over any dims: values, order (against the reference of arithmetic/), and the identities of the laws."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from isobit.arithmetic import orders
from isobit.arithmetic.functions import FUNCTIONS
from isobit.operators import reductions as r
from tests.operators.running import check, close64, reference, run

RNG = np.random.default_rng(3)
DIMS = [None, 0, 1, -1, (0, 2), (1, 2), (0, 1, 2)]


def bits(x):
    return np.asarray(x).tobytes()


def wild(*shape):
    return (RNG.standard_normal(shape) * 10.0 ** RNG.integers(-6, 6, shape)).astype(np.float32)


@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize("keepdim", [False, True])
def test_against_pytorch(dims, keepdim):
    x = RNG.standard_normal((3, 5, 7))
    d = tuple(range(3)) if dims is None else dims
    pairs = [
        (r.sum_, lambda t: t.sum(d, keepdim)), (r.mean, lambda t: t.mean(d, keepdim)),
        (r.amax, lambda t: t.amax(d, keepdim)), (r.amin, lambda t: t.amin(d, keepdim)),
        (r.logsumexp, lambda t: t.logsumexp(d, keepdim)),
    ]  # fmt: skip
    for ours, theirs in pairs:
        close64(run(lambda v, f=ours: f(v, dims, keepdim), x), reference(theirs, x))
    for c in (0, 1, 2):
        v, m = run(lambda v, c=c: r.var_mean(v, dims, c, keepdim), x)
        close64(v, reference(lambda t, c=c: t.var(d, correction=c, keepdim=keepdim), x))
        close64(m, reference(lambda t: t.mean(d, keepdim), x))
    for order in (2, 1, float("inf"), -float("inf"), 0) + (3,) * ("pow" in FUNCTIONS):
        ours = run(lambda v, k=order: r.norm(v, k, dims, keepdim), x)
        close64(ours, reference(lambda t, k=order: torch.linalg.vector_norm(t, k, d, keepdim), x))


def test_prod_std_any_all():
    x = RNG.standard_normal((4, 6))
    close64(run(lambda v: r.prod(v, 1), x), x.prod(1))
    close64(run(lambda v: r.std(v, 0), x), x.std(0, ddof=1))
    flags = np.array([[0, 0, np.nan], [0, 0, 0], [1, 2, 3]])
    assert run(lambda v: r.any_(v, 1), flags).tolist() == [True, False, True]
    assert run(lambda v: r.all_(v, 1), flags).tolist() == [False, False, True]


@pytest.mark.parametrize("shape", [(0,), (1,), (31,), (33,), (1025,), (3000,), (2, 1, 3), (2, 700, 3), (4, 1, 1)])
def test_order_is_the_references(shape):
    x = wild(*shape)
    for dims in [tuple(range(len(shape))), (0,), (len(shape) - 1,), (0, len(shape) - 1)]:
        dims = tuple(dict.fromkeys(dims))
        assert bits(run(lambda v, d=dims: r.sum_(v, d), x)) == bits(orders.sum_dims(x, dims))
        assert bits(run(lambda v, d=dims: r.mean(v, d), x)) == bits(orders.mean_dims(x, dims))
        if x.size:
            assert bits(run(lambda v, d=dims: r.var(v, d), x)) == bits(orders.var_dims(x, dims))


def test_separated_dims_are_sums_one_after_another():
    x = wild(3, 4, 5, 6)
    together = run(lambda v: r.sum_(v, (0, 2, 3)), x)
    assert bits(together) == bits(run(lambda v: r.sum_(r.sum_(v, (2, 3)), 0), x))
    flat = run(lambda v: r.sum_(v.graph.reshape(v, (360,))), x)
    assert bits(run(r.sum_, x)) == bits(flat)


def test_size_one_dims_drop():
    x = wild(7, 1, 9)
    assert bits(run(lambda v: r.sum_(v, (0, 1, 2)), x)) == bits(run(r.sum_, x.reshape(7, 9)))
    assert not np.signbit(run(r.sum_, np.array([-0.0], np.float32)))


def test_accuracy_of_long_sums():
    x = RNG.standard_normal(5000).astype(np.float32) + 3
    check(run(r.sum_, x), torch.tensor(x).sum().numpy(), x.astype(np.float64).sum())
    check(run(r.var, x), torch.tensor(x).var().numpy(), x.astype(np.float64).var(ddof=1))
    big = RNG.standard_normal((2, 3000)).astype(np.float32) + 1000  # where Σx² − n·m² would cancel
    exact = big.astype(np.float64).var(1, ddof=1)
    assert np.allclose(run(lambda v: r.var(v, 1), big), exact, rtol=1e-5)


def test_positions():
    nan = np.nan
    x = np.array([[1, 3, 3, 2], [nan, 9, nan, 1], [-0.0, 0.0, -0.0, -1], [5, 5, 5, 5]], np.float32)
    assert run(lambda v: r.argmax(v, 1), x).tolist() == [1, 0, 0, 0]
    assert run(lambda v: r.argmin(v, 1), x).tolist() == [0, 0, 3, 0]
    assert run(r.argmax, x).tolist() == 4
    top, where = run(lambda v: r.max_(v, 1, True), x)
    assert where.ravel().tolist() == [1, 0, 0, 0] and np.isnan(top[1, 0]) and not np.signbit(top[2, 0])
    low, where = run(lambda v: r.min_(v, 0), x[[0, 3]])
    assert low.tolist() == [1, 3, 3, 2] and where.tolist() == [0, 0, 0, 0]


def test_extremes_of_nothing_are_an_error():
    for fn in (r.amax, r.argmin):
        with pytest.raises(ValueError, match="no element"):
            run(lambda v, f=fn: f(v, 1), wild(2, 0))
    assert run(lambda v: r.amax(v, 1), wild(0, 3)).shape == (0,)


def test_integers_wrap():
    x = np.array([2**62, 2**62, 2**62], np.int64)
    assert run(r.sum_, x) == (3 * 2**62 + 2**63) % 2**64 - 2**63


def test_bad_dims_are_named():
    with pytest.raises(ValueError, match="dims"):
        run(lambda v: r.sum_(v, (0, 0)), wild(2, 2))
    with pytest.raises(ValueError, match="dims"):
        run(lambda v: r.sum_(v, 2), wild(2, 2))


def test_scalars():
    x = np.array(-3.0)
    assert run(r.sum_, x) == -3 and run(lambda v: r.amax(v, 0), x) == -3 and run(r.argmax, x) == 0
