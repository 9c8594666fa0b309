"""What a trace says without its columns being read: its version, the lines of its events, and its last step.

No NumPy, so that a list of runs and `show` need not wait for it; reading.py reads all the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from isobit.record import trace_v1
from isobit.record.errors import RecordError
from isobit.record.rows import EVENTS, FOLDER, HEADER, SIDES, SIZES, STEPS, VERSION, Step, ends_of, unpacked_step

_EVENT = b'{"k":"'  # how every line begins
_KEYS = {
    "h": {"op", "why"}, "n": {"text"}, "m": {"n", "name"}, "t": {"i", "t", "name", "text"}, "v": {"i", "o", "set"},
    "b": {"i", "o", "d"}, "c": {"i", "path", "d"},
}  # fmt: skip
_Read = Callable[[str, int, int], bytes]  # of a file: the entries from one to another


def read_header(place: Path) -> dict[str, Any] | None:
    """The header of a trace; None where the process was killed before there was one.

    Raises RecordError for a newer version and for damage.
    """
    try:
        header = json.loads((place / HEADER).read_bytes())
        if not isinstance(header["isobit_trace"], int):
            raise ValueError("no version")
    except FileNotFoundError as error:
        if (place / STEPS).exists() and (place / STEPS).stat().st_size:
            raise RecordError(f"{place / HEADER} is missing: the record is damaged") from error
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{place / HEADER} is damaged: {error}") from error
    if header["isobit_trace"] > VERSION:
        raise RecordError(f"{place} is of a newer version: update Isobit")
    return dict(header)


def count_entries(path: Path, size: int) -> int:
    """How many whole entries a file of the trace holds."""
    try:
        return path.stat().st_size // size
    except FileNotFoundError as error:
        raise RecordError(f"{path} is missing: the record is damaged") from error


def last_step(folder: Path) -> tuple[int, Step | None]:
    """How many steps of the run in `folder` are complete, and the last. Raises RecordError where the trace is damaged.

    What a kill or a power failure tears is at the end of the files (see Trace in reading.py).
    """
    place, counts, read = _files(folder)
    count = counts[STEPS]
    while count and not _is_covered(read(STEPS, count - 1, count), counts):
        count -= 1
    for torn in (True, False):
        if not count:
            break
        try:
            return count, _step(count - 1, read)
        except ValueError as error:
            if not torn:
                raise RecordError(f"{place / STEPS}, step {count - 1}, is damaged: {error}") from error
            count -= 1
    return 0, None


def _is_covered(row: bytes, counts: dict[str, int]) -> bool:
    """Whether a row has been written, and all that it refers to. A file may grow before its data reaches the disk."""
    return any(row) and all(end <= counts[name] for name, end in ends_of(row).items())


def _step(index: int, read: _Read) -> Step:
    row = read(STEPS, index, index + 1)
    begins = ends_of(read(STEPS, index - 1, index)) if index else dict.fromkeys(SIDES, 0)
    return unpacked_step(index, row, {name: read(name, begins[name], end) for name, end in ends_of(row).items()})


def _files(folder: Path) -> tuple[Path, dict[str, int], _Read]:
    """Where the trace lies, how many entries each file holds, and what reads them."""
    old, place = folder / trace_v1.NAME, folder / FOLDER
    if old.exists():
        data = trace_v1.read(old)
        counts = {name: len(data[name]) // SIZES[name] for name in (STEPS, *SIDES)}
        return old, counts, lambda name, begin, end: data[name][begin * SIZES[name] : end * SIZES[name]]
    if read_header(place) is None:
        return place, dict.fromkeys((STEPS, *SIDES), 0), lambda name, begin, end: b""
    return place, {n: count_entries(place / n, SIZES[n]) for n in (STEPS, *SIDES)}, _reader(place)


def _reader(place: Path) -> _Read:
    def read(name: str, begin: int, end: int) -> bytes:
        if begin >= end:
            return b""
        with open(place / name, "rb") as file:
            file.seek(begin * SIZES[name])
            return file.read((end - begin) * SIZES[name])

    return read


def read_events(folder: Path, *kinds: str) -> Iterator[dict[str, Any]]:
    """The events of the run in `folder` of these kinds, as Trace.events has them."""
    old, place = folder / trace_v1.NAME, folder / FOLDER
    if old.exists():
        yield from events(old, 1, *kinds)
    elif read_header(place) is not None:
        yield from events(place, VERSION, *kinds)


def events(place: Path, version: int, *kinds: str) -> Iterator[dict[str, Any]]:
    """The lines of these kinds: "h" holes, "n" notes, "t" texts, "v" settings, "b" digests, "c" checkpoints."""
    path = place / (EVENTS if version > 1 else "")
    wanted = tuple(f'{{"k":"{kind}"'.encode() for kind in kinds)
    try:
        file = open(path, "rb")  # noqa: SIM115 — closed below; the open may fail in its own way
    except FileNotFoundError:
        return
    with file:
        for number, line in enumerate(file, start=1):
            if version == 1 and number == 1:
                continue
            if line.endswith(b"\n") and (line.startswith(wanted) or not line.startswith(_EVENT)):
                yield _event(line, path, number)


def _event(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        data: dict[str, Any] = json.loads(line)
        if not data.keys() >= _KEYS[data["k"]]:
            raise ValueError("fields are missing")
        return data
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"{path}, line {number}, is damaged: {error}") from error
