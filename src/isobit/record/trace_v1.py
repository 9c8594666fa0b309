"""Traces of version 1: one file, ``trace.jsonl``, with a line of JSON for each step, hole and note.

The first line is a header. ``k`` is the kind ("s" step, "h" hole, "n" note), ``i`` the index of the step, ``o`` the
number of the optimizer, ``l`` losses, ``p`` the digest of the parameters, ``t`` seconds since the run's start.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from isobit.record.errors import RecordError
from isobit.record.rows import FIELDS, Ends, Step, step_bytes

NAME = "trace.jsonl"
_VERSION = 1
_KEYS = {"s": {"i", "o", "l", "p", "t"}, "h": {"op", "why"}, "n": {"text"}}


def read(path: Path) -> dict[str, bytes]:
    """What the files of a trace of the present version would hold."""
    parts: dict[str, list[bytes]] = {name: [] for name in FIELDS}
    ends = Ends()
    for number, step in _steps(path):
        try:
            found = step_bytes(step, ends)
        except (ValueError, TypeError, AttributeError) as error:
            raise RecordError(f"{path}, line {number}, is damaged: {error}") from error
        for name, data in found.items():
            parts[name].append(data)
    return {name: b"".join(data) for name, data in parts.items()}


def _steps(path: Path) -> Iterator[tuple[int, Step]]:
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
        data = _parse(line, path, number)
        if number == 1 and data is not None and data.get("isobit_trace", 0) > _VERSION:
            raise RecordError(f"{path} is of a newer version: update Isobit")
        if number > 1 and data is not None and data["k"] == "s":
            yield number, Step(data["i"], data["o"], tuple(data["l"]), data["p"], data["t"])


def _parse(line: bytes, path: Path, number: int) -> dict[str, Any] | None:
    """One line, or None for the torn last line of a killed run."""
    if not line.endswith(b"\n"):
        return None
    try:
        data: dict[str, Any] = json.loads(line)
        if number > 1 and not data.keys() >= _KEYS.get(data["k"], set()):
            raise ValueError("fields are missing")
        return data
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"{path}, line {number}, is damaged: {error}") from error
