"""The commands that look at one record: show, bundle. Neither needs NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isobit.cli import view_data, views
from isobit.cli.options import AsJson, RunName, store_here
from isobit.cli.output import errors, print_json
from isobit.record.bundle import write_bundle
from isobit.record.resolve import resolve


def show(
    run: RunName,
    as_json: AsJson = False,
    steps: Annotated[str | None, typer.Option(metavar="A:B", help="Its steps: 0:10, -5: or one, as 7.")] = None,
    data: Annotated[bool, typer.Option("--data", help="The files that the run has read, in order.")] = False,
) -> None:
    """Show what a record says, its steps, or the files that it read."""
    with errors(as_json):
        found = resolve(store_here(), run)
        if steps is not None:
            from isobit.cli.steps_view import show_steps  # NumPy, which nothing else here needs

            show_steps(found, steps, as_json)
        elif data:
            (view_data.print_data_json if as_json else view_data.show_data)(found)
        elif as_json:
            print_json(views.run_object(found))
        else:
            views.show_run(found)


def bundle(
    run: RunName,
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write.")],
    as_json: AsJson = False,
) -> None:
    """Put a run into one file, which `show` and `replay` take in place of an id."""
    with errors(as_json):
        found = resolve(store_here(), run)
        write_bundle(found, output)
        if as_json:
            print_json({"run": found.manifest.id, "bundle": str(output), "bytes": output.stat().st_size})
