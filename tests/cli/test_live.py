"""The live line, on a pseudo-terminal: it leaves the script's output alone and goes when the run ends, however it does."""

from __future__ import annotations

import fcntl
import mmap
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from pathlib import Path

import pytest

from isobit.cli import live_process
from isobit.cli.live import STATE, LiveLine, has_terminal
from isobit.cli.live_process import Meter, Screen, clock, expected_steps
from isobit.cli.watcher import Watcher
from isobit.record.manifest import Hole, Replay
from isobit.record.store import Store
from isobit.record.trace import Step
from tests.cli.programs import ROOT, command, environment, write
from tests.record.manifests import manifest
from tests.record.test_index import make

ROWS, COLUMNS = 12, 70
FRAME = re.compile(
    rb"(?:\x1bD\x1b7\x1b\[1;11r\x1b8\x1b\[1A)?\x1b7\x1b\[1;11r\x1b\[12;1H\x1b\[2K\x1b\[2m[^\x1b]*\x1b\[0m\x1b8"
)
OFF = b"\x1b7\x1b[r\x1b[12;1H\x1b[2K\x1b8"

SCRIPT = """\
import os, time, torch
from descent import Descent
w = torch.nn.Parameter(torch.ones(3))
update = Descent([w], lr=0.01)
for i in range(30):
    (w * w).sum().backward()
    update.step()
    os.write(1, b"\\rbar %d" % i)
    time.sleep(0.05)
print("\\nended", flush=True)
try:
    os.wait()
except ChildProcessError:
    print("no children", flush=True)
if os.environ.get("GOES_ON"):
    time.sleep(60)
"""


def at_terminal(folder: Path, *args: str, kill_at: bytes | None = None, **extra: str) -> tuple[bytes, int]:
    """What the terminal gets of `isobit ARGS`, and how it ended; it is killed as soon as `kill_at` is seen."""
    (folder / ".isobit" / "runs").mkdir(parents=True)
    child, terminal = pty.fork()
    if child == 0:
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        os.chdir(folder)
        os.execvpe(command()[0], command(*args), {**environment(), "TERM": "xterm", **extra})
    seen = b""
    while select.select([terminal], [], [], 30)[0]:
        try:
            data = os.read(terminal, 1 << 16)
        except OSError:  # nobody has it open any more: the live line's process has ended, too
            break
        seen += data
        if kill_at is not None and kill_at in seen:
            os.kill(child, signal.SIGKILL)
            kill_at = None
    os.close(terminal)
    return seen, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_run_at_a_terminal(tmp_path: Path) -> None:
    write(tmp_path, "train.py", SCRIPT)
    seen, code = at_terminal(tmp_path, "run", "--plain", "--threads", "1", "train.py")
    assert code == 0, seen
    frames = FRAME.findall(seen)
    assert len(frames) > 3 and any(re.search(rb"step \d+  loss \d.*steps/s", frame) for frame in frames), frames
    assert seen.count(OFF) == 1 and seen.index(OFF) > seen.index(frames[-1])
    rest = FRAME.sub(b"", seen).replace(OFF, b"")
    bars = b"".join(b"\rbar %d" % i for i in range(30))
    assert re.fullmatch(
        rb"isobit: run \S+\r\n" + bars + rb"\r\nended\r\nno children\r\nisobit: run \S+ finished, 30 steps\r\n", rest
    ), rest


def test_a_killed_run_gives_the_terminal_back(tmp_path: Path) -> None:
    write(tmp_path, "train.py", SCRIPT)
    seen, code = at_terminal(
        tmp_path, "run", "--plain", "--threads", "1", "train.py", kill_at=b"no children", GOES_ON="1"
    )
    assert code == -signal.SIGKILL and FRAME.search(seen) and seen.endswith(OFF)


def test_without_a_line(tmp_path: Path) -> None:
    write(tmp_path, "short.py", "print('out')")
    seen, code = at_terminal(tmp_path, "run", "--plain", "--no-live", "-q", "short.py")
    assert (seen, code) == (b"out\r\n", 0)


