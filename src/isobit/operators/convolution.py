"""Convolution of any number of spatial dims, transposed or not, and its gradients (ARITHMETIC.md §4).

Layouts: input [n, c_in, spatial…], weight [c_out, c_in ÷ groups, kernel…] (transposed: [c_in, c_out ÷ groups,
kernel…]), output [n, c_out, spatial…]. Groups are an axis of their own between n and the channels.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from isobit.ir.expr import Axis, axes, const
from isobit.ir.graph import Shape, Value
from isobit.operators.reductions import fold
from isobit.operators.registry import operator
from isobit.operators.views import padded
from isobit.operators.windows import Phase, phases

Gradients = tuple[Value | None, Value | None, Value | None]


@dataclass(frozen=True)
class Geometry:
    """Per spatial dim: stride, padding, dilation; and the number of groups."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1

    @staticmethod
    def of(dims: int, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int) -> Geometry:
        """Sequences of one entry count for every dim."""

        def each(given: Sequence[int]) -> tuple[int, ...]:
            return tuple(given) * dims if len(given) == 1 else tuple(given)

        return Geometry(each(stride), each(padding), each(dilation), groups)

    def outputs(self, spatial: Shape, kernel: Shape) -> Shape:
        """The output's spatial extents."""
        spans = zip(spatial, kernel, self.stride, self.padding, self.dilation, strict=True)
        return tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in spans)

    def inputs(self, spatial: Shape, kernel: Shape, extra: Sequence[int]) -> Shape:
        """The extents of a transposed convolution's output."""
        spans = zip(spatial, kernel, self.stride, self.padding, self.dilation, extra, strict=True)
        return tuple((n - 1) * s - 2 * p + d * (k - 1) + e + 1 for n, k, s, p, d, e in spans)

    def read(self, o: Sequence[Axis], k: Sequence[Axis]) -> list[object]:
        """The index in the padded input that output o reads at tap k."""
        return [a * s + b * d for a, b, s, d in zip(o, k, self.stride, self.dilation, strict=True)]


def _cells(x: Value, pads: Sequence[int]) -> Value:
    """x with zeros around its spatial dims."""
    return padded(x, (0, 0, *pads), (0, 0, *pads), 0)


def _grouped(g: Axis, c: Axis, groups: int) -> object:
    """Channel c of group g."""
    return c if groups == 1 else g * c.extent + c


