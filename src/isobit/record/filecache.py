"""Remembers what files held, so that a second run of a large tree reads none of them again.

A file counts as unchanged as long as its FileState is. One that was changed just before it was read is not remembered.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from isobit.record.files import write_atomic
from isobit.record.hashes import FileState

_VERSION = 3  # a raised one forgets everything: where the search for secrets changes


@dataclass(frozen=True, slots=True)
class Known:
    """What was recorded of a file: the digest of the object, and the secrets that it does not show."""

    digest: str
    redacted: dict[str, int]


class FileCache:
    """What the files of one tree held when they were last read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._old = _read(path)
        self._new: dict[str, list] = {}  # type: ignore[type-arg]
        self._changed = False

    def get(self, name: str, found: os.stat_result) -> Known | None:
        """What the file `name` holds, if it has not changed."""
        entry = self._old.get(name)
        if entry is None or entry[0] != list(FileState.of(found)):
            return None
        self._new[name] = entry
        return Known(entry[1], entry[2])

    def put(self, name: str, found: os.stat_result, known: Known) -> None:
        """Remember what the file `name` holds; `found` is of the time before it was read."""
        self._changed = True
        state = FileState.of(found)
        if state.settled:
            self._new[name] = [list(state), known.digest, known.redacted]

    def save(self) -> None:
        """Write what this run has seen, if that is news. A cache that cannot be written is no reason to stop."""
        if not self._changed and len(self._new) == len(self._old):
            return
        data = {"version": _VERSION, "files": self._new}
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self._path, json.dumps(data, separators=(",", ":")).encode("ascii"))


def _read(path: Path) -> dict[str, list]:  # type: ignore[type-arg]
    try:
        data = json.loads(path.read_bytes())
        files: dict[str, list] = data["files"] if data["version"] == _VERSION else {}  # type: ignore[type-arg]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return files
