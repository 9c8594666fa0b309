"""Charts: from curves to what the page draws, all of it computed here; the page's script only reads it out.

The drawing area is an SVG that is stretched to the page's width, so lines keep their width by
``vector-effect: non-scaling-stroke`` and everything with letters stands in HTML beside it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from isobit.cli.report.letters import printable
from isobit.cli.report.ticks import Axis, Tick, log_axis, step_ticks, ticks, value_axis
from isobit.record.curves import Curve, envelope

WIDTH, HEIGHT = 1440, 400  # units of the drawing area
COLUMNS = 720  # at most, where a curve has more points
_POINTS = 60_000  # of all curves of a page: the page stays small
_FEWEST = 60  # columns, however many curves there are
_DOTTED = 80  # up to so many points each has a dot
STYLES = 8  # colours and dashes that the page has


@dataclass(frozen=True)
class Line:
    """A curve with its name. ``style`` tells it from others of its chart."""

    name: str
    curve: Curve
    style: int = 0


@dataclass(frozen=True)
class Mark:
    """A step to point out, such as the one at which two runs part."""

    step: int
    text: str


@dataclass(frozen=True)
class Reading:
    """A value in words, and its step."""

    text: str
    step: int | None = None


@dataclass(frozen=True)
class Summary:
    """A row of the table below a chart; every value with its step."""

    name: str
    style: int
    count: int
    first: Reading
    last: Reading
    lowest: Reading
    highest: Reading
    odd: str  # what is not a finite number


@dataclass(frozen=True)
class Drawing:
    """One line under one of the scales: paths in SVG, and stretches without a finite number."""

    style: int
    path: str
    dots: str
    gaps: list[tuple[float, float, float, str]]  # from, to, height (all 0 … 1), what is there


@dataclass(frozen=True)
class Scale:
    """The same lines on a linear or a logarithmic axis."""

    name: str
    axis: Axis
    ticks: list[Tick]
    drawings: list[Drawing]
    notes: list[tuple[float, float, str]]  # where each kind of gap is first: place, height, what is there


@dataclass(frozen=True)
class Chart:
    """All that the template needs."""

    title: str
    unit: str
    first: int
    last: int
    step_ticks: list[Tick]
    scales: list[Scale]
    summaries: list[Summary]
    marks: list[tuple[float, Mark]]
    points: dict[str, Any]
    odd: bool  # whether a value is no finite number
    thinned: bool  # whether there are more points than are drawn
    spoken: str


def columns_for(curves: int) -> int:
    """How many columns each of so many curves may have: four points and more each."""
    return max(_FEWEST, min(COLUMNS, _POINTS // (4 * max(1, curves))))


def span(lines: Sequence[Line]) -> tuple[int, int]:
    """The first and last step of curves, none of which is empty."""
    return min(int(line.curve.steps[0]) for line in lines), max(int(line.curve.steps[-1]) for line in lines)


def chart(
    title: str, lines: Sequence[Line], columns: int, steps: tuple[int, int], marks: Sequence[Mark] = (), unit: str = ""
) -> Chart:
    """The chart of `lines`, none of which is empty, over the steps from … to."""
    first, last = steps
    drawn = [Line(line.name, envelope(line.curve, first, last, columns), line.style) for line in lines]
    finite = [v for line in drawn for v in line.curve.values.tolist() if math.isfinite(v)]
    axes = [("linear", value_axis(finite)), ("log", log_axis(finite))]
    scales = [scale(name, axis, drawn, first, last) for name, axis in axes if axis is not None]
    summaries = [summary(line, unit) for line in lines]
    across = Axis(first, max(last, first + 1))
    return Chart(
        title=title,
        unit=unit,
        first=first,
        last=last,
        step_ticks=step_ticks(first, last),
        scales=scales,
        summaries=summaries,
        marks=[(across.at(mark.step), mark) for mark in marks if first <= mark.step <= last],
        points=points(drawn, first, last, scales, unit),
        odd=any(row.odd for row in summaries),
        thinned=any(a.curve.steps.size > b.curve.steps.size for a, b in zip(lines, drawn)),
        spoken=f"{title}, steps {first} to {last}. " + " ".join(_spoken(s) for s in summaries),
    )


def scale(name: str, axis: Axis, lines: Sequence[Line], first: int, last: int) -> Scale:
    """The lines on one axis."""
    across = Axis(first, max(last, first + 1))
    drawings = [drawing(line, across, axis) for line in lines]
    first_of: dict[str, tuple[float, float, str]] = {}
    for begin, _, height, what in sorted(gap for drawn in drawings for gap in drawn.gaps):
        first_of.setdefault(what, (begin, height, what))
    return Scale(name, axis, ticks(axis), drawings, list(first_of.values()))


def drawing(line: Line, across: Axis, axis: Axis) -> Drawing:
    """A line's path; it is broken where there is no number that the axis has."""
    places = [across.at(step) for step in line.curve.steps.tolist()]
    heights = [_height(value, axis) for value in line.curve.values.tolist()]
    pieces = list(_pieces(places, heights))
    path = "".join(_path(piece) for piece in pieces)
    dots = "".join(f"M{x} {y}h0" for piece in pieces for x, y in piece) if len(places) <= _DOTTED else ""
    return Drawing(line.style, path, dots, list(_gaps(places, heights)))