def test_where_a_line_would_do_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = os.pipe()
    kinds = {1: os.fstat(pipe[0]), 2: os.stat("/dev/null")}
    monkeypatch.setattr(os, "isatty", lambda number: True)
    for kind, wanted in ((kinds[1], False), (kinds[2], True)):
        with monkeypatch.context() as patch:
            patch.setattr(os, "fstat", lambda number, kind=kind: kind)
            assert has_terminal({"TERM": "xterm"}) is wanted
    for end in pipe:
        os.close(end)
    assert not has_terminal({"TERM": "dumb"}) and not has_terminal({})


def meter(steps: int, seconds: float, holes: int = 0, loss: bytes = b"f32:3f000000") -> tuple[Meter, mmap.mmap]:
    state = mmap.mmap(-1, STATE.size)
    STATE.pack_into(state, 0, steps, seconds, holes, loss)
    return Meter(state), state


def test_what_the_line_says() -> None:
    shown, state = meter(0, 0.0)
    assert [shown.text(5.0), shown.text(70.0)] == ["isobit  no step yet, 0:00", "isobit  no step yet, 1:05"]
    STATE.pack_into(state, 0, 1, 1.0, 0, b"f32:3f000000")
    assert shown.text(71.0) == "isobit  step 1  loss 0.5"
    shown.total = 100
    STATE.pack_into(state, 0, 11, 3.0, 1, b"xxh3:00")
    assert shown.text(72.0) == "isobit  step 11/100  5 steps/s  0:18 left  1 hole"
    STATE.pack_into(state, 0, 12, 103.0, 2, b"")
    assert shown.text(73.0) == "isobit  step 12/100  100 s/step  2:26:40 left  2 holes"  # not slowed by the first ones
    assert clock(3600 * 26) == "26:00:00"


def test_the_line_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    monkeypatch.setattr(os, "write", lambda number, data: written.append(data))
    screen = Screen(0)
    for size, wanted in (
        ((30, 9), [b"\x1bD", b"x" * 29 + b"\x1b"]),
        ((40, 9), [b"x" * 39 + b"\x1b"]),
        ((10, 9), [b"[r\x1b"]),
    ):
        monkeypatch.setattr(os, "get_terminal_size", lambda _, size=size: os.terminal_size(size))
        screen.draw("x" * 200)
        assert all(part in written[-1] for part in wanted) and b"x" * size[0] not in written[-1]
    count = len(written)
    screen.draw("x")
    assert len(written) == count  # too narrow: nothing


def test_the_number_of_steps_comes_from_an_earlier_run_like_it(tmp_path: Path) -> None:
    store = Store(tmp_path / ".isobit")
    for run_id, count, fields in (("a", 5, {}), ("b", 7, {}), ("c", 9, {"args": ()}), ("d", 3, {"status": "failed"})):
        make(store, run_id, count, **fields)
    assert expected_steps(store.home, manifest("e")) == 7
    assert expected_steps(store.home, manifest("e", args=("new",))) is None
    assert expected_steps(store.home, manifest("e", replay=Replay("a", "record"))) == 5


def test_a_step_costs_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line, step = LiveLine(), Step(7, 0, ("f32:3f800000",), "0" * 32, 1.0)
    line._state = mmap.mmap(-1, STATE.size)
    line.fell(Hole("aten::x", "why", 1))
    best = 1.0
    for _ in range(20):
        begin = time.perf_counter()
        for _ in range(1000):
            line.stepped(step)
        best = min(best, (time.perf_counter() - begin) / 1000)
    assert best < 5e-6
    assert STATE.unpack(line._state[:]) == (8, 1.0, 1, b"f32:3f800000".ljust(24, b"\0"))


def test_a_process_that_does_not_listen_stops_nobody() -> None:
    watcher = Watcher("tests.cli.deaf", {}, env={"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"})
    begin = time.perf_counter()
    for number in range(20_000):
        watcher.tell({"n": number, "text": "x" * 100})
    assert watcher.waiting > 1000
    assert not watcher.close(0.2) and time.perf_counter() - begin < 10


def test_the_screen_is_left_alone_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "tcgetpgrp", lambda _: 5)
    assert Screen(5).in_foreground() and not Screen(6).in_foreground()
    drawn: list[str] = []
    monkeypatch.setattr(Screen, "draw", lambda self, text: drawn.append(text))
    monkeypatch.setattr(Screen, "clear", lambda self: drawn.append("clear"))
    live_process._draw(Screen(6), meter(1, 1.0)[0], manifest())
    assert drawn == ["clear"]
