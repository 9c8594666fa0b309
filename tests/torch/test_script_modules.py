"""TorchScript: what is scripted, traced, frozen or loaded has the bits of eager code, whenever it was made."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from isobit.torch.layer import ExactLayer
from tests.laws.values import assert_same

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore::torch.jit.TracerWarning")


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(37, 29), nn.BatchNorm1d(5)
        self.convolution, self.drop = nn.Conv1d(3, 5, 3), nn.Dropout(0.5)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        h = torch.nn.functional.gelu(self.linear(x)).sigmoid() * 1.7 + x[:, :29].exp().tanh()
        z = self.drop(torch.relu(self.norm(self.convolution(y))))
        return (h * h.sin() + h.log1p()).sum(1) + torch.softmax(z.flatten(1), 1)[:, 0]


def pointwise(x: Tensor) -> Tensor:
    return (torch.nn.functional.gelu(x) * 1.3).sigmoid().sum()


X, Y = torch.linspace(-3, 3, 8 * 37).reshape(8, 37), torch.linspace(-2, 2, 8 * 3 * 40).sin().reshape(8, 3, 40)


def calls(function: Callable[..., Tensor], model: nn.Module) -> list[Tensor]:
    """Results and gradients of three calls: TorchScript optimizes after it has watched some."""
    found: list[Any] = []
    for seed in range(3):
        torch.manual_seed(seed)
        model.zero_grad()
        x = X.clone().requires_grad_()
        result = function(x, Y)
        result.square().sum().backward()
        found += [result.detach(), x.grad, *(p.grad.clone() for p in model.parameters() if p.grad is not None)]
    return found


def traced(model: nn.Module) -> Any:
    return torch.jit.trace(model, (X, Y), check_trace=False)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("make", [torch.jit.script, traced], ids=["scripted", "traced"])
def test_a_script_module_is_the_eager_one(
    compiled: ExactLayer, make: Callable[[nn.Module], Any], training: bool
) -> None:
    model = Model().train(training)
    calls(model, model)  # the kernels know the calls: so does their native shortcut
    other = make(model)
    assert other.training is training
    assert_same(calls(other, other), calls(model, model))
    assert compiled.monitor.counts.total() == 0


def test_what_was_optimized_before(compiled: ExactLayer) -> None:
    """The executor keeps fused kernels and derivatives of its own."""
    model, x = Model().eval(), X.clone().requires_grad_()
    options = compiled.options
    compiled.__exit__(None, None, None)
    try:
        other, function = torch.jit.script(model), torch.jit.script(pointwise)
        calls(other, other)
        for _ in range(3):
            function(x).backward()
        with ExactLayer(options):
            assert_same(calls(other, other), calls(model, model))
            x.grad = None
            function(x).backward()
            scripted, x.grad = x.grad, None
            pointwise(x).backward()
            assert scripted is not None and x.grad is not None
            assert_same([scripted], [x.grad])
        assert torch._C._get_graph_executor_optimize() and torch.jit.freeze.__module__ == "torch.jit._freeze"
    finally:
        compiled.__enter__()


def test_frozen_and_loaded(compiled: ExactLayer) -> None:
    """Freezing folds the norm into the convolution, which is other arithmetic; so it gives a copy."""
    model = Model().eval()
    other = torch.jit.script(model)
    file = io.BytesIO()
    torch.jit.save(other, file)
    file.seek(0)
    with torch.no_grad():
        frozen, inference = torch.jit.freeze(other), torch.jit.optimize_for_inference(other)
        wanted = model(X, Y)
        other.linear.weight.zero_()
        for changed in (frozen, inference, torch.jit.load(file)):
            assert_same([changed(X, Y) for _ in range(2)], [wanted] * 2)
        with pytest.raises(RuntimeError, match="Freezing is currently only implemented for modules in eval mode"):
            torch.jit.freeze(other.train())
