"""A run in one file: a zip archive of its folder, which can be shown and replayed as it is."""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import tempfile
import zipfile
import zlib
from pathlib import Path

from isobit.record.code_files import object_digests
from isobit.record.errors import RecordError
from isobit.record.manifest import NAME
from isobit.record.objects import FOLDER
from isobit.record.recorder import RESERVE
from isobit.record.store import Run

_DRAFT = re.compile(r"\.(manifest|inputs|header)\.json\.[0-9a-f]{8}")
# What zipfile raises for damaged bytes, depending on where the damage is.
_DAMAGE = (EOFError, OSError, RuntimeError, ValueError, zipfile.BadZipFile, zlib.error)


def write_bundle(run: Run, target: Path) -> None:
    """Write `run` to `target`; raises RecordError if that fails, and leaves no half a file.

    A run that is marked as running is bundled with the status it has now: there is no process to ask for
    elsewhere.
    """
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(draft, "x", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
            archive.writestr(NAME, _settled(run))
            for path in sorted(run.folder.rglob("*")):
                if path.is_file() and path not in (run.folder / NAME, run.folder / RESERVE) and not _is_draft(path):
                    archive.write(path, path.relative_to(run.folder))
            if not (run.folder / FOLDER).is_dir():  # else it comes from a bundle, and has them
                for digest in sorted(set(object_digests(run))):
                    archive.writestr(f"{FOLDER}/{digest[:2]}/{digest}", run.objects.read(digest))
        os.replace(draft, target)
    except RecordError:
        draft.unlink(missing_ok=True)
        raise
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise RecordError(f"cannot write {target}: {error.strerror or error}") from error


def _is_draft(path: Path) -> bool:
    """Whether a killed process left it half written; code/ of schema 1 may hold files with such names."""
    return _DRAFT.fullmatch(path.name) is not None


def _settled(run: Run) -> str:
    """The manifest as it is written, whichever schema it is of, with the status that it has now."""
    data = json.loads((run.folder / NAME).read_bytes().decode("utf-8", "surrogateescape"))
    return json.dumps({**data, "status": run.status}, indent=1, ensure_ascii=True)


def is_bundle(path: Path) -> bool:
    """Whether `path` is a bundle."""
    try:
        with zipfile.ZipFile(path) as archive:
            return NAME in archive.namelist()
    except _DAMAGE:
        return False


def is_exported_model(path: Path) -> bool:
    """Whether `path` is what isobit.export wrote: it ends in .iso as well, and has a manifest of its own kind."""
    try:
        with zipfile.ZipFile(path) as archive:
            head = json.loads(archive.read(NAME))
    except (*_DAMAGE, KeyError):
        return False
    return isinstance(head, dict) and "format" in head and "schema" not in head


def unpacked(path: Path) -> Path:
    """A temporary folder with the contents of the bundle, deleted when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="isobit-bundle-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        with zipfile.ZipFile(path) as archive:
            archive.extractall(folder)
    except _DAMAGE as error:
        raise RecordError(f"{path} cannot be unpacked: {error!r}") from error
    return folder
