"""torch.compile(backend="isobit") gives the bits of eager code, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import isobit
from isobit.torch.holes import HoleError
from isobit.torch.layer import ExactLayer, tracing


def run(module: nn.Module, inputs: list[Tensor], compiled: bool) -> list[Tensor]:
    """Results, gradients and buffers after two calls."""
    torch.manual_seed(3)
    f: Callable[..., Any] = torch.compile(module, backend="isobit") if compiled else module
    found: list[Tensor] = []
    for _ in range(2):
        given = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
        y = f(*given)
        found.append(y.detach())
        (y * y).sum().backward()
        found += [x.grad for x in given if x.grad is not None]
    found += [p.grad for p in module.parameters() if p.grad is not None]
    return [x.clone() for x in [*found, *module.buffers()]]


def both(make: Callable[[], nn.Module], *inputs: Tensor) -> None:
    results = []
    for compiled in (False, True):
        torch.manual_seed(1)
        results.append(run(make(), list(inputs), compiled))
    assert len(results[0]) == len(results[1])
    for eager, graph in zip(*results, strict=True):
        assert torch.equal(eager, graph)


class Function(nn.Module):
    """A module with one parameter, from a function of it and the inputs."""

    def __init__(self, function: Callable[..., Tensor], *shape: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(shape))
        self.function = function

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(self.weight, *inputs)


MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3)), (5, 6)),
    "mlp 3d": (lambda: nn.Sequential(nn.Linear(6, 8), nn.SiLU(), nn.Dropout(0.4), nn.Linear(8, 3)), (2, 5, 6)),
    "conv": (lambda: nn.Sequential(nn.Conv2d(2, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.ReLU()), (2, 2, 7, 7)),
    "grouped": (lambda: nn.Conv2d(4, 4, 3, dilation=2, groups=2), (2, 4, 7, 6)),
    "transposed": (lambda: nn.ConvTranspose2d(3, 2, 3, stride=2, output_padding=1), (2, 3, 4, 4)),
    "pools": (
        lambda: nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d((2, 3))),
        (1, 2, 9, 8),
    ),
    "group norm": (lambda: nn.Sequential(nn.GroupNorm(2, 4), nn.Sigmoid(), nn.Flatten()), (2, 4, 3, 3)),
    "softmax": (lambda: nn.Sequential(nn.Softmax(1), nn.LogSoftmax(0), nn.Tanh()), (4, 5)),
    "embedding of moves": (
        lambda: Function(lambda w, x: torch.cat([x, x.flip(0) * w, x[:, :1].expand(3, 4)]).t().contiguous(), 4),
        (3, 4),
    ),
    "used twice": (lambda: Function(lambda w, x: (h := x * w) * torch.sigmoid(h) + h.sum(0), 4), (3, 4)),
    "attention": (
        lambda: Function(lambda w, x: F.scaled_dot_product_attention(x * w, x, x, is_causal=True), 4),
        (2, 3, 4),
    ),
}


@pytest.mark.parametrize("name", MODULES)
def test_eager_and_compiled_agree(reference: ExactLayer, name: str) -> None:
    make, shape = MODULES[name]
    both(make, torch.randn(shape))
    assert not reference.monitor.counts


def test_losses(reference: ExactLayer) -> None:
    target, weight = torch.tensor([1, 0, -100, 4]), torch.rand(5)

    def loss(w: Tensor, x: Tensor) -> Tensor:
        options: dict[str, Any] = {"weight": weight, "ignore_index": -100, "label_smoothing": 0.1}
        return F.cross_entropy(x * w, target, **options) + F.mse_loss(x, w.expand_as(x))

    both(lambda: Function(loss, 5), torch.randn(4, 5))


def test_a_trained_step_on_compiled_code(compiled: ExactLayer) -> None:
    both(MODULES["conv"][0], torch.randn(2, 2, 7, 7))
    assert not compiled.monitor.counts


def test_literal_factors_of_a_contraction(compiled: ExactLayer) -> None:
    def products(w: Tensor, x: Tensor) -> Tensor:
        return x @ (torch.zeros(6, 4) @ w) + F.linear(torch.ones(5, 3), w) @ w

    both(lambda: Function(products, 4, 3), torch.randn(5, 6))
    assert not compiled.monitor.counts


def test_without_the_eager_layer() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    x = torch.randn(5, 6)
    graph = torch.compile(model, backend="isobit")(x)
    assert "layer.py" not in torch._C._dispatch_dump("aten::linear")
    with isobit.exact():
        assert torch.equal(graph, model(x))


def test_a_program_per_shape(reference: ExactLayer) -> None:
    model = nn.Sequential(nn.Linear(6, 4), nn.ReLU())
    graph = torch.compile(model, backend="isobit")
    for rows in (5, 3, 7, 2, 7):
        x = torch.randn(rows, 6, requires_grad=True)
        y = graph(x)
        assert torch.equal(y, model(x))
        y.sum().backward()


def test_a_hole_splits_the_graph_loudly(reference: ExactLayer, capfd: pytest.CaptureFixture[str]) -> None:
    def function(w: Tensor, x: Tensor) -> Tensor:
        return torch.erfinv(torch.tanh(x * w)) * 2 + x.cumsum(0)

    x = torch.randn(3, 4) / 4
    both(lambda: Function(function, 4), x)
    assert {"aten::erfinv", "aten::cumsum"} <= set(reference.monitor.counts)
    assert capfd.readouterr().err.count("hole: aten::erfinv") == 1


def test_strict_covers_compiled_code() -> None:
    with isobit.exact(strict=True), pytest.raises(HoleError, match="erfinv"):
        torch.compile(torch.erfinv, backend="isobit")(torch.tensor([0.5]))


def test_views_of_inputs_share_their_memory(reference: ExactLayer) -> None:
    x = torch.randn(3, 4)
    y, z = torch.compile(lambda x: (x.t()[1:], x + 1), backend="isobit")(x)
    assert y.data_ptr() == x.data_ptr() + 4 and y.stride() == (1, 4)
    assert torch.equal(z, x + 1)


def test_mutated_inputs(reference: ExactLayer) -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        x.mul_(2)
        y[0] = x.sum()
        return x + 1

    eager, graph = [torch.ones(3), torch.zeros(2)], [torch.ones(3), torch.zeros(2)]
    want = function(*eager)
    assert torch.equal(torch.compile(function, backend="isobit")(*graph), want)
    assert all(map(torch.equal, eager, graph))


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_a_checkpoint_with_dropout(reference: ExactLayer, use_reentrant: bool) -> None:
    """What is computed again has the mask of the first time, and later draws do not move."""

    def function(w: Tensor, x: Tensor) -> Tensor:
        y: Tensor = checkpoint(lambda x: F.dropout(torch.tanh(x * w), 0.5), x, use_reentrant=use_reentrant)
        return y * torch.rand(4)

    both(lambda: Function(function, 4), torch.randn(5, 4))


def test_no_grad_and_inference_mode(reference: ExactLayer) -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3)).eval()
    x = torch.randn(2, 1, 4, 4)
    graph = torch.compile(model, backend="isobit")
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert torch.equal(graph(x), model(x))


def test_the_entry_point_finds_the_backend() -> None:
    assert "isobit" in torch._dynamo.list_backends()


def test_tracing_takes_the_composites_back() -> None:
    with tracing():
        assert "layer.py" in torch._C._dispatch_dump("aten::linear")
    assert "layer.py" not in torch._C._dispatch_dump("aten::linear")


def test_integers_and_sorting_between_compiled_pieces(reference: ExactLayer) -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        ranks = (x * 2).argsort(stable=True)
        return ranks.cumsum(0), x.exp().sort()[0] + 1, torch.topk(x.sin(), 2).indices, torch.randperm(7)

    x = torch.randn(5)
    torch.manual_seed(2)
    want = function(x)
    torch.manual_seed(2)
    assert all(map(torch.equal, torch.compile(function, backend="isobit")(x), want))
    assert not reference.monitor.counts
