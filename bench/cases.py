"""What is timed. Each case takes the number of threads and gives rows: ours, the peer's, and the goal."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from examples.digits_cnn import DigitsNet
from torch import Tensor, nn

import isobit
from bench.resnet import resnet18
from bench.timing import Side, alternate
from isobit.record.trace import Step, TraceWriter
from isobit.torch.events import Event, StepEvent
from isobit.torch.steps import StepHooks


@dataclass(frozen=True)
class Row:
    """One measured figure. ``reached`` says whether it meets ``goal``."""

    what: str
    ours: str
    peer: str
    value: str
    goal: str
    reached: bool


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms"


def exact(threads: int) -> Callable[[], AbstractContextManager[object]]:
    """The scope in which eager PyTorch is ours."""
    return partial(isobit.exact, threads=threads)


def versus(what: str, ours: Side, peer: Side, goal: float | None) -> Row:
    """A row that compares two sides by turns; without a goal it only informs."""
    t = alternate(ours, peer)
    reached = goal is None or t.ratio >= goal
    wanted = "" if goal is None else f"≥ {goal}×"
    return Row(what, milliseconds(t.ours), milliseconds(t.peer), f"{t.ratio:.2f}×", wanted, reached)


def matmul(threads: int) -> Iterator[Row]:
    """Square float32 matrix products against PyTorch's."""
    for n in (256, 384, 512, 768, 1024, 1536, 2048):
        a, b = torch.randn(n, n), torch.randn(n, n)
        work = partial(torch.mm, a, b)
        yield versus(f"matmul {n}", Side(work, exact(threads)), Side(work), 1.0)


def pointwise_and_norm(x: Tensor, bias: Tensor, residual: Tensor, norm: nn.LayerNorm) -> Tensor:
    return norm(nn.functional.gelu(x + bias) + residual)


def fusion(threads: int) -> Iterator[Row]:
    """bias + GELU + residual + layer norm on 16 M elements against Inductor."""
    x, residual, bias = torch.randn(16384, 1024), torch.randn(16384, 1024), torch.randn(1024)
    arguments = (x, bias, residual, nn.LayerNorm(1024))
    sides = []
    for backend in ("isobit", "inductor"):
        torch._dynamo.reset()
        compiled = torch.compile(pointwise_and_norm, backend=backend)
        sides.append(partial(in_inference, compiled, arguments))
    scope = exact(threads)
    yield versus("bias+GELU+residual+LN, 16 M", Side(sides[0], scope), Side(sides[1]), 1.5)


def in_inference(function: Callable[..., Tensor], arguments: tuple[object, ...]) -> Tensor:
    with torch.no_grad():
        return function(*arguments)


class Training:
    """A model with its optimizer and one batch; calling it makes a step."""

    def __init__(self, model: nn.Module, images: Tensor, classes: int, backend: str | None = None) -> None:
        self.network = torch.compile(model, backend=backend) if backend else model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        self.images = images
        self.labels = torch.arange(len(images)) % classes

    def __call__(self) -> None:
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.network(self.images), self.labels).backward()
        self.optimizer.step()


def digits_step(threads: int) -> Iterator[Row]:
    """A training step of the digits CNN, batch 32, against PyTorch eager."""
    images = torch.rand(32, 1, 8, 8)
    peer = Side(Training(DigitsNet(), images, 10))
    compiled = Side(Training(DigitsNet(), images, 10, "isobit"), exact(threads))
    yield versus("digits step, compiled", compiled, peer, 1.0)
    yield versus("digits step, eager", Side(Training(DigitsNet(), images, 10), exact(threads)), peer, 0.7)


def small_add(threads: int) -> Iterator[Row]:
    """What one warm call costs: 8 elements."""
    a, b = torch.randn(8), torch.randn(8)
    work = partial(torch.add, a, b)
    t = alternate(Side(work, exact(threads)), Side(work))
    us = f"{t.ours * 1e6:.2f} µs"
    yield Row("add, 8 elements", us, f"{t.peer * 1e6:.2f} µs", us, "≤ 7 µs", t.ours <= 7e-6)


FIRST_STEP = """
import sys, time, torch, isobit
from bench.cases import DigitsNet, Training
step = Training(DigitsNet(), torch.rand(32, 1, 8, 8), 10)
begun = time.perf_counter()
with isobit.exact(threads=int(sys.argv[1])):
    step()
print(time.perf_counter() - begun)
"""


def first_step(threads: int) -> Iterator[Row]:
    """The first step of the digits CNN in a process without compiled kernels."""
    with tempfile.TemporaryDirectory() as home:
        root = Path(__file__).resolve().parents[1]
        environment = {
            "HOME": home,
            "XDG_CACHE_HOME": home,
            "PYTHONPATH": f"{root}/src:{root}",
            "PATH": "/usr/bin:/bin",
        }
        argv = [sys.executable, "-c", FIRST_STEP, str(threads)]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
        if not any(Path(home).rglob("*.o*")):
            raise RuntimeError("no kernel was compiled into the empty cache: this figure would mean nothing")
    s = float(done.stdout)
    yield Row("digits, first step, empty cache", f"{s:.1f} s", "", f"{s:.1f} s", "≤ 15 s", s <= 15)


class Recording:
    """The scope of a recorded run: every step is digested and written to a trace."""

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def __enter__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.trace = TraceWriter(Path(self.folder.name))
        self.exact = isobit.exact(threads=self.threads)
        self.exact.__enter__()
        self.hooks = StepHooks(self.write)
        self.hooks.__enter__()

    def __exit__(self, *error: object) -> None:
        self.hooks.__exit__(None, None, None)
        self.exact.__exit__(None, None, None)
        self.trace.close()
        self.folder.cleanup()

    def write(self, event: Event) -> None:
        if isinstance(event, StepEvent):
            parts = event.parts()
            changes = parts.pop("changes")
            if changes:
                self.trace.settings(event.index, event.optimizer, changes)
            self.trace.step(Step(event.index, seconds=time.perf_counter(), **parts))


def recording(threads: int) -> Iterator[Row]:
    """What recording adds to a step of ResNet-18, 16×3×64×64, and that step against PyTorch eager."""
    images = torch.rand(16, 3, 64, 64)
    step = Training(resnet18(), images, 1000)
    bare, recorded = Side(step, exact(threads)), Side(step, partial(Recording, threads))
    t = alternate(recorded, bare, rounds=15, seconds=0.5)
    cost = 1 / t.ratio - 1
    yield Row(
        "ResNet-18 step, recorded", milliseconds(t.ours), milliseconds(t.peer), f"{cost:+.1%}", "≤ 3 %", cost <= 0.03
    )
    yield versus("ResNet-18 step, eager", bare, Side(Training(resnet18(), images, 1000)), None)


CASES: dict[str, Callable[[int], Iterator[Row]]] = {
    "add": small_add,
    "matmul": matmul,
    "fusion": fusion,
    "digits": digits_step,
    "first-step": first_step,
    "recording": recording,
}
