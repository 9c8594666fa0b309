"""Layer, batch and group norm with their backwards."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from isobit.arithmetic import orders
from isobit.operators import norms as n
from tests.operators.running import check, close64, grads, run

RNG = np.random.default_rng(7)
EPS = 1e-5


def problem(shape, channels, dtype=np.float64, offset=2.0):
    x = RNG.standard_normal(shape) + offset
    w, b = RNG.standard_normal(channels), RNG.standard_normal(channels)
    return tuple(v.astype(dtype) for v in (x, w, b, RNG.standard_normal(shape)))


def layer(x, w, b):
    return F.layer_norm(x, w.shape, w, b, EPS)


def batch(x, w, b):
    return F.batch_norm(x, None, None, w, b, True, 0.1, EPS)


def group(x, w, b):
    return F.group_norm(x, 3, w, b, EPS)


def layer_grads(dims):
    def ours(dy, x, w, b):
        _, m, rstd = n.layer_norm(x, dims, w, b, EPS)
        return n.layer_norm_backward(dy, x, dims, m, rstd, w)

    return ours


def batch_grads(dy, x, w, b):
    _, m, rstd, _, _ = n.batch_norm(x, w, b, None, None, 0.1, EPS)
    return n.batch_norm_backward(dy, x, w, m, rstd)


def group_grads(dy, x, w, b):
    _, m, rstd = n.group_norm(x, w, b, 3, EPS)
    return n.group_norm_backward(dy, x, m, rstd, w, 3)


CASES = {
    "layer": ((4, 3, 10), (10,), layer, lambda x, w, b: n.layer_norm(x, 1, w, b, EPS)[0], layer_grads(1)),
    "layer2": ((5, 3, 10), (3, 10), layer, lambda x, w, b: n.layer_norm(x, 2, w, b, EPS)[0], layer_grads(2)),
    "layer_all": ((12,), (12,), layer, lambda x, w, b: n.layer_norm(x, 1, w, b, EPS)[0], layer_grads(1)),
    "batch": ((6, 3, 4, 5), (3,), batch, lambda x, w, b: n.batch_norm(x, w, b, None, None, 0.1, EPS)[0], batch_grads),
    "batch1d": ((9, 3), (3,), batch, lambda x, w, b: n.batch_norm(x, w, b, None, None, 0.1, EPS)[0], batch_grads),
    "group": ((2, 6, 4, 3), (6,), group, lambda x, w, b: n.group_norm(x, w, b, 3, EPS)[0], group_grads),
}


@pytest.mark.parametrize("name", CASES)
def test_forward_and_backward(name):
    shape, channels, theirs, ours, ours_grads = CASES[name]
    x, w, b, dy = problem(shape, channels)
    exact = theirs(*map(torch.tensor, (x, w, b)))
    close64(run(ours, x, w, b), exact)
    for a, e in zip(run(ours_grads, dy, x, w, b), grads(theirs, dy, x, w, b), strict=True):
        close64(a, e, rtol=1e-11)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("offset", [0, 100])
def test_accuracy(name, offset):
    shape, channels, theirs, ours, ours_grads = CASES[name]
    x, w, b, dy = problem(shape, channels, np.float32, offset)
    peer, exact = (theirs(*(torch.tensor(v).to(t) for v in (x, w, b))) for t in (torch.float32, torch.float64))
    check(run(ours, x, w, b), peer, exact, allowed=4 + offset)
    exact_grads, peers = grads(theirs, dy, x, w, b), grads(theirs, dy, x, w, b, dtype=torch.float32)
    for a, peer, e in zip(run(ours_grads, dy, x, w, b), peers, exact_grads, strict=True):
        check(a, peer, e, allowed=8 + offset)


def test_batch_norm_statistics():
    x, w, b, _ = problem((6, 3, 4, 5), 3, np.float32)
    rm, rv = RNG.standard_normal(3).astype(np.float32), RNG.random(3).astype(np.float32)
    y, m, rstd, new_mean, new_var = run(lambda *v: n.batch_norm(*v, 0.1, EPS), x, w, b, rm, rv)
    mean, m2 = orders.mean_dims(x, (0, 2, 3)), orders.var_dims(x, (0, 2, 3), 0) * np.float32(120)
    assert np.array_equal(m, mean)
    assert np.array_equal(new_mean, np.float32(0.9) * rm + np.float32(0.1) * mean)
    assert np.allclose(new_var, 0.9 * rv + 0.1 * m2 / 119, rtol=1e-6)
    hat = (x - m[:, None, None]) * rstd[:, None, None]
    assert np.array_equal(y, hat * w[:, None, None] + b[:, None, None])
    by_value = run(lambda *v: n.batch_norm(*v, EPS), x, w, b, rm, rv, np.array(0.1))
    assert all(np.array_equal(p, q) for p, q in zip(by_value, (y, m, rstd, new_mean, new_var), strict=True))


def test_batch_norm_inference():
    x, w, b, dy = problem((6, 3, 4, 5), 3)
    rm, rv = RNG.standard_normal(3), RNG.random(3) + 0.1

    def theirs(x_, w_, b_):
        return F.batch_norm(x_, torch.tensor(rm), torch.tensor(rv), w_, b_, False, 0.1, EPS)

    close64(run(lambda *v: n.batch_norm_inference(*v, EPS), x, w, b, rm, rv), theirs(*map(torch.tensor, (x, w, b))))
    found = run(lambda g, *v: n.batch_norm_inference_backward(g, *v, EPS), dy, x, w, rm, rv)
    for a, e in zip(found, grads(theirs, dy, x, w, b), strict=True):
        close64(a, e)


def test_without_weights():
    x, _, _, dy = problem((4, 10), 10)
    close64(run(lambda v: n.layer_norm(v, 1, None, None, EPS)[0], x), F.layer_norm(torch.tensor(x), (10,), eps=EPS))

    def ours(g, v):
        _, m, rstd = n.layer_norm(v, 1, None, None, EPS)
        return n.layer_norm_backward(g, v, 1, m, rstd, None, (True, False, False))

    dx, dw, db = run(ours, dy, x)
    assert dw is None and db is None
    close64(dx, grads(lambda t: F.layer_norm(t, (10,), eps=EPS), dy, x)[0], rtol=1e-11)


def test_rows_do_not_see_each_other():
    x, w, b, _ = problem((5, 40), 40, np.float32)
    both = run(lambda *v: n.layer_norm(*v[:1], 1, *v[1:], EPS), x, w, b)
    alone = run(lambda *v: n.layer_norm(*v[:1], 1, *v[1:], EPS), x[3:4], w, b)
    assert all(np.array_equal(p[3:4], q) for p, q in zip(both, alone, strict=True))


def test_shapes_are_checked():
    with pytest.raises(ValueError, match="batch_norm"):
        run(lambda v, w: n.batch_norm(v, w, None, None, None, 0.1, EPS), np.zeros((2, 3, 4)), np.zeros(4))
    with pytest.raises(ValueError, match="group_norm"):
        run(lambda v: n.group_norm(v, None, None, 2, EPS), np.zeros((2, 3, 4)))
