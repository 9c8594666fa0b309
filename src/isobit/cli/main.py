"""The ``isobit`` command: its top. groups.py says which commands there are."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from isobit import __version__
from isobit.cli import exits
from isobit.cli.groups import Commands
from isobit.cli.options import STORE
from isobit.record.errors import RecordError
from isobit.record.manifest import Settings

app = typer.Typer(
    cls=Commands,
    help="PyTorch, bit for bit: run a script, record it, replay it, judge it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _versions(wanted: bool) -> None:
    """Print what decides the bits, without importing any of it."""
    if wanted:
        from importlib.metadata import PackageNotFoundError, version  # reads mail headers: 30 ms that no command needs

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
