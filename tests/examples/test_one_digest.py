"""Each example trains to one digest, however it is run; golden.json holds it.

`pytest tests/examples --update-golden` rewrites golden.json, for a change of ARITHMETIC.md's meaning only.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from isobit.codegen.target import host_levels
from isobit.record.trace import read_steps

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).with_name("golden.json")
EXAMPLES = {"digits_cnn": ("--epochs", "1"), "tabular_mlp": ("--epochs", "2")}

# What torch.set_flush_denormal does to a process, before the example's own first line.
FLUSHING = """
import runpy, sys, torch
assert torch.set_flush_denormal(True)
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@dataclass(frozen=True)
class Way:
    """One way to run an example. Every way uses a folder of its own."""

    threads: int
    cpu: str | None = None
    compiled: bool = False
    copied: bool = False  # the script lies in another folder, under another name
    flushing: bool = False  # in a process with flush-to-zero set

    def __str__(self) -> str:
        flags = [name for name in ("compiled", "copied", "flushing") if getattr(self, name)]
        return "-".join([f"{self.threads}threads", *([self.cpu] if self.cpu else []), *flags])


WAYS = [
    Way(1),
    Way(2, compiled=True, flushing=True),
    Way(4, copied=True),
    *(Way(3, cpu=level) for level in host_levels()[1:]),
    *(Way(1, cpu=level, compiled=True) for level in host_levels()[-1:]),
]


def run(name: str, way: Way, folder: Path) -> list[str]:
    """Run the example in `folder`; one line for each recorded step: the loss and parameter bits."""
    script = ROOT / "examples" / f"{name}.py"
    if way.copied:
        script = Path(shutil.copy(script, folder / "elsewhere.py"))
    argv = [sys.executable, "-m", "isobit", "run", "--strict", "--threads", str(way.threads)]
    argv += ["--cpu", way.cpu] if way.cpu else []
    if way.flushing:
        (folder / "flushing.py").write_text(FLUSHING)
        argv.append(str(folder / "flushing.py"))
    argv += [str(script), *EXAMPLES[name], *(["--compile"] if way.compiled else [])]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(argv)}\n{done.stdout}{done.stderr}"
    (record,) = (folder / ".isobit" / "runs").iterdir()
    return [" ".join((*step.losses, step.parameters)) for step in read_steps(record)]


# The smaller one in the ways that differ most: what the others show, they show of the larger one.
CASES = [("digits_cnn", way) for way in WAYS] + [("tabular_mlp", way) for way in (WAYS[0], WAYS[-1])]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "way"), CASES, ids=str)
def test_an_example_has_one_digest(name: str, way: Way, tmp_path: Path, update_golden: bool) -> None:
    steps = run(name, way, tmp_path)
    assert steps, "no optimizer step was recorded"
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if update_golden and way == WAYS[0]:
        golden[name] = steps
        GOLDEN.write_text(json.dumps(golden, indent=1, sort_keys=True) + "\n")
    expected = golden[name]
    differing = [n for n, (a, b) in enumerate(zip(expected, steps, strict=False)) if a != b]
    assert not differing, f"step {differing[0]}: {steps[differing[0]]}, golden {expected[differing[0]]}"
    assert len(steps) == len(expected)


def test_the_golden_steps_are_steps_of_training() -> None:
    golden = json.loads(GOLDEN.read_text())
    assert set(golden) == set(EXAMPLES)
    for steps in golden.values():
        assert len(set(steps)) == len(steps) > 10  # the parameters move at every step
