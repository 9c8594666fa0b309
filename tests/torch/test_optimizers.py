"""Single-tensor, foreach and fused optimizers give the same bits; so does clipping, however it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.sgd import sgd

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


Build = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
OPTIMIZERS: list[Build] = [
    lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9),
    lambda ps: torch.optim.SGD(ps, lr=0.1, foreach=False),
    lambda ps: torch.optim.AdamW(ps, lr=0.1, amsgrad=True),
    lambda ps: torch.optim.Adam(ps, lr=0.1, foreach=False),
]


def parameters(*tensors: torch.Tensor) -> list[nn.Parameter]:
    """Parameters with a gradient."""
    made = [nn.Parameter(t) for t in tensors]
    for p in made:
        p.grad = torch.full_like(p, 0.5)
    return made


@pytest.mark.parametrize("build", OPTIMIZERS)
def test_a_step_between_forward_and_backward_is_an_error(reference: ExactLayer, build: Build) -> None:
    """Autograd has kept the parameter as it was; it must see that it was overwritten."""
    (p,) = parameters(torch.ones(3))
    loss = (p * p).sum()
    build([p]).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("n", [0, 6])
@pytest.mark.parametrize("build", OPTIMIZERS)
@pytest.mark.filterwarnings("ignore:optimizer contains a parameter group with duplicate parameters")
def test_parameters_that_share_memory_step_one_after_the_other(compiled: ExactLayer, build: Build, n: int) -> None:
    def stepped() -> list[torch.Tensor]:
        memory = torch.arange(12.0)
        ps = parameters(memory[:5], memory[3:9], *torch.ones(n, 2))
        optimizer = build([*ps, ps[0]])
        optimizer.step()
        optimizer.step()
        return [memory, *(p.detach() for p in ps)]

    found = stepped()
    with pytorchs_own_loops():
        assert all(map(torch.equal, found, stepped()))


def test_a_shared_step_number_counts_every_parameter(reference: ExactLayer) -> None:
    ps = parameters(torch.ones(3), torch.ones(3))
    optimizer = torch.optim.Adam(ps, lr=0.1)
    optimizer.step()
    optimizer.state[ps[1]]["step"] = optimizer.state[ps[0]]["step"]
    optimizer.step()
    assert optimizer.state[ps[0]]["step"] == 3


def test_state_of_another_dtype_or_shape_is_pytorchs_to_judge(reference: ExactLayer) -> None:
    (p,) = parameters(torch.ones(3))
    momentum = torch.optim.SGD([p], lr=0.1, momentum=0.9)
    adam = torch.optim.Adam([p], lr=0.1)
    momentum.step()
    adam.step()
    adam.state[p]["exp_avg_sq"] = torch.ones(2, 3)
    with pytest.raises(RuntimeError, match=r"shape \[3\] doesn't match the broadcast shape \[2, 3\]"):
        adam.step()
    p.grad = None
    p.data = p.data.double()
    p.grad = torch.ones_like(p)
    momentum.step()
    assert momentum.state[p]["momentum_buffer"].dtype == torch.float32
    adam.state[p]["exp_avg_sq"] = torch.ones(3)
    with pytest.raises(RuntimeError, match="expected dtype float"):
        adam.step()


def test_a_fused_optimizer_does_not_read_behind_its_state(reference: ExactLayer) -> None:
    (p,) = parameters(torch.ones(3))
    adam = torch.optim.Adam([p], fused=True)
    adam.step()
    adam.state[p]["exp_avg"] = torch.ones(1)
    with pytest.raises(RuntimeError, match="has shape"):
        adam.step()


def test_an_update_that_is_differentiated_or_mapped(reference: ExactLayer) -> None:
    """The functional form on tensors of a graph: the step itself has a gradient, and vmap goes through it."""
    options: dict[str, Any] = {"weight_decay": 0.0, "momentum": 0.0, "lr": 0.1, "dampening": 0.0}

    def step(p: torch.Tensor, grad: torch.Tensor) -> None:
        sgd([p], [grad], [None], **options, nesterov=False, maximize=False, foreach=False)

    w = torch.ones(3, requires_grad=True)
    p = w * 2
    (g,) = torch.autograd.grad((p * p).sum(), p, create_graph=True)
    step(p, g)
    p.sum().backward()
    assert w.grad is not None and torch.allclose(w.grad, torch.tensor(2 - 0.1 * 4))
    with pytest.raises(RuntimeError, match="a leaf Variable"):
        step(w, torch.ones(3))

    @torch.no_grad()
    def mapped(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        step(y, torch.ones(3))
        return y

    x = torch.randn(2, 3)
    assert torch.equal(torch.func.vmap(mapped)(x), torch.stack([mapped(x[0]), mapped(x[1])]))
