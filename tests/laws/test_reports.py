"""What public reports say goes wrong without the laws, each as a small program of our own. The report stands in the
parameter's id; the law is in the test's name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import isobit
from isobit.codegen.target import host_levels
from tests.laws.values import assert_same, place

Program = Callable[[], list[Tensor]]


def _training() -> list[Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(), nn.Linear(144, 10))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(model(torch.randn(8, 1, 8, 8)), torch.randint(10, (8,))).backward()
        optimizer.step()
    return list(model.state_dict().values())


def _deep_features() -> list[Tensor]:
    """Long sums and products, where every order rounds differently."""
    torch.manual_seed(0)
    x, w = torch.randn(40, 3001), torch.randn(50, 3001)
    return [F.linear(x, w), x.sum(), x.t().sum(1), x.softmax(1).var(1), (x @ w.t()).norm()]


def _normed_sequence() -> list[Tensor]:
    """A layer norm and its gradients over more rows than threads."""
    torch.manual_seed(0)
    layer = nn.LayerNorm(257)
    x = torch.randn(97, 257, requires_grad=True)
    layer(x).square().sum().backward()
    return [p.grad for p in (x, *layer.parameters()) if p.grad is not None]


def _convolved() -> list[Tensor]:
    torch.manual_seed(0)
    x, w = torch.randn(2, 16, 13, 11, requires_grad=True), torch.randn(24, 16, 3, 3, requires_grad=True)
    y = F.conv2d(x, w, padding=1).relu()
    return [y.detach(), *torch.autograd.grad(y.square().sum(), (x, w))]


def _elementary() -> list[Tensor]:
    x = torch.linspace(-30, 30, 4001)
    return [x.exp(), x.sin(), x.tanh(), x.sigmoid(), F.gelu(x), x.abs().log(), x.erf(), x.double().exp()]


def under(program: Program, threads: int = 1, cpu: str | None = None) -> list[Tensor]:
    with isobit.exact(threads=threads, cpu=cpu, strict=True):
        return program()


def reports(**programs: Program) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("program", programs.values(), ids=programs.keys())


@reports(pytorch_7068=_training, pytorch_11278=_convolved)
def test_run(program: Program) -> None:
    assert_same(under(program), under(program))


@reports(pytorch_2201=_deep_features, pytorch_88718=_normed_sequence)
def test_threads(program: Program) -> None:
    one = under(program)
    for threads in (2, 3):
        assert_same(under(program, threads), one, threads)


@reports(
    pytorch_155423=_deep_features, pytorch_155552=_elementary, pytorch_54684=_training, onnxruntime_5667=_convolved
)
def test_isa(program: Program) -> None:
    best = under(program)
    for level in host_levels()[1:]:
        assert_same(under(program, cpu=level), best, level)


def _encoder_layer() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.LayerNorm(96), nn.Linear(96, 10), nn.Softmax(-1))


def _image_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2),
        nn.BatchNorm2d(8),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 10),
    )


def _deep() -> nn.Module:
    return nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.Tanh())))


class _Similarity(nn.Module):
    """Scores of each row against fixed ones: a matrix product, where one row alone would be a product with a vector."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = nn.Parameter(torch.randn(37, 64))

    def forward(self, x: Tensor) -> Tensor:
        return (F.normalize(x, dim=-1) @ self.keys.t()).log_softmax(-1)


