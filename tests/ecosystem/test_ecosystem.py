"""Scripts of the libraries that people train with run unchanged, are recorded, and replay to the last bit elsewhere.

The packages are the extra `ecosystem`. Where one is missing its script is skipped; `make test` installs them all.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from isobit.codegen.target import host_levels
from isobit.record.reading import read_steps
from isobit.record.store import Run, Store
from tests.cli.programs import command, environment

SCRIPTS = Path(__file__).with_name("scripts")
pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Script:
    """What a script does: optimizer steps, losses that `backward()` is called on, operators outside the arithmetic."""

    name: str
    package: str
    steps: int
    losses: int
    holes: frozenset[str]
    says: str  # on stdout: it trained to its end


EXPECTED = (
    Script("lightning_digits.py", "lightning", 24, 46, frozenset(), r"steps 24, held-out accuracy 0\.9"),
    Script(
        "hf_trainer.py", "transformers", 16, 32,
        frozenset({"aten::embedding_dense_backward"}), r"steps 16, held-out accuracy 0\.9",
    ),
    Script(
        "accelerate_loop.py", "accelerate", 20, 40,
        frozenset({"aten::embedding_dense_backward"}), r"epoch 1: loss 2\.",
    ),
    Script(
        "sb3_cartpole.py", "stable_baselines3", 32, 32,
        frozenset({"aten::linalg_qr", "aten::multinomial", "aten::scatter_add_"}), r"updates 8, reward \d",
    ),
)  # fmt: skip
each = pytest.mark.parametrize("script", EXPECTED, ids=lambda s: s.package)


def isobit(*args: str, cwd: Path) -> str:
    """What `isobit ARGS` prints on stdout; the Hugging Face hub is out of reach."""
    away = {**environment(), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command(*args), cwd=cwd, env=away, capture_output=True, text=True)
    assert done.returncode == 0, f"{args}: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def placed(script: Script, folder: Path) -> Path:
    """The script in a folder of its own, as a user has it."""
    if importlib.util.find_spec(script.package) is None:
        pytest.skip(f"{script.package} is not installed: pip install -e '.[ecosystem]'")
    (folder / ".isobit").mkdir()  # or a store further up would get the records
    shutil.copy(SCRIPTS / script.name, folder)
    return folder


def latest(folder: Path) -> Run:
    store = Store(folder / ".isobit")
    return store.open(store.ids()[-1])


@each
def test_it_runs_unchanged_and_replays_identical(script: Script, tmp_path: Path) -> None:
    folder = placed(script, tmp_path)
    assert re.search(script.says, isobit("run", "--threads", "2", script.name, cwd=folder))
    run = latest(folder)
    steps = list(read_steps(run.folder))
    assert run.status == "finished" and len(steps) == script.steps
    assert sum(len(s.losses) for s in steps) == script.losses
    assert {s.optimizer for s in steps} == {0} and len({s.parameters for s in steps}) == script.steps
    assert {hole.operator for hole in run.manifest.holes} == script.holes

    lowest = host_levels()[-1]
    verdict = isobit("replay", "latest", "--threads", "1", "--cpu", lowest, cwd=folder).splitlines()[-1]
    assert verdict.startswith(f"identical: {script.steps} steps") and f"1 thread, {lowest}" in verdict
    count = len(script.holes)
    assert verdict.endswith(f", but with {count} hole{'s' * (count != 1)} outside the arithmetic" if count else ")")


def test_plain_pytorch_parts_between_thread_counts(tmp_path: Path) -> None:
    """PPO as its library ships it, the same seed: the weights differ from the start, so all that follows does."""
    (script,) = (s for s in EXPECTED if s.package == "stable_baselines3")
    folder, found = placed(script, tmp_path), []
    for threads in ("1", "2"):
        isobit("run", "--plain", "--threads", threads, script.name, cwd=folder)
        found.append([s.parameters for s in read_steps(latest(folder).folder)])
    assert len(found[0]) == len(found[1]) == script.steps
    assert found[0][0] != found[1][0] and found[0][-1] != found[1][-1]


@pytest.mark.parametrize("path", sorted(SCRIPTS.glob("*.py")), ids=lambda p: p.stem)
def test_the_script_knows_nothing_of_isobit(path: Path) -> None:
    assert "isobit" not in path.read_text("utf-8").lower()
