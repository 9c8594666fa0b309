"""Pooling over the last 1 to 3 dims: maximum with indices, average, their adaptive forms, and the backwards.

A backward gathers: each input sums, as one run in row-major order, what the windows that hold it send; windows past
the ends keep their position as +0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from isobit.arithmetic.dtypes import DType
from isobit.ir.expr import Affine, Axis, Const, Expr, Load, axes, call, const, coord
from isobit.ir.expr import where as select
from isobit.ir.graph import Shape, Value
from isobit.operators.elements import pointwise
from isobit.operators.registry import operator
from isobit.operators.windows import Adaptive, Phase, Position, Uniform, Windows, as_expr

Sizes = Sequence[int]


def _each(given: Sizes, dims: int, name: str) -> tuple[int, ...]:
    if len(given) not in (1, dims):
        raise ValueError(f"{name} {tuple(given)} for {dims} dims")
    return tuple(given) * (dims if len(given) == 1 else 1)


def uniform_windows(
    spatial: Shape, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool
) -> list[Windows]:
    """PyTorch's windows: with `ceil_mode` a last one may stick out, but begins inside the input or its left padding."""
    dims = len(spatial)
    kernel = _each(kernel, dims, "kernel_size")
    strides = _each(stride, dims, "stride") if len(stride) else kernel
    each = zip(
        spatial, kernel, strides, _each(padding, dims, "padding"), _each(dilation, dims, "dilation"), strict=True
    )
    return [_uniform(*dim, ceil_mode) for dim in each]


def _uniform(n: int, k: int, s: int, p: int, d: int, ceil_mode: bool) -> Windows:
    if k <= 0 or s <= 0 or d <= 0 or not 0 <= 2 * p <= (k - 1) * d + 1:
        raise ValueError(f"pooling with kernel {k}, stride {s}, padding {p}, dilation {d}")
    outputs = (n + 2 * p - d * (k - 1) - 1 + (s - 1 if ceil_mode else 0)) // s + 1
    if ceil_mode and (outputs - 1) * s >= n + p:
        outputs -= 1
    if outputs <= 0:
        raise ValueError(f"pooling of {n} cells with kernel {k} leaves none")
    return Uniform(n, outputs, k, s, p, d)


def adaptive_windows(spatial: Shape, output_size: Sizes) -> list[Windows]:
    """`output_size` windows per dim; where they divide the input evenly they are ordinary ones."""
    outputs = _each(output_size, len(spatial), "output_size")
    return [_adaptive(n, o) for n, o in zip(spatial, outputs, strict=True)]


