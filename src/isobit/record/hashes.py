"""Digests of files, remembered between runs: a file whose stat has not changed is not read again.

The memory is a small SQLite database in the `.isobit` folder, which several runs may use at once. It is only a
shortcut: damaged, it is started anew; where it cannot be written, files are read again.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from blake3 import blake3

try:
    import sqlite3
except ImportError:  # a Python that was built without it
    sqlite3 = None  # type: ignore[assignment]

_AVAILABLE: bool = sqlite3 is not None
NAME = "digests.sqlite"
_CHUNK = 4 << 20
# A file may change again within the same tick of the file system's clock and keep its size; as git does, one that
# changed so recently is not remembered.
_SETTLED_NS = 2_000_000_000
_PENDING = 500
_SCHEMA = """
CREATE TABLE IF NOT EXISTS digests (
    path TEXT PRIMARY KEY, size INTEGER, mtime INTEGER, inode INTEGER, ctime INTEGER, digest TEXT
) WITHOUT ROWID
"""
_LATEST = "INSERT OR REPLACE INTO digests VALUES (?, ?, ?, ?, ?, ?)"
_FIND = "SELECT size, mtime, inode, ctime, digest FROM digests WHERE path = ?"
_DIGEST = 64  # hexadecimal digits


class FileState(NamedTuple):
    """What tells, without reading a file, that it has changed."""

    size: int
    mtime_ns: int
    inode: int
    ctime_ns: int

    @staticmethod
    def of(found: os.stat_result) -> FileState:
        return FileState(found.st_size, found.st_mtime_ns, found.st_ino, found.st_ctime_ns)

    @property
    def settled(self) -> bool:
        """Whether the last change is long enough ago for another one to show."""
        return time.time_ns() - max(self.mtime_ns, self.ctime_ns) > _SETTLED_NS


class FileChangedError(OSError):
    """The file is not, or no longer, the one that was meant."""


def hash_file(path: str, state: FileState, pace: Callable[[int], None] = lambda size: None) -> str:
    """The BLAKE3 digest of the file `path`, in hexadecimal; `pace` is told of every piece that was read.

    Raises FileChangedError if the file is not in this state before or after, OSError if it cannot be read. It is read
    and not mapped: a file that somebody cuts short while it is mapped would end this process.
    """
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or FileState.of(found) != state:
            raise FileChangedError("it changed before it was hashed")
        digest, left = blake3(), state.size
        while left > 0 and (chunk := os.read(handle, min(_CHUNK, left))):
            digest.update(chunk)
            left -= len(chunk)
            pace(len(chunk))
        if FileState.of(os.fstat(handle)) != state:
            raise FileChangedError("it changed while it was hashed")
        return digest.hexdigest()
    finally:
        os.close(handle)


class Digests:
    """The digests that are remembered below one `.isobit` folder (None: none are). For use by one thread."""

    def __init__(self, home: Path | None) -> None:
        self._path = (home or Path()) / NAME
        self._database: sqlite3.Connection | None = None
        self._usable = _AVAILABLE and home is not None
        self._pending: dict[str, tuple[FileState, str]] = {}

    def digest_of(self, path: str, state: FileState, pace: Callable[[int], None] = lambda size: None) -> str:
        """The file's digest, remembered or computed; raises as `hash_file` does."""
        known = self.known(path, state)
        if known is None:
            known = hash_file(path, state, pace)
            self.remember(path, state, known)
        return known

    def known(self, path: str, state: FileState) -> str | None:
        """The digest of this file in this state, if it is remembered."""
        if path in self._pending:
            found, digest = self._pending[path]
            return digest if found == state else None
        row = self._try(lambda database: database.execute(_FIND, (_text(path),)).fetchone(), create=False)
        if row is None or row[:4] != state:
            return None
        return row[4] if isinstance(row[4], str) and len(row[4]) == _DIGEST else None

    def remember(self, path: str, state: FileState, digest: str) -> None:
        """Keep a digest, unless the file has changed so recently that it could change unseen."""
        if not state.settled:
            return
        self._pending[path] = (state, digest)
        if len(self._pending) >= _PENDING:
            self.flush()

    def flush(self) -> None:
        """Write down what is to be remembered."""
        rows = [(_text(path), *state, digest) for path, (state, digest) in self._pending.items()]
        self._pending.clear()
        if rows:
            self._try(lambda database: _write(database, rows))

    def close(self) -> None:
        """Write down what is to be remembered and let go of the database."""
        self.flush()
        if self._database is not None:
            self._database.close()
            self._database = None

    def _try(self, work: Callable[[sqlite3.Connection], Any], create: bool = True) -> Any:
        """What `work` gives; None where there is no database. A damaged one is replaced, once."""
        for last in (False, True):
            if not self._usable or not (create or self._database or self._path.exists()):
                return None
            try:
                return work(self._connected())
            except (sqlite3.OperationalError, OSError):  # locked, full, read-only: do without
                self._usable = False
            except sqlite3.DatabaseError:
                self._usable = not last and self._deleted()
        return None

    def _connected(self) -> sqlite3.Connection:
        if self._database is None:
            database = sqlite3.connect(self._path, timeout=1.0, isolation_level=None)
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
            database.execute(_SCHEMA)
            self._database = database
        return self._database

    def _deleted(self) -> bool:
        if self._database is not None:
            self._database.close()
            self._database = None
        try:
            for ending in ("", "-wal", "-shm"):
                self._path.with_name(self._path.name + ending).unlink(missing_ok=True)
        except OSError:
            return False
        return True


def _write(database: sqlite3.Connection, rows: list[tuple[str, int, int, int, int, str]]) -> None:
    database.execute("BEGIN IMMEDIATE")
    try:
        database.executemany(_LATEST, rows)
    except BaseException:
        database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def _text(path: str) -> str:
    """SQLite takes no lone surrogates, which stand for bytes of a name that are no UTF-8."""
    return path.encode("utf-8", "backslashreplace").decode() if not path.isascii() else path
