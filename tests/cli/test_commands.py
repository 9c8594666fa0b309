"""The command line end to end, on plain PyTorch with one thread, which is deterministic there."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isobit.codegen.target import host_levels
from isobit.record.code_files import code_files
from isobit.record.store import Run, Store, open_run
from isobit.record.trace import read_steps
from tests.cli.programs import ENDLESS, ROOT, command, environment, isobit, plain_python, project, write

PLAIN = ("--plain", "--threads", "1")


def store(folder: Path) -> Store:
    return Store(folder / ".isobit")


def latest(folder: Path) -> Run:
    return store(folder).open(store(folder).ids()[-1])


def script_lines(stderr: str) -> str:
    """What the script wrote to stderr, without Isobit's own lines."""
    return "".join(line for line in stderr.splitlines(keepends=True) if not line.startswith("isobit: "))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A project with one run, in a folder with a space and an umlaut."""
    folder = project(tmp_path_factory.mktemp("rec") / "a prøject")
    return folder, isobit("run", *PLAIN, "train ö.py", "--fork", "--threads", "9", "", cwd=folder)


@pytest.fixture
def copied(recorded: tuple[Path, Any], tmp_path: Path) -> Path:
    """The project with its run, to be changed: the run's record says that it took place here."""
    folder = tmp_path / "c ö"
    shutil.copytree(recorded[0], folder)
    for name, said in (("manifest.json", str), ("inputs.json", lambda path: json.dumps(str(path))[1:-1])):
        path = latest(folder).folder / name
        path.write_text(path.read_text("utf-8").replace(said(recorded[0]), said(folder)), "utf-8")
    return folder


