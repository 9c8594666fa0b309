"""Activations and their backwards over the whole range of f32, against PyTorch's binary64."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from isobit.operators import activations as a
from tests.operators.running import check, close64, grads, reference, run

RNG = np.random.default_rng(2)
X = np.concatenate([RNG.standard_normal(100), np.linspace(-30, 30, 121), RNG.standard_normal(40) * 1e-3])
DY = RNG.standard_normal(X.shape)


@dataclass
class Case:
    name: str
    ours: Any
    theirs: Any
    backward: Any  # (dy, x, y) → dx
    tails: bool = True  # is PyTorch's binary64 accurate in the tails?


CASES = [
    Case("relu", a.relu, F.relu, lambda g, x, y: a.threshold_backward(g, x, 0)),
    Case("threshold", lambda x: a.threshold(x, 0.1, 20), lambda t: F.threshold(t, 0.1, 20),
         lambda g, x, y: a.threshold_backward(g, x, 0.1)),
    Case("leaky_relu", lambda x: a.leaky_relu(x, 0.2), lambda t: F.leaky_relu(t, 0.2),
         lambda g, x, y: a.leaky_relu_backward(g, x, 0.2)),
    Case("elu", lambda x: a.elu(x, 1.3, 1.1, 0.7), lambda t: torch.ops.aten.elu(t, 1.3, 1.1, 0.7),
         lambda g, x, y: a.elu_backward(g, 1.3, 1.1, 0.7, False, x)),
    Case("softplus", lambda x: a.softplus(x, 1.5, 20), lambda t: F.softplus(t, 1.5, 20),
         lambda g, x, y: a.softplus_backward(g, x, 1.5, 20)),
    Case("logsigmoid", a.logsigmoid, F.logsigmoid, lambda g, x, y: a.logsigmoid_backward(g, x)),
    Case("hardtanh", lambda x: a.hardtanh(x, -2, 1), lambda t: F.hardtanh(t, -2, 1),
         lambda g, x, y: a.hardtanh_backward(g, x, -2, 1)),
    # F.hardsigmoid's own backward multiplies by a binary32 1 ÷ 6 in binary64 too
    Case("hardsigmoid", a.hardsigmoid, lambda t: F.relu6(t + 3) / 6, lambda g, x, y: a.hardsigmoid_backward(g, x)),
    Case("hardswish", a.hardswish, F.hardswish, lambda g, x, y: a.hardswish_backward(g, x)),
    Case("sigmoid", a.sigmoid, torch.sigmoid, lambda g, x, y: a.sigmoid_backward(g, y)),
    Case("silu", a.silu, F.silu, lambda g, x, y: a.silu_backward(g, x)),
    Case("gelu", a.gelu, F.gelu, lambda g, x, y: a.gelu_backward(g, x), tails=False),
    Case("gelu_tanh", lambda x: a.gelu(x, "tanh"), lambda t: F.gelu(t, approximate="tanh"),
         lambda g, x, y: a.gelu_backward(g, x, "tanh"), tails=False),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_forward(case):
    x = X if case.tails else X[np.abs(X) < 5]
    close64(run(case.ours, x), reference(case.theirs, x), rtol=1e-13)
    single = x.astype(np.float32)
    exact = reference(case.theirs, single)
    check(run(case.ours, single), reference(case.theirs, single, dtype=torch.float32), exact, 4, floor=1e-30)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_backward(case):
    x = X if case.tails else X[np.abs(X) < 5]
    dy = DY[: len(x)]
    (exact,) = grads(case.theirs, dy, x)
    close64(run(lambda g, v: case.backward(g, v, case.ours(v)), dy, x), exact, rtol=1e-13)
    single, dy32 = x.astype(np.float32), dy.astype(np.float32)
    (exact,) = grads(case.theirs, dy32, single)
    (peer,) = grads(case.theirs, dy32, single, dtype=torch.float32)
    check(run(lambda g, v: case.backward(g, v, case.ours(v)), dy32, single), peer, exact, 4)


def test_tanh_backward():
    x, dy = X.astype(np.float32), DY.astype(np.float32)
    y = np.tanh(x.astype(np.float64)).astype(np.float32)
    exact = dy.astype(np.float64) * (1 - y.astype(np.float64) ** 2)
    check(run(a.tanh_backward, dy, y), exact.astype(np.float32), exact, allowed=2.5, floor=1e-38)


def gelu_exact(x: float) -> float:
    return float(mpmath.mpf(x) * mpmath.erfc(-mpmath.mpf(x) / mpmath.sqrt(2)) / 2)


def test_gelu_is_right_where_the_text_book_formula_cancels():
    mpmath.mp.prec = 200
    x = np.linspace(-13, -1, 97).astype(np.float32)
    exact = np.array([gelu_exact(float(v)) for v in x])
    relative = np.abs(run(a.gelu, x) - exact) / np.abs(exact)
    naive = 0.5 * x * (1 + reference(torch.erf, x * np.float32(math.sqrt(0.5)), dtype=torch.float32))
    assert relative.max() < 3e-5  # the rounding of −x·√½ before erfc, amplified 2·z² times
    assert (np.abs(naive - exact) / np.abs(exact)).max() > 0.5


def test_gelu_tanh_at_the_ends():
    x = np.array([-1e30, -40.0, -20.0, 0.0, 40.0, 1e30, np.inf], np.float32)
    assert run(lambda v: a.gelu(v, "tanh"), x).tolist() == [0, 0, 0, 0, 40, float(np.float32(1e30)), np.inf]
    slope = run(lambda v: a.gelu_backward(v, v, "tanh"), x)
    assert np.isfinite(slope[:6]).all() and slope[4] == 40


def test_tails_keep_their_precision():
    x = np.array([-100.0, -90.0, -20.0], np.float32)
    assert np.array_equal(run(a.logsigmoid, x), x - np.log1p(np.exp(x.astype(np.float64))).astype(np.float32))
    exact = np.exp(x.astype(np.float64)) / (1 + np.exp(x.astype(np.float64)))
    assert np.allclose(run(a.sigmoid, x), exact, rtol=1e-6, atol=2e-45)
    assert np.allclose(run(a.softplus, x), np.log1p(np.exp(x.astype(np.float64))), rtol=1e-6, atol=2e-45)


def test_zero_and_nan():
    x = np.array([-0.0, 0.0, np.nan], np.float32)
    assert np.signbit(run(a.relu, x)[:2]).tolist() == [False, False] and np.isnan(run(a.relu, x)[2])
    assert run(lambda g, v: a.threshold_backward(g, v, 0), np.ones(3, np.float32), x).tolist() == [0, 0, 1]
    for fn in (a.sigmoid, a.silu, a.gelu, a.softplus, a.logsigmoid, a.elu, a.hardtanh):
        assert np.isnan(run(fn, x)[2])


def test_from_the_result():
    x, dy = X[X < 3], DY[: (X < 3).sum()]
    y = run(lambda v: a.elu(v, 1.3, 1.1, 0.7), x)
    from_result = run(lambda g, v: a.elu_backward(g, 1.3, 1.1, 0.7, True, v), dy, y)
    close64(from_result, run(lambda g, v: a.elu_backward(g, 1.3, 1.1, 0.7, False, v), dy, x), rtol=1e-12)


def test_unknown_form_is_named():
    with pytest.raises(ValueError, match="'none' or 'tanh'"):
        run(lambda v: a.gelu(v, "exact"), X)