def _adaptive(n: int, o: int) -> Windows:
    return Uniform(n, o, n // o, n // o, 0) if o and n and n % o == 0 else Adaptive(n, o)


def _at(x: Value, lead: Sequence[Axis], places: Sequence[Position], fill: float) -> Load:
    """The element, with `fill` outside where a place can lie there."""
    ends = zip(places, x.shape[len(lead) :], strict=True)
    inside = all(isinstance(i, Affine) and i.bounds()[0] >= 0 and i.bounds()[1] < n for i, n in ends)
    return x.at(*lead, *places, fill=None if inside else fill)


def _all(conditions: Sequence[Expr | None]) -> Expr | None:
    held = [c for c in conditions if c is not None]
    out = held[0] if held else None
    for c in held[1:]:
        assert out is not None
        out = out & c
    return out


def _kept(condition: Expr | None, value: Expr, fill: float) -> Expr:
    return value if condition is None else select(condition, value, fill)


def _reduce(kinds: Sequence[str], x: Value, windows: Sequence[Windows], fill: float) -> list[Value]:
    """Reductions of each window, row-major over its taps."""
    lead, o, k = axes(*x.shape[: -len(windows)]), axes(*(w.outputs for w in windows)), axes(*(w.taps for w in windows))
    places = [w.input(a, b) for w, a, b in zip(windows, o, k, strict=True)]
    held = _all([w.held(a, b) for w, a, b in zip(windows, o, k, strict=True)])
    body = _kept(held, _at(x, lead, places, fill), fill)
    return [x.graph.reduce(kind, (*lead, *o), k, body) for kind in kinds]


def _max_with_indices(x: Value, windows: Sequence[Windows]) -> tuple[Value, Value]:
    top, position = _reduce(("max", "argmax"), x, windows, -math.inf)
    at = position.axes()
    o = at[-len(windows) :]
    taps = _taps(position[at], windows)
    places = [as_expr(w.input(a, k)) for w, a, k in zip(windows, o, taps, strict=True)]
    flat = _flat(places, windows)
    if any(isinstance(w, Uniform) and w.padding for w in windows):
        # Padding can win only where all of the window is −inf; then the first real cell does.
        inside = _all([(i >= 0) & (i < w.extent) for i, w in zip(places, windows, strict=True)])
        assert inside is not None
        flat = select(inside, flat, _flat([_first(w, a) for w, a in zip(windows, o, strict=True)], windows))
    return top, x.graph.map(at, flat)


def _taps(position: Expr, windows: Sequence[Windows]) -> list[Expr]:
    """The position in a window split into its taps per dim."""
    taps: list[Expr] = []
    for w in reversed(windows[1:]):
        taps.insert(0, call("mod", position, position.like(w.taps)))
        position = call("floordiv", position, position.like(w.taps))
    return [position, *taps]


def _first(w: Windows, o: Axis) -> Expr:
    """The first input of window o that is not padding."""
    start = as_expr(w.input(o, const(0, DType.I64)))
    if not isinstance(w, Uniform) or not w.padding:
        return start
    before = call("max", -start, start.like(0)) + (w.dilation - 1)
    return start + call("floordiv", before, before.like(w.dilation)) * w.dilation


def _flat(places: Sequence[Expr], windows: Sequence[Windows]) -> Expr:
    """The row-major position in the input plane."""
    total = places[0]
    for place, w in zip(places[1:], windows[1:], strict=True):
        total = total * w.extent + place
    return total


Sent = Callable[[Sequence[Axis], Sequence[Position], Expr], Expr]


def _collect(like: Value, windows: Sequence[Windows], sent: Sent) -> Value:
    """Per input, Σ over the windows that hold it of sent(leading axes, output, the input's flat position)."""
    lead_shape = like.shape[: -len(windows)]
    ones = (1,) * len(lead_shape)
    parts = []
    for chosen in itertools.product(*(w.phases() for w in windows)):
        lead, q, t = axes(*lead_shape), axes(*(p.count for p in chosen)), axes(*(p.taps for p in chosen))
        part = _collect_phase(like, windows, chosen, (lead, q, t), sent)
        offset = (*(0 for _ in lead), *(p.start for p in chosen))
        parts.append((part, offset, (*ones, *(p.step for p in chosen))))
    if len(parts) == 1:
        return parts[0][0]
    return like.graph.assemble((*lead_shape, *(w.extent for w in windows)), parts)


def _collect_phase(
    like: Value,
    windows: Sequence[Windows],
    chosen: Sequence[Phase],
    at: tuple[Sequence[Axis], Sequence[Axis], Sequence[Axis]],
    sent: Sent,
) -> Value:
    lead, q, t = at
    if not all(p.taps for p in chosen):
        return like.graph.map((*lead, *q), const(0, like.dtype))
    outputs = [p.output_ascending(a, b) for p, a, b in zip(chosen, q, t, strict=True)]
    met = _all([p.meets(a, b) for p, a, b in zip(chosen, q, t, strict=True)])
    places: list[Expr] = [coord(a * p.step + p.start) for p, a in zip(chosen, q, strict=True)]
    body = _kept(met, sent(lead, outputs, _flat(places, windows)), 0)
    return like.graph.reduce("sum", (*lead, *q), t, body)


def _max_backward(dy: Value, index: Value, windows: Sequence[Windows]) -> Value:
    def sent(lead: Sequence[Axis], outputs: Sequence[Position], me: Expr) -> Expr:
        return select(_at(index, lead, outputs, -1).eq(me), _at(dy, lead, outputs, 0), 0)

    return _collect(dy, windows, sent)


@operator
def max_pool(
    x: Value,
    kernel: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    dilation: Sizes = (1,),
    ceil_mode: bool = False,
) -> tuple[Value, Value]:
    """(maximum, its i64 position in the input plane) over the last len(kernel) dims.

    The maximum is as amax (NaN wins, −0 < +0); the position as argmax (the lowest among equals).
    """
    windows = uniform_windows(x.shape[-len(kernel) :], kernel, stride, padding, dilation, ceil_mode)
    return _max_with_indices(x, windows)


@operator
def max_pool_backward(
    dy: Value,
    x: Value,
    index: Value,
    kernel: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    dilation: Sizes = (1,),
    ceil_mode: bool = False,
) -> Value:
    """Each input sums dy of the windows whose index names it."""
    windows = uniform_windows(x.shape[-len(kernel) :], kernel, stride, padding, dilation, ceil_mode)
    return _max_backward(dy, index, windows)


@operator
def adaptive_max_pool(x: Value, output_size: Sizes) -> tuple[Value, Value]:
    """As max_pool over windows ⌊o·n ÷ m⌋ … ⌈(o + 1)·n ÷ m⌉."""
    return _max_with_indices(x, adaptive_windows(x.shape[-len(output_size) :], output_size))


@operator
def adaptive_max_pool_backward(dy: Value, x: Value, index: Value, dims: int) -> Value:
    """Each input sums dy of the windows whose index names it; `dims` spatial dims."""
    return _max_backward(dy, index, adaptive_windows(x.shape[-dims:], dy.shape[-dims:]))


def _divided(x: Value, windows: Sequence[Windows], count_padding: bool, divisor: int | None) -> Value:
    """x, indexed by window, divided by the window's size, or by `divisor`."""
    if divisor is not None:
        return pointwise(lambda a: a / divisor, x)
    at = x.axes()
    size: Expr = const(1, DType.I64)
    for w, o in zip(windows, at[-len(windows) :], strict=True):
        size = _times(size, _size(w, o, count_padding))
    return x.graph.map(at, x[at] / size.cast(x.dtype))


def _size(w: Windows, o: Axis, count_padding: bool) -> Expr:
    """The size of window o; a literal where all windows are of one size."""
    sizes = {w.size(i, count_padding) for i in range(w.outputs)}
    return const(sizes.pop(), DType.I64) if len(sizes) == 1 else w.size_expr(o, count_padding)


def _times(a: Expr, b: Expr) -> Expr:
    if isinstance(a, Const) and isinstance(b, Const):
        return const(int(a.value) * int(b.value), DType.I64)
    return a * b


def _average(x: Value, windows: Sequence[Windows], count_padding: bool, divisor: int | None) -> Value:
    (total,) = _reduce(("sum",), x, windows, 0)
    return _divided(total, windows, count_padding, divisor)


def _average_backward(dy: Value, windows: Sequence[Windows], count_padding: bool, divisor: int | None) -> Value:
    share = _divided(dy, windows, count_padding, divisor)
    return _collect(share, windows, lambda lead, outputs, me: _at(share, lead, outputs, 0))


@operator
def avg_pool(
    x: Value,
    kernel: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:
    """The sum of each window as one run ÷ its size."""
    windows = uniform_windows(x.shape[-len(kernel) :], kernel, stride, padding, (1,), ceil_mode)
    return _average(x, windows, count_include_pad, divisor_override)


@operator
def avg_pool_backward(
    dy: Value,
    x: Value,
    kernel: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:
    """dy ÷ size first, then each input's sum over the windows that hold it."""
    windows = uniform_windows(x.shape[-len(kernel) :], kernel, stride, padding, (1,), ceil_mode)
    return _average_backward(dy, windows, count_include_pad, divisor_override)


@operator
def adaptive_avg_pool(x: Value, output_size: Sizes) -> Value:
    """The mean of the windows ⌊o·n ÷ m⌋ … ⌈(o + 1)·n ÷ m⌉."""
    return _average(x, adaptive_windows(x.shape[-len(output_size) :], output_size), False, None)


@operator
def adaptive_avg_pool_backward(dy: Value, x: Value, dims: int) -> Value:
    """dy ÷ size first, then each input's sum over the windows that hold it; `dims` spatial dims."""
    return _average_backward(dy, adaptive_windows(x.shape[-dims:], dy.shape[-dims:]), False, None)
