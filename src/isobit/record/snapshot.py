"""Reads a git work tree into the store, as it lies on the disk: tracked and untracked files, not the ignored ones."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from isobit.record.filecache import FileCache, Known
from isobit.record.git import GitTree
from isobit.record.hashes import FileState
from isobit.record.listing import EXECUTABLE, FILE, LINK, Entry, LeftOut, Listing
from isobit.record.objects import Objects
from isobit.record.secrets import SECRET_FILE, is_secret_file, redact

_MOST_NAMED = 1000  # files that are left out by their own name; beyond, by their folder's
_MOST_IGNORED = 10_000
_ENVIRONMENT = "pyvenv.cfg"  # marks the root of a virtual environment
_STORE = ".isobit"


@dataclass(frozen=True)
class Caps:
    """How much of a tree is kept: bytes of a file, of all, and how many files."""

    file: int = 10 << 20
    tree: int = 256 << 20
    files: int = 50_000


CAPS = Caps()
Stamps = dict[str, FileState]


class Reader:
    """Reads single files into the store."""

    def __init__(self, objects: Objects, cache: FileCache | None = None) -> None:
        self._objects = objects
        self._cache = cache

    def read(self, path: str, name: str, found: os.stat_result) -> tuple[Entry, dict[str, int]]:
        """The entry of the file `path`, called `name` in its tree, and its secrets. `found` is its lstat. Raises
        OSError if it cannot be read.
        """
        if stat.S_ISLNK(found.st_mode):
            target = os.fsencode(os.readlink(path))
            return Entry(LINK, len(target), self._objects.put(target)), {}
        mode = EXECUTABLE if found.st_mode & 0o100 else FILE
        known = None if self._cache is None else self._cache.get(name, found)
        if known is not None and self._objects.use(known.digest, found.st_size):
            return Entry(mode, found.st_size, known.digest), known.redacted
        with open(path, "rb") as file:
            before = os.fstat(file.fileno())
            data = file.read()
        shown, redacted = redact(data, name)
        known = Known(self._objects.put(shown), redacted)
        if self._cache is not None and before.st_size == len(data):
            self._cache.put(name, before, known)
        return Entry(mode, len(data), known.digest), redacted


def snapshot(
    root: Path, git: GitTree, objects: Objects, cache: FileCache, caps: Caps | None = None
) -> tuple[Listing, Stamps]:
    """The listing of the work tree at `root`, all its files in `objects`, and the stamps of those files. Raises
    RecordError if they cannot be written.
    """
    caps, prefix = caps or CAPS, os.path.join(root, "")
    stamps: Stamps = {}
    listing = Listing(complete=True)
    reader = Reader(objects, cache)
    room = caps.tree
    for name, status in _found(root, git, listing):
        if status.st_size > caps.file:
            listing.left_out[name] = LeftOut(status.st_size, f"larger than {caps.file >> 20} MiB")
        elif len(stamps) >= caps.files:
            listing.left_out[name] = LeftOut(status.st_size, f"the tree holds more than {caps.files} files")
        elif status.st_size > room:
            listing.left_out[name] = LeftOut(status.st_size, f"the tree holds more than {caps.tree >> 20} MiB")
        else:
            room -= status.st_size
            stamps[name] = FileState.of(status)
            _keep(listing, reader, prefix + name, name, status)
    cache.save()
    listing.left_out = _summed(listing.left_out)
    listing.ignored = [name for name in git.ignored if not _is_store(name)]
    if len(listing.ignored) > _MOST_IGNORED:
        listing.ignored, listing.complete = [], False
    return listing, stamps


def _keep(listing: Listing, reader: Reader, path: str, name: str, status: os.stat_result) -> None:
    try:
        entry, redacted = reader.read(path, name, status)
    except OSError as error:
        listing.left_out[name] = LeftOut(status.st_size, error.strerror or str(error))
        return
    listing.keep(name, entry, redacted)


def _found(root: Path, git: GitTree, listing: Listing) -> list[tuple[str, os.stat_result]]:
    """The files that are there, tracked ones first, then by size: where room ends, the large ones go."""
    prefix = os.path.join(root, "")
    environments = {name[: -len(_ENVIRONMENT)] for name in git.untracked if name.rpartition("/")[2] == _ENVIRONMENT}
    listing.left_out |= {name or "./": LeftOut(None, "a virtual environment") for name in environments}
    found = []
    for rank, names in enumerate((git.tracked, git.untracked)):
        for name in names:
            if _is_store(name) or (environments and rank and name.startswith(tuple(environments))):
                continue
            try:
                status = os.lstat(prefix + name)
            except OSError:  # deleted, though the index has it
                continue
            if is_secret_file(name.rpartition("/")[2]):
                listing.left_out[name] = LeftOut(status.st_size, SECRET_FILE)
            elif stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
                found.append((rank, status.st_size, name, status))
    found.sort(key=lambda item: item[:3])
    return [(name, status) for _, _, name, status in found]


def _is_store(name: str) -> bool:
    return _STORE in name and f"/{_STORE}/" in f"/{name}"


def _summed(left_out: dict[str, LeftOut]) -> dict[str, LeftOut]:
    """Many files of a folder as one entry: a million names would be a record of their own."""
    if len(left_out) <= _MOST_NAMED:
        return left_out
    folders: dict[str, list[str]] = {}
    for name in left_out:
        folders.setdefault(_folder(name), []).append(name)
    if len(folders) > _MOST_NAMED:  # by the first folder of the path, then
        folders = {}
        for name in left_out:
            head, slash, _ = name.partition("/")
            folders.setdefault(head + slash if slash else "./", []).append(name)
    return {folder: _sum([left_out[name] for name in names]) for folder, names in folders.items()}


def _sum(entries: list[LeftOut]) -> LeftOut:
    reasons = ", ".join(sorted({entry.reason for entry in entries}))
    sizes = [entry.size for entry in entries if entry.size is not None]
    return LeftOut(sum(sizes) if len(sizes) == len(entries) else None, f"{len(entries)} files: {reasons}")


def _folder(name: str) -> str:
    return name[: name.rfind("/") + 1] or "./"
