"""The checkpoints that a run wrote, and the segments of its steps that can be run again from them."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

from isobit.record.store import Run
from isobit.record.trace import open_trace

FOLDER = "checkpoints"


@dataclass(frozen=True)
class Segment:
    """The steps start … stop − 1, which begin at ``checkpoint``; None: at the start of the run."""

    start: int
    stop: int
    checkpoint: Path | None

    def __str__(self) -> str:
        return f"steps {self.start} to {self.stop - 1}"


def keep(run: Path, path: str, digest: str) -> None:
    """Keep a checkpoint in the run's folder, however often the script overwrites its own file. Raises OSError.

    A hard link where both lie on one file system: a new checkpoint replaces the name and not the contents.
    """
    target = run / FOLDER / digest
    target.parent.mkdir(exist_ok=True)
    if target.exists():
        return
    try:
        os.link(path, target)
    except OSError:
        draft = target.with_name(f".{digest}")
        shutil.copyfile(path, draft)
        draft.rename(target)


def segments(run: Run) -> tuple[Segment, ...]:
    """The segments whose checkpoint still exists as it was written, in order; the first begins without one."""
    trace = open_trace(run.folder)
    written = {event["i"]: event for event in trace.events("c")}  # the last one written between two steps
    starts = sorted({0, *(step for step in written if step < len(trace))})
    found = []
    for start, stop in zip(starts, [*starts[1:], len(trace)], strict=True):
        place = _place(run, written[start]["path"], written[start]["d"]) if start in written else None
        if start == 0 or place is not None:
            found.append(Segment(start, stop, place if start else None))
    return tuple(segment for segment in found if segment.start < segment.stop)


def sample(available: tuple[Segment, ...], count: int) -> tuple[Segment, ...]:
    """`count` of the segments by chance, in order; all where there are no more."""
    chosen = random.SystemRandom().sample(available, min(count, len(available)))
    return tuple(sorted(chosen, key=lambda segment: segment.start))


def _place(run: Run, path: str, digest: str) -> Path | None:
    """Where the checkpoint with this digest is: kept in the record, or where the script wrote it."""
    kept = run.folder / FOLDER / digest
    return next((p for p in (kept, Path(path)) if _digest_in(p) == digest), None)


def _digest_in(path: Path) -> str | None:
    """The digest that a checkpoint's header holds; None for what is no checkpoint. Loading it checks the contents."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError), open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size <= os.fstat(file.fileno()).st_size:
            return str(json.loads(file.read(size))["__metadata__"]["digest"])
    return None
