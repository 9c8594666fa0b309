"""The trace: one line of JSON a step, appended as the run goes.

The first line is a header with the format's version. A line is written by one system call, so that killing
the process loses at most the step under way; a last line that was torn is ignored by readers. Keys are
short because there may be a million lines: ``k`` kind ("s" step, "h" hole, "n" note), ``i`` index of the
step over all optimizers, ``o`` number of the optimizer, ``l`` losses, ``p`` digest of the parameters, ``t``
seconds since the run's start.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isobit.record.errors import RecordError

NAME = "trace.jsonl"
VERSION = 1
_KEYS = {"s": {"i", "o", "l", "p", "t"}, "h": {"op", "why"}, "n": {"text"}}


@dataclass(frozen=True)
class Step:
    """One optimizer step, in the order in which its parts come about; "" stands for what was not taken.

    ``batch``: digest of what the loaders yielded since the step before. ``losses``: bits of what `backward()` started
    from since then. ``gradients``: of the optimizer's parameters, before the step (sampled). ``settings``: of its
    hyper-parameters, ``state`` of its state after the step (sampled), ``parameters`` after the step, ``random`` of the
    generators after the step.
    """

    index: int
    optimizer: int
    losses: tuple[str, ...]
    parameters: str
    seconds: float = 0.0
    batch: str = ""
    gradients: str = ""
    settings: str = ""
    state: str = ""
    random: str = ""


class TraceWriter:
    """Appends to the trace of a run. Not for use by several threads at once."""

    def __init__(self, folder: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(folder / NAME, flags, 0o666)
        self._line({"isobit_trace": VERSION})

    def step(self, step: Step) -> None:
        """Append one step."""
        line = {"k": "s", "i": step.index, "o": step.optimizer, "l": step.losses, "p": step.parameters}
        self._line({**line, "t": round(step.seconds, 6)})

    def hole(self, operator: str, reason: str) -> None:
        """Append the first sight of a hole."""
        self._line({"k": "h", "op": operator, "why": reason})

    def note(self, text: str) -> None:
        """Append a note."""
        self._line({"k": "n", "text": text})

    def close(self) -> None:
        """Close the file; nothing can be appended after."""
        os.close(self._file)

    def _line(self, data: dict[str, Any]) -> None:
        line = json.dumps(data, separators=(",", ":"), ensure_ascii=True).encode("ascii") + b"\n"
        while line:
            line = line[os.write(self._file, line) :]


def read_trace(folder: Path) -> Iterator[dict[str, Any]]:
    """The trace's lines without its header. Raises RecordError for a newer version or damage before the last
    line.
    """
    try:
        file = open(folder / NAME, "rb")  # noqa: SIM115 — closed below; the open may fail in its own way
    except FileNotFoundError:
        return
    with file:
        header = _parse(file.readline(), folder, 1)
        if header is None:
            return
        if header.get("isobit_trace", 0) > VERSION:
            raise RecordError(f"{folder / NAME} is of a newer version: update Isobit")
        for number, line in enumerate(file, start=2):
            data = _parse(line, folder, number)
            if data is not None:
                yield data


def read_steps(folder: Path) -> Iterator[Step]:
    """The recorded steps, in order."""
    for line in read_trace(folder):
        if line["k"] == "s":
            yield Step(line["i"], line["o"], tuple(line["l"]), line["p"], line["t"])


def _parse(line: bytes, folder: Path, number: int) -> dict[str, Any] | None:
    """One line, or None for the torn last line of a killed run."""
    if not line.endswith(b"\n"):
        return None
    try:
        data: dict[str, Any] = json.loads(line)
        if number > 1 and not data.keys() >= _KEYS.get(data["k"], set()):
            raise ValueError("fields are missing")
        return data
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"{folder / NAME}, line {number}, is damaged: {error}") from error
