"""kill -9 at any moment: what is left can be read, all but the step under way is there, and nothing piles up."""

from __future__ import annotations

import os
import random
import subprocess
import time
from pathlib import Path

from isobit.record.gc import collect
from isobit.record.store import Store
from isobit.record.trace import open_trace
from tests.cli.programs import command, environment, isobit, write

PLAIN = ("--plain", "--threads", "1")
# Says after each step how many there are, reads and writes a file, and imports a module at its end.
SCRIPT = """\
import time, torch, isobit
from descent import Descent
w = torch.nn.Parameter(torch.ones(3))
update = Descent([w], lr=0.01)
for i in range(40):
    (w * w).sum().backward()
    update.step()
    isobit.log(number=i)
    open("made.txt", "w").write(open("descent.py").read())
    print(i + 1, flush=True)
    time.sleep(0.01)
import late
"""


def run_and_kill(folder: Path, after_start: bool, seconds: float) -> tuple[str | None, int]:
    """The id and the number of steps that a run had told of when it was killed so many seconds after its start, or
    after it had said its id.
    """
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command("run", *PLAIN, "train.py"), cwd=folder, env=environment(), stdout=pipe, stderr=pipe, text=True
    ) as child:
        assert child.stdout is not None and child.stderr is not None
        said = child.stderr.readline().split() if after_start else []
        time.sleep(seconds)
        child.kill()
        return (said[2] if said else None), len(child.stdout.readlines())


def test_a_killed_run_has_lost_its_last_step_at_most(tmp_path: Path) -> None:
    write(tmp_path, "train.py", SCRIPT)
    (tmp_path / "late.py").write_text("")
    chance = random.Random(0)
    killed = [run_and_kill(tmp_path, False, chance.uniform(0, 3)) for _ in range(2)]
    killed += [run_and_kill(tmp_path, True, chance.uniform(0, 0.8)) for _ in range(4)]
    store = Store(tmp_path / ".isobit")
    steps = {run_id: len(open_trace(store.open(run_id).folder)) for run_id in store.ids()}
    for run_id, told in killed:
        assert run_id is None or told <= steps[run_id] <= 40
    longest = max(steps, key=lambda run_id: steps[run_id])
    assert steps[longest] > 0
    shown = isobit("runs", cwd=tmp_path).stdout
    assert all(run_id in shown for run_id in steps) and "unreadable" not in shown
    done = isobit("replay", longest, cwd=tmp_path)
    assert (done.returncode, done.stdout.splitlines()[-1][:10]) == (0, "identical:"), done.stdout + done.stderr
    for path in store.home.rglob("*"):
        os.utime(path, (0, 0))
    collect(store)
    left = {path.name for path in store.home.rglob("*") if path.name.startswith(".")} | {
        path.name for path in store.runs.glob("*/reserve")
    }
    assert left == {".gitignore"}
