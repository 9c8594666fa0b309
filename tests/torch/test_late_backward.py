"""Backward passes in other places than the forward pass: after exact() has ended, in other threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import isobit
from tests.laws.values import assert_same

X = torch.linspace(-3, 3, 60 * 41).reshape(60, 41)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(41, 31), nn.GELU(), nn.Linear(31, 1))


def gradients(module: nn.Module) -> list[Tensor]:
    found = [p.grad for p in module.parameters() if p.grad is not None]
    module.zero_grad()
    return found


@pytest.fixture
def wanted() -> list[Tensor]:
    with isobit.exact(threads=1):
        module = model()
        module(X).sum().backward()
        return gradients(module)


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.equal(p, q) for p, q in zip(a, b, strict=True))


def test_after_exact_has_ended(wanted: list[Tensor]) -> None:
    with isobit.exact(threads=1):
        module = model()
        inside = module(X).sum()
    assert torch.autograd._engine_run_backward is not torch.autograd.graph._engine_run_backward
    found: Any = torch.autograd.grad(inside, list(module.parameters()), retain_graph=True)
    assert_same(list(found), wanted)
    (inside * 1.0).backward()  # a graph of both: its root is of outside
    assert_same(gradients(module), wanted)


def test_graphs_from_outside_are_left_alone() -> None:
    """Before the arithmetic was on, and after."""
    module = model()
    module(X).sum().backward()
    plain, before = gradients(module), module(X).sum()
    with isobit.exact(threads=1):
        module(X).sum().backward()
        exact = gradients(module)
    before.backward()
    assert same(gradients(module), plain)
    module(X).sum().backward()
    assert same(gradients(module), plain) and not same(plain, exact)


def test_many_short_spans_are_remembered(wanted: list[Tensor]) -> None:
    with isobit.exact(threads=1):
        module = model()
    losses = []
    for _ in range(40):
        with isobit.exact(threads=1):
            losses.append(module(X).sum())
    losses[0].backward()
    assert_same(gradients(module), wanted)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_other_threads(wanted: list[Tensor]) -> None:
    def work(_: int) -> list[Tensor]:
        module = model()
        module(X).sum().backward()
        return gradients(module)

    def backward(loss: Tensor) -> None:
        loss.backward()

    with ThreadPoolExecutor(2) as pool:
        with isobit.exact(threads=1):
            module = model()
            loss = module(X).sum()
            for found in [work(0), *pool.map(lambda n: torch.jit.wait(torch.jit.fork(work, n)), range(1))]:
                assert_same(found, wanted)
        pool.submit(backward, loss).result()
        assert_same(gradients(module), wanted)
