"""Contents by their digest, shared by all runs of a store: ``objects/ab/<BLAKE3>``.

Ten thousand runs of one project hold its code once. An object appears whole or not at all, is never changed, and goes
only by `isobit gc`.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from blake3 import blake3

from isobit.record.errors import RecordError
from isobit.record.files import write_atomic

FOLDER = "objects"
_FRESH = 600.0  # seconds after which a use of an object is marked, so that gc sees that it is in use


class Objects:
    """The objects below one folder. Safe for several processes at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._prefix = os.path.join(folder, "")
        self._made: set[str] = set()  # folders that are there

    def path(self, digest: str) -> Path:
        """Where the object `digest` lies, if it is there."""
        return Path(self._place(digest))

    def put(self, data: bytes) -> str:
        """Keep `data`; returns its digest. Raises RecordError where that cannot be written."""
        digest = blake3(data).hexdigest()
        if not self.use(digest, len(data)):
            try:
                self._write(self._place(digest), data)
            except OSError as error:
                raise RecordError(f"cannot write a record in {self.folder}: {error.strerror or error}") from error
        return digest

    def _write(self, place: str, data: bytes) -> None:
        parent = os.path.dirname(place)
        if parent not in self._made:
            os.makedirs(parent, exist_ok=True)
            self._made.add(parent)
        write_atomic(Path(place), data)

    def use(self, digest: str, size: int) -> bool:
        """Whether the object is there, with `size` bytes; if so, gc leaves it alone for as long as a run needs to
        refer to it. A shorter one is what a power failure left, and is written again.
        """
        place = self._place(digest)
        try:
            found = os.stat(place)
            if found.st_size != size:
                return False
            if time.time() - found.st_mtime > _FRESH:
                os.utime(place)
                found = os.stat(place)  # gc may have been faster
        except OSError:
            return False
        return True

    def read(self, digest: str) -> bytes:
        """The object's bytes; raises RecordError if it is missing or damaged."""
        return self.checked(Path(self._place(digest)), digest)

    @staticmethod
    def checked(place: Path, digest: str) -> bytes:
        """The bytes of the file `place`; raises RecordError if they are not there or not those of `digest`."""
        try:
            data = place.read_bytes()
        except OSError as error:
            raise RecordError(f"the record has lost {place}: {error.strerror}") from error
        if blake3(data).hexdigest() != digest:
            raise RecordError(f"{place} is not what was recorded: its digest differs")
        return data

    def _place(self, digest: str) -> str:
        return f"{self._prefix}{digest[:2]}{os.sep}{digest}"
