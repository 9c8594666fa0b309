"""The list of runs: a table at a terminal, plain aligned lines for other programs, or JSON."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import Any

from isobit.cli.output import print_json
from isobit.cli.words import duration
from isobit.record.index import UNREADABLE, Entry

SHOWN = 30  # at a terminal, without -n or --all
_HEAD = ("run", "status", "steps", "loss", "time", "verdict", "script")
_RIGHT = {"steps", "loss", "time"}


def show_runs(entries: Sequence[Entry], last: int | None, everything: bool) -> None:
    """Print one line for each entry: the last `last`, or those that fit a terminal."""
    terminal = sys.stdout.isatty()
    if last is None and terminal and not everything:
        last = SHOWN
    shown = entries if last is None else entries[max(0, len(entries) - last) :]
    hidden = len(entries) - len(shown)
    lines = _lines(shown)
    if not terminal:
        sys.stdout.writelines(f"{line}\n" for line, _ in lines)
        return
    from isobit.cli.painted import paint  # Rich, which a list that goes to another program does without

    paint(lines, hidden)


def print_runs(entries: Sequence[Entry], last: int | None) -> None:
    """Print the entries as a list of JSON objects."""
    shown = entries if last is None else entries[max(0, len(entries) - last) :]
    print_json([as_object(entry) for entry in shown])


def as_object(entry: Entry) -> dict[str, Any]:
    """An entry as JSON has it: the loss as a number beside its bits."""
    data = entry._asdict()
    return data | {"loss": entry.loss_value, "loss_bits": entry.loss}


def _lines(entries: Sequence[Entry]) -> list[tuple[str, str]]:
    """The table's lines, its head first, with the status that each shows."""
    rows = [(_HEAD, ""), *((_row(entry), entry.status) for entry in entries)]
    widths = [max(map(len, column)) for column in list(zip(*(cells for cells, _ in rows)))[:-1]]
    marks = (f"{{:{'>' if name in _RIGHT else '<'}{width}}}" for name, width in zip(_HEAD, widths))
    line = "  ".join((*marks, "{}"))
    return [(line.format(*cells).rstrip(), status) for cells, status in rows]


def _row(entry: Entry) -> tuple[str, ...]:
    if entry.status == UNREADABLE:
        return entry.id, UNREADABLE, "", "", "", "", printable(entry.error or "")
    loss = entry.loss_value
    words = printable(shlex.join((entry.script, *entry.args)))
    if entry.replay_of is not None:
        words += f"  (replay of {entry.replay_of})"
    return (
        entry.id,
        entry.status,
        "" if entry.steps is None else str(entry.steps),
        "" if loss is None else f"{loss:.6g}",
        duration(entry.seconds),
        entry.verdict or "",
        words,
    )


def printable(text: str) -> str:
    """`text` in one line: what would move the cursor, or cannot be written, is escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)
