"""Object code on disk, found again by what it was compiled from."""

from __future__ import annotations

import os
import tempfile
import warnings
from dataclasses import astuple
from functools import cache
from pathlib import Path

from blake3 import blake3

from isobit.codegen.objects import compiler_version
from isobit.codegen.target import Target

FORMAT = 1
_MAGIC = b"isobit-object\x00" + FORMAT.to_bytes(2, "little")
_DIGEST_BYTES = 32


def object_key(text: str, target: Target) -> str:
    """The name of the object code of ``text``: a BLAKE3 digest of all that decides it."""
    return blake3(_key_head(target)).update(text.encode()).hexdigest()


@cache
def _key_head(target: Target) -> bytes:
    return repr((FORMAT, compiler_version(), astuple(target))).encode() + b"\x00"


class ObjectCache:
    """A folder of object files; several processes may share it.

    An entry carries the digest of its key and code. One that is damaged, cut short or of another key or format is as
    good as absent and is replaced. A folder that cannot be written is used for reading, with one warning.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._writable = folder is not None

    def get(self, key: str) -> bytes | None:
        """The object code stored under ``key``, or None."""
        if self._folder is None:
            return None
        try:
            entry = self._path(key).read_bytes()
        except OSError:
            return None
        return _unpack(entry, key)

    def put(self, key: str, code: bytes) -> None:
        """Store ``code`` under ``key``; a reader sees the whole entry or none."""
        if not self._writable:
            return
        try:
            _write_atomic(self._path(key), _pack(code, key))
        except OSError as error:
            self._writable = False
            warnings.warn(f"kernels are not cached in {self._folder}: {error}", RuntimeWarning, stacklevel=2)

    def _path(self, key: str) -> Path:
        assert self._folder is not None
        return self._folder / key[:2] / f"{key[2:]}.o"


def _pack(code: bytes, key: str) -> bytes:
    return _MAGIC + _seal(code, key) + code


def _unpack(entry: bytes, key: str) -> bytes | None:
    start = len(_MAGIC) + _DIGEST_BYTES
    code = entry[start:]
    return code if entry[:start] == _MAGIC + _seal(code, key) else None


def _seal(code: bytes, key: str) -> bytes:
    return blake3(key.encode()).update(code).digest()


def _write_atomic(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
