"""What a run has read: the files with sizes and digests, in the order in which they were opened first.

The list is one JSON file in the run's folder. A run that was killed has none; then the log of opened files is read,
and digests that the memory below `.isobit` holds.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isobit.record.errors import RecordError
from isobit.record.files import write_atomic
from isobit.record.hashes import Digests, FileChangedError, FileState
from isobit.record.hashing import Hashed
from isobit.record.manifest import Data
from isobit.record.opened import NAME as LOG
from isobit.record.opened import OpenedLog
from isobit.record.store import Run

NAME = "inputs.json"
VERSION = 1
MAIN, CHILD = "main", "child"
MISSING, SIZE, CONTENTS, UNCHECKED = "missing", "size", "contents", "unchecked"


@dataclass(frozen=True)
class Input:
    """A file that the run has opened for reading.

    ``digest`` is the BLAKE3 of its contents, None where ``why`` says why not. ``made``: it was written during the run,
    and is no input. ``order`` counts the files from 0, by their first opening.
    """

    path: str
    size: int
    mtime_ns: int
    order: int
    digest: str | None = None
    why: str | None = None
    process: str = MAIN
    made: bool = False
    declared: bool = False
    inode: int = 0
    ctime_ns: int = 0

    @property
    def state(self) -> FileState:
        """Its stat when it was first opened."""
        return FileState(self.size, self.mtime_ns, self.inode, self.ctime_ns)


@dataclass(frozen=True)
class Inputs:
    """All files of a run. ``unlisted`` more were opened than are kept; ``complete`` is False for a killed run."""

    files: dict[str, Input] = field(default_factory=dict)
    unlisted: int = 0
    complete: bool = True

    @property
    def read(self) -> list[Input]:
        """The inputs, without what the run wrote itself, in order."""
        return [file for file in self.files.values() if not file.made]

    def summary(self) -> Data:
        """What the manifest says of them."""
        return Data(
            files=len(self.read),
            bytes=sum(file.size for file in self.read),
            unhashed=sum(file.digest is None for file in self.read),
            made=len(self.files) - len(self.read),
            unlisted=self.unlisted,
        )


def write_inputs(folder: Path, inputs: Inputs) -> None:
    """Write the list to the run's folder. Raises OSError."""
    files = {path: _fields(file) for path, file in inputs.files.items()}
    text = json.dumps({"isobit_inputs": VERSION, "unlisted": inputs.unlisted, "files": files}, indent=0)
    write_atomic(folder / NAME, text.encode("ascii") + b"\n")


def read_inputs(run: Run) -> Inputs:
    """What the run has read, as far as its record goes. Raises RecordError where the list is damaged."""
    try:
        data = json.loads((run.folder / NAME).read_bytes())
    except FileNotFoundError:
        return _from_log(run)
    except ValueError as error:
        raise RecordError(f"{run.folder / NAME} cannot be read ({error})") from error
    try:
        if data["isobit_inputs"] > VERSION:
            raise RecordError(f"{run.folder / NAME} is of a newer version: update Isobit")
        files = {path: Input(path, **_known(fields)) for path, fields in data["files"].items()}
        return Inputs(files, data["unlisted"])
    except (KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"{run.folder / NAME} is damaged ({error!r})") from error


def inputs_of(hashed: Iterable[Hashed], unlisted: int, code: Container[str] = ()) -> Inputs:
    """The list of what was hashed, without the files `code`."""
    files = [found for found in hashed if found.opened.path not in code]
    return Inputs({found.opened.path: _input(found, order) for order, found in enumerate(files)}, unlisted)


def _from_log(run: Run) -> Inputs:
    digests = Digests(_memory(run))
    hashed = {}
    for found in OpenedLog(run.folder / LOG).new():
        if found.path not in hashed:
            digest = found.digest or digests.known(found.path, found.state)
            hashed[found.path] = Hashed(found, digest, None if digest else "the run ended before it was hashed")
    digests.close()
    listed = inputs_of(hashed.values(), 0)
    return Inputs(listed.files, complete=not (run.folder / LOG).exists())


def _input(found: Hashed, order: int) -> Input:
    opened, state = found.opened, found.opened.state
    process = CHILD if opened.child else MAIN
    return Input(
        opened.path, state.size, state.mtime_ns, order, found.digest, found.why, process, opened.made, opened.declared,
        state.inode, state.ctime_ns,
    )  # fmt: skip


def _fields(file: Input) -> dict[str, Any]:
    """The fields of a file in JSON; those that mostly hold are left out."""
    required = {"size": file.size, "mtime_ns": file.mtime_ns, "digest": file.digest, "order": file.order}
    rest = {"why": file.why, "made": file.made, "declared": file.declared}
    child = {"process": file.process} if file.process != MAIN else {}
    stat = {"inode": file.inode, "ctime_ns": file.ctime_ns}
    return required | stat | {name: value for name, value in rest.items() if value} | child