def test_run_passes_everything_through_and_records(recorded: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, done = recorded
    run = latest(folder)
    assert (done.returncode, done.stdout) == (0, "out ['--fork', '--threads', '9', '']\n")
    assert done.stderr.splitlines() == [
        f"isobit: run {run.manifest.id}", "err", f"isobit: run {run.manifest.id} finished, 5 steps",
    ]  # fmt: skip
    assert run.status == "finished" and run.manifest.script == "train ö.py" and run.manifest.cwd == str(folder)
    files = code_files(run)
    assert sorted(files) == ["parts/descent.py", "parts/model.py", "train ö.py"]
    assert files["train ö.py"].read() == (folder / "train ö.py").read_bytes()
    assert run.manifest.packages["torch"] and run.manifest.settings.threads == 1


def test_the_trace_has_the_steps_of_the_script_alone(recorded: tuple[Path, Any]) -> None:
    steps = list(read_steps(latest(recorded[0]).folder))
    assert [s.index for s in steps] == list(range(5))  # the forked child's are not among them
    assert all(len(s.losses) == 1 for s in steps) and len({s.parameters for s in steps}) == 5


def test_show_and_runs(recorded: tuple[Path, Any]) -> None:
    folder = recorded[0]
    run = store(folder).open(store(folder).ids()[0])
    data = json.loads(isobit("show", run.manifest.id, "--json", cwd=folder / "parts").stdout)
    assert (data["id"], data["status"], data["steps"]) == (run.manifest.id, "finished", 5)
    assert data["last_step"]["parameters"] == list(read_steps(run.folder))[-1].parameters
    shown = isobit("show", run.manifest.id[-4:], cwd=folder).stdout
    assert data["last_step"]["parameters"] in shown and "1 thread" in shown
    assert run.manifest.id in isobit("runs", cwd=folder).stdout
    wrong = isobit("show", "1999", cwd=folder)
    assert wrong.returncode == 2 and run.manifest.id in wrong.stderr and wrong.stdout == ""


def test_replay_is_identical_and_uses_the_recorded_code(copied: Path) -> None:
    (copied / "parts" / "model.py").write_text("raise SystemExit('today')")
    done = isobit("replay", "latest", cwd=copied)
    assert done.returncode == 0, done.stderr
    verdict = done.stdout.splitlines()[-1]
    assert verdict.startswith("identical: 5 steps") and verdict.count("1 thread") == 2
    replay = latest(copied).manifest.replay
    assert replay is not None and replay.verdict is not None
    assert (replay.of, replay.verdict.outcome, replay.verdict.steps) == (store(copied).ids()[0], "identical", 5)
    assert "identical" in isobit("runs", cwd=copied).stdout


def test_a_replay_can_be_replayed(copied: Path) -> None:
    """It finds data beside the script, though the folder that it ran in is gone."""
    for _ in range(2):
        done = isobit("replay", "latest", cwd=copied)
        assert (done.returncode, done.stdout.splitlines()[-1][:18]) == (0, "identical: 5 steps"), done.stderr
    code = latest(copied).manifest.code
    assert code is not None and code.script == str(copied / "train ö.py")


def test_replay_differs_where_a_hyper_parameter_does(copied: Path) -> None:
    (copied / "rate.txt").write_text("0.2000001")
    done = isobit("replay", "latest", cwd=copied)
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines()[-1].startswith("differs at step 3 (counted from 0), in the update")
    assert "out" not in done.stdout  # it stops there
    assert latest(copied).status == "stopped"


def test_replay_with_other_code_differs_where_that_does(copied: Path) -> None:
    script = copied / "train ö.py"
    script.write_text(script.read_text("utf-8").replace("if i == 3:", "if i == 1:"), "utf-8")
    done = isobit("replay", "latest", "--code", "current", cwd=copied)
    assert (done.returncode, done.stdout.splitlines()[-1][:17]) == (1, "differs at step 1"), done.stderr


def test_replay_that_fails_gives_no_verdict(copied: Path) -> None:
    (copied / "rate.txt").unlink()
    done = isobit("replay", "latest", cwd=copied)
    assert done.returncode == 2
    assert "no verdict: the replay failed after 3 steps, all equal: FileNotFoundError" in done.stdout


def test_a_bundle_replays_elsewhere(recorded: tuple[Path, Any], tmp_path: Path) -> None:
    folder = recorded[0]
    bundle = tmp_path / "a bündle.iso"
    assert isobit("bundle", store(folder).ids()[0], "-o", bundle, cwd=folder).returncode == 0
    done = isobit("replay", bundle, cwd=tmp_path)
    assert (done.returncode, done.stdout.splitlines()[-1][:18]) == (0, "identical: 5 steps"), done.stderr
    assert latest(tmp_path).manifest.replay is not None
    assert '"finished"' in isobit("show", bundle, "--json", cwd=tmp_path).stdout


CRASH = """\
import sys
import threading
import torch
def inner():
    raise ValueError("boom ü")
def outer():
    try:
        inner()
    except ValueError as error:
        raise KeyError("outer") from error
class Bad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sum()
    @staticmethod
    def backward(ctx, g):
        raise RuntimeError("backward")
try:
    Bad.apply(torch.ones(2, requires_grad=True)).backward()
except RuntimeError:
    outer()
"""


def test_a_crash_looks_as_under_plain_python(tmp_path: Path) -> None:
    write(tmp_path, "crash.py", CRASH)
    theirs = plain_python("crash.py", cwd=tmp_path)
    done = isobit("run", *PLAIN, "crash.py", cwd=tmp_path)
    assert (done.returncode, script_lines(done.stderr)) == (1, theirs.stderr)
    run = latest(tmp_path)
    assert (run.status, run.manifest.exit_code, run.manifest.error) == ("failed", 1, "KeyError: 'outer'")


ANNOTATED = """\
import dataclasses

@dataclasses.dataclass
class Settings:
    rate: float = 0.1

print(dataclasses.fields(Settings)[0].type)
"""
ODD_CRASHES = {
    "a traceback as deep as the stack": (
        "def f():\n    f()\n\nf()\n",
        "RecursionError: maximum recursion depth exceeded",
    ),
    "an error that cannot be printed": (
        "class Odd(Exception):\n    def __str__(self):\n        raise ValueError\n\nraise Odd\n",
        "Odd: <exception str() failed>",
    ),
    "a token": ('raise ValueError("ghp_" + "aB3dE5gH7jK9mN1pQ3sT" * 2)\n', f"ValueError: {'*' * 44}"),
    "half a character": ('raise ValueError("\\ud83d")\n', "ValueError: \\ud83d"),
}


def test_annotations_are_what_they_are_under_plain_python(tmp_path: Path) -> None:
    """`compile()` hands on the __future__ imports of its caller unless told not to."""
    write(tmp_path, "annotated.py", ANNOTATED)
    assert isobit("run", *PLAIN, "annotated.py", cwd=tmp_path).stdout == "<class 'float'>\n"


@pytest.mark.parametrize("name", ODD_CRASHES)
def test_odd_crashes_are_recorded_as_crashes(tmp_path: Path, name: str) -> None:
    text, error = ODD_CRASHES[name]
    write(tmp_path, "odd.py", text)
    done = isobit("run", *PLAIN, "odd.py", cwd=tmp_path)
    run = latest(tmp_path)
    assert (run.status, done.returncode, run.manifest.exit_code, run.manifest.error) == ("failed", 1, 1, error)
    assert str(ROOT / "src") not in done.stderr


EXITS = """\
import atexit, os, random, sys, threading, time
import numpy, torch
atexit.register(lambda: print("at exit"))
threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
print(random.random(), numpy.random.rand(), torch.rand(1).item(), hash("x"))
print(__name__, __file__ == os.path.abspath(sys.argv[0]), sys.path[0] == os.path.dirname(__file__), __spec__)
sys.exit({"3": 3, "message": "a message", "none": None}[sys.argv[1]])
"""


def test_sys_exit_threads_handlers_and_seeds(tmp_path: Path) -> None:
    write(tmp_path, "exits.py", EXITS)
    done = [isobit("run", *PLAIN, "exits.py", how, cwd=tmp_path) for how in ("3", "message", "none")]
    assert [d.returncode for d in done] == [3, 1, 0]
    assert script_lines(done[1].stderr) == "a message\n"
    assert [store(tmp_path).open(i).status for i in store(tmp_path).ids()] == ["failed", "failed", "finished"]
    assert len({d.stdout for d in done}) == 1  # the same random numbers and hash
    assert done[0].stdout.splitlines()[1:] == ["__main__ True True None", "thread", "at exit"]
    other = isobit("run", *PLAIN, "--seed", "1", "exits.py", "none", cwd=tmp_path)
    pairs = zip(other.stdout.splitlines()[0].split(), done[0].stdout.splitlines()[0].split(), strict=True)
    assert all(a != b for a, b in pairs)


def test_a_syntax_error_looks_as_under_plain_python(tmp_path: Path) -> None:
    write(tmp_path, "bad.py", "def f(:\n")
    done = isobit("run", *PLAIN, "bad.py", cwd=tmp_path)
    assert (done.returncode, script_lines(done.stderr)) == (1, plain_python("bad.py", cwd=tmp_path).stderr)


def start_endless(folder: Path) -> subprocess.Popen[str]:
    write(folder, "endless.py", ENDLESS)
    pipe = subprocess.PIPE
    child = subprocess.Popen(
        command("run", *PLAIN, "endless.py"), cwd=folder, env=environment(), stdout=pipe, stderr=pipe, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # background jobs ignore it
    )  # fmt: skip
    assert child.stdout is not None and child.stdout.readline() == "begun\n"
    return child


def test_kill_ctrl_c_and_two_at_once(tmp_path: Path) -> None:
    killed, interrupted = start_endless(tmp_path), start_endless(tmp_path)
    assert [store(tmp_path).open(i).status for i in store(tmp_path).ids()] == ["running", "running"]
    killed.kill()
    interrupted.send_signal(signal.SIGINT)
    _, stderr = interrupted.communicate(timeout=60)
    killed.communicate(timeout=60)
    assert (killed.returncode, interrupted.returncode) == (-signal.SIGKILL, -signal.SIGINT)
    assert script_lines(stderr).splitlines()[-1] == "KeyboardInterrupt"
    runs = [store(tmp_path).open(i) for i in store(tmp_path).ids()]
    assert [run.status for run in runs] == ["killed", "interrupted"]
    assert all(len(list(read_steps(run.folder))) >= 3 for run in runs)
    shown = isobit("runs", cwd=tmp_path).stdout
    assert "killed" in shown and "interrupted" in shown
    replay = isobit("replay", "latest~1", cwd=tmp_path)  # ends, unlike the script: after the recorded steps
    assert (replay.returncode, replay.stdout.splitlines()[-1][:9]) == (0, "identical"), replay.stderr


FULL = """\
import resource, torch
from descent import Descent
w = torch.nn.Parameter(torch.ones(3))
update = Descent([w], lr=0.01)
for i in range(9):
    (w * w).sum().backward()
    update.step()
    if i == 3:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (600, before[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, before)
print("done", i)
"""


def test_a_trace_that_cannot_grow_stops_no_training(tmp_path: Path) -> None:
    write(tmp_path, "full.py", FULL)
    done = isobit("run", *PLAIN, "full.py", cwd=tmp_path)
    run = latest(tmp_path)
    count = len(list(read_steps(run.folder)))
    assert (done.returncode, done.stdout) == (0, "done 8\n")
    assert 4 <= count < 9 and f"the trace breaks off after {count} steps" in done.stderr
    assert run.manifest.trace_error is not None and run.status == "finished"
    assert open_run(run.folder).manifest.steps == 9


FILLS = """\
import os, torch
from descent import Descent
w = torch.nn.Parameter(torch.ones(3))
update = Descent([w], lr=0.01)
for i in range(400):
    (w * w).sum().backward()
    update.step()
    if i == 3:
        with open(".isobit/rest", "wb", buffering=0) as rest:
            try:
                while True:
                    rest.write(bytes(512))
            except OSError:
                pass
print("done", i)
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder whose .isobit lies on a disk of 256 KiB."""
    home = tmp_path / ".isobit"
    home.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", home], capture_output=True).returncode:
        pytest.skip("mounting a small disk is not permitted here")
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", "-l", home], check=True)


def test_a_disk_that_fills_up_stops_no_training(small_disk: Path) -> None:
    write(small_disk, "fills.py", FILLS)
    done = isobit("run", *PLAIN, "fills.py", cwd=small_disk)
    assert (done.returncode, done.stdout) == (0, "done 399\n"), done.stderr
    run = latest(small_disk)
    count = len(list(read_steps(run.folder)))
    assert count < 400 and f"the trace breaks off after {count} steps: No space left on device" in done.stderr
    assert run.status == "finished" and run.manifest.steps == 400 and run.manifest.trace_error is not None


@pytest.mark.parametrize("free", [0, 12, 40, 80])
def test_a_disk_that_is_nearly_full(small_disk: Path, free: int) -> None:
    """Either the script runs and its record is closed, or it does not start, with a reason and no record."""
    write(small_disk, "full.py", FULL.replace("600", "10**6"))
    (small_disk / ".isobit" / "rest").write_bytes(bytes((256 - 8 - free) * 1024))
    done = isobit("run", *PLAIN, "full.py", cwd=small_disk)
    if done.returncode == 2:
        assert done.stdout == "" and "cannot write a record" in done.stderr and "Traceback" not in done.stderr
        assert store(small_disk).ids() == []
    else:
        assert (done.returncode, done.stdout) == (0, "done 8\n"), done.stderr
        assert latest(small_disk).status == "finished"


def test_what_is_no_run_does_not_count(copied: Path) -> None:
    (copied / ".isobit" / "runs" / "notes.txt").write_text("mine")
    assert isobit("show", "latest", cwd=copied).returncode == 0
    assert "notes" not in isobit("runs", cwd=copied).stdout


CHECKED = """\
import sys, torch
from descent import Descent
print("noise", sys.argv)
w = torch.nn.Parameter(torch.ones(3))
update = Descent([w], lr=0.01)
for i in range(1000000):
    factor = torch.get_num_threads() if i == int(sys.argv[1]) else 1
    (w * w * factor).sum().backward()
    update.step()
"""


@pytest.mark.parametrize(
    ("where", "code", "says"), [("4", 0, "one digest in 2 settings over 4 steps"), ("2", 1, "parts at step 2")]
)
def test_check_compares_and_stops(tmp_path: Path, where: str, code: int, says: str) -> None:
    write(tmp_path, "checked.py", CHECKED)
    done = isobit("check", "--plain", "checked.py", "--steps", "4", where, cwd=tmp_path)
    assert done.returncode == code, done.stdout + done.stderr
    assert says in done.stdout.splitlines()[-1] and "noise" not in done.stdout
    assert done.stdout.count("PyTorch, ") == 2 and not (tmp_path / ".isobit").exists()


def test_ctrl_c_ends_a_check(tmp_path: Path) -> None:
    """At a script's first setting; the others are not begun."""
    write(tmp_path, "endless.py", ENDLESS.replace('print("begun", flush=True)', 'open("begun", "a").write("x")'))
    child = subprocess.Popen(
        command("check", "endless.py", "--steps", "100000"),
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    while child.poll() is None and not (tmp_path / "begun").exists():
        time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=60)
    assert (child.returncode, out.splitlines()[-1], (tmp_path / "begun").read_text()) == (130, "interrupted", "x")


def test_a_check_of_a_script_that_fails_shows_why(tmp_path: Path) -> None:
    write(tmp_path, "checked.py", "import nothing_like_it\n")
    done = isobit("check", "--plain", "checked.py", cwd=tmp_path)
    assert done.returncode == 2 and "No module named 'nothing_like_it'" in done.stdout


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("run", "missing.py"), "there is no script 'missing.py'"),
        (("replay", "latest"), "no runs in"),
        (("check", "x.py", "--steps", "many"), "--steps takes a number"),
        (("run", "--threads", "0", "x.py"), "--threads"),
        (("run", "--nonsense", "x.py"), "--nonsense"),
    ],
)
def test_wrong_use_is_told_in_a_line_and_exits_2(tmp_path: Path, args: tuple[str, ...], says: str) -> None:
    write(tmp_path, "x.py", "")
    done = isobit(*args, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "") and says in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / ".isobit").exists()


def test_exact_runs_agree_over_threads_and_levels(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    done = isobit("run", "--threads", "1", "train ö.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    lowest = host_levels()[-1]
    again = isobit("replay", "latest", "--threads", "2", "--cpu", lowest, cwd=folder)
    assert again.returncode == 0, again.stdout + again.stderr
    verdict = again.stdout.splitlines()[-1]
    assert verdict.startswith("identical: 5 steps") and f"2 threads, {lowest}" in verdict
    recorded, replayed = (store(folder).open(i).manifest.settings for i in store(folder).ids())
    assert (recorded.threads, recorded.cpu) == (1, host_levels()[0])
    assert (replayed.threads, replayed.cpu, replayed.mode) == (2, lowest, "exact")
    wrong = isobit("run", "--cpu", "x86-64-v9", "train ö.py", cwd=folder)
    assert wrong.returncode == 2 and "unknown CPU level" in wrong.stderr and "Traceback" not in wrong.stderr
    assert len(store(folder).ids()) == 2  # a run that cannot begin is none
