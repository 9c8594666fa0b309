"""The process that draws the live line on the terminal's last row, kept out of the way of the script's output.

The rows above become the terminal's scrolling region, as apt does it: all that the script prints, its own progress
bars and what C code writes stays there. A drawing is one write that saves the cursor before and restores it after, so
it can come between any two writes of the script. The line goes when the run ends, however it does, and while the run
is stopped or in the background.
"""

from __future__ import annotations

import json
import mmap
import os
import select
import signal
import sys
import time
from collections import deque
from pathlib import Path

from isobit.cli.live import STATE
from isobit.record.errors import RecordError
from isobit.record.index import entries
from isobit.record.losses import loss_value
from isobit.record.manifest import FINISHED, Manifest
from isobit.record.process import is_alive
from isobit.record.store import Store, open_run

_TERMINAL = 2
_PAUSE = 0.2  # seconds between two drawings
_WINDOW = 10.0  # seconds that the speed is the mean of
_LEAST = (4, 20)  # rows and columns below which nothing is drawn


def main() -> None:
    """Draw until the run ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTTOU):
        signal.signal(number, signal.SIG_IGN)
    argument = json.loads(sys.argv[1])
    manifest = open_run(Path(argument["folder"])).manifest
    state = mmap.mmap(argument["state"], STATE.size, prot=mmap.PROT_READ)
    screen, meter = Screen(argument["group"]), Meter(state)
    try:
        _draw(screen, meter, manifest)
        meter.total = expected_steps(Path(argument["folder"]).parents[1], manifest)
        while not select.select([0], [], [], _PAUSE)[0] and is_alive(manifest.process):
            _draw(screen, meter, manifest)
        screen.clear()
    except OSError:  # the terminal is gone
        return


def _draw(screen: Screen, meter: Meter, manifest: Manifest) -> None:
    if screen.in_foreground():
        screen.draw(meter.text(time.monotonic()))
    else:
        screen.clear()


class Screen:
    """The terminal's last row."""

    def __init__(self, group: int) -> None:
        self._group = group  # the script's process group
        self._size: tuple[int, int] | None = None  # rows and columns, while the row is ours

    def in_foreground(self) -> bool:
        """Whether the script has the terminal: neither stopped nor in the background."""
        try:
            return os.tcgetpgrp(_TERMINAL) == self._group
        except OSError:  # not the terminal that this session belongs to
            return True

    def draw(self, text: str) -> None:
        """Show `text`. The margins are set every time: the script may have cleared the screen."""
        columns, rows = os.get_terminal_size(_TERMINAL)
        if rows < _LEAST[0] or columns < _LEAST[1]:
            return self.clear()
        # Once: move whatever stands on the last row one up. ESC D and not a newline, which would go to column 1.
        room = "" if self._size == (rows, columns) else f"\x1bD\x1b7\x1b[1;{rows - 1}r\x1b8\x1b[1A"
        self._size = (rows, columns)
        line = text[: columns - 1]
        self._write(f"{room}\x1b7\x1b[1;{rows - 1}r\x1b[{rows};1H\x1b[2K\x1b[2m{line}\x1b[0m\x1b8")

    def clear(self) -> None:
        """Give the row back."""
        if self._size is not None:
            rows = os.get_terminal_size(_TERMINAL).lines
            self._size = None
            self._write(f"\x1b7\x1b[r\x1b[{rows};1H\x1b[2K\x1b8")

    def _write(self, text: str) -> None:
        os.write(_TERMINAL, text.encode("utf-8"))


class Meter:
    """What the line says."""

    def __init__(self, state: mmap.mmap) -> None:
        self._state = state
        self._begin: float | None = None
        self._seen: deque[tuple[int, float]] = deque()  # steps and when they were made, of the last seconds
        self.total: int | None = None

    def text(self, now: float) -> str:
        """The line, `now` by a clock that never goes back."""
        self._begin = now if self._begin is None else self._begin
        steps, seconds, holes, loss = self._read()
        if not steps:
            return f"isobit  no step yet, {clock(now - self._begin)}" + _holes(holes)
        speed = self._speed(steps, seconds)
        parts = [f"step {steps}" if self.total is None else f"step {steps}/{self.total}"]
        if (value := loss_value(loss)) is not None:
            parts.append(f"loss {value:.5g}")
        if speed is not None:
            parts.append(f"{speed:.3g} steps/s" if speed >= 0.1 else f"{1 / speed:.3g} s/step")
            if self.total is not None and steps <= self.total:
                parts.append(f"{clock((self.total - steps) / speed)} left")
        return "isobit  " + "  ".join(parts) + _holes(holes)

    def _read(self) -> tuple[int, float, int, str]:
        """The state, read until it is the same twice: the other process may be in the middle of writing it."""
        before = b""
        while (held := self._state[: STATE.size]) != before:
            before = held
        steps, seconds, holes, loss = STATE.unpack(held)
        return steps, seconds, holes, loss.rstrip(b"\0").decode("ascii", "replace")

    def _speed(self, steps: int, seconds: float) -> float | None:
        """Steps a second over the last ones, None before the second."""
        if not self._seen or self._seen[-1][0] != steps:
            self._seen.append((steps, seconds))
        while len(self._seen) > 2 and self._seen[1][1] < seconds - _WINDOW:
            self._seen.popleft()
        (first, begin), (last, end) = self._seen[0], self._seen[-1]
        return (last - first) / (end - begin) if end > begin else None


def _holes(count: int) -> str:
    return f"  {count} hole{'s' * (count != 1)}" if count else ""


def clock(seconds: float) -> str:
    """``1:23`` or ``2:03:04``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def expected_steps(home: Path, manifest: Manifest) -> int | None:
    """How many steps there will be: as many as the run that is replayed made, or the last finished one like this."""
    store = Store(home)
    try:
        if manifest.settings.steps is not None:
            return manifest.settings.steps
        if manifest.replay is not None:
            return store.open(manifest.replay.of).manifest.steps
        like = [
            entry.steps
            for entry in entries(store)
            if (entry.status, entry.script, tuple(entry.args)) == (FINISHED, manifest.script, manifest.args)
        ]
        return like[-1] if like else None
    except (RecordError, OSError):
        return None
