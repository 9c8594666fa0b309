"""Axes: from the numbers to a range, and where the ticks stand and what they say."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_NARROWEST = 1e-300  # below it numbers lose their digits


@dataclass(frozen=True)
class Tick:
    """One tick: how far along the axis, from 0 to 1, and its label."""

    at: float
    label: str


@dataclass(frozen=True)
class Axis:
    """Maps ``low`` … ``high`` onto 0 … 1, by the logarithm if ``log``."""

    low: float
    high: float
    log: bool = False

    def at(self, value: float) -> float:
        """How far along the axis a value stands."""
        if self.log:
            low = math.log(self.low)
            return (math.log(value) - low) / (math.log(self.high) - low)
        half = self.low / 2  # halves, since the range of extreme numbers is infinite
        return (value / 2 - half) / (self.high / 2 - half)


def value_axis(values: Sequence[float]) -> Axis:
    """A linear axis that shows all of `values`, which are finite, with a little room."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if low == high:
        room = abs(low) * 0.05 or 1.0
    else:
        room = max((high / 2 - low / 2) * 0.08, 8 * math.ulp(max(abs(low), abs(high))), _NARROWEST)
    return Axis(max(low - room, -1.7e308), min(high + room, 1.7e308))


def log_axis(values: Iterable[float]) -> Axis | None:
    """A logarithmic axis for those of `values` that are positive; None if none is."""
    positive = [v for v in values if v > 0]
    if not positive:
        return None
    low, high = math.log10(min(positive)), math.log10(max(positive))
    room = (high - low) * 0.04 or 0.1
    return Axis(max(_power(low - room), 5e-324), min(_power(high + room), 1.7e308), log=True)


def _power(exponent: float) -> float:
    return math.inf if exponent > 308.2 else 10.0**exponent


def ticks(axis: Axis, about: int = 5) -> list[Tick]:
    """Round numbers along the axis, about so many."""
    if axis.log:
        found = _decades(axis, about)
        if len(found) >= 2:
            return [Tick(axis.at(v), f"{v:.0e}" if v < 1e-3 or v >= 1e4 else f"{v:g}") for v in found]
    return _linear(axis, about)


def _linear(axis: Axis, about: int) -> list[Tick]:
    step = _round_step((axis.high / 2 - axis.low / 2) / about * 2)
    first, count = math.ceil(axis.low / step), math.floor(axis.high / step)
    values = [k * step for k in range(first, min(count, first + 4 * about) + 1)]
    found = {label(v, step): Tick(axis.at(v), label(v, step)) for v in values if not axis.log or v > 0}
    return list(found.values())


def step_ticks(first: int, last: int, about: int = 6) -> list[Tick]:
    """Ticks at whole steps."""
    size = max(1, round(_round_step((last - first) / about))) if last > first else 1
    axis = Axis(first, max(last, first + 1))
    return [Tick(axis.at(v), f"{v:,}") for v in range(-(-first // size) * size, last + 1, size)]


def _round_step(wanted: float) -> float:
    """The smallest of 1, 2, 5, 10, 20 … (or tenths of them) that is at least `wanted`."""
    if wanted <= 0 or not math.isfinite(wanted):
        return 1.0
    power = math.floor(math.log10(wanted))
    scale = 10.0**power if power > -308 else 5e-324
    return next((m * scale for m in (1, 2, 5) if m * scale >= wanted * (1 - 1e-9)), 10 * scale)


def _decades(axis: Axis, about: int) -> list[float]:
    low, high = math.ceil(math.log10(axis.low)), math.floor(math.log10(axis.high))
    if high - low >= 2:
        every = max(1, -(-(high - low) // (about + 1)))
        return [10.0**k for k in range(low, high + 1, every)]
    fine = [float(f"{m}e{k}") for k in range(low - 1, high + 2) for m in (1, 2, 5)]
    return [v for v in fine if axis.low <= v <= axis.high]


def label(value: float, step: float) -> str:
    """A tick's number, with the digits that tell it from its neighbours."""
    size = max(abs(value), step)
    if 1e-4 <= size < 1e6 and step >= 1e-7:
        digits = max(0, -math.floor(math.log10(step) + 1e-9))
        return f"{value:,.{digits}f}"
    if value == 0:
        return "0"
    digits = max(0, math.floor(math.log10(size) + 1e-9) - math.floor(math.log10(step) + 1e-9))
    return f"{value:.{min(digits, 16)}e}"
