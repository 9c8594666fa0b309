"""The live line's end in the script's process: leaves the state of the run where the drawing process reads it."""

from __future__ import annotations

import mmap
import os
import stat
import struct
import tempfile
from collections.abc import Mapping

from isobit.cli.watcher import Watcher
from isobit.record.manifest import Hole, Manifest
from isobit.record.rows import Step
from isobit.record.store import Run

STATE = struct.Struct("<qdq24s")  # steps, seconds of the last one, holes, the bits of its first loss
_WAIT = 2.0  # seconds, for the line to be taken off the screen


def has_terminal(environment: Mapping[str, str]) -> bool:
    """Whether a live line would be seen and do no harm: whoever reads a pipe may use the screen as well (less)."""
    if environment.get("TERM", "dumb") in ("", "dumb"):
        return False
    try:
        return os.isatty(2) and not stat.S_ISFIFO(os.fstat(1).st_mode)
    except OSError:
        return False


class LiveLine:
    """An observer. A step costs one write of a few bytes to shared memory: another process draws."""

    def __init__(self) -> None:
        self._holes: set[str] = set()
        self._steps, self._seconds, self._loss = 0, 0.0, b""

    def started(self, run: Run) -> None:
        """Start the process that draws."""
        with tempfile.TemporaryFile() as file:
            file.write(bytes(STATE.size))
            file.flush()
            self._state = mmap.mmap(file.fileno(), STATE.size)
            argument = {"folder": str(run.folder), "state": file.fileno(), "group": os.getpgrp()}
            self._watcher = Watcher("isobit.cli.live_process", argument, (file.fileno(),))

    def stepped(self, step: Step) -> None:
        """Show the step."""
        self._steps, self._seconds = step.index + 1, step.seconds
        if step.losses:
            self._loss = step.losses[0].encode()
        self._write()

    def logged(self, step: int, name: str, value: float) -> None:
        """The line shows the loss alone."""

    def fell(self, hole: Hole) -> None:
        """Show how many operators are holes."""
        self._holes.add(hole.operator)
        self._write()

    def ended(self, manifest: Manifest) -> None:
        """Take the line off the screen."""
        self._watcher.close(_WAIT)

    def _write(self) -> None:
        STATE.pack_into(self._state, 0, self._steps, self._seconds, len(self._holes), self._loss)
