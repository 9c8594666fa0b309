"""Single-tensor, foreach and fused optimizers give the same bits; so does clipping, however it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

from isobit.torch.layer import _STACK, ExactLayer
from isobit.torch.optim import OptimizerRoutes

CASES: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "maximize": True}),
    ("Adam", {"lr": 1e-2}),
    ("Adam", {"lr": 1e-2, "weight_decay": 0.1, "amsgrad": True}),
    ("AdamW", {"lr": 1e-2, "weight_decay": 0.1, "betas": (0.3, 0.7)}),
    ("AdamW", {"lr": 1e-2, "maximize": True}),
]
WAYS: tuple[dict[str, bool], ...] = ({"foreach": False}, {"foreach": True}, {"fused": True})


def trained(name: str, options: dict[str, Any], dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 2)).to(dtype)
    optimizer = getattr(torch.optim, name)(model.parameters(), **options)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)
    for _ in range(3):
        x = torch.randn(6, 5, dtype=dtype)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5, foreach=bool(options.get("foreach")))
        optimizer.step()
        scheduler.step()
    return [p.detach().clone() for p in model.parameters()]


@contextmanager
def pytorchs_own_loops() -> Iterator[None]:
    """torch.optim's update functions as PyTorch has them, under the exact arithmetic all the same."""
    routes = next(p for p in _STACK.patches if isinstance(p, OptimizerRoutes))
    routes.remove()
    try:
        yield
    finally:
        routes.install()


def assert_one_result(name: str, options: dict[str, Any], dtype: torch.dtype = torch.float32) -> None:
    """Single-tensor, foreach and fused, through PyTorch's own update functions and through Isobit's routes."""
    with pytorchs_own_loops():
        first, *others = [trained(name, options | way, dtype) for way in WAYS]
    others += [trained(name, options | way, dtype) for way in WAYS]
    for other in others:
        assert all(map(torch.equal, first, other))


@pytest.mark.parametrize(("name", "options"), CASES, ids=[f"{n}-{k}" for k, (n, _) in enumerate(CASES)])
def test_three_ways_one_result(reference: ExactLayer, name: str, options: dict[str, Any]) -> None:
    assert_one_result(name, options)
    assert not reference.monitor.counts


def test_double_precision(reference: ExactLayer) -> None:
    assert_one_result("AdamW", {"lr": 1e-2}, torch.float64)


def test_gradient_scaling_in_a_fused_optimizer_is_a_hole(reference: ExactLayer) -> None:
    p = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.Adam([p], fused=True)
    p.grad = torch.ones(3)
    optimizer.grad_scale, optimizer.found_inf = torch.ones(()), torch.zeros(())
    optimizer.step()
    assert reference.monitor.counts == {"aten::_fused_adam_": 1}


def test_state_survives_a_checkpoint(reference: ExactLayer) -> None:
    def steps(n: int, resume: dict[str, Any] | None = None) -> tuple[torch.Tensor, dict[str, Any]]:
        torch.manual_seed(0)
        p = torch.randn(4, requires_grad=True) if resume is None else resume["p"].clone().requires_grad_()
        optimizer = torch.optim.AdamW([p], lr=0.1)
        if resume is not None:
            optimizer.load_state_dict(resume["state"])
        for _ in range(n):
            optimizer.zero_grad()
            (p * p).sum().backward()
            optimizer.step()
        return p.detach().clone(), {"p": p.detach().clone(), "state": optimizer.state_dict()}

    whole, _ = steps(4)
    _, half = steps(2)
    assert torch.equal(steps(2, half)[0], whole)
