"""What a tree held: its files by path, what was left out and why, and what was made unreadable in them.

A listing is itself an object of the store, so that runs of the same code share it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from isobit.record.errors import RecordError

FILE = 0o100644
EXECUTABLE = 0o100755
LINK = 0o120000  # the object holds where it points to
VERSION = 1
SOURCE = (".py", ".pyi", ".pyx", ".pth", ".so", ".pyd", ".ipynb", ".c", ".cc", ".cpp", ".cu", ".h", ".sh")
"""How the names of files end that are code; a tree holds others, too."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One file: its mode as git has it, its size, and the digest of the recorded bytes."""

    mode: int
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What the record does not hold. ``size`` is None where it is unknown."""

    size: int | None
    reason: str


@dataclass
class Listing:
    """A tree's contents; paths are relative to its root, with ``/``, a folder's with one at the end.

    ``ignored``: what lay there but git ignores. ``complete``: files, left_out and ignored name all that lay there, so
    that anything else came later; a tree without git names just the files that were imported.
    """

    files: dict[str, Entry] = field(default_factory=dict)
    left_out: dict[str, LeftOut] = field(default_factory=dict)
    redacted: dict[str, dict[str, int]] = field(default_factory=dict)  # path -> kind of secret -> how many
    ignored: list[str] = field(default_factory=list)
    complete: bool = False

    def keep(self, name: str, entry: Entry, redacted: dict[str, int]) -> None:
        """Enter a file, in place of what was known of it."""
        self.files[name] = entry
        self.left_out.pop(name, None)
        self.redacted.pop(name, None)
        if redacted:
            self.redacted[name] = redacted

    def leave_out(self, name: str, reason: str) -> None:
        """Enter a file that is not recorded, unless it is."""
        if name not in self.files:
            self.left_out[name] = LeftOut(None, reason)

    def to_bytes(self) -> bytes:
        """JSON, the same for the same contents."""
        data = {
            "isobit_listing": VERSION,
            "files": {name: [f"{e.mode:o}", e.size, e.digest] for name, e in sorted(self.files.items())},
            "left_out": {name: [o.size, o.reason] for name, o in sorted(self.left_out.items())},
            "redacted": dict(sorted(self.redacted.items())),
            "ignored": sorted(self.ignored),
            "complete": self.complete,
        }
        return json.dumps(data, separators=(",", ":"), ensure_ascii=True).encode("ascii")

    @staticmethod
    def from_bytes(data: bytes) -> Listing:
        """What to_bytes() wrote; raises RecordError where that is damaged or newer."""
        try:
            read = json.loads(data)
            if read["isobit_listing"] > VERSION:
                raise RecordError("the record's list of files is of a newer version: update Isobit")
            return Listing(
                {name: Entry(int(e[0], 8), e[1], e[2]) for name, e in read["files"].items()},
                {name: LeftOut(o[0], o[1]) for name, o in read["left_out"].items()},
                read["redacted"],
                read["ignored"],
                read["complete"],
            )
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise RecordError(f"the record's list of files is damaged: {error}") from error
