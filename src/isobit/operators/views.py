"""Operators that only move elements: views, copies, concatenation, gathers. Every dtype as it is."""

from __future__ import annotations

from collections.abc import Sequence

from isobit.arithmetic.dtypes import DType
from isobit.ir.expr import Affine, Axis, Expr, Scalar, axes, const, coord
from isobit.ir.expr import where as select
from isobit.ir.graph import Graph, Value
from isobit.operators.elements import element
from isobit.operators.registry import bit_move


def normal_dim(dim: int, ndim: int) -> int:
    """The non-negative dim; raises ValueError if there is none such."""
    if not -max(ndim, 1) <= dim < max(ndim, 1):
        raise ValueError(f"dim {dim} of a tensor with {ndim} dims")
    return dim + ndim if dim < 0 else dim


@bit_move
def view(x: Value, shape: Sequence[int]) -> Value:
    """The elements in row-major order under another shape; one extent may be −1."""
    known = 1
    for n in shape:
        known *= n if n != -1 else 1
    size = 1
    for n in x.shape:
        size *= n
    return x.graph.reshape(x, [size // max(known, 1) if n == -1 else n for n in shape])


@bit_move
def expand(x: Value, shape: Sequence[int]) -> Value:
    """x repeated along dims of size 1 and new leading dims; −1 keeps an extent."""
    lead = len(shape) - x.ndim
    full = [x.shape[d - lead] if n == -1 else n for d, n in enumerate(shape)]
    if lead < 0 or any(n not in (1, full[d + lead]) for d, n in enumerate(x.shape)):
        raise ValueError(f"expand of {x.shape} to {tuple(shape)}")
    at = axes(*full)
    return x.graph.map(at, element(x, at))


@bit_move
def permute(x: Value, dims: Sequence[int]) -> Value:
    """Dim d of the result is dim dims[d] of x."""
    order = [normal_dim(d, x.ndim) for d in dims]
    if sorted(order) != list(range(x.ndim)):
        raise ValueError(f"permute of {x.shape} by {tuple(dims)}")
    at = x.axes()
    return x.graph.map([at[d] for d in order], x[at])


@bit_move
def slice_(x: Value, dim: int, start: int = 0, stop: int | None = None, step: int = 1) -> Value:
    """x[..., start:stop:step, ...] with Python's rule for negative and too large bounds; step > 0."""
    dim = normal_dim(dim, x.ndim)
    span = range(*slice(start, stop, step).indices(x.shape[dim]))
    at: list[Axis] = [Axis(len(span)) if d == dim else a for d, a in enumerate(x.axes())]
    return x.graph.map(at, x[tuple(a * step + span.start if d == dim else a for d, a in enumerate(at))])


@bit_move
def select_(x: Value, dim: int, index: int) -> Value:
    """x[..., index, ...] without that dim."""
    dim = normal_dim(dim, x.ndim)
    if not -x.shape[dim] <= index < x.shape[dim]:
        raise ValueError(f"index {index} of dim {dim} of {x.shape}")
    at = x.axes()
    fixed = [Affine.of(index % x.shape[dim]) if d == dim else Affine.of(a) for d, a in enumerate(at)]
    return x.graph.map([a for d, a in enumerate(at) if d != dim], x[tuple(fixed)])


@bit_move
def flip(x: Value, dims: Sequence[int]) -> Value:
    """Reversed along `dims`."""
    turned = {normal_dim(d, x.ndim) for d in dims}
    at = x.axes()
    return x.graph.map(at, x[tuple(a.extent - 1 - a if d in turned else a for d, a in enumerate(at))])


@bit_move
def cat(xs: Sequence[Value], dim: int = 0) -> Value:
    """The tensors one after another along `dim`; empty 1-d tensors are left out, as PyTorch."""
    parts = [x for x in xs if x.shape != (0,)] or list(xs[:1])
    dim = normal_dim(dim, parts[0].ndim)
    rest = {x.shape[:dim] + x.shape[dim + 1 :] for x in parts}
    if len(rest) != 1 or len({x.dtype for x in parts}) != 1:
        raise ValueError(f"cat of {[x.shape for x in parts]} along {dim}")
    shape, placed, offset = list(parts[0].shape), [], 0
    for x in parts:
        placed.append((x, [offset if d == dim else 0 for d in range(x.ndim)], [1] * x.ndim))
        offset += x.shape[dim]
    shape[dim] = offset
    return parts[0].graph.assemble(shape, placed)


@bit_move
def stack(xs: Sequence[Value], dim: int = 0) -> Value:
    """The tensors along a new dim."""
    dim = normal_dim(dim, xs[0].ndim + 1)
    return cat([x.graph.reshape(x, (*x.shape[:dim], 1, *x.shape[dim:])) for x in xs], dim)


def padded(x: Value, low: Sequence[int], high: Sequence[int], fill: Scalar) -> Value:
    """x with low[d] and high[d] cells of `fill` around dim d (negative: cut off); x itself where nothing is added."""
    if not any(low) and not any(high):
        return x
    shape = [n + a + b for n, a, b in zip(x.shape, low, high, strict=True)]
    if min(*low, *high) >= 0 and 0 not in shape:
        return _framed(x, shape, low, high, fill)
    at = axes(*shape)
    index = [i - a for i, a in zip(at, low, strict=True)]
    inside = all(a <= 0 and b <= 0 for a, b in zip(low, high, strict=True))
    return x.graph.map(at, x.at(*index, fill=None if inside else fill))


def _framed(x: Value, shape: Sequence[int], low: Sequence[int], high: Sequence[int], fill: Scalar) -> Value:
    """x and the slabs around it, each written once: no element is tested for being outside."""
    steps = [1] * x.ndim
    parts = [(x, list(low), steps)]
    for d in range(x.ndim):
        for start, width in ((0, low[d]), (low[d] + x.shape[d], high[d])):
            extents = [*x.shape[:d], width, *shape[d + 1 :]]
            slab = x.graph.map(axes(*extents), const(fill, x.dtype))
            parts.append((slab, [*low[:d], start, *[0] * (x.ndim - d - 1)], steps))
    return x.graph.assemble(shape, [part for part in parts if 0 not in part[0].shape])


@bit_move
def pad(x: Value, pads: Sequence[int], value: Scalar = 0) -> Value:
    """constant_pad_nd: `pads` is (low, high) of the last dim, then of the one before, …"""
    low, high = [0] * x.ndim, [0] * x.ndim
    for k in range(len(pads) // 2):
        low[x.ndim - 1 - k], high[x.ndim - 1 - k] = pads[2 * k], pads[2 * k + 1]
    return padded(x, low, high, value)


@bit_move
def roll(x: Value, shifts: Sequence[int], dims: Sequence[int]) -> Value:
    """Element i goes to (i + shift) mod extent, dim by dim."""
    for shift, dim in zip(shifts, dims, strict=True):
        d = normal_dim(dim, x.ndim)
        cut = -shift % x.shape[d] if x.shape[d] else 0
        x = cat([slice_(x, d, cut), slice_(x, d, 0, cut)], d) if cut else x
    return x


def _banded(x: Value, keep_below: bool, diagonal: int) -> Value:
    at = x.axes()
    offset = coord(at[-1] - at[-2])
    kept = offset <= diagonal if keep_below else offset >= diagonal
    return x.graph.map(at, select(kept, x[at], 0))


@bit_move
def tril(x: Value, diagonal: int = 0) -> Value:
    """The last two dims' lower triangle up to `diagonal`, zeros above."""
    return _banded(x, True, diagonal)


@bit_move
def triu(x: Value, diagonal: int = 0) -> Value:
    """The last two dims' upper triangle from `diagonal`, zeros below."""
    return _banded(x, False, diagonal)


@bit_move
def index_select(x: Value, dim: int, index: Value, fill: Scalar = 0) -> Value:
    """x[..., index[i], ...]; an index outside reads `fill` (check it before)."""
    dim = normal_dim(dim, x.ndim)
    (i,) = axes(*index.shape)
    at = [i if d == dim else a for d, a in enumerate(x.axes())]
    return x.graph.map(at, x.at(*(_position(index[i]) if d == dim else a for d, a in enumerate(at)), fill=fill))


def _position(e: Expr) -> Expr:
    return e.cast(DType.I64)


@bit_move
def gather(x: Value, dim: int, index: Value, fill: Scalar = 0) -> Value:
    """y[i, j, …] = x[…, index[i, j, …], …] along `dim`; an index outside reads `fill` (check it before)."""
    dim = normal_dim(dim, x.ndim)
    at = index.axes()
    found = _position(index[at])
    return x.graph.map(at, x.at(*(found if d == dim else a for d, a in enumerate(at)), fill=fill))


@bit_move
def embedding(weight: Value, index: Value, fill: Scalar = float("nan")) -> Value:
    """weight[index[...], :]; an index outside reads `fill`."""
    at, (d,) = index.axes(), axes(weight.shape[1])
    return weight.graph.map((*at, d), weight.at(_position(index[at]), d, fill=fill))


@bit_move
def arange(graph: Graph, count: int, start: int = 0, step: int = 1, dtype: DType = DType.I64) -> Value:
    """start + step·i for i < count: integers, converted once."""
    (i,) = axes(count)
    return graph.map((i,), coord(i * step + start).cast(dtype))


@bit_move
def one_hot(index: Value, classes: int) -> Value:
    """1 where the new last dim equals index, else 0; i64."""
    at, (c,) = index.axes(), axes(classes)
    hit = _position(index[at]).eq(coord(c))
    return index.graph.map((*at, c), hit.cast(DType.I64))
