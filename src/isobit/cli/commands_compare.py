"""The command that sets two records side by side: compare."""

from __future__ import annotations

from typing import Annotated

import typer

from isobit.cli.compare import print_comparison_json, show_comparison
from isobit.cli.options import AsJson, RunName, store_here
from isobit.cli.output import errors
from isobit.record.resolve import resolve


def compare(
    first: RunName,
    second: RunName,
    full: Annotated[bool, typer.Option("--full", help="Patches of changed files in full.")] = False,
    as_json: AsJson = False,
) -> None:
    """What differs between two runs, and the first step that parts: exit 0 if their steps are the same, 1 if not."""
    with errors(as_json):
        store = store_here()
        one, two = resolve(store, first), resolve(store, second)
        raise typer.Exit(print_comparison_json(one, two) if as_json else show_comparison(one, two, full))
