"""The command that lists the runs: runs. It must be quick with thousands, so what it imports is little."""

from __future__ import annotations

from typing import Annotated

import typer

from isobit.cli import listing
from isobit.cli.choose import Choice, Order, chosen
from isobit.cli.options import AsJson, store_here
from isobit.cli.output import errors
from isobit.record.index import UNREADABLE, entries
from isobit.record.manifest import FAILED, FINISHED, INTERRUPTED, KILLED, RUNNING, STOPPED

_STATUSES = (RUNNING, FINISHED, FAILED, INTERRUPTED, STOPPED, KILLED, UNREADABLE)


def _known(statuses: list[str] | None) -> list[str] | None:
    """Checks what --status was given."""
    for text in statuses or ():
        if text not in _STATUSES:
            raise typer.BadParameter(f"{text!r} is none of {', '.join(_STATUSES)}")
    return statuses


def _status_names(incomplete: str) -> list[str]:
    """What the shell offers for --status."""
    return [status for status in _STATUSES if status.startswith(incomplete)]


Status = Annotated[
    list[str] | None,
    typer.Option(
        metavar="STATUS",
        callback=_known,
        autocompletion=_status_names,
        help="Only runs with this status; several may be given.",
    ),
]
Where = Annotated[
    list[str] | None,
    typer.Option(metavar="CONDITION", help="Such as 'loss<0.1' or 'arg.lr=0.1'; all that are given must hold."),
]


def runs(
    status: Status = None,
    script: Annotated[str | None, typer.Option(metavar="GLOB", help="Only runs of scripts that match.")] = None,
    since: Annotated[str | None, typer.Option(metavar="2d|DATE", help="Only runs that began since then.")] = None,
    where: Where = None,
    sort: Annotated[Order, typer.Option(help="What to sort by.")] = Order.STARTED,
    reverse: Annotated[bool, typer.Option("--reverse", "-r", help="The other way round.")] = False,
    last: Annotated[int | None, typer.Option("-n", min=0, metavar="N", help="The last N alone.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All, at a terminal too.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the recorded runs, newest last."""
    with errors(as_json):
        choice = Choice(tuple(status or ()), script, since, tuple(where or ()), sort, reverse)
        found = chosen(entries(store_here()), choice)
        if as_json:
            listing.print_runs(found, last)
        else:
            listing.show_runs(found, last, everything)
