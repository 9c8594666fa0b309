"""Writes one run down while it goes on."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from isobit.record.children import read_children
from isobit.record.manifest import Hole
from isobit.record.rows import Logged, Step
from isobit.record.secrets import redact_text
from isobit.record.store import Run, rewrite
from isobit.record.writing import TraceWriter

RESERVE = "reserve"
_RESERVED = 1 << 15  # bytes kept for the last writing of the manifest: the disk may be full by then


class Recorder:
    """Appends steps, holes and notes to the trace of a run and closes its record at the end.

    Safe to call from several threads. A forked child inherits the recorder; whatever it says there is
    ignored, since the record is that of the process that opened it. Raises OSError where nothing can be written.
    """

    def __init__(self, run: Run, sampling: Mapping[str, Any] | None = None) -> None:
        self.run = run
        self.steps = 0
        self._trace = TraceWriter(run.folder, sampling)
        self._reserve = run.folder / RESERVE
        self._reserve.write_bytes(bytes(_RESERVED))
        self._owner = os.getpid()
        self._begin = time.perf_counter()
        self._lock = threading.RLock()  # reading tensors may free others, whose end is recorded, too
        self._holes: dict[str, Hole] = {}
        self._notes: list[str] = []
        self._open = True
        self.trace_error: str | None = None

    @property
    def active(self) -> bool:
        """Whether this process writes the record."""
        return self._open and os.getpid() == self._owner

    def step(
        self,
        optimizer: int,
        losses: tuple[str, ...],
        parameters: str,
        *,
        changes: Sequence[tuple[int, str, str]] = (),
        **digests: str,
    ) -> Step | None:
        """Record an optimizer step; returns what was written, None where nothing is recorded.

        `digests` are further fields of Step; `changes` are the hyper-parameters (group, name, value) that are others
        than in the optimizer's step before.
        """
        with self._recording() as recording:
            if not recording:
                return None
            step = Step(self.steps, optimizer, losses, parameters, self._seconds(), **digests)
            if changes:
                self._append(lambda: self._trace.settings(step.index, optimizer, changes))
            self._append(lambda: self._trace.step(step))
            self.steps += 1
            return step

    def log(self, name: str, bits: str, text: str) -> Logged | None:
        """Record a number by its bits, or a text, without secrets, where `bits` is ""; returns what was written, None
        where nothing is recorded.
        """
        with self._recording() as recording:
            if not recording:
                return None
            said = Logged(self.steps, self._seconds(), name, bits, redact_text(text)[0])
            if bits:
                self._append(lambda: self._trace.metric(said.step, said.seconds, name, bits))
            else:
                self._append(lambda: self._trace.text(said.step, said.seconds, name, said.text))
            return said

    def digest(self, optimizer: int, digest: str) -> None:
        """Record the BLAKE3 digest of an optimizer's parameters as they are now."""
        with self._recording() as recording:
            if recording:
                self._append(lambda: self._trace.digest(self.steps, optimizer, digest))

    def checkpoint(self, path: str, digest: str) -> None:
        """Record that a checkpoint with this BLAKE3 digest was written."""
        with self._recording() as recording:
            if recording:
                self._append(lambda: self._trace.checkpoint(self.steps, path, digest))

    def hole(self, operator: str, reason: str, count: int) -> None:
        """Record that `operator` ran outside the exact arithmetic `count` more times."""
        with self._recording() as recording:
            if not recording:
                return
            known = self._holes.get(operator)
            if known is None:
                self._append(lambda: self._trace.hole(operator, reason, self.steps))
            self._holes[operator] = Hole(operator, reason, count + (known.count if known else 0))

    def note(self, text: str) -> None:
        """Record a remark, once."""
        with self._recording() as recording:
            if recording and text not in self._notes:
                self._append(lambda: self._trace.note(text))
                self._notes.append(text)

    @contextmanager
    def _recording(self) -> Iterator[bool]:
        """Holds the lock, which a forked child may have inherited locked; False where nothing is recorded, as from a
        thread that outlived the script.
        """
        if not self.active:
            yield False
            return
        with self._lock:
            yield self._open

    def _seconds(self) -> float:
        return time.perf_counter() - self._begin

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
            seconds=round(self._seconds(), 3),
            steps=self.steps,
            holes=tuple(self._holes.values()),
            notes=tuple(self._notes),
            trace_error=self.trace_error,
            **changes,
        )


def utc_now() -> str:
    """The time, ISO 8601, UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
