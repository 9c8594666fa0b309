"""``isobit compare``: what differs between two runs, and the first step at which they part."""

from __future__ import annotations

import dataclasses

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from isobit.cli import exits
from isobit.cli.output import print_json
from isobit.record.causes import CODE, FILE, FOLDER, MACHINE, Difference
from isobit.record.compare import Compared, compare
from isobit.record.parting import readable, steps_text
from isobit.record.store import Run
from isobit.record.trace import open_trace

_PATCH_LINES = 40


def show_comparison(first: Run, second: Run, full: bool) -> int:
    """Print how two runs differ; returns 0 where all their steps are the same, 1 where not, 2 where there are none.

    `full`: patches whole.
    """
    compared = compare(first, second)
    console = Console(highlight=False, soft_wrap=True)
    _print_differences(console, compared.differences, full)
    _print_facts(console, first, second)
    text, code = _sentence(compared)
    console.print(text, style={exits.OK: "green", exits.DIFFERS: "red"}.get(code, "yellow"), markup=False)
    for why in compared.causes:
        console.print(f"likely cause: {why}", markup=False)
    return code


def print_comparison_json(first: Run, second: Run) -> int:
    """The same as JSON."""
    compared = compare(first, second)
    text, code = _sentence(compared)
    data = dataclasses.asdict(compared) | {
        "runs": [first.manifest.id, second.manifest.id],
        "verdict": text,
        "outcome": {exits.OK: "identical", exits.DIFFERS: "differs"}.get(code, "none"),
    }
    print_json(data)
    return code


def _sentence(compared: Compared) -> tuple[str, int]:
    parting, (a, b) = compared.parting, compared.steps
    if parting is not None:
        return f"differs at step {parting.step} (counted from 0), in the {parting.part}: {parting.text}", exits.DIFFERS
    if min(a, b) == 0:
        return "no verdict: there are no steps to compare", exits.NO_VERDICT
    ends = "" if a == b else f", where the shorter run breaks off ({a} and {b} steps)"
    return f"identical: {steps_text(min(a, b))}, to the last bit{ends}", exits.OK


def _print_differences(console: Console, found: tuple[Difference, ...], full: bool) -> None:
    for difference in found:
        quiet = difference.kind in (FILE, FOLDER, MACHINE)
        console.print(f"{difference.kind}: {difference.text}", style="dim" if quiet else "bold", markup=False)
        lines = difference.detail.splitlines()
        shown = lines if full else lines[:_PATCH_LINES]
        for line in shown:
            console.print(f"  {line}", style=_colour(line) if difference.kind == CODE else "", markup=False)
        if len(shown) < len(lines):
            console.print(f"  … {len(lines) - len(shown)} more lines (--full)", style="dim")
    if not found:
        console.print("code, arguments, settings, packages and machine are the same", style="dim")


def _colour(line: str) -> str:
    return {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")


def _print_facts(console: Console, first: Run, second: Run) -> None:
    """Both runs side by side."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("", first.manifest.id, second.manifest.id):
        table.add_column(title, overflow="fold")
    for name, a, b in _facts(first, second):
        table.add_row(name, escape(a), escape(b), style="" if a == b else "yellow")
    console.print(table)


def _facts(first: Run, second: Run) -> list[tuple[str, str, str]]:
    one, two = _of(first), _of(second)
    return [(name, one.get(name, ""), two.get(name, "")) for name in dict.fromkeys([*one, *two])]


def _of(run: Run) -> dict[str, str]:
    trace = open_trace(run.folder)
    last = trace.step(-1) if len(trace) else None
    facts = {"status": run.status, "steps": str(len(trace))}
    if run.manifest.seconds is not None:
        facts["time"] = f"{run.manifest.seconds:.1f} s"
    if last is not None:
        facts["last loss"] = ", ".join(readable(loss) for loss in last.losses) or "none"
        facts["parameters"] = last.parameters
    return facts
