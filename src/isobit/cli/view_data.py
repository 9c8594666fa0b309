"""What the terminal shows of the files that a run has read."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from rich.console import Console

from isobit.record.errors import RecordError
from isobit.record.inputs import CHILD, Input, read_inputs
from isobit.record.manifest import RUNNING, Data
from isobit.record.store import Run

_UNITS = ("bytes", "kB", "MB", "GB", "TB")


def data_of(run: Run) -> Data | None:
    """The manifest's summary; for a run that has not closed its record, that of its log."""
    if run.manifest.status != RUNNING:
        return run.manifest.data
    try:
        inputs = read_inputs(run)
    except RecordError as error:
        return Data(note=str(error))
    return None if inputs.complete else inputs.summary()


def data_words(data: Data) -> str:
    """One line: ``17 files, 1.2 GB, 2 not hashed``."""
    parts = [f"{data.files} file{'s' * (data.files != 1)}", size_words(data.bytes)] if data.files else ["no files"]
    parts += [f"{data.unhashed} not hashed"] if data.unhashed else []
    parts += [f"{data.unlisted} more not listed"] if data.unlisted else []
    parts += [f"and {data.made} that the run wrote itself"] if data.made else []
    if data.note is None:
        return ", ".join(parts)
    return f"{', '.join(parts)}; {data.note}" if data.files else data.note


def size_words(size: float) -> str:
    """A number of bytes as people read it."""
    unit = 0
    while size >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.0f} {_UNITS[unit]}" if unit == 0 or size >= 100 else f"{size:.1f} {_UNITS[unit]}"


def show_data(run: Run) -> None:
    """Print a line for every file that the run has opened, in the order of their first opening."""
    inputs, console = read_inputs(run), Console(highlight=False)
    for file in inputs.files.values():
        line = f"{size_words(file.size):>10}  {(file.digest or '')[:16]:16}  {_words(file)}"
        console.print(line, markup=False, soft_wrap=True)  # a path in one piece, to be searched and copied
    if inputs.unlisted:
        console.print(f"and {inputs.unlisted} more files, which are only counted")


def input_remarks(file: Input) -> str:
    """What is to be said of a file beside its size and digest."""
    remarks = ["written by this run"] if file.made else [f"not hashed: {file.why}"] if file.why else []
    remarks += ["declared"] if file.declared else []
    remarks += ["opened by a child process"] if file.process == CHILD else []
    return "; ".join(remarks)


def _words(file: Input) -> str:
    name, remarks = file.path.encode("utf-8", "backslashreplace").decode(), input_remarks(file)
    return f"{name} ({remarks})" if remarks else name


def print_data_json(run: Run) -> None:
    """Print the list as JSON."""
    inputs = read_inputs(run)
    files = [asdict(file) for file in inputs.files.values()]
    json.dump({"files": files, "unlisted": inputs.unlisted, "complete": inputs.complete}, sys.stdout, indent=1)
    print()
