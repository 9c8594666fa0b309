"""The ``isobit`` command: which commands there are. What each does stands in the module that it comes from."""

from __future__ import annotations

import os
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer

from isobit import __version__
from isobit.cli import commands_records, commands_runs, commands_store, exits
from isobit.cli.options import SCRIPT_FIRST, STORE, Command
from isobit.record.errors import RecordError
from isobit.record.manifest import Settings

app = typer.Typer(
    help="PyTorch, bit for bit: run a script, record it, replay it, judge it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command(cls=Command, context_settings=SCRIPT_FIRST)(commands_runs.run)
app.command(cls=Command)(commands_runs.replay)
app.command(cls=Command, context_settings=SCRIPT_FIRST)(commands_runs.check)
app.command(cls=Command)(commands_records.runs)
app.command(cls=Command)(commands_records.show)
app.command(cls=Command)(commands_records.compare)
app.command(cls=Command)(commands_records.report)
app.command(cls=Command)(commands_records.bundle)
app.command(cls=Command)(commands_store.checkout)
app.command(cls=Command)(commands_store.rm)
app.command(cls=Command)(commands_store.gc)


def _versions(wanted: bool) -> None:
    """Print what decides the bits, without importing any of it."""
    if wanted:
        try:
            torch = version("torch")
        except PackageNotFoundError:
            torch = "not installed"
        print(f"isobit {__version__}, torch {torch}, arithmetic {Settings.arithmetic}")
        raise typer.Exit(exits.OK)


@app.callback()
def _top(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_versions, is_eager=True, help="Show the versions and exit.")
    ] = False,
    store: Annotated[
        Path | None,
        typer.Option(metavar="DIR", envvar=STORE, help="Keep and look up records there, not in .isobit."),
    ] = None,
) -> None:
    if store is not None:
        os.environ[STORE] = os.path.abspath(store)


def main() -> None:
    """The entry point: reads the command line, exits 2 with one line where it or a record is wrong."""
    try:
        app(prog_name="isobit")
    except RecordError as error:
        print(f"isobit: {error}", file=sys.stderr)
        sys.exit(exits.USAGE)


if __name__ == "__main__":
    main()
