"""The laws on whole models: an MLP and small CNNs, forward and through training, however they are run."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import isobit
from isobit.codegen.target import host_levels
from tests.laws.rounding import DOWNWARD, UPWARD, rounding
from tests.laws.values import assert_same


class Normed(nn.Module):
    """A convolution, layer norm over channels, dropout, an average over positions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.LayerNorm(8)
        self.drop = nn.Dropout(0.3)
        self.out = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.conv(x).permute(0, 2, 3, 1))
        return self.out(self.drop(nn.functional.gelu(y)).mean((1, 2)))


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(3 * 8 * 7, 33), nn.SiLU(), nn.Linear(33, 17), nn.Tanh(), nn.Linear(17, 5)
    )


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 12, 3, stride=2, groups=4), nn.BatchNorm2d(12), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(12, 5),
    )  # fmt: skip


MODELS: dict[str, Callable[[], nn.Module]] = {"mlp": mlp, "cnn": cnn, "normed": Normed}
OPTIMIZERS: dict[str, Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer]] = {
    "mlp": lambda p: torch.optim.AdamW(p, lr=0.01),
    "cnn": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3, nesterov=True),
    "normed": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
}


def train(name: str, compiled: bool = False, steps: int = 3) -> list[Tensor]:
    """Losses of a few steps, then everything in the model's state."""
    torch.manual_seed(5)
    model = MODELS[name]()
    optimizer = OPTIMIZERS[name](model.parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    network = torch.compile(model, backend="isobit") if compiled else model
    losses = []
    for _ in range(steps):
        images, labels = torch.randn(6, 3, 8, 7), torch.randint(5, (6,))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(images), labels, label_smoothing=0.1)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
    return losses + [v.clone() for v in model.state_dict().values()]


@pytest.fixture(scope="module")
def trained() -> dict[str, list[Tensor]]:
    with isobit.exact(threads=1, strict=True):
        return {name: train(name) for name in MODELS}


def test_training_moves_the_weights(trained: dict[str, list[Tensor]]) -> None:
    """Equality of what follows would say nothing of a model that stands still."""
    for name, found in trained.items():
        torch.manual_seed(5)
        with isobit.exact(threads=1, strict=True):
            before = MODELS[name]().state_dict().values()
        assert sum(not torch.equal(a, b) for a, b in zip(before, found[3:], strict=True)) > len(before) / 2


@pytest.mark.parametrize("name", MODELS)
def test_run_and_threads(name: str, trained: dict[str, list[Tensor]]) -> None:
    for threads in (1, 2, 3):
        with isobit.exact(threads=threads, strict=True):
            assert_same(train(name), trained[name], threads)


@pytest.mark.parametrize("name", MODELS)
def test_isa(name: str, trained: dict[str, list[Tensor]]) -> None:
    for level in host_levels()[1:]:
        with isobit.exact(threads=1, cpu=level, strict=True):
            assert_same(train(name), trained[name], level)


@pytest.mark.parametrize("name", MODELS)
def test_host_flushes_subnormals(name: str, trained: dict[str, list[Tensor]]) -> None:
    assert torch.set_flush_denormal(True)
    try:
        with isobit.exact(threads=1, strict=True):
            found = train(name)
    finally:
        torch.set_flush_denormal(False)
    assert_same(found, trained[name])


@pytest.mark.parametrize("mode", [UPWARD, DOWNWARD], ids=["upward", "downward"])
def test_host_rounds_another_way(mode: int) -> None:
    """Forward and backward; what the script computes in Python itself (a schedule's rate) is its own."""
    found = []
    for name in MODELS:
        torch.manual_seed(5)
        with isobit.exact(threads=1, strict=True):
            model, images, labels = MODELS[name]().eval(), torch.randn(6, 3, 8, 7), torch.randint(5, (6,))
            for around in (rounding(mode), rounding(0)):
                with around:
                    loss = nn.functional.cross_entropy(model(images), labels)
                    found.append([loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))])
        assert_same(found[-2], found[-1], name)


