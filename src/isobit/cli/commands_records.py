"""The commands that look at records: runs, show, bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isobit.cli import views
from isobit.cli.compare import print_comparison_json, show_comparison
from isobit.cli.options import AsJson, RunName, store_here
from isobit.record.bundle import write_bundle
from isobit.record.resolve import resolve


def runs() -> None:
    """List the recorded runs, newest last."""
    views.show_runs(store_here())


def show(run: RunName, as_json: AsJson = False) -> None:
    """Show what a record says."""
    found = resolve(store_here(), run)
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
