"""Reads traces: single steps, ranges and whole columns, without reading all of a long one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isobit.record import peek, trace_v1
from isobit.record.checking import Losses, Points, first_damaged, first_damaged_metric, losses_of, low_words
from isobit.record.columns import ENTRIES, ROW, floats, words
from isobit.record.errors import RecordError
from isobit.record.rows import (
    DIGESTS,
    FOLDER,
    METRICS,
    SAMPLED,
    SIDES,
    STEPS,
    VERSION,
    Logged,
    Step,
    unpacked_metric,
    unpacked_step,
)

_SCALARS = ("seconds", "optimizer")
_BLOCK = 4096  # rows that are looked at together
_CHECKED = 1 << 16  # rows that are checked together: 7 MB


@dataclass(frozen=True)
class Metric:
    """All numbers that were given under one name: the steps they were given before, the time, and f64 of each."""

    steps: NDArray[np.uint64]
    seconds: NDArray[np.float64]
    values: NDArray[np.float64]


class Trace:
    """The steps and events of a run as they were when it was opened. Raises RecordError where it meets damage."""

    def __init__(
        self, place: Path, version: int, sampling: Mapping[str, Any], files: Mapping[str, NDArray[Any]]
    ) -> None:
        self.version = version
        self.sampling = dict(sampling)
        self._place = place
        self._files = files
        self._rows = files[STEPS]
        self._length = self._whole()

    def __len__(self) -> int:
        return self._length

    def step(self, index: int) -> Step:
        """One step; negative indices count from the end. Raises IndexError where there is none."""
        place = range(len(self))[index]
        return next(self.steps(place, place + 1))

    def steps(self, start: int = 0, stop: int | None = None) -> Iterator[Step]:
        """The steps of a range, as a slice has it, in order."""
        for begin, end in _blocks(range(len(self))[start:stop]):
            rows = self._rows[begin:end]
            bounds = {name: [self._end(name, begin), *rows[name].tolist()] for name in SIDES}
            for place in range(end - begin):
                sides = {name: self._files[name][b[place] : b[place + 1]].tobytes() for name, b in bounds.items()}
                yield self._unpacked(begin + place, rows[place].tobytes(), sides)

    def column(self, name: str) -> NDArray[Any]:
        """A whole column: "seconds", "optimizer", "loss" (the last one of each step, as f64, NaN where there is none),
        or the digests "batch", "settings", "parameters", "random" as two 64-bit words each, 0 where there is none.
        """
        rows = self._rows[: len(self)]
        if name == "loss":
            return floats(rows["kind"], rows["loss"])
        if name in DIGESTS:
            return words(rows[name])
        if name in _SCALARS:
            return np.array(rows[name])
        raise ValueError(f"a trace has no column {name!r} of every step: {', '.join((*_SCALARS, 'loss', *DIGESTS))}")

    def sampled(self, name: str) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """ "gradients" or "state": the steps of which it was taken, and the digests as two 64-bit words each."""
        if name not in SAMPLED:
            raise ValueError(f"{name!r} is not sampled: {', '.join(SAMPLED)}")
        entries = self._files[name][: self._end(name, len(self))]
        return np.array(entries["step"]), words(entries["digest"])

    def metrics(self) -> dict[str, Metric]:
        """What the script gave to `isobit.log` as numbers, by name."""
        entries = self._metrics
        values = floats(entries["kind"], entries["bits"])
        chosen = {name: entries["name"] == number for number, name in enumerate(self._metric_names)}
        return {
            name: Metric(entries["step"][which], entries["seconds"][which], values[which])
            for name, which in chosen.items()
        }

    def logged(self, start: int = 0, stop: int | None = None) -> list[Logged]:
        """What the script gave to `isobit.log` before the steps of a range, in order, numbers first; without `stop` up
        to the end, after the last step too.
        """
        entries = self._metrics
        begin = int(np.searchsorted(entries["step"], start))
        end = len(entries) if stop is None else int(np.searchsorted(entries["step"], stop))
        found = [self._metric(place) for place in range(begin, end)]
        return found + [t for t in self.texts() if start <= t.step and (stop is None or t.step < stop)]

    def losses(self) -> Losses:
        """All losses of all steps. Every entry of every step is checked: raises RecordError for the first damage."""
        for begin, end in _blocks(range(len(self)), _CHECKED):
            before = {name: self._end(name, begin) for name in SIDES}
            place = begin + first_damaged(self._rows[begin:end], self._files, begin, before)
            if place < end:
                self.step(place)
                raise RecordError(f"{self._place / STEPS}, step {place}, is damaged")
        return losses_of(self._rows[: len(self)], self._files["losses"])

    def points(self) -> dict[str, Points]:
        """What the script gave to `isobit.log` as numbers, by name, to the last bit. Every entry is checked, as by
        losses().
        """
        entries = self._metrics
        place = first_damaged_metric(entries)
        if place < len(entries):
            self._unpacked_metric(entries, place)
        steps, bits = entries["step"].astype(np.int64), low_words(entries["bits"])
        chosen = {name: entries["name"] == number for number, name in enumerate(self._metric_names)}
        return {name: Points(steps[which], entries["kind"][which], bits[which]) for name, which in chosen.items()}

    def texts(self) -> list[Logged]:
        """What the script gave to `isobit.log` as texts, in order."""
        return [Logged(e["i"], e["t"], e["name"], text=e["text"]) for e in self.events("t")]

    def settings(self, step: int, optimizer: int) -> dict[str, str]:
        """The hyper-parameters of an optimizer in step number `step`, by name; those of a later group as ``1.lr``."""
        found: dict[str, str] = {}
        for event in self.events("v"):
            if event["o"] == optimizer and event["i"] <= step:
                found |= {f"{group}.{name}" if group else name: value for group, name, value in event["set"]}
        return found

    def events(self, *kinds: str) -> Iterator[dict[str, Any]]:
        """The lines of these kinds: "h" holes, "n" notes, "t" texts, "v" settings, "b" digests, "c" checkpoints."""
        return peek.events(self._place, self.version, *kinds)

    @cached_property
    def _metric_names(self) -> list[str]:
        return [event["name"] for event in self.events("m")]

    @cached_property
    def _metrics(self) -> NDArray[Any]:
        """The entries whose names are known: those of the last ones may have been torn off."""
        entries = self._files[METRICS]
        while len(entries) and not any(entries[-1].tobytes()):
            entries = entries[:-1]
        strange = entries["name"] >= len(self._metric_names)
        if not strange.any():
            return entries
        torn = int(strange.argmax())
        self._unpacked_metric(entries, torn)
        return entries[:torn]

    def _metric(self, place: int) -> Logged:
        step, seconds, name, bits = self._unpacked_metric(self._metrics, place)
        return Logged(step, seconds, self._metric_names[name], bits)

    def _unpacked_metric(self, entries: NDArray[Any], place: int) -> tuple[int, float, int, str]:
        try:
            return unpacked_metric(entries[place].tobytes())
        except ValueError as error:
            raise RecordError(f"{self._place / METRICS}, entry {place}, is damaged: {error}") from error

    def _unpacked(self, index: int, row: bytes, sides: dict[str, bytes]) -> Step:
        try:
            return unpacked_step(index, row, sides)
        except ValueError as error:
            raise RecordError(f"{self._place / STEPS}, step {index}, is damaged: {error}") from error

    def _end(self, side: str, step: int) -> int:
        """How many entries of a file beside the rows belong to the steps before `step`."""
        return int(self._rows[side][step - 1]) if step else 0

    def _whole(self) -> int:
        """How many steps are complete. What a kill or a power failure tears is at the end of the files; the rest is
        damage, which is met when it is read.
        """
        count = len(self._rows)
        while count and not any(self._rows[count - 1].tobytes()):  # a file grows before its data reaches the disk
            count -= 1
        for name in SIDES:
            if count and self._rows[name][count - 1] > len(self._files[name]):
                count = bisect_right(self._rows[name][:count], len(self._files[name]))
        self._length = count
        if count and not self._is_whole(count - 1):
            self._length = count - 1
            if self._length:
                self.step(-1)
        return self._length

    def _is_whole(self, index: int) -> bool:
        try:
            self.step(index)
        except RecordError:
            return False
        return True


def open_trace(folder: Path) -> Trace:
    """The trace of the run in `folder`, of any version; an empty one where nothing was written.

    Raises RecordError for a newer version and for damage.
    """
    old, place = folder / trace_v1.NAME, folder / FOLDER
    dtypes = {STEPS: ROW, **ENTRIES}
    if old.exists():
        data = trace_v1.read(old)
        return Trace(old, 1, {}, {name: np.frombuffer(data[name], dtype) for name, dtype in dtypes.items()})
    header = peek.read_header(place)
    if header is None:
        return Trace(place, VERSION, {}, {name: np.empty(0, dtype) for name, dtype in dtypes.items()})
    return Trace(place, VERSION, header.get("sampling", {}), {n: _entries(place / n, d) for n, d in dtypes.items()})


def read_steps(folder: Path) -> Iterator[Step]:
    """The recorded steps, in order."""
    return open_trace(folder).steps()


def _entries(path: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The whole entries of a file, read when they are looked at."""
    count = peek.count_entries(path, dtype.itemsize)
    return np.memmap(path, dtype, "r", shape=(count,)).view(np.ndarray) if count else np.empty(0, dtype)


def _blocks(places: range, size: int = _BLOCK) -> Iterator[tuple[int, int]]:
    return ((begin, min(begin + size, places.stop)) for begin in range(places.start, places.stop, size))