def forward(x: Value, w: Value, geometry: Geometry) -> Value:
    """Σ over (c_in, kernel…) of input·weight."""
    spatial, kernel = x.shape[2:], w.shape[2:]
    _check(x, w, geometry)
    n, g, co, ci = axes(x.shape[0], geometry.groups, w.shape[0] // geometry.groups, w.shape[1], names="ngoc")
    o, k = axes(*geometry.outputs(spatial, kernel), names="hw"), axes(*kernel, names="kl")
    cells = _cells(x, geometry.padding)
    lhs = cells[(n, _grouped(g, ci, geometry.groups), *geometry.read(o, k))]
    rhs = w[(_grouped(g, co, geometry.groups), ci, *k)]
    out = x.graph.contract((n, *_one(g), co, *o), (ci, *k), lhs, rhs)
    return x.graph.reshape(out, (x.shape[0], w.shape[0], *(a.extent for a in o)))


def _one(g: Axis) -> tuple[Axis, ...]:
    """The group axis, left out where there is one group."""
    return () if g.extent == 1 else (g,)


def _check(x: Value, w: Value, geometry: Geometry) -> None:
    out = geometry.outputs(x.shape[2:], w.shape[2:]) if x.ndim == w.ndim else ()
    fits = x.ndim == w.ndim > 2 and w.shape[1] * geometry.groups == x.shape[1] and w.shape[0] % geometry.groups == 0
    if not fits or min(out) <= 0:
        raise ValueError(f"convolution of input {x.shape} with weight {w.shape}: {geometry}")


def input_gradient(dy: Value, w: Value, spatial: Shape, geometry: Geometry) -> Value:
    """Σ over (c_out, kernel…) of dy·weight, over the taps that meet each input: one contraction per residue class."""
    kernel = w.shape[2:]
    spans = zip(spatial, kernel, geometry.stride, geometry.padding, geometry.dilation, strict=True)
    per_dim = [phases(*span) for span in spans]
    low, high = _reach(per_dim, dy.shape[2:])
    cells = padded(dy, (0, 0, *low), (0, 0, *high), 0)
    groups = geometry.groups
    lead = (dy.shape[0], *((groups,) if groups > 1 else ()), w.shape[1])
    parts = []
    for chosen in itertools.product(*per_dim):
        part = _phase_gradient(cells, w, chosen, low, groups)
        zeros, ones = (0,) * len(lead), (1,) * len(lead)
        parts.append((part, (*zeros, *(p.start for p in chosen)), (*ones, *(p.step for p in chosen))))
    whole = parts[0][0] if len(parts) == 1 else dy.graph.assemble((*lead, *spatial), parts)
    return dy.graph.reshape(whole, (dy.shape[0], w.shape[1] * groups, *spatial))


def _reach(per_dim: Sequence[Sequence[Phase]], outputs: Shape) -> tuple[list[int], list[int]]:
    """How far the taps look past the outputs' ends, per dim."""
    low, high = [], []
    for dim, extent in zip(per_dim, outputs, strict=True):
        used = [p for p in dim if p.taps]
        low.append(max([0, *(p.output_step * (p.taps - 1) - p.origin for p in used)]))
        high.append(max([0, *(p.origin + p.count - extent for p in used)]))
    return low, high


def _phase_gradient(cells: Value, w: Value, chosen: Sequence[Phase], low: Sequence[int], groups: int) -> Value:
    n, g, ci, co = axes(cells.shape[0], groups, w.shape[1], w.shape[0] // groups, names="ngco")
    q, t = axes(*(p.count for p in chosen), names="hw"), axes(*(p.taps for p in chosen), names="kl")
    keep = (n, *_one(g), ci, *q)
    if not all(p.taps for p in chosen):
        return cells.graph.map(keep, const(0, cells.dtype))
    channel = _grouped(g, co, groups)
    met = [a + (p.origin + shift) - b * p.output_step for a, b, p, shift in zip(q, t, chosen, low, strict=True)]
    taps = [b * p.kernel_step + p.kernel for b, p in zip(t, chosen, strict=True)]
    return cells.graph.contract(keep, (co, *t), cells[(n, channel, *met)], w[(channel, ci, *taps)])


def weight_gradient(x: Value, dy: Value, kernel: Shape, geometry: Geometry) -> Value:
    """Σ over (n, output…) of dy·input."""
    groups = geometry.groups
    g, co, ci, n = axes(groups, dy.shape[1] // groups, x.shape[1] // groups, x.shape[0], names="gocn")
    o, k = axes(*dy.shape[2:], names="hw"), axes(*kernel, names="kl")
    cells = _cells(x, geometry.padding)
    lhs = dy[(n, _grouped(g, co, groups), *o)]
    rhs = cells[(n, _grouped(g, ci, groups), *geometry.read(o, k))]
    out = x.graph.contract((*_one(g), co, ci, *k), (n, *o), lhs, rhs)
    return x.graph.reshape(out, (dy.shape[1], ci.extent, *kernel))


def _plus_bias(y: Value, bias: Value | None) -> Value:
    if bias is None:
        return y
    at = y.axes()
    return y.graph.map(at, y[at] + bias[at[1]])


@operator
def convolution(
    x: Value,
    w: Value,
    bias: Value | None = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    transposed: bool = False,
    output_padding: Sequence[int] = (0,),
    groups: int = 1,
) -> Value:
    """As aten::convolution; the bias is added last, in one rounding. ValueError where the shapes do not fit."""
    dims = x.ndim - 2
    geometry = Geometry.of(dims, stride, padding, dilation, groups)
    if not transposed:
        return _plus_bias(forward(x, w, geometry), bias)
    if x.ndim != w.ndim or x.ndim < 3 or w.shape[0] != x.shape[1] or w.shape[0] % groups:
        raise ValueError(f"transposed convolution of input {x.shape} with weight {w.shape}: {geometry}")
    extra = tuple(output_padding) * (dims if len(output_padding) == 1 else 1)
    spatial = geometry.inputs(x.shape[2:], w.shape[2:], extra)
    return _plus_bias(input_gradient(x, w, spatial, geometry), bias)


@operator
def convolution_backward(
    dy: Value,
    x: Value,
    w: Value,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    transposed: bool = False,
    groups: int = 1,
    output_mask: Sequence[bool] = (True, True, True),
) -> Gradients:
    """Gradients of input, weight and bias, None where `output_mask` does not ask for one."""
    geometry = Geometry.of(x.ndim - 2, stride, padding, dilation, groups)
    dx = dw = db = None
    if output_mask[0]:
        dx = forward(dy, w, geometry) if transposed else input_gradient(dy, w, x.shape[2:], geometry)
    if output_mask[1]:
        seen, sent = (dy, x) if transposed else (x, dy)
        dw = weight_gradient(seen, sent, w.shape[2:], geometry)
    if output_mask[2]:
        db = fold("sum", dy, [d for d in range(dy.ndim) if d != 1], False)
    return dx, dw, db
