"""A sink's own process: takes what the run says as it says it, hands it to the other tracker in batches.

What a tracker does not take now waits and is tried again; nothing is dropped before the time after the run's end is up.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from isobit.record.losses import loss_value
from isobit.record.manifest import RUNNING
from isobit.record.process import is_alive
from isobit.record.store import Run, open_run

_BATCH = 1000  # values, as many as MLflow takes at a time
_PAUSE = 1.0  # seconds between two batches
_LONGEST_PAUSE = 30.0  # between two tries
_DEATH = 5.0  # seconds in which a process that let go of its end is gone


@dataclass(frozen=True)
class Point:
    """One value of a metric; `seconds` is when, since the epoch."""

    name: str
    step: int
    value: float
    seconds: float


class Target(Protocol):
    """A tracker."""

    def open(self, run: Run) -> None:
        """Begin a run there; may be called again if it fails."""

    def send(self, points: list[Point]) -> None:
        """Write values; may be called again with the same if it fails."""

    def close(self, run: Run) -> None:
        """Write what the closed record says; may be called again if it fails."""


def feed(name: str, make: Callable[[str], Target]) -> None:
    """Serve `make(target)` until the run has ended and all is written, or the time for that is up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    argument = json.loads(sys.argv[1])
    run = open_run(Path(argument["folder"]))
    inbox = Inbox(run)
    threading.Thread(target=inbox.read, daemon=True).start()
    Feeder(name, make(argument["target"]), run, inbox, argument["seconds"]).serve()


class Inbox:
    """What the run has said and no tracker has yet."""

    def __init__(self, run: Run) -> None:
        self.points: deque[Point] = deque()
        self.ended = threading.Event()
        self._run = run

    def read(self) -> None:
        """Take lines from the standard input until the run is over."""
        rest, told = b"", False
        while not told:
            if select.select([0], [], [], _PAUSE)[0]:
                data = os.read(0, 1 << 16)
                if not data:
                    break
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    told = self._take(line)
            elif not is_alive(self._run.manifest.process):  # forked workers may hold the connection open
                break
        if not told:
            self._wait_for_death()
        self.ended.set()

    def _take(self, line: bytes) -> bool:
        """Keep what a line says; whether it is the last."""
        event = json.loads(line)
        if event["kind"] == "step":
            self.points += points_of_step(event["step"], event["optimizer"], event["losses"], event["time"])
        elif event["kind"] == "value":
            self.points.append(Point(event["name"], event["step"], event["value"], event["time"]))
        return bool(event["kind"] == "end")

    def _wait_for_death(self) -> None:
        """A process that is killed lets go of the connection a moment before it is gone."""
        end = time.monotonic() + _DEATH
        while is_alive(self._run.manifest.process) and time.monotonic() < end:
            time.sleep(0.05)


def points_of_step(step: int, optimizer: int, losses: list[str], seconds: float) -> Iterator[Point]:
    """``loss`` for the first optimizer's first loss, ``loss.1`` for the next, ``optimizer1.loss`` for another's."""
    lead = f"optimizer{optimizer}." if optimizer else ""
    for number, bits in enumerate(losses):
        value = loss_value(bits)
        if value is not None:
            yield Point(f"{lead}loss" + (f".{number}" if number else ""), step, value, seconds)


class Feeder:
    """Hands on what comes in, and tries again where that fails."""

    def __init__(self, name: str, target: Target, run: Run, inbox: Inbox, seconds: float) -> None:
        self._name, self._target, self._run, self._inbox, self._seconds = name, target, run, inbox, seconds
        self._trouble: str | None = None
        self._unsent = 0
        threading.Thread(target=self._limit, daemon=True).start()

    def serve(self) -> None:
        """Open, send, close."""
        self._try(lambda: self._target.open(self._run))
        while True:
            ended = self._inbox.ended.wait(_PAUSE)
            while self._inbox.points:
                points = [self._inbox.points.popleft() for _ in range(min(_BATCH, len(self._inbox.points)))]
                self._unsent = len(points)
                self._try(lambda points=points: self._target.send(points))  # type: ignore[misc]
                self._unsent = 0
            if ended and not self._inbox.points:
                break
        self._try(lambda: self._target.close(open_run(self._run.folder)))

    def _try(self, what: Callable[[], None]) -> None:
        """Do it until it works; the first failure is told at once."""
        pause = _PAUSE
        while True:
            try:
                what()
            except Exception as error:
                if self._trouble is None:
                    self._say(f"cannot write now, goes on trying: {_line(error)}")
                self._trouble = _line(error)
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                self._trouble = None
                return

    def _limit(self) -> None:
        """Give up some time after the run's end, and say what was not written."""
        self._inbox.ended.wait()
        time.sleep(self._seconds)
        count = self._unsent + len(self._inbox.points)
        why = f": {self._trouble}" if self._trouble else ", it takes too long"
        self._say(f"{count} value{'s' * (count != 1)} and the end of the run were not written{why}")
        os._exit(1)

    def _say(self, text: str) -> None:
        print(f"isobit: {self._name}: {text}", file=sys.stderr, flush=True)


def _line(error: Exception) -> str:
    """An error's first line."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def final_status(run: Run) -> str:
    """The status of a run that is over; one whose process hides is killed."""
    return "killed" if run.status == RUNNING else run.status
