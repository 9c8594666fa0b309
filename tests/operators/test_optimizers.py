"""Optimizer steps: torch.optim's single-tensor loops, rounding by rounding."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from isobit.operators import optimizers as o
from isobit.operators import pointwise as p
from tests.operators.running import close64, run

RNG = np.random.default_rng(9)
STEPS = 3


def trained(make, steps=STEPS):
    """PyTorch's parameters after each step, binary64, and the gradients that it was given."""
    start, gradients = RNG.standard_normal(20), RNG.standard_normal((steps, 20))
    param = torch.nn.Parameter(torch.tensor(start))
    optimizer = make([param])
    seen = []
    for g in gradients:
        param.grad = torch.tensor(g)
        optimizer.step()
        seen.append(param.detach().numpy().copy())
    return start, gradients, seen


@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize(
    ("decay", "amsgrad", "maximize"), list(itertools.product((0.0, 0.1), (False, True), (False, True)))
)
def test_adam(decoupled, decay, amsgrad, maximize):
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    options = {"lr": 0.01, "betas": (0.8, 0.99), "eps": 1e-6, "weight_decay": decay}
    param, gradients, seen = trained(
        lambda ps: kind(ps, **options, amsgrad=amsgrad, maximize=maximize, foreach=False, fused=False)
    )
    state = [np.zeros(20), np.zeros(20)] + ([np.zeros(20)] if amsgrad else [])
    settings = o.AdamSettings(0.01, 0.8, 0.99, 1e-6, decay or None, decoupled, maximize)
    for step, (g, expected) in enumerate(zip(gradients, seen, strict=True), 1):
        param, *state = run(
            lambda w, d, t, *m: o.adam_step(w, d, *(m if amsgrad else (*m, None)), t, settings),
            *(param, g, np.float32(step), *state),
        )
        state = [v for v in state if v is not None]
        close64(param, expected, rtol=1e-15)


SETTINGS = (0.01, 0.9, 0.999, 1e-8, 0.1)


def test_adam_is_the_loop_written_with_operators():
    w, g, m, v = (RNG.standard_normal(50).astype(np.float32) for _ in range(4))
    v = np.abs(v)

    def loop(w, g, m, v):
        w = p.mul(w, 1 - 0.01 * 0.1)
        m = p.lerp(m, g, 1 - 0.9)
        v = p.addcmul(p.mul(v, 0.999), g, g, 1 - 0.999)
        denom = p.add(p.div(p.sqrt(v), (1 - 0.999**7) ** 0.5), 1e-8)
        return p.addcdiv(w, m, denom, -(0.01 / (1 - 0.9**7))), m, v

    settings = o.AdamSettings(*SETTINGS, decoupled=True)
    ours = run(lambda w, g, m, v, t: o.adam_step(w, g, m, v, None, t, settings)[:3], w, g, m, v, np.float32(7))
    assert all(np.array_equal(a, b) for a, b in zip(ours, run(loop, w, g, m, v), strict=True))


@pytest.mark.parametrize("decoupled", [False, True])
def test_run_time_scalars_are_literals(decoupled):
    tensors = [np.abs(RNG.standard_normal(30)).astype(np.float32) for _ in range(4)]
    literal, by_value = (
        run(
            lambda w, g, m, v, t, *s: o.adam_step(
                w, g, m, v, None, t, o.AdamSettings(*(s or SETTINGS), decoupled=decoupled)
            )[:3],
            *tensors, np.float32(7), *given,
        )
        for given in ((), map(np.array, SETTINGS))
    )  # fmt: skip
    assert all(np.array_equal(a, b) for a, b in zip(literal, by_value, strict=True))


@pytest.mark.parametrize(
    ("momentum", "dampening", "nesterov", "decay", "maximize"),
    [(0, 0, False, 0, False), (0.9, 0, False, 0.1, False), (0.9, 0.2, False, 0, True), (0.9, 0, True, 0.1, False)],
)
def test_sgd(momentum, dampening, nesterov, decay, maximize):
    param, gradients, seen = trained(
        lambda ps: torch.optim.SGD(
            ps, 0.1, momentum, dampening, decay, nesterov, maximize=maximize, foreach=False, fused=False
        )
    )
    buffers: tuple = ()
    for g, expected in zip(gradients, seen, strict=True):
        param, buffer = run(
            lambda w, d, *b: o.sgd_step(
                w, d, *(b or (None,)), -0.1, decay or None, momentum, dampening, nesterov, maximize
            ),
            param, g, *buffers,
        )  # fmt: skip
        buffers = () if buffer is None else (buffer,)
        close64(param, expected, rtol=1e-15)
