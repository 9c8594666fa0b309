"""Values by step, as arrays, and which of a million points a curve of a thousand columns needs."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isobit.arithmetic.dtypes import DType
from isobit.record.trace import Step

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


class CurveBuilder:
    """Collects the points of one curve."""

    def __init__(self) -> None:
        self._steps = array("q")
        self._kinds = array("B")
        self._bits = array("Q")
        self.refused = 0  # words that are no number

    def add(self, step: int, word: str) -> None:
        """Append a value given by its bits; one that is no single number, such as a digest, is counted only."""
        kind, _, digits = word.partition(":")
        code = _CODES.get(kind)
        if code is None:
            self.refused += 1
            return
        self._steps.append(step)
        self._kinds.append(code)
        self._bits.append(int(digits, 16))

    def curve(self) -> Curve:
        """What was collected, by step."""
        steps, kinds = np.array(self._steps, np.int64), np.array(self._kinds, np.uint8)
        bits = np.array(self._bits, np.uint64)
        curve = Curve(steps, decoded(kinds, bits), kinds, bits)
        return curve if np.all(np.diff(steps) >= 0) else curve.take(np.argsort(steps, kind="stable"))


_CODES = {str(kind): code for code, kind in enumerate(KINDS)}


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


def losses(steps: Iterable[Step]) -> tuple[dict[tuple[int, int], Curve], Curve, int]:
    """Of a trace: the losses by (optimizer, position), the seconds each step took, and how many losses are no number.

    The first step's time is left out: it holds the script's start.
    """
    builders: dict[tuple[int, int], CurveBuilder] = {}
    indices, seconds = array("q"), array("d")
    for step in steps:
        indices.append(step.index)
        seconds.append(step.seconds)
        for position, word in enumerate(step.losses):
            builders.setdefault((step.optimizer, position), CurveBuilder()).add(step.index, word)
    times = measured(np.array(indices, np.int64)[1:], np.diff(np.array(seconds, np.float64)))
    curves = {key: builder.curve() for key, builder in sorted(builders.items())}
    refused = sum(builder.refused for builder in builders.values())
    return {key: curve for key, curve in curves.items() if curve.steps.size}, times, refused


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
