"""Checks and takes whole columns of a trace at once: what is met one by one costs 20 times as much.

The check values are those of rows.py. zlib makes them, a call for each entry on memory that is not copied: quicker than
NumPy is on a table of a byte at a time.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isobit.record.rows import CHECKED, KINDS, NONE, SIDES

_Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Losses:
    """All losses of a trace by step, then by position in their step: ``kinds`` are numbers of KINDS, ``bits`` the lower
    64 of each.
    """

    steps: _Ints
    optimizers: NDArray[np.uint32]
    positions: _Ints
    kinds: NDArray[np.uint8]
    bits: NDArray[np.uint64]


@dataclass(frozen=True)
class Points:
    """The numbers that were given under one name: the steps they were given before, kind and bits of each."""

    steps: _Ints
    kinds: NDArray[np.uint8]
    bits: NDArray[np.uint64]


def low_words(values: NDArray[Any]) -> NDArray[np.uint64]:
    """The lower 64 bits of each value."""
    width = values.dtype.itemsize // 8
    return np.ascontiguousarray(values).view("<u8").reshape(-1, width)[:, 0].astype(np.uint64)


def bounds(rows: NDArray[Any], side: str, before: int = 0) -> _Ints:
    """Where the entries of each row begin in a file beside the rows, and where those of the last end."""
    return np.concatenate([[before], rows[side].astype(np.int64)])


def first_damaged(rows: NDArray[Any], files: Mapping[str, NDArray[Any]], begin: int, before: Mapping[str, int]) -> int:
    """The place in `rows`, which begin at step `begin`, of the first that is damaged; their number if none is.

    `before` says how many entries of the files beside the rows belong to the steps before.
    """
    ends = {name: bounds(rows, name, before[name]) for name in SIDES}
    starts = _starts(ends, files, begin, len(rows))
    size, data, crc32 = rows.dtype.itemsize, memoryview(rows.tobytes()), zlib.crc32
    found = [crc32(data[at : at + CHECKED], start) for at, start in zip(range(0, len(rows) * size, size), starts)]
    wrong = (np.array(found, np.uint32) != rows["check"]) | (rows["kind"] >= len(KINDS))
    strange = np.flatnonzero(_is_strange(files["losses"]["kind"][ends["losses"][0] : ends["losses"][-1]]))
    if strange.size:  # the row that the first of them belongs to
        place = int(np.searchsorted(ends["losses"], strange[0] + ends["losses"][0], side="right")) - 1
        wrong[min(place, len(rows) - 1)] = True
    return int(wrong.argmax()) if wrong.any() else len(rows)


def _starts(ends: Mapping[str, _Ints], files: Mapping[str, NDArray[Any]], begin: int, count: int) -> list[int]:
    """The check values before those of the rows themselves: of their place, and of their entries in other files."""
    starts: list[int] = [place & 0xFFFFFFFF for place in range(begin, begin + count)]
    for name in SIDES:
        entries, edges = files[name], ends[name]
        size, first = entries.dtype.itemsize, max(0, int(edges[0]))
        data = memoryview(entries[first : max(first, int(edges.max()))].tobytes())
        for place in np.flatnonzero(edges[1:] > edges[:-1]).tolist():
            a, b = (int(edges[place]) - first) * size, (int(edges[place + 1]) - first) * size
            starts[place] = zlib.crc32(data[max(0, a) : b], starts[place])
    return starts


def _is_strange(kinds: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Which kinds there are not, where there must be a value."""
    strange: NDArray[np.bool_] = (kinds == NONE) | (kinds >= len(KINDS))
    return strange


def first_damaged_metric(entries: NDArray[Any]) -> int:
    """The place of the first entry that is damaged; their number if none is."""
    plain = entries.copy()
    plain["check"] = 0
    size, data, crc32 = entries.dtype.itemsize, memoryview(plain.tobytes()), zlib.crc32
    found = [crc32(data[at : at + size]) & 0xFFFF for at in range(0, len(data), size)]
    wrong = (np.array(found, np.uint16) != entries["check"]) | _is_strange(entries["kind"])
    return int(wrong.argmax()) if wrong.any() else len(entries)


def losses_of(rows: NDArray[Any], earlier: NDArray[Any]) -> Losses:
    """The losses of checked rows, and of the entries that hold those before the last of a step."""
    edges = bounds(rows, "losses")
    counts = np.diff(edges)
    with_loss = np.flatnonzero(rows["kind"] != NONE)
    steps = np.repeat(np.arange(len(rows)), counts)
    positions = np.arange(edges[-1]) - np.repeat(edges[:-1], counts)
    steps, positions = np.concatenate([steps, with_loss]), np.concatenate([positions, counts[with_loss]])
    order = np.lexsort((positions, steps))
    earlier = earlier[: edges[-1]]
    kinds = np.concatenate([earlier["kind"], rows["kind"][with_loss]])
    bits = np.concatenate([low_words(earlier["bits"]), low_words(rows["loss"][with_loss])])
    steps = steps[order]
    return Losses(steps, rows["optimizer"][steps], positions[order], kinds[order], bits[order])
