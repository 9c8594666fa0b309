"""The commands that restore from the store and clear it: checkout, rm, gc."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from isobit.cli.choose import moment
from isobit.cli.opening import redactions
from isobit.cli.options import AsJson, RunName, store_here
from isobit.cli.output import errors, print_json
from isobit.record import gc as collector
from isobit.record.checkout import checkout as restore
from isobit.record.gc import Freed
from isobit.record.index import UNREADABLE, Entry, entries
from isobit.record.manifest import FAILED, INTERRUPTED, KILLED, RUNNING
from isobit.record.resolve import resolve

_BAD = frozenset({FAILED, INTERRUPTED, KILLED})


def checkout(
    run: RunName,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.")],
    as_json: AsJson = False,
) -> None:
    """Restore a run's code as it was, from the record alone, and print where its script is."""
    with errors(as_json):
        found = resolve(store_here(), run)
        script, hidden = restore(found, folder), redactions(found)
        if as_json:
            print_json({"run": found.manifest.id, "script": str(script), "redacted": hidden})
            return
        for line in hidden:
            typer.echo(f"isobit: {line}", err=True)
        typer.echo(script)


def rm(runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="The runs to delete.")]) -> None:
    """Delete runs. What they alone refer to goes with the next `isobit gc`."""
    store = store_here()
    unreadable = [entry.id for entry in entries(store) if entry.status == UNREADABLE and entry.id in runs]
    for run in [resolve(store, name) for name in runs if name not in unreadable]:
        size = collector.delete(run)
        typer.echo(f"deleted {run.manifest.id} ({_amount(size)})")
    for run_id in unreadable:
        typer.echo(f"deleted {run_id} ({_amount(collector.delete_unreadable(store, run_id))})")


def gc(
    keep: Annotated[int | None, typer.Option(min=0, metavar="N", help="Delete all runs but the last N.")] = None,
    older_than: Annotated[str | None, typer.Option(metavar="30d|DATE", help="Delete runs older than that.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Delete failed, interrupted and killed runs only.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, and delete nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete what no run refers to any more; with options, runs first: those for which all that is given holds."""
    with errors(as_json):
        store = store_here()
        chosen = _chosen(entries(store), keep, older_than, failed)
        freed = collector.collect(store, chosen, dry_run)
        if as_json:
            print_json({"runs": freed.runs, "objects": freed.objects, "bytes": freed.bytes, "dry_run": dry_run})
        else:
            typer.echo(_sentence(freed, dry_run))


def _chosen(found: list[Entry], keep: int | None, older_than: str | None, failed: bool) -> tuple[str, ...]:
    if keep is None and older_than is None and not failed:
        return ()
    candidates = found if keep is None else found[: max(0, len(found) - keep)]
    if older_than is not None:
        try:
            before = moment(older_than, datetime.now(UTC))
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
        candidates = [entry for entry in candidates if entry.started and datetime.fromisoformat(entry.started) < before]
    if failed:
        candidates = [entry for entry in candidates if entry.status in _BAD]
    return tuple(entry.id for entry in candidates if entry.status not in (RUNNING, UNREADABLE))


def _sentence(freed: Freed, dry_run: bool) -> str:
    runs, objects = len(freed.runs), freed.objects
    what = f"{runs} run{'s' * (runs != 1)} and {objects} object{'s' * (objects != 1)}"
    return f"{'would delete' if dry_run else 'deleted'} {what}: {_amount(freed.bytes)}"


def _amount(size: int) -> str:
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} bytes"