@pytest.mark.parametrize(
    ("make", "shape"),
    [(nn.Linear, (1023,)), (_encoder_layer, (64,)), (_deep, (64,)), (_image_net, (3, 17, 16)), (_Similarity, (64,)),
     (_encoder_layer, (5, 64))],
    ids=["pytorch_136338", "pytorch_124025", "pytorch_129029", "timm_2282", "jax_26795", "onnxruntime_7642"],
)  # fmt: skip
def test_batch(make: Callable[..., nn.Module], shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    with isobit.exact(threads=2, strict=True), torch.no_grad():
        model = (make(1023, 7) if make is nn.Linear else make()).eval()
        samples = torch.randn(33, *shape)
        whole = model(samples)
        for start, stop in ((0, 1), (32, 33), (3, 5), (0, 32), (1, 33)):
            assert_same([model(samples[start:stop])], [whole[start:stop]], (start, stop))


def test_slice_pytorch_122889() -> None:
    """A product with some rows or columns is that part of the product with all."""
    torch.manual_seed(0)
    with isobit.exact(threads=2, strict=True):
        a, b = torch.randn(65, 300), torch.randn(300, 67)
        whole = a @ b
        assert_same([a[:1] @ b, a[7:20] @ b, a @ b[:, :3], a[9] @ b], [whole[:1], whole[7:20], whole[:, :3], whole[9]])


def test_slice_pytorch_23493() -> None:
    """A layer on one step of a sequence, and a recurrent cell step by step."""
    torch.manual_seed(0)
    with isobit.exact(threads=2, strict=True), torch.no_grad():
        layer, cell = nn.Linear(48, 32), nn.GRUCell(32, 16)
        steps = torch.randn(9, 4, 48)
        whole = layer(steps)
        for t in range(9):
            assert_same([layer(steps[t])], [whole[t]], t)
        state, states = torch.zeros(4, 16), []
        for x in whole:
            state = cell(x, state)
            states.append(state)
        alone = torch.zeros(1, 16)
        for t in range(9):
            alone = cell(layer(steps[t, 2:3]), alone)
            assert_same([alone], [states[t][2:3]], t)


def test_place_pytorch_197018() -> None:
    """A row is one row, wherever it starts in memory."""
    torch.manual_seed(0)
    with isobit.exact(threads=1, strict=True):
        x = torch.randn(5, 301)
        functions: list[Callable[[Tensor], Tensor]] = [
            lambda v: v.softmax(1), lambda v: v.sum(1), F.gelu, lambda v: F.layer_norm(v, (301,)), lambda v: v @ x.t(),
        ]  # fmt: skip
        for f in functions:
            wanted = f(x)
            for where in ("offset", "sliced", "transposed"):
                assert_same([f(place(x, where))], [wanted], where)
            rows = torch.cat([f(x[i : i + 1]) for i in range(5)])  # each starts at another alignment
            assert_same([rows], [wanted])


def _compile_me(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    y = F.gelu(x @ w.t() * 0.3 + 1.7)
    z = y / (1 + y.exp()) - x.mean() * y
    return z, (z.softmax(-1) * y).sum(0), y.var(1), torch.where(z > 0, z.rsqrt(), z.square().log1p())


def _compiled_training_step(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    hidden = F.layer_norm(F.silu(x @ w.t()), (w.shape[0],))
    return hidden, F.cross_entropy(hidden, torch.arange(len(x)) % w.shape[0]), hidden.std(0)


@pytest.mark.parametrize("function", [_compile_me, _compiled_training_step], ids=["pytorch_141727", "pytorch_179575"])
def test_mode(function: Callable[..., tuple[Tensor, ...]]) -> None:
    """Compiled is eager, forward and backward, though one is many operators and the other a few fused kernels."""
    torch.manual_seed(0)
    torch._dynamo.reset()

    def both(call: Callable[..., tuple[Tensor, ...]]) -> list[Tensor]:
        x, w = inputs[0].clone().requires_grad_(), inputs[1].clone().requires_grad_()
        outputs = call(x, w)
        pulled = torch.autograd.grad([y.sum() for y in outputs], (x, w))
        return [y.detach() for y in outputs] + list(pulled)

    with isobit.exact(threads=1, strict=True):
        inputs = torch.randn(9, 65), torch.randn(33, 65)
        assert_same(both(torch.compile(function, backend="isobit", fullgraph=True)), both(function))


def test_identity_pytorch_156154() -> None:
    """A convolution of one pixel is a linear layer; a sum is the sum of its flattened tensor."""
    torch.manual_seed(0)
    with isobit.exact(threads=2, strict=True):
        x, w, b = torch.randn(2, 96, 6, 5), torch.randn(40, 96), torch.randn(40)
        y = F.conv2d(x, w[:, :, None, None], b)
        assert_same([y.permute(0, 2, 3, 1)], [F.linear(x.permute(0, 2, 3, 1), w, b)])
        assert_same([x.sum(), x.sum((0, 2, 3))], [x.flatten().sum(), x.sum((2, 3)).sum(0)])
        assert_same([x.mean((2, 3), keepdim=True)], [F.adaptive_avg_pool2d(x, 1)])


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch.export of itself
def test_mode_onnxruntime_20219(tmp_path: Path) -> None:
    """An exported model gives what the model gave."""
    torch.manual_seed(0)
    with isobit.exact(threads=1, strict=True), torch.no_grad():
        model, images = _image_net().eval(), torch.randn(3, 3, 17, 16)
        wanted = model(images)
        file = isobit.export(model, (images,), tmp_path / "model.iso")
    assert_same([torch.from_numpy(isobit.load(file)(images.numpy()))], [wanted])
