"""A project with data, modules, a pretrained model and settings, in which causes of a difference can be planted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.cli.programs import DESCENT, command, environment

# Sample i is looked at in step i ÷ 4: nothing is shuffled, so that it is known where a change shows.
TRAIN = """\
import argparse, os
from pathlib import Path
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from augment import augment
from scaling import scale  # in a folder outside the project
import flipper  # an installed package
from descent import Descent

here = Path(__file__).parent

class Images(Dataset):
    def __init__(self, folder):
        self.files = sorted(Path(folder).glob("*.npy"), key=os.path.getmtime)
        self.labels = [float(line) for line in (here / "labels.csv").read_text().split()]

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        image = torch.from_numpy(np.load(self.files[i]))
        return augment(i, flipper.flip(image)), torch.tensor([self.labels[i]])

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--hole", action="store_true")
parser.add_argument("--workers", type=int, default=0)
args = parser.parse_args()
model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 1))
pretrained = np.load(here / "pretrained.npz")
with torch.no_grad():
    model[2].weight.copy_(torch.from_numpy(pretrained["weight"]))
update = Descent(model.parameters(), lr=args.lr)
for step, (x, y) in enumerate(DataLoader(Images(here / "images"), batch_size=4, num_workers=args.workers)):
    if step == 2:
        update.param_groups[0]["lr"] = float(os.environ.get("RATE", args.lr))
    if args.hole and step == 3:
        x = x + (torch.lgamma(torch.full(x.shape, 4 / 4096)) - 6.93) * 1e3
    loss = ((scale(model(x)) - y) ** 2).mean()
    loss.backward()
    update.step()
"""
AUGMENT = """\
def augment(index, image):
    return image * (1.5 if index % 2 else 0.5)
"""
SCALING = """\
def scale(x):
    return x * 2.0
"""
FLIPPER = """\
def flip(image):
    return image.flip(0)
"""
METADATA = "Metadata-Version: 2.1\nName: flipper\nVersion: {version}\n"
IMAGES = 16


@dataclass
class Project:
    """The folders, and the environment that its scripts run in."""

    home: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.home / "project"

    def isobit(self, *args: str | Path) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join(
            [environment()["PYTHONPATH"], str(self.home / "site-packages"), str(self.home / "shared")]
        )
        variables = {**environment(), "PYTHONPATH": path, **self.variables}
        variables.pop("PYTEST_CURRENT_TEST", None)  # differs from test to test
        return subprocess.run(command(*args), cwd=self.folder, env=variables, capture_output=True, text=True)

    def latest(self) -> dict[str, Any]:
        """The manifest of the last run."""
        shown = self.isobit("show", "latest", "--json")
        assert shown.returncode == 0, shown.stderr
        manifest: dict[str, Any] = json.loads(shown.stdout)
        return manifest

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace text in a file below the home folder; it must be there once."""
        path = self.home / name
        text = path.read_text("utf-8")
        assert text.count(old) == 1, (name, old)
        path.write_text(text.replace(old, new), "utf-8")


def make(home: Path) -> Project:
    """The project as it is before anything is planted, its files older than any cache of digests cares about."""
    numbers = np.random.RandomState(5)
    project = Project(home)
    files = {
        "project/train.py": TRAIN, "project/augment.py": AUGMENT, "project/descent.py": DESCENT,
        "project/labels.csv": "\n".join(f"{x:.3f}" for x in numbers.rand(IMAGES)),
        "shared/scaling.py": SCALING, "site-packages/flipper.py": FLIPPER,
        "site-packages/flipper-1.0.dist-info/METADATA": METADATA.format(version="1.0"),
    }  # fmt: skip
    for name, text in files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text, "utf-8")
    (project.folder / "images").mkdir()
    for i in range(IMAGES):
        path = project.folder / "images" / f"{i:02}.npy"
        np.save(path, numbers.rand(6).astype(np.float32))
        os.utime(path, (1_700_000_000 + i, 1_700_000_000 + i))
    np.savez(project.folder / "pretrained.npz", weight=numbers.rand(1, 5).astype(np.float32))
    return project


if __name__ == "__main__":
    make(Path(sys.argv[1]))
