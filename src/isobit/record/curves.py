"""Values by step, as arrays, and which of a million points a curve of a thousand columns needs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isobit.arithmetic.dtypes import DType
from isobit.record.checking import Losses, Points
from isobit.record.rows import XXH3

KINDS = tuple(DType)


@dataclass(frozen=True)
class Curve:
    """One value at each of some steps, in order. ``kinds`` (indices into KINDS) and ``bits`` say what each was to the
    last bit; both are empty for a value that was measured, such as a time.
    """

    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    kinds: NDArray[np.uint8]
    bits: NDArray[np.uint64]

    @property
    def kind(self) -> str:
        """The element type of all values; "" if they differ or there are no bits."""
        return str(KINDS[self.kinds[0]]) if self.kinds.size and np.all(self.kinds == self.kinds[0]) else ""

    def word(self, index: int) -> str:
        """The bits of one value as the record writes them, such as ``f32:3f800000``; "" if there are none."""
        if not self.bits.size:
            return ""
        kind = KINDS[self.kinds[index]]
        return f"{kind}:{int(self.bits[index]):0{2 * kind.itemsize}x}"

    @property
    def extremes(self) -> tuple[int, int] | None:
        """The indices of the lowest and the highest finite value, the first of each; None if there are none."""
        finite = np.flatnonzero(np.isfinite(self.values))
        if not finite.size:
            return None
        values = self.values[finite]
        return int(finite[np.argmin(values)]), int(finite[np.argmax(values)])

    @property
    def odd(self) -> list[tuple[str, int, int]]:
        """What is no finite number: which, how many, and the step of the first."""
        kinds = {"NaN": np.isnan(self.values), "+∞": self.values == np.inf, "−∞": self.values == -np.inf}
        return [(name, int(w.sum()), int(self.steps[np.argmax(w)])) for name, w in kinds.items() if w.any()]

    def take(self, chosen: NDArray[np.int64]) -> Curve:
        """The points with these indices."""
        bits = (self.kinds[chosen], self.bits[chosen]) if self.bits.size else (self.kinds, self.bits)
        return Curve(self.steps[chosen], self.values[chosen], *bits)


def measured(steps: NDArray[np.int64], values: NDArray[np.float64]) -> Curve:
    """A curve of numbers without bits."""
    return Curve(steps, values, np.empty(0, np.uint8), np.empty(0, np.uint64))


def decoded(kinds: NDArray[np.uint8], bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    """The numbers that the bits mean."""
    values = np.empty(bits.size, np.float64)
    for code in np.unique(kinds):
        chosen = kinds == code
        with np.errstate(invalid="ignore"):  # signalling NaNs
            values[chosen] = _numbers(KINDS[code], bits[chosen]).astype(np.float64)
    return values


def _numbers(kind: DType, bits: NDArray[np.uint64]) -> NDArray[Any]:
    if kind is DType.BF16:
        return (bits << np.uint64(16)).astype(np.uint32).view(np.float32)
    return bits.astype(f"u{kind.itemsize}").view(kind.numpy)


def losses(found: Losses) -> tuple[dict[tuple[int, int], Curve], int]:
    """The losses by (optimizer, position), and how many are no number."""
    numbers = found.kinds > XXH3
    keys = found.optimizers[numbers].astype(np.int64) << 32 | found.positions[numbers]
    order = np.argsort(keys, kind="stable")
    names, begins = np.unique(keys[order], return_index=True)
    chosen = np.flatnonzero(numbers)[order]
    steps, kinds, bits = found.steps[chosen], found.kinds[chosen], found.bits[chosen]
    parts = pairwise([*begins.tolist(), len(order)])
    curves = {
        (key >> 32, key & 0xFFFFFFFF): curve(Points(steps[a:b], kinds[a:b], bits[a:b]))
        for key, (a, b) in zip(names.tolist(), parts, strict=True)
    }
    return curves, int(np.count_nonzero(~numbers))


def curve(points: Points) -> Curve:
    """The numbers among `points`, by step."""
    numbers = points.kinds > XXH3
    steps, kinds, bits = points.steps[numbers], points.kinds[numbers] - np.uint8(XXH3 + 1), points.bits[numbers]
    found = Curve(steps, decoded(kinds, bits), kinds, bits)
    return found if np.all(np.diff(steps) >= 0) else found.take(np.argsort(steps, kind="stable"))


def step_times(seconds: NDArray[np.float64]) -> Curve:
    """The seconds each step took. The first step's time is left out: it holds the script's start."""
    return measured(np.arange(1, max(1, len(seconds)), dtype=np.int64), np.diff(seconds))


def envelope(curve: Curve, first: int, last: int, columns: int) -> Curve:
    """The points that draw `curve` as all of them would in `columns` pixel columns over the steps first … last.

    Of each column they are the first and last point, the lowest and highest, and the first and last of what is no
    finite number: no spike and no NaN is lost, and a line enters and leaves each column where it should.
    """
    if curve.steps.size <= 2 * columns:
        return curve
    place = (curve.steps - first) * columns // (last - first + 1)
    edges = np.searchsorted(place, np.arange(columns + 1))
    chosen = [_telling(curve.values, int(a), int(b)) for a, b in pairwise(edges) if a < b]
    return curve.take(np.unique(np.concatenate(chosen)))


def _telling(values: NDArray[np.float64], begin: int, end: int) -> NDArray[np.int64]:
    part = values[begin:end]
    finite = np.isfinite(part)
    chosen = [0, part.size - 1]
    if finite.any():
        chosen += [int(np.argmin(np.where(finite, part, np.inf))), int(np.argmax(np.where(finite, part, -np.inf)))]
    if not finite.all():
        for odd in (np.isnan(part), part == np.inf, part == -np.inf):
            chosen += [int(i) for i in np.flatnonzero(odd)[[0, -1]]] if odd.any() else []
    return np.array(chosen, np.int64) + begin
