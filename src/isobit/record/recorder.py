"""Writes one run down while it goes on."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from isobit.record.children import read_children
from isobit.record.manifest import Hole
from isobit.record.store import Run, rewrite
from isobit.record.trace import Step, TraceWriter

RESERVE = "reserve"
_RESERVED = 1 << 15  # bytes kept for the last writing of the manifest: the disk may be full by then


class Recorder:
    """Appends steps, holes and notes to the trace of a run and closes its record at the end.

    Safe to call from several threads. A forked child inherits the recorder; whatever it says there is
    ignored, since the record is that of the process that opened it. Raises OSError where nothing can be written.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.steps = 0
        self._trace = TraceWriter(run.folder)
        self._reserve = run.folder / RESERVE
        self._reserve.write_bytes(bytes(_RESERVED))
        self._owner = os.getpid()
        self._begin = time.perf_counter()
        self._lock = threading.Lock()
        self._holes: dict[str, Hole] = {}
        self._notes: list[str] = []
        self._open = True
        self.trace_error: str | None = None

    @property
    def active(self) -> bool:
        """Whether this process writes the record."""
        return self._open and os.getpid() == self._owner

    def step(self, optimizer: int, losses: tuple[str, ...], parameters: str) -> Step | None:
        """Record an optimizer step; returns what was written, None where nothing is recorded."""
        if not self.active:
            return None
        with self._lock:
            if not self._open:  # a thread that outlived the script
                return None
            step = Step(self.steps, optimizer, losses, parameters, time.perf_counter() - self._begin)
            self._append(lambda: self._trace.step(step))
            self.steps += 1
            return step

    def hole(self, operator: str, reason: str, count: int) -> None:
        """Record that `operator` ran outside the exact arithmetic `count` more times."""
        if not self.active:
            return
        with self._lock:
            known = self._holes.get(operator)
            if known is None:
                self._append(lambda: self._trace.hole(operator, reason))
            self._holes[operator] = Hole(operator, reason, count + (known.count if known else 0))

    def note(self, text: str) -> None:
        """Record a remark, once."""
        if not self.active:
            return
        with self._lock:
            if text not in self._notes:
                self._append(lambda: self._trace.note(text))
                self._notes.append(text)

    def _append(self, write: Callable[[], None]) -> None:
        """Write to the trace. Where that fails the script goes on, and the record says where the trace breaks off."""
        if self.trace_error is not None:
            return
        try:
            write()
        except OSError as error:
            self.trace_error = f"the trace breaks off after {self.steps} steps: {error.strerror}"

    def update(self, **changes: object) -> None:
        """Replace fields of the manifest while the run goes on. Raises OSError where the disk is full."""
        if self.active:
            self.run = rewrite(self.run, **changes)

    def _add_children(self) -> None:
        """What processes that the script started have said."""
        holes, notes = read_children(self.run.folder)
        for hole in holes:
            known = self._holes.get(hole.operator)
            self._holes[hole.operator] = dataclasses.replace(hole, count=hole.count + known.count) if known else hole
        self._notes += [note for note in notes if note not in self._notes]

    def finish(self, status: str, exit_code: int, error: str | None, **changes: object) -> None:
        """Close the record with how the run ended; raises OSError where not even the reserve is room enough."""
        if not self.active:
            return
        with self._lock:
            self._open = False
            self._trace.close()
        self._add_children()
        self._reserve.unlink(missing_ok=True)
        self.run = rewrite(
            self.run,
            status=status,
            exit_code=exit_code,
            error=error,
            ended=utc_now(),
            seconds=round(time.perf_counter() - self._begin, 3),
            steps=self.steps,
            holes=tuple(self._holes.values()),
            notes=tuple(self._notes),
            trace_error=self.trace_error,
            **changes,
        )


def utc_now() -> str:
    """The time, ISO 8601, UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
