"""What the terminal shows of one record."""

from __future__ import annotations

import dataclasses
import shlex
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from isobit.cli.stdin import NAME as STDIN
from isobit.cli.view_data import data_of, data_words, size_words
from isobit.cli.words import COLOURS, duration, many
from isobit.record.manifest import Manifest
from isobit.record.parting import readable
from isobit.record.peek import last_step
from isobit.record.remarks import remarks
from isobit.record.store import Run

_NAMED = ("torch", "numpy", "isobit")


def show_run(run: Run) -> None:
    """Print what a reader asks of one run first."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _facts(run):
        table.add_row(name, value)
    Console().print(table)


def _facts(run: Run) -> list[tuple[str, str]]:
    manifest, (count, last) = run.manifest, last_step(run.folder)
    facts = [
        ("run", manifest.id),
        ("status", _coloured(run.status) + _ending(manifest)),
        ("command", escape(shlex.join(manifest.command))),
        *([("module", escape(f"-m {manifest.module}"))] if manifest.module is not None else []),
        ("folder", escape(manifest.cwd)),
        ("started", escape(_local(manifest.started))),
        ("time", duration(manifest.seconds)),
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
        for tree in code.trees:
            left = f", {tree.left_out} left out" if tree.left_out else ""
            hidden = f", {tree.redacted} with secrets made unreadable" if tree.redacted else ""
            count = many(tree.files, "file")
            facts.append(("code", f"{count} of {escape(tree.root)}{left}{hidden}"))
        if code.git is not None:
            dirty = ", changed since" if code.git.dirty else ""
            facts.append(("commit", f"{code.git.commit or 'none yet'}{dirty}"))
    data = data_of(run)
    if data is not None:
        facts.append(("data", escape(data_words(data))))
    if (run.folder / STDIN).exists():
        facts.append(("stdin", size_words((run.folder / STDIN).stat().st_size)))
    facts += _surroundings(manifest)
    if manifest.machine is not None:
        facts.append(("machine", escape(f"{manifest.machine.processor}, {manifest.machine.cores} cores")))
    versions = [f"{name} {manifest.packages[name]}" for name in _NAMED if name in manifest.packages]
    facts.append(("packages", escape(f"{', '.join(versions)} and {len(manifest.packages) - len(versions)} more")))
    return facts


def _surroundings(manifest: Manifest) -> list[tuple[str, str]]:
    facts, pins, found = [], manifest.settings.pins, manifest.environment
    if manifest.redacted:
        facts.append(("redacted", f"{many(manifest.redacted, 'argument')} with secrets made unreadable"))
    if pins:
        facts.append(("pins", escape(", ".join(pins))))
    if found is not None:
        rest = [f"{len(found.digests)} as digests"] if found.digests else []
        rest += [f"{len(found.names)} by name alone (secrets)"] if found.names else []
        values = f"{many(len(found.values), 'variable')} with values"
        facts.append(("environment", ", ".join([values, *rest])))
    return facts


def _remarks(run: Run) -> list[tuple[str, str]]:
    manifest, (holes, notes) = run.manifest, remarks(run)
    facts = [("hole", escape(f"{h.operator}, {_times(h.count)}: {h.reason}")) for h in holes]
    facts += [("note", escape(note)) for note in notes]
    if manifest.replay is not None:
        facts.append(("replay of", escape(manifest.replay.of)))
        if manifest.replay.verdict is not None:
            verdict = manifest.replay.verdict
            facts.append(("verdict", escape(f"{verdict.outcome}: {verdict.text}")))
    return facts


def run_object(run: Run) -> dict[str, Any]:
    """The manifest as JSON has it, with the status, the steps and what was read as they are now, and the last step."""
    count, last = last_step(run.folder)
    data = dataclasses.asdict(run.manifest)
    holes, notes = remarks(run)
    read = data_of(run)
    data["data"] = dataclasses.asdict(read) if read else None
    data |= {"status": run.status, "steps": count, "folder": str(run.folder)}
    data |= {"holes": [dataclasses.asdict(hole) for hole in holes], "notes": notes}
    data["last_step"] = dataclasses.asdict(last) if last else None
    return data


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count or '?'} times"


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


def _local(stamp: str) -> str:
    try:
        return datetime.fromisoformat(stamp).astimezone().strftime("%Y-%m-%d %H:%M:%S %z")
    except ValueError:  # another's hand
        return stamp


def _coloured(status: str) -> str:
    colour = COLOURS.get(status, "default")
    return f"[{colour}]{status}[/]"