def test_host_rounds_another_way_in_an_optimizer() -> None:
    """Bias corrections are powers and quotients of hyper-parameters, computed in the step's own program."""
    found = []
    for mode in (UPWARD, 0):
        with isobit.exact(threads=1, strict=True):
            weight = nn.Parameter(torch.linspace(-3, 3, 500, dtype=torch.float64))
            optimizer = torch.optim.AdamW([weight], lr=0.01)
            for _ in range(3):
                weight.grad = weight.detach().sin()
                with rounding(mode):
                    optimizer.step()
        found.append(weight.detach())
    assert_same(found[:1], found[1:])


@pytest.mark.parametrize("name", MODELS)
def test_mode_compiled(name: str, trained: dict[str, list[Tensor]]) -> None:
    torch._dynamo.reset()
    with isobit.exact(threads=1, strict=True):
        assert_same(train(name, compiled=True), trained[name])


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch.export of itself
@pytest.mark.parametrize("name", MODELS)
def test_mode_exported(name: str, tmp_path: Path) -> None:
    torch.manual_seed(5)
    with isobit.exact(threads=1, strict=True):
        model, images = MODELS[name]().eval(), torch.randn(4, 3, 8, 7)
        with torch.no_grad():
            wanted = model(images)
        file = isobit.export(model, (images,), tmp_path / "model.iso")
    found = torch.from_numpy(isobit.load(file, threads=2)(images.numpy()))
    assert_same([found], [wanted])


@pytest.mark.parametrize("name", MODELS)
def test_batch(name: str) -> None:
    """Each image alone, in pairs, in another order, among others: the same logits and the same gradient of the image."""
    torch.manual_seed(5)
    with isobit.exact(threads=1, strict=True):
        model, images = MODELS[name]().eval(), torch.randn(7, 3, 8, 7)

        def run(some: Tensor) -> list[Tensor]:
            some = some.clone().requires_grad_()
            logits = model(some)
            (pulled,) = torch.autograd.grad(logits, some, torch.ones_like(logits))
            return [logits.detach(), pulled]

        whole = run(images)
        for rows in ([0], [6], [3, 4], [5, 0, 2], [1] * 20):
            assert_same(run(images[rows]), [y[rows] for y in whole], rows)


@pytest.mark.parametrize("name", MODELS)
def test_place(name: str) -> None:
    """Images and weights in channels-last order, and images inside a greater tensor."""
    torch.manual_seed(5)
    with isobit.exact(threads=1, strict=True):
        model, images = MODELS[name]().eval(), torch.randn(4, 3, 8, 7)
        wanted = model(images).detach()
        wide = torch.zeros(5, 3, 9, 9)
        wide[1:, :, 1:, 2:] = images
        assert_same([model(wide[1:, :, 1:, 2:]).detach()], [wanted])
        last = model.to(memory_format=torch.channels_last)
        assert_same([last(images.to(memory_format=torch.channels_last)).detach()], [wanted])


def test_a_checkpoint_goes_on_as_if_never_stopped() -> None:
    """Model, optimizer and generator saved and loaded between two steps."""

    def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        model(torch.randn(6, 3, 8, 7)).square().mean().backward()
        optimizer.step()

    with isobit.exact(threads=1, strict=True):
        torch.manual_seed(5)
        model = Normed()
        optimizer = torch.optim.AdamW(model.parameters())
        step(model, optimizer)
        held = io.BytesIO()
        torch.save([model.state_dict(), optimizer.state_dict(), torch.get_rng_state()], held)
        step(model, optimizer)
        held.seek(0)
        weights, state, rng = torch.load(held)
        again = Normed()
        other = torch.optim.AdamW(again.parameters())
        again.load_state_dict(weights)
        other.load_state_dict(state)
        torch.set_rng_state(rng)
        step(again, other)
    assert_same(list(again.state_dict().values()), list(model.state_dict().values()))
