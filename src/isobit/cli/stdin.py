"""The standard input of a script: copied as it is read, so that a replay can be given the same.

What is copied is what Python reads through `sys.stdin`; a script that reads the file descriptor itself is not seen.
Input that is typed at a terminal is left alone.
"""

from __future__ import annotations

import builtins
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

NAME = "stdin"
LIMIT = 64 << 20  # bytes
Note = Callable[[str], None]

_CUT = f"stdin: more than {LIMIT >> 20} MiB were read; the record has the first, so a replay will differ"
_TYPED = "stdin: input was read at a terminal; it is not recorded, and a replay asks for it again"


def record_stdin(folder: Path, note: Note) -> None:
    """From now on, what is read from ``sys.stdin`` is copied to a file in `folder`, which is made when that begins."""
    stream = sys.stdin
    if stream is None or stream.closed:
        return
    if stream.isatty():
        _note_typing(stream, note)
        return
    raw = _Copying(stream.fileno(), folder / NAME, note)
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(  # type: ignore[misc]
        io.BufferedReader(raw), stream.encoding, stream.errors, line_buffering=bool(stream.line_buffering)
    )
    sys.stdin.mode = "r"  # type: ignore[misc]


class _Copying(io.RawIOBase):
    """Reads a file descriptor and copies what comes. A copy that fails stops no script."""

    name = "<stdin>"
    mode = "rb"

    def __init__(self, descriptor: int, copy: Path, note: Note) -> None:
        self._descriptor = descriptor
        self._copy = copy
        self._note = note
        self._left = LIMIT
        self._owner = os.getpid()

    def fileno(self) -> int:
        return self._descriptor

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def readinto(self, buffer: Any) -> int:
        data = os.read(self._descriptor, len(buffer))
        buffer[: len(data)] = data
        if data and os.getpid() == self._owner:
            self._keep(data)
        return len(data)

    def _keep(self, data: bytes) -> None:
        if not self._left:
            return
        if len(data) > self._left:
            self._note(_CUT)
        data = data[: self._left]
        self._left -= len(data)
        try:
            with open(self._copy, "ab") as copy:
                copy.write(data)
        except OSError as error:
            self._left = 0
            self._note(f"stdin: it could not be recorded: {error.strerror}")


def _note_typing(stream: Any, note: Note) -> None:
    """Note the first `input()` or read. The stream itself stays: it has the terminal's line editing."""

    def noting(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            note(_TYPED)
            return original(*args, **kwargs)

        return call

    builtins.input = noting(builtins.input)
    for name in ("read", "readline", "readlines"):
        setattr(stream, name, noting(getattr(stream, name)))
