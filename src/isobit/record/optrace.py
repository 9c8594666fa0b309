"""The operators of one step, as one line of JSON each, and the first at which two such traces part."""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from isobit.record.errors import RecordError

NAME = "operators.jsonl"


@dataclass(frozen=True)
class Operator:
    """One operator of the step: its place in the script, and the digests of its tensors before and after."""

    number: int
    operator: str
    phase: str  # "forward", to which the update counts, or "backward"
    module: str
    line: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def __str__(self) -> str:
        backward = " (backward)" if self.phase == "backward" else ""
        where = [f"in {self.module}" if self.module else "", f"at {self.line}" if self.line else ""]
        return " ".join([f"operator {self.number}, {self.operator}{backward}", *filter(None, where)])


class OperatorWriter:
    """Appends operators to the file of a run; the file is made with the first."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._file: int | None = None

    def add(self, operator: Operator) -> None:
        """Append one. Raises OSError where nothing can be written."""
        if self._file is None:
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        line = json.dumps(dataclasses.asdict(operator), separators=(",", ":")).encode() + b"\n"
        while line:
            line = line[os.write(self._file, line) :]


def read_operators(folder: Path) -> tuple[Operator, ...]:
    """The operators recorded in `folder`, none where none were asked for; a torn last line is left out."""
    try:
        lines = (folder / NAME).read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return ()
    try:
        return tuple(_operator(line) for line in lines if line.endswith(b"\n"))
    except (ValueError, TypeError, KeyError) as error:
        raise RecordError(f"{folder / NAME} is damaged: {error}") from error


def _operator(line: bytes) -> Operator:
    data = json.loads(line)
    data |= {"inputs": tuple(data["inputs"]), "outputs": tuple(data["outputs"])}
    return Operator(**data)


@dataclass(frozen=True)
class Parting:
    """The first operator at which two traces part, in words, and the operator on either side (None: it ended)."""

    text: str
    first: Operator | None
    second: Operator | None


def first_parting(first: tuple[Operator, ...], second: tuple[Operator, ...]) -> Parting | None:
    """Where the operators part: other operators, other results from the same inputs, or other inputs. None: nowhere."""
    for a, b in zip_longest(first, second):
        if a is None or b is None:
            return Parting(f"one side ends, the other goes on with {a or b}", a, b)
        if a.operator != b.operator:
            return Parting(f"the code goes another way: {a}, on the other side {b.operator}", a, b)
        if a.inputs != b.inputs:
            return Parting(f"{a}: {_inputs(a, b)}", a, b)
        if a.outputs != b.outputs:
            return Parting(f"{a}: other results from the same inputs", a, b)
    return None


def _inputs(a: Operator, b: Operator) -> str:
    """Which inputs differ: numbers that the script gives, or tensors that come from outside the step's operators."""
    if len(a.inputs) != len(b.inputs):
        return f"it takes {len(a.inputs)} inputs, on the other side {len(b.inputs)}"
    pairs = [(i, x, y) for i, (x, y) in enumerate(zip(a.inputs, b.inputs, strict=True)) if x != y]
    words = [f"input {i} is {x}, on the other side {y}" for i, x, y in pairs]
    return "; ".join(words) + " (no operator of this step before it computed that)"