def _known(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name in Input.__dataclass_fields__ and name != "path"}


@dataclass(frozen=True)
class InputChange:
    """A file that is not what the run has read; ``what`` is MISSING, SIZE, CONTENTS or UNCHECKED."""

    path: str
    what: str
    text: str


def changed_inputs(run: Run, seconds: float = 30.0) -> list[InputChange]:
    """How the files that the run has read differ from what they were, in the order of their first opening.

    Most are told by their stat, or by a remembered digest; others are read, the smallest first, for so many seconds.
    What could not be told is in the list as UNCHECKED.
    """
    inputs, digests = read_inputs(run), Digests(_memory(run))
    found: dict[str, InputChange] = {}
    doubtful: list[tuple[Input, FileState]] = []
    for file in inputs.read:
        state = _state_now(file.path)
        if isinstance(state, InputChange):
            found[file.path] = state
        elif state.size != file.size:
            found[file.path] = InputChange(file.path, SIZE, f"it had {file.size} bytes and has {state.size}")
        elif state != file.state:
            doubtful.append((file, state))
    deadline = time.monotonic() + seconds
    for file, state in sorted(doubtful, key=lambda pair: pair[0].size):
        change = _compared(file, state, digests, deadline)
        if change is not None:
            found[file.path] = change
    digests.close()
    return [found[file.path] for file in inputs.read if file.path in found]


def _memory(run: Run) -> Path | None:
    """The `.isobit` folder that the run lies in; an unpacked bundle lies in none."""
    return run.folder.parents[1] if run.folder.parent.name == "runs" else None


def _state_now(path: str) -> FileState | InputChange:
    try:
        return FileState.of(os.stat(path))
    except FileNotFoundError:
        return InputChange(path, MISSING, "it is not there any more")
    except (OSError, ValueError) as error:
        return InputChange(path, UNCHECKED, f"it cannot be looked at: {error}")


def _compared(file: Input, state: FileState, digests: Digests, deadline: float) -> InputChange | None:
    """Whether a file of the right size, which may have been written or only copied since, has the right contents."""
    if file.digest is None:
        same_time = state.mtime_ns == file.mtime_ns
        text = f"its contents are not recorded ({file.why}), and it has been written since"
        return None if same_time else InputChange(file.path, UNCHECKED, text)
    try:
        digest = digests.known(file.path, state)
        if digest is None:
            _check_time(deadline)
            digest = digests.digest_of(file.path, state, lambda size: _check_time(deadline))
    except _LateError:
        return InputChange(file.path, UNCHECKED, f"there was no time to read its {file.size} bytes")
    except FileChangedError as error:
        return InputChange(file.path, UNCHECKED, str(error))
    except OSError as error:
        return InputChange(file.path, UNCHECKED, f"it cannot be read: {error.strerror or error}")
    return None if digest == file.digest else InputChange(file.path, CONTENTS, "it has the same size, other contents")


class _LateError(Exception):
    """The time for checking is over."""


def _check_time(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise _LateError


@dataclass(frozen=True)
class InputComparison:
    """How the inputs of two runs differ. ``order``: the first place at which their main processes opened different
    files, and which; None where the order is the same or other files were opened at all.
    """

    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    contents: tuple[str, ...]
    unknown: tuple[str, ...]  # opened by both, without a digest in one of them
    order: tuple[int, str, str] | None = None

    @property
    def same(self) -> bool:
        """Whether nothing is known to differ."""
        return not (self.only_first or self.only_second or self.contents or self.order)


def compare_inputs(a: Inputs, b: Inputs, partial: bool = False) -> InputComparison:
    """What two runs have read, side by side. Processes beside the main one open files in no certain order. `partial`:
    the second run did not come to its end, so it may only not have come to a file that the first has read.
    """
    first, second = ({file.path: file for file in inputs.read} for inputs in (a, b))
    both = [path for path in first if path in second]
    digests = {path: (first[path].digest, second[path].digest) for path in both}
    sizes = {path for path in both if first[path].size != second[path].size}
    contents = [p for p, (x, y) in digests.items() if p in sizes or (x is not None and y is not None and x != y)]
    unknown = [p for p, pair in digests.items() if p not in sizes and None in pair]
    only = (tuple(p for p in first if p not in second), tuple(p for p in second if p not in first))
    orders = [[file.path for file in side.values() if file.process == MAIN] for side in (first, second)]
    parted = next(((i, x, y) for i, (x, y) in enumerate(zip(*orders)) if x != y), None)
    if parted is not None and any(only):
        _, x, y = parted
        parted = parted if partial and y in first and not (x in second and only[1]) else None
    return InputComparison(*only, tuple(contents), tuple(unknown), parted)
