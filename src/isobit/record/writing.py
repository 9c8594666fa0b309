"""Writes the trace: what a run said while it went on, in the folder `trace` of the run, appended and never changed.

``steps`` has a row for each optimizer step, ``losses``, ``gradients``, ``state`` and ``metrics`` the entries that not
every step has once (rows.py), ``events.jsonl`` a line for each of what is rare, ``header.json`` the version, the
columns and how often is taken what is not taken of every step.

Rows instead of a file for each column: one write makes a step complete, so killing the process loses at most the step
under way; and NumPy reads a column out of rows of 112 bytes through the page cache, 0.1 s for a million steps.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isobit.record.files import write_atomic
from isobit.record.rows import (
    EVENTS,
    FIELDS,
    FOLDER,
    HEADER,
    KINDS,
    METRICS,
    VERSION,
    Ends,
    Step,
    metric_bytes,
    step_bytes,
)


class TraceWriter:
    """Appends to the trace of a run. Not for use by several threads at once. `sampling` is said in the header."""

    def __init__(self, folder: Path, sampling: Mapping[str, Any] | None = None) -> None:
        self._folder = folder / FOLDER
        self._folder.mkdir()
        self._files = {name: self._new(name) for name in (*FIELDS, EVENTS)}
        self._ends = Ends()
        self._names: dict[str, int] = {}
        header = {"isobit_trace": VERSION, "sampling": dict(sampling or {}), "kinds": KINDS, "columns": FIELDS}
        write_atomic(self._folder / HEADER, json.dumps(header, indent=1).encode("ascii"))

    def step(self, step: Step) -> None:
        """Append one step; its row, which makes it complete, last."""
        for name, data in step_bytes(step, self._ends).items():
            self._write(name, data)

    def metric(self, step: int, seconds: float, name: str, bits: str) -> None:
        """Append a number that the script gave before step number `step`."""
        if name not in self._names:
            self._event("m", n=len(self._names), name=name)
            self._names[name] = len(self._names)
        self._write(METRICS, metric_bytes(step, seconds, self._names[name], bits))

    def text(self, step: int, seconds: float, name: str, text: str) -> None:
        """Append a text that the script gave before step number `step`."""
        self._event("t", i=step, t=round(seconds, 6), name=name, text=text)

    def settings(self, step: int, optimizer: int, changes: Sequence[tuple[int, str, str]]) -> None:
        """Append the hyper-parameters (group, name, value) that are others in step number `step` than before."""
        self._event("v", i=step, o=optimizer, set=changes)

    def digest(self, steps: int, optimizer: int, digest: str) -> None:
        """Append the BLAKE3 digest of an optimizer's parameters after `steps` steps."""
        self._event("b", i=steps, o=optimizer, d=digest)

    def checkpoint(self, steps: int, path: str, digest: str) -> None:
        """Append that a checkpoint with this BLAKE3 digest was written after `steps` steps."""
        self._event("c", i=steps, path=path, d=digest)

    def hole(self, operator: str, reason: str, steps: int = 0) -> None:
        """Append the first sight of a hole, after `steps` steps."""
        self._event("h", op=operator, why=reason, i=steps)

    def note(self, text: str) -> None:
        """Append a note."""
        self._event("n", text=text)

    def close(self) -> None:
        """Close the files; nothing can be appended after."""
        for file in self._files.values():
            os.close(file)

    def _new(self, name: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        return os.open(self._folder / name, flags, 0o666)

    def _event(self, kind: str, **data: object) -> None:
        line = json.dumps({"k": kind, **data}, separators=(",", ":"), ensure_ascii=True)
        self._write(EVENTS, line.encode("ascii") + b"\n")

    def _write(self, name: str, data: bytes) -> None:
        while data:
            data = data[os.write(self._files[name], data) :]
