"""The ``isobit`` command: which commands there are. What each does stands in the module that it comes from."""

from __future__ import annotations

import sys

import typer

from isobit.cli import commands_records, commands_runs
from isobit.cli.options import SCRIPT_FIRST, USAGE
from isobit.record.errors import RecordError

app = typer.Typer(
    help="PyTorch, bit for bit: run a script, record it, replay it, judge it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command(context_settings=SCRIPT_FIRST)(commands_runs.run)
app.command()(commands_runs.replay)
app.command(context_settings=SCRIPT_FIRST)(commands_runs.check)
app.command()(commands_records.runs)
app.command()(commands_records.show)
app.command()(commands_records.compare)
app.command()(commands_records.report)
app.command()(commands_records.bundle)


def main() -> None:
    """The entry point: reads the command line, exits 2 with one line where it or a record is wrong."""
    try:
        app(prog_name="isobit")
    except RecordError as error:
        print(f"isobit: {error}", file=sys.stderr)
        sys.exit(USAGE)


if __name__ == "__main__":
    main()