def _height(value: float, axis: Axis) -> float | str:
    """0 … 1 from the bottom, or what stands in the way."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+∞" if value > 0 else "−∞"
    return "≤ 0" if axis.log and value <= 0 else axis.at(value)


def _pieces(places: list[float], heights: list[float | str]) -> Iterator[list[tuple[int, int]]]:
    """Runs of points in whole units, without repetition."""
    piece: list[tuple[int, int]] = []
    for place, height in zip(places, heights):
        if isinstance(height, str):
            if piece:
                yield piece
            piece = []
            continue
        point = (round(place * WIDTH), round((1 - height) * HEIGHT))
        if not piece or piece[-1] != point:
            piece.append(point)
    if piece:
        yield piece


def _path(piece: list[tuple[int, int]]) -> str:
    """Steps from point to point, which take fewer letters than places; a single point is a dot."""
    x, y = piece[0]
    words = [f"M{x} {y}"] + (["h0"] if len(piece) == 1 else [])
    for to_x, to_y in piece[1:]:
        dx, dy = to_x - x, to_y - y
        words.append(f"v{dy}" if dx == 0 else f"h{dx}" if dy == 0 else f"l{dx}{'' if dy < 0 else ' '}{dy}")
        x, y = to_x, to_y
    return "".join(words)


def _gaps(places: list[float], heights: list[float | str]) -> Iterator[tuple[float, float, float, str]]:
    """Stretches of points that have no height, at the edge of the drawing area that is theirs."""
    begin = 0
    for i in range(1, len(heights) + 1):
        if i < len(heights) and heights[i] == heights[begin]:
            continue
        what = heights[begin]
        if isinstance(what, str):
            yield places[begin], places[i - 1], 1.0 if what == "+∞" else 0.0, what
        begin = i


def points(lines: Sequence[Line], first: int, last: int, scales: Sequence[Scale], unit: str) -> dict[str, Any]:
    """What the page's script reads out. Steps are differences and equal element types run together: a page may hold
    a hundred thousand points.
    """
    return {
        "first": first,
        "last": last,
        "unit": unit,
        "axes": {s.name: [s.axis.low, s.axis.high] for s in scales},
        "lines": [{"name": printable(line.name), "style": line.style, **_packed(line.curve)} for line in lines],
    }


def _packed(curve: Curve) -> dict[str, Any]:
    steps = [b - a for a, b in pairwise([0, *curve.steps.tolist()])]
    words = [curve.word(i).partition(":") for i in range(curve.steps.size)]
    if curve.kind in ("f32", "f64"):
        return {"steps": steps, "kind": curve.kind, "bits": "".join(digits for _, _, digits in words)}
    values = [v if math.isfinite(v) else str(v) for v in curve.values.tolist()]
    return {"steps": steps, "values": values, "words": ["".join(word) for word in words] if curve.bits.size else []}


def summary(line: Line, unit: str) -> Summary:
    """What can be said of a curve in a row: of all its points, not only of those drawn."""
    curve = line.curve
    first, last = (_at(curve, i, unit) for i in (0, curve.steps.size - 1))
    extremes = curve.extremes or ()
    lowest, highest = (_at(curve, i, unit) for i in extremes) if extremes else (Reading("none"), Reading("none"))
    return Summary(line.name, line.style, int(curve.steps.size), first, last, lowest, highest, _odd(curve))


def _at(curve: Curve, index: int, unit: str) -> Reading:
    text = number(float(curve.values[index]), curve.kind)
    return Reading(f"{text} {unit}".rstrip(), int(curve.steps[index]))


def number(value: float, kind: str = "") -> str:
    """A value with the digits that tell it from its neighbours among numbers of its kind."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+∞" if value > 0 else "−∞"
    if kind == "f32":
        return next(text for n in range(6, 10) if _single(text := f"{value:.{n}g}") == value)
    return f"{value:.6g}" if kind == "" else repr(value)


def _single(text: str) -> float:
    """The nearest number in single precision."""
    return float(struct.unpack("<f", struct.pack("<f", float(text)))[0])


def _odd(curve: Curve) -> str:
    """How many values are no finite number, and from which step."""
    return "; ".join(f"{count:,} × {name}, first at step {step:,}" for name, count, step in curve.odd)


def _spoken(row: Summary) -> str:
    odd = f", not finite: {row.odd}" if row.odd else ""
    ends = f"first {row.first.text}, last {row.last.text}"
    return f"{row.name}: {ends}, lowest {_placed(row.lowest)}, highest {_placed(row.highest)}{odd}."


def _placed(reading: Reading) -> str:
    return reading.text if reading.step is None else f"{reading.text} at step {reading.step}"
