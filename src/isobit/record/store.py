"""The folder that holds the runs: ``.isobit/runs/<id>/``, one folder a run."""

from __future__ import annotations

import dataclasses
import os
import secrets
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from isobit.record.errors import RecordError
from isobit.record.files import write_atomic
from isobit.record.ids import later_id
from isobit.record.manifest import KILLED, RUNNING, Manifest, read_manifest, write_manifest
from isobit.record.objects import FOLDER as OBJECTS
from isobit.record.objects import Objects
from isobit.record.process import is_alive

_ATTEMPTS = 100


@dataclass(frozen=True)
class Run:
    """A recorded run: its folder and what its manifest says."""

    folder: Path
    manifest: Manifest

    @property
    def status(self) -> str:
        """The manifest's status, or "killed" where it says "running" and the process is gone."""
        if self.manifest.status == RUNNING and not is_alive(self.manifest.process):
            return KILLED
        return self.manifest.status

    @property
    def code(self) -> Path:
        """The folder with the copied code, in records of schema 1."""
        return self.folder / "code"

    @property
    def objects(self) -> Objects:
        """The contents that the run refers to: in its own folder where that comes from a bundle, or its store's."""
        own = self.folder / OBJECTS
        return Objects(own if own.is_dir() else self.folder.parent.parent / OBJECTS)


def open_run(folder: Path) -> Run:
    """The run in `folder`; raises RecordError if there is none or it cannot be read."""
    return Run(folder, read_manifest(folder))


class Store:
    """The runs below one ``.isobit`` folder."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.runs = home / "runs"
        self.objects = Objects(home / OBJECTS)

    @staticmethod
    def find(start: Path) -> Store:
        """The store at or above `start`; where there is none, the one that would be made in `start`."""
        homes = (place / ".isobit" for place in (start, *start.parents))
        return Store(next((home for home in homes if (home / "runs").is_dir()), start / ".isobit"))

    def ids(self) -> list[str]:
        """The ids of all runs, oldest first."""
        if not self.runs.is_dir():
            return []
        with os.scandir(self.runs) as found:  # thousands: no question to the file system for each
            return sorted(entry.name for entry in found if entry.name[0] != "." and entry.is_dir())

    def create(self, manifest: Callable[[str], Manifest], run_id: str | None = None) -> Run:
        """A new run; `manifest` gives its manifest for the id. The folder appears with its manifest in it.

        Without `run_id` a free one is chosen. Raises RecordError if nothing can be written or `run_id` is
        taken.
        """
        self.prepare()
        try:
            for _ in range(_ATTEMPTS if run_id is None else 1):
                run = self._try(manifest(run_id or self.new_id()))
                if run is not None:
                    return run
        except OSError as error:
            raise RecordError(f"cannot write a record in {self.runs}: {error.strerror or error}") from error
        raise RecordError(f"the run id {run_id} is taken" if run_id else f"no free run id in {self.runs}")

    def open(self, run_id: str) -> Run:
        """The run with this id; raises RecordError if there is none or it cannot be read."""
        return open_run(self.runs / run_id)

    def new_id(self) -> str:
        """An id for a run that starts now: later than all others, even where the clock was set back since."""
        return later_id(time.time_ns(), self.ids())

    def prepare(self) -> None:
        """Make the store's folder. Raises RecordError if that is not possible."""
        try:
            self.runs.mkdir(parents=True, exist_ok=True)
            ignore = self.runs.parent / ".gitignore"  # the record of a work tree is no part of it
            if not ignore.exists():
                write_atomic(ignore, b"*\n")
        except OSError as error:
            raise RecordError(
                f"cannot write a record in {self.home}: {error.strerror}; `isobit --store DIR …` keeps it elsewhere"
            ) from error

    def _try(self, manifest: Manifest) -> Run | None:
        """Put the folder together under a temporary name, then give it its own; None if that is taken."""
        folder = self.runs / manifest.id
        draft = self.runs / f".{manifest.id}.{secrets.token_hex(4)}"
        draft.mkdir()
        try:
            write_manifest(draft, manifest)
            draft.rename(folder)  # fails if the folder is there: it cannot be empty
        except OSError:
            shutil.rmtree(draft, ignore_errors=True)
            if folder.exists():
                return None
            raise
        return Run(folder, manifest)


def rewrite(run: Run, **changes: object) -> Run:
    """The run with fields of its manifest replaced, in memory and on disk."""
    manifest = dataclasses.replace(run.manifest, **changes)  # type: ignore[arg-type]
    write_manifest(run.folder, manifest)
    return Run(run.folder, manifest)
