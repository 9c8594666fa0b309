"""What the terminal shows of records."""

from __future__ import annotations

import dataclasses
import json
import sys
from datetime import datetime

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from isobit.cli.view_data import data_of, data_words
from isobit.record.errors import RecordError
from isobit.record.manifest import Manifest, Replay
from isobit.record.parting import readable
from isobit.record.store import Run, Store, remarks
from isobit.record.trace import Step, open_trace

_COLOURS = {"finished": "green", "running": "cyan", "failed": "red", "killed": "red", "interrupted": "yellow"}
_NAMED = ("torch", "numpy", "isobit")


def show_runs(store: Store) -> None:
    """Print one line for each run of the store."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title, justify in (("run", "left"), ("status", "left"), ("steps", "right"), ("time", "right")):
        table.add_column(title, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    table.add_column("script", overflow="fold")
    for run_id in store.ids():
        try:
            table.add_row(*_row(store.open(run_id)))
        except RecordError as error:
            table.add_row(run_id, "[red]unreadable[/]", "", "", escape(str(error)))
    Console().print(table)


def _row(run: Run) -> tuple[str, str, str, str, str]:
    manifest = run.manifest
    words = escape(" ".join((manifest.script, *manifest.args)))
    words += _replay_words(manifest.replay) if manifest.replay else ""
    steps = manifest.steps if manifest.steps is not None else len(open_trace(run.folder))
    return manifest.id, _coloured(run.status), str(steps), _duration(manifest), words


def _replay_words(replay: Replay) -> str:
    verdict = f": {replay.verdict.outcome}" if replay.verdict else ""
    return escape(f" (replay of {replay.of.rpartition('-')[2]}{verdict})")


def show_run(run: Run) -> None:
    """Print what a reader asks of one run first."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _facts(run):
        table.add_row(name, value)
    Console().print(table)


def _facts(run: Run) -> list[tuple[str, str]]:
    manifest, (count, last) = run.manifest, _last_step(run)
    facts = [
        ("run", manifest.id),
        ("status", _coloured(run.status) + _ending(manifest)),
        ("command", escape(" ".join(manifest.command))),
        ("folder", escape(manifest.cwd)),
        ("started", escape(_local(manifest.started))),
        ("time", _duration(manifest)),
        ("arithmetic", _arithmetic(manifest)),
        ("seed", str(manifest.settings.seed)),
        ("steps", str(count)),
    ]
    if last is not None:
        facts.append(("last loss", ", ".join(readable(loss) for loss in last.losses) or "none"))
        facts.append(("parameters", last.parameters))
    return facts + _provenance(run) + _remarks(run)


def _provenance(run: Run) -> list[tuple[str, str]]:
    facts = []
    manifest, code = run.manifest, run.manifest.code
    if code is not None:
        left = f", {len(code.left_out)} left out" if code.left_out else ""
        facts.append(("code", f"{len(code.files)} files of {escape(code.root)}{left}"))
        if code.git is not None:
            dirty = ", changed since" if code.git.dirty else ""
            facts.append(("commit", f"{code.git.commit or 'none yet'}{dirty}"))
    data = data_of(run)
    if data is not None:
        facts.append(("data", escape(data_words(data))))
    if manifest.machine is not None:
        facts.append(("machine", escape(f"{manifest.machine.processor}, {manifest.machine.cores} cores")))
    versions = [f"{name} {manifest.packages[name]}" for name in _NAMED if name in manifest.packages]
    facts.append(("packages", escape(f"{', '.join(versions)} and {len(manifest.packages) - len(versions)} more")))
    return facts


def _remarks(run: Run) -> list[tuple[str, str]]:
    manifest, (holes, notes) = run.manifest, remarks(run)
    facts = [("hole", escape(f"{h.operator}, {h.count or '?'} times: {h.reason}")) for h in holes]
    facts += [("note", escape(note)) for note in notes]
    if manifest.replay is not None:
        facts.append(("replay of", escape(manifest.replay.of)))
        if manifest.replay.verdict is not None:
            verdict = manifest.replay.verdict
            facts.append(("verdict", escape(f"{verdict.outcome}: {verdict.text}")))
    return facts


def print_json(run: Run) -> None:
    """Print the manifest as JSON, with the status as it is now and the last step."""
    count, last = _last_step(run)
    data = dataclasses.asdict(run.manifest)
    holes, notes = remarks(run)
    data |= {"status": run.status, "steps": count, "folder": str(run.folder)}
    data |= {"holes": [dataclasses.asdict(hole) for hole in holes], "notes": notes}
    data["last_step"] = dataclasses.asdict(last) if last else None
    json.dump(data, sys.stdout, indent=1)
    print()


def _last_step(run: Run) -> tuple[int, Step | None]:
    """How many steps were recorded, and the last."""
    trace = open_trace(run.folder)
    return len(trace), trace.step(-1) if len(trace) else None


def _arithmetic(manifest: Manifest) -> str:
    settings = manifest.settings
    threads = f"{settings.threads or '?'} thread{'s' * (settings.threads != 1)}"
    if settings.mode == "plain":
        return f"PyTorch's own, {threads}"
    return f"version {settings.arithmetic}, {threads}, {settings.cpu or '?'}"


def _ending(manifest: Manifest) -> str:
    if manifest.error is not None:
        return escape(f" (exit {manifest.exit_code}; {manifest.error})")
    return f" (exit {manifest.exit_code})" if manifest.exit_code else ""


def _duration(manifest: Manifest) -> str:
    return "" if manifest.seconds is None else f"{manifest.seconds:.1f} s"


def _local(stamp: str) -> str:
    return datetime.fromisoformat(stamp).astimezone().strftime("%Y-%m-%d %H:%M:%S %z")


def _coloured(status: str) -> str:
    colour = _COLOURS.get(status, "default")
    return f"[{colour}]{status}[/]"
