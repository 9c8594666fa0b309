"""The commands that look at records: runs, show, bundle, compare, report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isobit.cli import view_data, views
from isobit.cli.compare import print_comparison_json, show_comparison
from isobit.cli.options import AsJson, RunName, store_here
from isobit.cli.steps_view import show_steps
from isobit.record.bundle import write_bundle
from isobit.record.resolve import resolve


def runs() -> None:
    """List the recorded runs, newest last."""
    views.show_runs(store_here())


def show(
    run: RunName,
    as_json: AsJson = False,
    steps: Annotated[str | None, typer.Option(metavar="A:B", help="Its steps: 0:10, -5: or one, as 7.")] = None,
    data: Annotated[bool, typer.Option("--data", help="The files that the run has read, in order.")] = False,
) -> None:
    """Show what a record says, its steps, or the files that it read."""
    found = resolve(store_here(), run)
    if steps is not None:
        show_steps(found, steps, as_json)
    elif data:
        (view_data.print_data_json if as_json else view_data.show_data)(found)
    else:
        (views.print_json if as_json else views.show_run)(found)


def bundle(
    run: RunName,
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write.")],
) -> None:
    """Put a run into one file, which `show` and `replay` take in place of an id."""
    write_bundle(resolve(store_here(), run), output)


def compare(
    first: RunName,
    second: RunName,
    full: Annotated[bool, typer.Option("--full", help="Patches of changed files in full.")] = False,
    as_json: AsJson = False,
) -> None:
    """What differs between two runs, and the first step that parts: exit 0 if their steps are the same, 1 if not."""
    store = store_here()
    one, two = resolve(store, first), resolve(store, second)
    raise typer.Exit(print_comparison_json(one, two) if as_json else show_comparison(one, two, full))


def report(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="One run, or several to set side by side.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The page to write; report-<id>.html unless given.")
    ] = None,
) -> None:
    """Write one self-contained HTML page: curves, provenance, verdicts and, for several runs, what differs."""
    from isobit.cli.report.command import write_report  # its template engine and NumPy double every command's start

    store = store_here()
    print(write_report([resolve(store, run) for run in runs], output))
