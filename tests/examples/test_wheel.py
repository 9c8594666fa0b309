"""The wheel, installed where the clone is not, runs a script that lies outside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).resolve().parents[2]

TRAIN = """
import torch, isobit, sys
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
x = torch.randn(16, 3)
for _ in range(4):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
print(isobit.__file__)
"""


def run(*argv: str | Path, cwd: Path) -> str:
    """A program's stdout; its stderr stands in the failure."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run([str(a) for a in argv], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{argv}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's wheel, built without the network."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (built,) = folder.glob("isobit-*.whl")
    return built


def fresh_environment(home: Path, wheel: Path, dependencies: Path) -> Path:
    """The bin folder of a new environment with the wheel; imports it does not hold come from `dependencies`."""
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", python)
    run(*pip, "install", "--no-deps", "--no-index", wheel, cwd=home)
    here = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home).strip()
    # A path that a .pth file names is searched, but its own .pth files (an editable isobit) are not read.
    (Path(here) / "dependencies.pth").write_text(f"{dependencies}\n")
    return home / "bin"


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a fresh environment with the wheel and all that it depends on."""
    home = tmp_path_factory.mktemp("fresh") / "env"
    return fresh_environment(home, wheel, Path(sysconfig.get_path("purelib")))


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = ZipFile(wheel).namelist()
    assert "isobit/py.typed" in names
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"isobit"}
    text = ZipFile(wheel).read(next(name for name in names if name.endswith("entry_points.txt"))).decode()
    assert "isobit = isobit.torch.backend:isobit_backend" in text


@pytest.mark.slow
def test_a_script_outside_the_clone_runs_and_is_recorded(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    out = run(installed / "isobit", "run", "--threads", "1", "train.py", cwd=tmp_path)
    assert str(installed.parent) in out, "the clone's isobit ran, not the wheel's"
    shown = json.loads(run(installed / "isobit", "show", "latest", "--json", cwd=tmp_path))
    assert (shown["status"], shown["steps"]) == ("finished", 4)


@pytest.mark.slow
def test_the_compile_backend_is_found_without_importing_isobit(installed: Path, tmp_path: Path) -> None:
    code = "import torch._dynamo; print('isobit' in torch._dynamo.list_backends())"
    assert run(installed / "python", "-c", code, cwd=tmp_path).strip() == "True"


EXPORT = """
import torch, isobit
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.Flatten(), nn.Linear(144, 3)).eval()
x = torch.randn(5, 1, 8, 8)
isobit.export(model, (x,), "model.iso")
x.numpy().tofile("x.bin")
with isobit.exact(), torch.no_grad():
    print(model(x).numpy().tobytes().hex())
"""

LOAD = """
import numpy as np
import isobit
x = np.fromfile("x.bin", np.float32).reshape(5, 1, 8, 8)
print(isobit.load("model.iso")(x).tobytes().hex())
"""


@pytest.mark.slow
def test_an_artifact_loads_with_numpy_alone(installed: Path, wheel: Path, tmp_path: Path) -> None:
    only = tmp_path / "only"
    only.mkdir()
    for found in Path(sysconfig.get_path("purelib")).glob("numpy*"):
        (only / found.name).symlink_to(found)
    bare = fresh_environment(tmp_path / "env", wheel, only)
    look = "from importlib.util import find_spec; print([n for n in ('torch', 'llvmlite', 'blake3') if find_spec(n)])"
    assert run(bare / "python", "-c", look, cwd=tmp_path) == "[]\n"
    expected = run(installed / "python", "-c", EXPORT, cwd=tmp_path)
    assert run(bare / "python", "-c", LOAD, cwd=tmp_path) == expected
