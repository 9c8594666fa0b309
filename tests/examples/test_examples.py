"""The examples are plain PyTorch that trains well; what Isobit makes of them is tested beside."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run_example(name: str, *args: str) -> str:
    """The example's stdout under plain PyTorch."""
    argv = [sys.executable, str(EXAMPLES / name), *args]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("name", "least"), [("digits_cnn.py", 98.0), ("tabular_mlp.py", 95.0)])
def test_the_example_learns(name: str, least: float) -> None:
    found = re.search(r"accuracy on held-out \w+: ([\d.]+)%", run_example(name))
    assert found is not None
    assert float(found[1]) >= least


@pytest.mark.parametrize("name", ["digits_cnn.py", "tabular_mlp.py"])
def test_the_example_knows_nothing_of_isobit(name: str) -> None:
    assert not re.search(r"^\s*(import|from) isobit", (EXAMPLES / name).read_text(), re.MULTILINE)
