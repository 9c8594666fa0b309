"""Deletes runs, and then the contents that no run refers to any more.

Safe beside runs under way: what was written or used within the last hour stays, and a run uses what it is about to
refer to. An object is taken out of the way first and looked at once more before it goes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from isobit.record.checkpoints import FOLDER as CHECKPOINTS
from isobit.record.code_files import object_digests
from isobit.record.errors import RecordError
from isobit.record.manifest import RUNNING
from isobit.record.recorder import RESERVE
from isobit.record.rows import FOLDER as TRACE
from isobit.record.store import Run, Store

GRACE = 3600.0  # seconds that whatever has just been written stays
_GONE = ".gone-"  # how a folder is called while it is deleted


@dataclass(frozen=True)
class Freed:
    """What was deleted, or would be."""

    runs: tuple[str, ...]
    objects: int
    bytes: int


def delete(run: Run) -> int:
    """Delete the run's folder; returns its size in bytes. Raises RecordError for one that is under way."""
    if run.status == RUNNING:
        raise RecordError(f"run {run.manifest.id} is under way: it is not deleted")
    return _delete(run.folder)


def delete_unreadable(store: Store, run_id: str) -> int:
    """Delete the folder of a run whose record cannot be read, which has to be named by its whole id; returns its size.
    Raises RecordError if there is none.
    """
    if run_id not in store.ids():
        raise RecordError(f"no run {run_id!r} in {store.runs}")
    return _delete(store.runs / run_id)


def _delete(folder: Path) -> int:
    gone = folder.with_name(f"{_GONE}{folder.name}")
    try:
        size = folder_size(folder)
        folder.rename(gone)  # at once: nobody sees half of it
    except OSError as error:
        raise RecordError(f"cannot delete {folder}: {error.strerror}") from error
    shutil.rmtree(gone, ignore_errors=True)  # gc deletes what is left of it
    return size


def collect(store: Store, doomed: Collection[str] = (), dry_run: bool = False, grace: float = GRACE) -> Freed:
    """Delete the runs `doomed`, and all objects that no other run refers to; with `dry_run`, only say which.

    Raises RecordError if a run cannot be read: what it refers to is not known then.
    """
    kept = _references(store, frozenset(doomed))
    sizes = 0
    for run_id in doomed:
        run = store.open(run_id)
        sizes += folder_size(run.folder) if dry_run else delete(run)
    before = time.time() - grace
    objects = 0
    for path in _unused(store, kept, before):
        size = _size(path)
        if dry_run or _remove(path, before):
            objects += 1
            sizes += size
    if not dry_run:
        _tidy(store, before)
    return Freed(tuple(doomed), objects, sizes)


def folder_size(folder: Path) -> int:
    """Bytes of all files in `folder`."""
    return sum(_size(path) for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _references(store: Store, without: frozenset[str]) -> set[str]:
    """The digests of all objects that runs refer to, apart from the runs `without`."""
    found: set[str] = set()
    for run_id in store.ids():
        if run_id not in without:
            try:
                found.update(object_digests(store.open(run_id), found))
            except RecordError as error:
                what = f"nothing is deleted, since what {run_id} refers to is not known: {error}"
                raise RecordError(f"{what}; `isobit rm {run_id}` deletes that run") from error
    return found


def _unused(store: Store, kept: set[str], before: float) -> Iterator[Path]:
    """Objects that are not `kept` and were not used since `before`."""
    for path in sorted(store.objects.folder.glob("??/*")):
        if path.name not in kept and not path.name.startswith(".") and _used(path) < before:
            yield path


def _remove(path: Path, before: float) -> bool:
    """Delete an object, unless a run begins to use it at this moment."""
    aside = path.with_name(f".{path.name}.gone")
    try:
        os.rename(path, aside)
        if _used(aside) >= before:
            os.rename(aside, path)
            return False
        aside.unlink()
    except OSError:
        return False
    return True


def _tidy(store: Store, before: float) -> None:
    """Delete what killed processes have left half done."""
    for path in (*store.runs.glob(".*"), *store.objects.folder.glob("??/.*"), *_drafts(store)):
        if _used(path) < before:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):
                    path.unlink()
    _free_reserves(store)
    with contextlib.suppress(OSError):
        for folder in store.objects.folder.iterdir():
            with contextlib.suppress(OSError):  # it is not empty
                folder.rmdir()


def _drafts(store: Store) -> Iterator[Path]:
    """Files that were being written, in the store's folder, its caches and the runs."""
    for folder in (store.home, store.home / "cache", *store.runs.glob("[!.]*/"), *store.runs.glob(f"[!.]*/{TRACE}/")):
        yield from folder.glob(".*.????????")
    yield from store.runs.glob(f"[!.]*/{CHECKPOINTS}/.*")


def _free_reserves(store: Store) -> None:
    """Delete what a killed run kept free for its last writing."""
    for path in store.runs.glob(f"[!.]*/{RESERVE}"):
        with contextlib.suppress(OSError, RecordError):
            if store.open(path.parent.name).status != RUNNING:
                path.unlink()


def _used(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return float("inf")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
