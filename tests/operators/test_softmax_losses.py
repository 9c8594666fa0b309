"""Softmax, its logarithm, and the losses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from isobit.arithmetic import orders
from isobit.operators import losses as l
from isobit.operators import softmax as s
from tests.operators.running import check, close64, grads, reference, run

RNG = np.random.default_rng(8)
REDUCTIONS = ("none", "mean", "sum")
INT = {"none": 0, "mean": 1, "sum": 2}


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(name, dim):
    x, dy = RNG.standard_normal((4, 5, 6)) * 5, RNG.standard_normal((4, 5, 6))
    ours, back = getattr(s, name), getattr(s, name + "_backward")
    theirs = getattr(torch, name)
    close64(run(lambda v: ours(v, dim), x), reference(lambda t: theirs(t, dim), x))
    found = run(lambda g, v: back(g, ours(v, dim), dim), dy, x)
    close64(found, grads(lambda t: theirs(t, dim), dy, x)[0], rtol=1e-11)
    x, dy = x.astype(np.float32) * 4, dy.astype(np.float32)
    exact = reference(lambda t: theirs(t, dim), x)
    check(run(lambda v: ours(v, dim), x), reference(lambda t: theirs(t, dim), x, dtype=torch.float32), exact)


def test_softmax_of_masked_rows():
    x = np.array([[-np.inf, -np.inf], [-np.inf, 0.0]], np.float32)
    assert np.isnan(run(lambda v: s.softmax(v, 1), x)[0]).all()
    assert run(lambda v: s.safe_softmax(v, 1), x).tolist() == [[0, 0], [0, 1]]


def test_softmax_of_nothing():
    for fn in (s.softmax, s.log_softmax, s.safe_softmax):
        assert run(lambda v, f=fn: f(v, 1), np.zeros((3, 0))).shape == (3, 0)


def test_log_softmax_of_a_sure_thing():
    x = np.array([[100.0, 0.0, -50.0]], np.float32)
    exact = reference(lambda t: torch.log_softmax(t, 1), x)
    assert np.allclose(run(lambda v: s.log_softmax(v, 1), x), exact, rtol=1e-6)


LOSSES = [
    ("mse", l.mse_loss, l.mse_loss_backward, F.mse_loss),
    ("smooth_l1", l.smooth_l1_loss, l.smooth_l1_loss_backward, F.smooth_l1_loss),
    ("huber", l.huber_loss, l.huber_loss_backward, F.huber_loss),
    ("bce", lambda x, y, r: l.bce_loss(x, y, None, r), lambda g, x, y, r: l.bce_loss_backward(g, x, y, None, r),
     F.binary_cross_entropy),
    ("bce_logits", lambda x, y, r: l.bce_with_logits_loss(x, y, None, None, r),
     lambda g, x, y, r: l.bce_with_logits_loss_backward(g, x, y, None, None, r), F.binary_cross_entropy_with_logits),
]  # fmt: skip


@pytest.mark.parametrize("case", LOSSES, ids=lambda c: c[0])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_elementwise_losses(case, reduction):
    name, ours, back, theirs = case
    x = RNG.random((7, 6)) if name == "bce" else RNG.standard_normal((7, 6)) * 3
    y = RNG.random((7, 6)) if name.startswith("bce") else RNG.standard_normal((7, 6))
    dy = RNG.standard_normal((7, 6) if reduction == "none" else ())

    def loss(t, u):
        return theirs(t, u, reduction=reduction)

    close64(run(lambda u, v: ours(u, v, reduction), x, y), reference(loss, x, y))
    close64(run(lambda g, u, v: back(g, u, v, reduction), dy, x, y), grads(loss, dy, x, y)[0])
    x, y, dy = (v.astype(np.float32) for v in (x, y, dy))
    check(
        run(lambda u, v: ours(u, v, reduction), x, y), reference(loss, x, y, dtype=torch.float32), reference(loss, x, y)
    )
    peer = grads(loss, dy, x, y, dtype=torch.float32)[0]
    check(run(lambda g, u, v: back(g, u, v, reduction), dy, x, y), peer, grads(loss, dy, x, y)[0])


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_smooth_l1_beta(beta):
    x, y, dy = RNG.standard_normal(40), RNG.standard_normal(40), RNG.standard_normal(())
    x[0] = y[0]

    def loss(t, u):
        return F.smooth_l1_loss(t, u, beta=beta)

    close64(run(lambda u, v: l.smooth_l1_loss(u, v, "mean", beta), x, y), reference(loss, x, y))
    found = run(lambda g, u, v: l.smooth_l1_loss_backward(g, u, v, "mean", beta), dy, x, y)
    close64(found, grads(loss, dy, x, y)[0])


@pytest.mark.parametrize("logits", [False, True])
def test_weighted_bce(logits):
    x, y, w, p = RNG.random((5, 4)), RNG.random((5, 4)), RNG.random(4), RNG.random(4)
    dy = RNG.standard_normal(())
    if logits:

        def theirs(t, u, v, q):
            return F.binary_cross_entropy_with_logits(t * 9, u, v, pos_weight=q)

        ours = run(l.bce_with_logits_loss, x * 9, y, w, p)
        back = run(l.bce_with_logits_loss_backward, dy, x * 9, y, w, p) * 9
    else:

        def theirs(t, u, v, q):
            return F.binary_cross_entropy(t, u, v)

        ours, back = run(l.bce_loss, x, y, w), run(l.bce_loss_backward, dy, x, y, w)
    close64(ours, reference(theirs, x, y, w, p))
    t = torch.tensor(x, requires_grad=True)
    (theirs(t, *map(torch.tensor, (y, w, p))) * torch.tensor(dy)).backward()
    close64(back, t.grad)


def test_bce_keeps_its_precision():
    x = np.array([-100.0, -30, 30, 100], np.float32)
    y = np.array([0, 0, 1, 1], np.float32)
    exact = np.log1p(np.exp(-np.abs(x.astype(np.float64))))
    assert np.allclose(
        run(lambda a, b: l.bce_with_logits_loss(a, b, reduction="none"), x, y), exact, rtol=1e-6, atol=1e-45
    )
    certain = np.array([0.0, 1.0], np.float32)
    assert run(lambda a, b: l.bce_loss(a, b, reduction="none"), certain, certain[::-1].copy()).tolist() == [100, 100]


@pytest.mark.parametrize("shape", [(9, 5), (4, 5, 3), (2, 5, 3, 4), (5,)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_nll(shape, weighted, reduction):
    logp = np.log(RNG.random(shape))
    target = RNG.integers(0, 5, shape[:1] + shape[2:] if len(shape) > 1 else ())
    if target.ndim:
        target.reshape(-1)[1] = 2  # the class that is ignored
    weight = RNG.random(5)
    weights = (weight,) if weighted else ()

    def theirs(t, u):
        w = torch.tensor(weight).to(t.dtype) if weighted else None
        return F.nll_loss(t, u, w, ignore_index=2, reduction=reduction)

    ours = run(lambda u, v, *w: l.nll_loss(u, v, *(w or (None,)), reduction, 2)[0], logp, target, *weights)
    close64(ours, reference(theirs, logp, target))
    dy = RNG.standard_normal(ours.shape)

    def back(g, u, v, *w):
        w = w or (None,)
        total = l.nll_loss(u, v, *w, reduction, 2)[1]
        return l.nll_loss_backward(g, u, v, *w, reduction, 2, total)

    close64(run(back, dy, logp, target, *weights), grads(theirs, dy, logp, target)[0])


def test_nll_mean_is_one_run():
    logp, target = np.log(RNG.random((3, 4, 50))).astype(np.float32), RNG.integers(0, 4, (3, 50))
    picked = -np.take_along_axis(logp, target[:, None], 1)
    ours, total = run(lambda u, v: l.nll_loss(u, v), logp, target)
    assert ours == orders.sum_run(picked.ravel()) / np.float32(150) and total == 150


def test_nll_of_no_class_is_nan():
    logp = np.zeros((2, 3), np.float32)
    assert np.isnan(run(lambda u, v: l.nll_loss(u, v)[0], logp, np.array([0, 3])))
    assert np.isnan(run(lambda u, v: l.nll_loss(u, v)[0], logp, np.array([-100, -100])))  # 0 ÷ 0, as PyTorch


def test_names_are_checked():
    with pytest.raises(ValueError, match="reduction"):
        run(lambda u: l.mse_loss(u, u, "avg"), np.zeros(3))
    with pytest.raises(ValueError, match="nll_loss"):
        run(l.nll_loss, np.zeros((2, 3)), np.zeros(3, np.int64))
