"""What a list of runs shows of each, kept in one file, so that only changed manifests are read.

A cache and nothing more: an index that is missing, damaged or another version's is built anew, and where it cannot be
written the list is made without it. A row counts as long as its manifest has the size and the time of change it had.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from xxhash import xxh3_128_hexdigest

from isobit import __version__
from isobit.record.errors import RecordError
from isobit.record.files import write_atomic
from isobit.record.losses import loss_value
from isobit.record.manifest import KILLED, RUNNING, Manifest, read_manifest
from isobit.record.manifest import NAME as MANIFEST
from isobit.record.peek import last_step as last_of
from isobit.record.process import Process, is_alive
from isobit.record.rows import FOLDER, STEPS
from isobit.record.store import Store
from isobit.record.trace_v1 import NAME as OLD_TRACE

NAME = "index.json"
UNREADABLE = "unreadable"
_HEADER = f"isobit index 2, isobit {__version__}, "


class Entry(NamedTuple):
    """One run as a list shows it. What its manifest does not say yet is None."""

    id: str
    status: str
    started: str
    ended: str | None
    seconds: float | None
    steps: int | None
    loss: str | None  # bits of the last step's first loss
    exit_code: int | None
    script: str
    args: list[str]
    replay_of: str | None
    verdict: str | None
    mode: str
    seed: int | None
    threads: int | None
    cpu: str | None
    holes: int
    host: str
    error: str | None  # why the record cannot be read

    @property
    def loss_value(self) -> float | None:
        """The last loss as a number."""
        return None if self.loss is None else loss_value(self.loss)


class _Row(NamedTuple):
    """A row of the index: what its manifest's file was like, the writing process, how long the trace of a run that has
    not closed its record was when its last step was read, and the entry, of which the manifest gives the status.
    """

    mtime_ns: int
    size: int
    process: Process | None
    traced: int
    entry: Entry


def entries(store: Store) -> list[Entry]:
    """All runs of the store, oldest first, as they are now."""
    known = _load(store.home / NAME)
    rows = {run_id: _row(f"{store.runs}/{run_id}", run_id, known.get(run_id)) for run_id in store.ids()}
    gone = {i for i, row in rows.items() if row.process and row.entry.status == RUNNING and not is_alive(row.process)}
    # What a run that goes on has come to is not kept: the index would be written at every look.
    kept = {i: row for i, row in rows.items() if row.mtime_ns}
    if kept.keys() != known.keys() or any(_is_new(row, known[i], i in gone) for i, row in kept.items()):
        with contextlib.suppress(OSError):  # a store that is only read
            _save(store.home, kept)
    return [row.entry._replace(status=KILLED) if i in gone else row.entry for i, row in rows.items()]


def _is_new(row: _Row, known: _Row, gone: bool) -> bool:
    """Whether a row is to be kept in place of the known one."""
    return row is not known and (gone or row[:2] != known[:2])


def _row(folder: str, run_id: str, known: _Row | None) -> _Row:
    """The row of the run in `folder`: the known one, if its manifest has not changed."""
    try:
        found = os.stat(f"{folder}/{MANIFEST}")
    except OSError:
        return _Row(0, 0, None, 0, _unreadable(run_id, f"{folder} holds no run: {MANIFEST} is missing"))
    if known is not None and (known.mtime_ns, known.size) == (found.st_mtime_ns, found.st_size):
        return known if known.process is None else _traced(folder, known)
    try:
        manifest = read_manifest(Path(folder))
    except RecordError as error:
        return _Row(found.st_mtime_ns, found.st_size, None, 0, _unreadable(run_id, str(error)))
    process = manifest.process if manifest.ended is None else None  # closed: nobody need ask for it again
    row = _Row(found.st_mtime_ns, found.st_size, process, 0, _entry(Path(folder), manifest))
    return row if process is None else _traced(folder, row)


def _traced(folder: str, row: _Row) -> _Row:
    """The row of a run that has not closed its record, with its last step: read only where the trace has grown."""
    size = _trace_size(folder)
    if size == row.traced:
        return row
    last = last_step(Path(folder))
    if last is None:
        return row._replace(traced=size)
    return row._replace(traced=size, entry=row.entry._replace(steps=last[0] + 1, loss=last[1], seconds=last[2]))


def _trace_size(folder: str) -> int:
    for name in (f"{FOLDER}/{STEPS}", OLD_TRACE):
        with contextlib.suppress(OSError):
            return os.stat(f"{folder}/{name}").st_size
    return 0


def _entry(folder: Path, manifest: Manifest) -> Entry:
    settings, replay = manifest.settings, manifest.replay
    last = last_step(folder) if manifest.ended is not None else None
    return Entry(
        id=folder.name,
        status=manifest.status,
        started=manifest.started,
        ended=manifest.ended,
        seconds=manifest.seconds,
        steps=manifest.steps,
        loss=last[1] if last else None,
        exit_code=manifest.exit_code,
        script=manifest.script,
        args=list(manifest.args),
        replay_of=replay.of if replay else None,
        verdict=replay.verdict.outcome if replay and replay.verdict else None,
        mode=settings.mode,
        seed=settings.seed,
        threads=settings.threads,
        cpu=settings.cpu,
        holes=len(manifest.holes),
        host=manifest.process.host,
        error=None,
    )


def _unreadable(run_id: str, why: str) -> Entry:
    rest = {"seconds": None, "steps": None, "loss": None, "exit_code": None, "replay_of": None, "verdict": None}
    return Entry(
        id=run_id, status=UNREADABLE, started="", ended=None, script="", args=[], mode="", seed=None, threads=None,
        cpu=None, holes=0, host="", error=why, **rest,
    )  # fmt: skip


def last_step(folder: Path) -> tuple[int, str | None, float | None] | None:
    """Index, first loss and seconds of the last recorded step; None without one.

    None too where the trace is damaged: that is for `show` and `replay` to report.
    """
    try:
        _, step = last_of(folder)
    except (RecordError, OSError):
        return None
    return None if step is None else (step.index, step.losses[0] if step.losses else None, step.seconds)


def _load(path: Path) -> dict[str, _Row]:
    """The rows that were kept; none where there is no sound index of this version."""
    try:
        header, _, body = path.read_bytes().partition(b"\n")
        if header.decode("utf-8") != _HEADER + xxh3_128_hexdigest(body):
            return {}
        return {run_id: _decoded(row) for run_id, row in json.loads(body.decode("utf-8", "surrogatepass")).items()}
    except (OSError, ValueError, TypeError):
        return {}


def _decoded(row: list[Any]) -> _Row:
    mtime_ns, size, process, traced, *entry = row
    return _Row(mtime_ns, size, Process(*process) if process else None, traced, Entry(*entry))


def _save(home: Path, rows: dict[str, _Row]) -> None:
    """Keep the rows."""
    table = {
        run_id: (row.mtime_ns, row.size, _plain(row.process), row.traced, *row.entry) for run_id, row in rows.items()
    }
    body = json.dumps(table, separators=(",", ":"), ensure_ascii=True).encode("ascii")
    write_atomic(home / NAME, (_HEADER + xxh3_128_hexdigest(body)).encode() + b"\n" + body)


def _plain(process: Process | None) -> tuple[int, int, str, str] | None:
    return None if process is None else (process.pid, process.started, process.boot, process.host)
