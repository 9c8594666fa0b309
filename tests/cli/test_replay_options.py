"""replay --op-level, --keep-going and --sample, end to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.programs import DESCENT, isobit

PLAIN = ("--plain", "--threads", "1")
pytestmark = pytest.mark.slow

TRAIN = """\
import torch
from descent import Descent
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)

    def forward(self, x):
        return self.body(x) * 1.0

torch.manual_seed(0)
net = Net()
update = Descent(net.parameters(), lr=0.1)
for step in range(5):
    (net(torch.randn(3, 4)) ** 2).mean().backward()
    update.step()
"""
RESUMABLE = """\
import isobit, torch
from torch.utils.data import DataLoader

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.3), torch.nn.Linear(4, 1))
update = torch.optim.AdamW(net.parameters(), lr=0.01)
loader = DataLoader(list(torch.randn(12, 4)), batch_size=3, shuffle=True)
checkpoint = isobit.Checkpoint(net=net, update=update, loader=loader)
checkpoint.load("last.ckpt")
for epoch in checkpoint.epochs(2):
    for number, x in enumerate(loader):
        update.zero_grad()
        (net(x) ** 2).mean().backward()
        update.step()
        if int(update.state[net[0].weight]["step"]) % 3 == 0:
            checkpoint.save("last.ckpt")
"""


def run_of(folder: Path, text: str, *options: str) -> None:
    (folder / "train.py").write_text(text)
    (folder / "descent.py").write_text(DESCENT)
    done = isobit("run", *PLAIN, *options, "train.py", cwd=folder)
    assert done.returncode == 0, done.stderr


def replayed(folder: Path, *options: str) -> tuple[int, dict[str, Any]]:
    first = min(p.name for p in (folder / ".isobit" / "runs").iterdir())
    done = isobit("replay", first, *options, "--json", cwd=folder)
    return done.returncode, json.loads(done.stdout)


def test_the_first_operator_and_all_steps_that_differ(tmp_path: Path) -> None:
    run_of(tmp_path, TRAIN)
    edited = TRAIN.replace("* 1.0", "* (1.0 if torch.is_grad_enabled() and net_steps() < 3 else 1.5)")
    edited = edited.replace("torch.manual_seed(0)", "net_steps = lambda: step\ntorch.manual_seed(0)")
    (tmp_path / "train.py").write_text(edited)
    code, found = replayed(tmp_path, "--code", "current", "--op-level", "--keep-going")
    assert (code, found["verdict"]["step"], found["verdict"]["what"]) == (1, 3, "loss")
    assert "2 of 5 steps differ" in found["verdict"]["text"]
    line = TRAIN.splitlines().index("        return self.body(x) * 1.0") + 1
    # the recorded side ran in a folder that is gone: its place is named as it was recorded
    assert f"aten::mul.Tensor in Net at {tmp_path / 'train.py'}:{line}" in found["first_operator"]
    assert "1.0, on the other side 1.5" in found["first_operator"]


def test_segments_between_checkpoints(tmp_path: Path) -> None:
    """From their checkpoints they are identical; another rate shows in each, with its cause and no other."""
    run_of(tmp_path, RESUMABLE, "--keep-checkpoints")
    code, found = replayed(tmp_path, "--sample", "9")
    assert (code, found["outcome"], found["available"]) == (0, "identical", 3)
    assert [(s["start"], s["stop"], s["steps"]) for s in found["segments"]] == [(0, 3, 3), (3, 6, 3), (6, 8, 2)]
    edited = RESUMABLE.replace("    for number", "    update.param_groups[0]['lr'] = 0.02\n    for number")
    (tmp_path / "train.py").write_text(edited)
    code, found = replayed(tmp_path, "--sample", "9", "--code", "current")
    assert (code, found["outcome"]) == (1, "differs")
    for segment in found["segments"]:
        assert (segment["step"], segment["what"]) == (segment["start"], "update")
        assert segment["causes"][0].startswith("hyper-parameter lr of optimizer 0") and "0.02" in segment["causes"][0]
        assert not any("before the first step" in cause for cause in segment["causes"])


def test_without_checkpoints_there_is_nothing_to_sample(tmp_path: Path) -> None:
    run_of(tmp_path, TRAIN)
    code, found = replayed(tmp_path, "--sample", "2")
    assert code == 2 and "no checkpoints to begin from" in found["error"]
