"""Scripts that the tests run, and how they run them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# A plain optimizer. PyTorch's own import torch._dynamo, which takes as long as PyTorch itself.
DESCENT = """\
import torch

torch.optim.Optimizer.add_param_group.__wrapped__.__dynamo_disable = torch.optim.Optimizer.add_param_group.__wrapped__

class Descent(torch.optim.Optimizer):
    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p -= group["lr"] * p.grad
                p.grad = None
"""

# Trains five steps; reads a hyper-parameter before the fourth; a forked child makes steps of its own.
TRAIN = """\
import os, sys
from pathlib import Path
import torch
from parts.descent import Descent
from parts.model import make
from torch.utils.data import DataLoader

torch.manual_seed(1)
model = make()
update = Descent(model.parameters(), lr=0.1)
x, y = torch.randn(20, 8), torch.randn(20, 1)
rate = Path(__file__).parent / "rate.txt"

def step(x, y):
    ((model(x) - y) ** 2).mean().backward()
    update.step()

if "--fork" in sys.argv:
    child = os.fork()
    if child == 0:
        step(x, y)
        sys.exit(7)
    os.waitpid(child, 0)
for i, (a, b) in enumerate(DataLoader(list(zip(x, y)), batch_size=4)):
    if i == 3:
        update.param_groups[0]["lr"] = float(rate.read_text())
    step(a, b)
print("out", sys.argv[1:], flush=True)
print("err", file=sys.stderr, flush=True)
"""

MODEL = """\
from torch import nn

def make():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
"""

# Trains for ever, and says so on stdout once it has begun.
ENDLESS = """\
import itertools, time, torch
from descent import Descent
w = torch.nn.Parameter(torch.ones(3))
update = Descent([w], lr=0.01)
for i in itertools.count():
    (w * w).sum().backward()
    update.step()
    if i == 2:
        print("begun", flush=True)
    if i > 2:
        time.sleep(0.005)
"""


def command(*args: str | Path) -> list[str]:
    """The command line of `isobit ARGS`."""
    return [sys.executable, "-m", "isobit", *map(str, args)]


def environment() -> dict[str, str]:
    """This environment, with isobit to be found from any folder, and wide lines."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "200"}


def isobit(*args: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run `isobit ARGS` in `cwd` to its end."""
    return subprocess.run(command(*args), cwd=cwd, env=environment(), capture_output=True, text=True)


def plain_python(*args: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run `python ARGS` in `cwd` to its end."""
    return subprocess.run([sys.executable, *map(str, args)], cwd=cwd, env=environment(), capture_output=True, text=True)


def write(folder: Path, name: str, text: str) -> None:
    """Write a script, and the optimizer beside it."""
    (folder / name).write_text(text, "utf-8")
    (folder / "descent.py").write_text(DESCENT, "utf-8")


def project(folder: Path) -> Path:
    """Write the training script and its parts."""
    (folder / "parts").mkdir(parents=True)
    (folder / "train ö.py").write_text(TRAIN, "utf-8")
    (folder / "parts" / "descent.py").write_text(DESCENT, "utf-8")
    (folder / "parts" / "model.py").write_text(MODEL, "utf-8")
    (folder / "rate.txt").write_text("0.2")
    return folder
