"""Sliding windows along one dim, seen from both sides: which inputs an output reads, which outputs an input meets.

Both sides are needed as affine index expressions. Seen from the input, strides leave residue classes: the inputs
start, start + step, … of one `Phase` share their taps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from isobit.ir.expr import Affine, Axis, Expr, call, coord

Position = Affine | Expr


def as_expr(position: Position | Axis) -> Expr:
    """An index as an i64 expression."""
    return position if isinstance(position, Expr) else coord(position)


@dataclass(frozen=True)
class Phase:
    """Inputs start + step·q, q < count. Tap t < taps of each is kernel position `kernel + kernel_step·t` of the output
    at q + `origin` − `output_step`·t, which may lie outside."""

    start: int
    step: int
    count: int
    taps: int = 0
    kernel: int = 0
    kernel_step: int = 1
    origin: int = 0
    output_step: int = 1

    def output(self, q: Axis, t: Axis) -> Position:
        """The output that tap t meets."""
        return q + self.origin - t * self.output_step

    def output_ascending(self, q: Axis, t: Axis) -> Position:
        """The same with t counting the outputs upwards."""
        return q + (self.origin - self.output_step * (self.taps - 1)) + t * self.output_step

    def meets(self, q: Axis, t: Axis) -> Expr | None:
        """A further condition for the t-th output upwards to hold this input; None: none but lying inside."""
        return None


def phases(extent: int, kernel: int, stride: int, padding: int, dilation: int) -> list[Phase]:
    """The residue classes of an input dim of `extent` under a kernel; input i meets output o by tap k where
    i + padding = o·stride + k·dilation."""
    return [_phase(r, extent, kernel, stride, padding, dilation) for r in range(min(stride, extent))]


def _phase(r: int, extent: int, kernel: int, stride: int, padding: int, dilation: int) -> Phase:
    count = -(-(extent - r) // stride)
    common = math.gcd(stride, dilation)
    period = stride // common
    offset = r + padding
    first = next((k for k in range(min(kernel, period)) if (offset - k * dilation) % stride == 0), None)
    if first is None:
        return Phase(r, stride, count)
    taps = -(-(kernel - first) // period)
    origin = (offset - first * dilation) // stride
    return Phase(r, stride, count, taps, first, period, origin, dilation // common)


class Windows(Protocol):
    """The windows of one dim: `taps` positions each, of which some may lie outside or not be `held`."""

    @property
    def extent(self) -> int: ...
    @property
    def outputs(self) -> int: ...
    @property
    def taps(self) -> int: ...

    def input(self, o: Axis, k: Axis | Expr) -> Position:
        """The input that tap k of output o reads."""

    def held(self, o: Axis, k: Axis) -> Expr | None:
        """A further condition for tap k to count; None: none but lying inside."""

    def size(self, o: int, count_padding: bool) -> int:
        """How many cells window o has."""

    def size_expr(self, o: Axis, count_padding: bool) -> Expr:
        """The same for an axis, i64."""

    def phases(self) -> list[Phase]:
        """The other side: for each input, the outputs whose windows hold it."""


@dataclass(frozen=True)
class Uniform:
    """Window o begins at o·stride − padding and has `kernel` taps, `dilation` apart."""

    extent: int
    outputs: int
    kernel: int
    stride: int
    padding: int
    dilation: int = 1

    @property
    def taps(self) -> int:
        return self.kernel

    def input(self, o: Axis, k: Axis | Expr) -> Position:
        if isinstance(k, Expr):
            return coord(o * self.stride - self.padding) + k * self.dilation
        return o * self.stride + k * self.dilation - self.padding

    def held(self, o: Axis, k: Axis) -> Expr | None:
        return None

    def size(self, o: int, count_padding: bool) -> int:
        start = o * self.stride - self.padding
        stop = min(start + self.kernel, self.extent + self.padding)
        return stop - start if count_padding else min(stop, self.extent) - max(start, 0)

    def size_expr(self, o: Axis, count_padding: bool) -> Expr:
        start = coord(o * self.stride - self.padding)
        stop = _least(start + self.kernel, self.extent + self.padding)
        if count_padding:
            return stop - start
        return _least(stop, self.extent) - call("max", start, start.like(0))

    def phases(self) -> list[Phase]:
        if self.outputs == 1 and self.padding == 0 and self.dilation == 1 and self.kernel == self.extent:
            return [WholePhase(0, 1, self.extent, taps=1)]
        if self.stride > MOST_PHASES and self.kernel <= self.stride and self.dilation == 1:
            return [QuotientPhase(0, 1, self.extent, taps=1, windows=self)]
        return phases(self.extent, self.kernel, self.stride, self.padding, self.dilation)


@dataclass(frozen=True)
class WholePhase(Phase):
    """Every input lies in the one window there is."""

    def output_ascending(self, q: Axis, t: Axis) -> Position:
        return Affine()


MOST_PHASES = 2
"""Windows that do not overlap and lie further apart are found by division: one statement instead of stride many. Each
input meets at most one of them, so that no order, hence no bit, depends on the choice."""


@dataclass(frozen=True)
class Adaptive:
    """Window o is ⌊o·extent ÷ outputs⌋ up to ⌈(o + 1)·extent ÷ outputs⌉; taps beyond its end are not held."""

    extent: int
    outputs: int

    @property
    def taps(self) -> int:
        return max((self.size(o, False) for o in range(self.outputs)), default=0)

    def input(self, o: Axis, k: Axis | Expr) -> Position:
        return _floor_div(o * self.extent, self.outputs) + as_expr(k)

    def held(self, o: Axis, k: Axis) -> Expr | None:
        return coord(k) < self.size_expr(o, False)

    def size(self, o: int, count_padding: bool) -> int:
        return -(-(o + 1) * self.extent // self.outputs) - o * self.extent // self.outputs

    def size_expr(self, o: Axis, count_padding: bool) -> Expr:
        return _ceil_div(o * self.extent + self.extent, self.outputs) - _floor_div(o * self.extent, self.outputs)

    def phases(self) -> list[Phase]:
        most = max((_span(i, self) for i in range(self.extent)), default=0)
        return [AdaptivePhase(0, 1, self.extent, taps=most, windows=self)]


@dataclass(frozen=True)
class AdaptivePhase(Phase):
    """Input i lies in the windows ⌊i·outputs ÷ extent⌋ up to ⌈(i + 1)·outputs ÷ extent⌉."""

    windows: Adaptive = Adaptive(1, 1)

    def output_ascending(self, q: Axis, t: Axis) -> Position:
        return _floor_div(q * self.windows.outputs, self.windows.extent) + coord(t)

    def meets(self, q: Axis, t: Axis) -> Expr | None:
        w = self.windows
        return as_expr(self.output_ascending(q, t)) < _ceil_div(q * w.outputs + w.outputs, w.extent)


@dataclass(frozen=True)
class QuotientPhase(Phase):
    """Input i can only lie in window ⌊(i + padding) ÷ stride⌋, if that is long enough."""

    windows: Uniform = Uniform(1, 1, 1, 1, 0)

    def output_ascending(self, q: Axis, t: Axis) -> Position:
        return _floor_div(q + self.windows.padding, self.windows.stride)

    def meets(self, q: Axis, t: Axis) -> Expr | None:
        start = as_expr(self.output_ascending(q, t)) * self.windows.stride
        return coord(q + self.windows.padding) - start < self.windows.kernel


def _span(i: int, w: Adaptive) -> int:
    return -(-(i + 1) * w.outputs // w.extent) - i * w.outputs // w.extent


def _least(a: Expr, bound: int) -> Expr:
    return call("min", a, a.like(bound))


def _floor_div(a: Affine, b: int) -> Expr:
    e = coord(a)
    return call("floordiv", e, e.like(b))


def _ceil_div(a: Affine, b: int) -> Expr:
    return _floor_div(a + (b - 1), b)
