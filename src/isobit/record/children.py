"""What the processes that a script starts say of themselves: `children.jsonl` beside the trace.

Each appends whole lines, by one system call each, so that many can. ``pid`` is the process, ``k`` the kind: "h" a hole
that ran ``n`` more times, "n" a note.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from isobit.record.manifest import Hole

NAME = "children.jsonl"


class ChildLog:
    """Appends to the file of the run in `folder`. What cannot be written is lost: no script stops for it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME

    def hole(self, operator: str, reason: str, count: int) -> None:
        """`operator` ran outside the exact arithmetic, `count` more times."""
        self._line({"k": "h", "op": operator, "why": reason, "n": count})

    def note(self, text: str) -> None:
        """A remark."""
        self._line({"k": "n", "text": text})

    def _line(self, data: dict[str, Any]) -> None:
        line = json.dumps({"pid": os.getpid(), **data}, separators=(",", ":")).encode("ascii") + b"\n"
        try:
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            try:
                os.write(file, line)
            finally:
                os.close(file)
        except OSError:
            return


def read_children(folder: Path) -> tuple[tuple[Hole, ...], tuple[str, ...]]:
    """Holes, with their counts over all processes, and notes, each once. A torn line does not count."""
    holes: dict[str, Hole] = {}
    notes: dict[str, None] = {}
    for line in _lines(folder):
        if line.get("k") == "h":
            before = holes.get(line["op"])
            count = line["n"] + (before.count if before else 0)
            holes[line["op"]] = Hole(line["op"], before.reason if before else line["why"], count)
        elif line.get("k") == "n":
            notes[line["text"]] = None
    return tuple(holes.values()), tuple(notes)


def _lines(folder: Path) -> Iterator[dict[str, Any]]:
    try:
        text = (folder / NAME).read_text("utf-8", "replace")
    except OSError:
        return
    for line in text.splitlines():
        try:
            data = json.loads(line)
        except ValueError:
            continue
        if isinstance(data, dict):
            yield data
