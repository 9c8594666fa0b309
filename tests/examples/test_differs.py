"""A verdict that can fail: one pixel, one hyper-parameter or one line, and the replay differs where that shows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "digits_cnn.py"

# In the order of the data, so that it is known which step sees which image: image n at step n ÷ 32.
IN_ORDER = ("shuffle=True", "shuffle=False")


def edited(*edits: tuple[str, str]) -> str:
    """The example with each `old` replaced by `new`; an edit that finds nothing is an error."""
    text = SCRIPT.read_text("utf-8")
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


A_PIXEL = ("    return (\n", "    images[torch.nonzero(~held_out)[70], 0, 3, 3] += 1 / 16\n    return (\n")
A_RATE = ("default=2e-3", "default=2.00001e-3")
A_LINE = ("        loss.backward()", "        (loss * 1.000001 if len(losses) == 7 else loss).backward()")
EDITS = {
    "a pixel": (edited(IN_ORDER, A_PIXEL), "differs at step 2 (counted from 0), in the batch"),
    "a hyper-parameter": (edited(IN_ORDER, A_RATE), "differs at step 0 (counted from 0), in the update"),
    "a line": (edited(IN_ORDER, A_LINE), "differs at step 7 (counted from 0), in the loss"),
}


def isobit(*args: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "isobit", *map(str, args)]
    return subprocess.run(argv, cwd=cwd, capture_output=True, text=True)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one recorded run of train.py."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "train.py").write_text(edited(IN_ORDER), "utf-8")
    done = isobit("run", "--threads", "1", "train.py", "--epochs", "1", "--workers", "0", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("what", EDITS)
def test_a_replay_differs_where_the_change_shows(what: str, recorded: Path, tmp_path: Path) -> None:
    text, verdict = EDITS[what]
    (tmp_path / "train.py").write_text(text, "utf-8")
    first = min(p.name for p in (recorded / ".isobit" / "runs").iterdir())  # ids sort by time
    done = isobit("replay", first, "--threads", "2", "--code", tmp_path, cwd=recorded)
    assert verdict in done.stdout, done.stdout + done.stderr
    assert done.returncode == 1
