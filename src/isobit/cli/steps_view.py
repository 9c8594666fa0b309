"""What the terminal shows of the steps of a run: ``isobit show RUN --steps A:B``."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections import defaultdict

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from isobit.record.errors import RecordError
from isobit.record.parting import readable
from isobit.record.store import Run
from isobit.record.trace import Logged, Step, number, open_trace

_SHOWN = 8  # hexadecimal digits of a digest
_WIDTH = 132  # columns that a table of all digests takes; a terminal may have fewer, and wraps lines
_INTEGERS = ("i64", "i32", "i16", "i8", "u8", "bool")
_NARROW = ("f16", "bf16")
_DIGESTS = ("batch", "gradients", "settings", "state", "parameters", "random")


def show_steps(run: Run, steps: str, as_json: bool) -> None:
    """Print the steps of a range, as a slice has it, with what the script logged before the step that follows each.

    Raises RecordError for what is no range.
    """
    chosen = _range(steps)
    trace = open_trace(run.folder)
    start, stop, _ = chosen.indices(len(trace))
    found = list(trace.steps(start, stop))
    # what is said after the last step is shown with it
    logged = _by_step(trace.logged(start + 1, stop + 1))
    if as_json:
        rows = [{**dataclasses.asdict(s), "logged": [dataclasses.asdict(x) for x in logged[s.index]]} for s in found]
        json.dump(rows, sys.stdout, indent=1)
        print()
    else:
        console = Console(highlight=False)
        console.print(_table(found, logged), width=max(console.width, _WIDTH))


def _range(text: str) -> slice:
    """``3:9``, ``-5:``, ``:10``, or one step as ``7`` or ``-1``."""
    try:
        begin, colon, end = text.partition(":")
        start = int(begin) if begin else None
        if not colon:
            return slice(int(text), int(text) + 1 or None)
        return slice(start, int(end) if end else None)
    except ValueError as error:
        raise RecordError(f"--steps takes a range such as 0:10, -5: or 7, not {text!r}") from error


def _by_step(logged: list[Logged]) -> dict[int, list[Logged]]:
    """What was said after each step: before the step that follows it."""
    found: dict[int, list[Logged]] = defaultdict(list)
    for said in logged:
        found[said.step - 1].append(said)
    return found


def _table(steps: list[Step], logged: dict[int, list[Logged]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    taken = [name for name in _DIGESTS if any(getattr(step, name) for step in steps)]
    for title in ("step", "time"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("loss", no_wrap=True)
    for title in taken:
        table.add_column(title, no_wrap=True)
    table.add_column("logged after it", overflow="fold")
    several = any(step.optimizer for step in steps)
    for step in steps:
        number = f"{step.index} (optimizer {step.optimizer})" if several else str(step.index)
        losses = ", ".join(readable(loss).partition(" ")[0] for loss in step.losses)
        digests = (getattr(step, name)[:_SHOWN] for name in taken)
        said = ", ".join(_said(entry) for entry in logged[step.index])
        table.add_row(number, f"{step.seconds:.3f} s", losses, *digests, escape(said))
    return table


def _said(entry: Logged) -> str:
    return f"{entry.name} = {_value(entry.bits) if entry.bits else entry.text}"


def _value(bits: str) -> str:
    kind, _, digits = bits.partition(":")
    if kind in _INTEGERS:
        return str(int.from_bytes(bytes.fromhex(digits), "big", signed=kind != "u8"))
    return f"{number(bits):.5g} ({bits})" if kind in _NARROW else readable(bits)
