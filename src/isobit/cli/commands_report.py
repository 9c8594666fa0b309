"""The command that writes a page about records: report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isobit.cli.options import store_here
from isobit.cli.report.command import write_report
from isobit.record.resolve import resolve


def report(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="One run, or several to set side by side.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The page to write; report-<id>.html unless given.")
    ] = None,
) -> None:
    """Write one self-contained HTML page: curves, provenance, verdicts and, for several runs, what differs."""
    store = store_here()
    print(write_report([resolve(store, run) for run in runs], output))
