"""Reductions and contractions in the orders of ARITHMETIC.md §3 and §4.

Arrays are f32, f64, integer or bool; narrow floats are widened to f32 by the caller (`fma.widen_f16`,
`fma.widen_bf16`) and rounded once after. Every function reduces one axis, a *run*, and is vectorised over the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from isobit.arithmetic.fma import fma_f32, fma_f64

Array = npt.NDArray[Any]
Binary = Callable[[Array, Array], Array]

BLOCK = 1024  # elements of a block of a reduction
LANES = 32  # lanes inside a block
CHUNK = 256  # terms of a chunk of a contraction


def _tree(x: Array, combine: Binary) -> Array:
    """Combine neighbours (2i, 2i+1) of the last axis until one is left; an unpaired last one passes up."""
    while x.shape[-1] > 1:
        even = x.shape[-1] // 2 * 2
        paired = combine(x[..., 0:even:2], x[..., 1:even:2])
        x = np.concatenate([paired, x[..., even:]], -1)
    return x[..., 0]


def _block(x: Array, combine: Binary, start: int) -> Array:
    """Up to 1024 elements of the last axis through 32 lanes, which start at `start`."""
    n = x.shape[-1]
    lanes = np.full((*x.shape[:-1], LANES), start, x.dtype)
    for k in range(0, n, LANES):
        row = x[..., k : k + LANES]
        lanes[..., : row.shape[-1]] = combine(lanes[..., : row.shape[-1]], row)
    half = LANES // 2
    while half:
        lanes = combine(lanes[..., :half], lanes[..., half : 2 * half])
        half //= 2
    return lanes[..., 0]


def _blocks(x: Array, combine: Binary, start: int) -> Array:
    """The results of all blocks of the last axis, which has at least one element: [..., blocks]."""
    whole = x.shape[-1] // BLOCK * BLOCK
    parts = [_block(x[..., :whole].reshape(*x.shape[:-1], -1, BLOCK), combine, start)]
    if x.shape[-1] > whole:
        parts.append(_block(x[..., whole:], combine, start)[..., None])
    return np.concatenate(parts, -1)


def _run(x: Array, axis: int, combine: Binary, start: int) -> Array:
    x = np.moveaxis(np.asarray(x), axis, -1)
    if x.shape[-1] == 0:
        return np.full(x.shape[:-1], start, x.dtype)
    with np.errstate(all="ignore"):
        return np.asarray(_tree(_blocks(x, combine, start), combine))


def sum_run(x: Array, axis: int = -1) -> Array:
    """The sum of a run (§3): blocks of 1024, 32 lanes each, then a tree. Integers wrap; an empty run gives +0."""
    return _run(x, axis, np.add, 0)


def prod_run(x: Array, axis: int = -1) -> Array:
    """The product of a run (§3), ordered as `sum_run`. Integers wrap; an empty run gives 1."""
    return _run(x, axis, np.multiply, 1)


def tree_sum(x: Array, axis: int = -1) -> Array:
    """Sums of blocks, chunks or runs combined in the tree of §3; +0 if there is none."""
    return _only_tree(x, axis, np.add, 0)


def tree_prod(x: Array, axis: int = -1) -> Array:
    """Products of blocks combined in the tree of §3; 1 if there is none."""
    return _only_tree(x, axis, np.multiply, 1)


def _only_tree(x: Array, axis: int, combine: Binary, start: int) -> Array:
    x = np.moveaxis(np.asarray(x), axis, -1)
    if x.shape[-1] == 0:
        return np.full(x.shape[:-1], start, x.dtype)
    with np.errstate(all="ignore"):
        return np.asarray(_tree(x, combine))


def runs(shape: Sequence[int], dims: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(shape with neighbouring reduced dims joined and reduced dims of size 1 dropped, its reduced dims), §3.

    Raises ValueError if `dims` names a dim twice or one that does not exist.
    """
    reduced = {d % len(shape) for d in dims if -len(shape) <= d < len(shape)}
    if len(reduced) != len(dims):
        raise ValueError(f"reduction: dims {tuple(dims)} do not name distinct dims of shape {tuple(shape)}")
    joined: list[tuple[int, bool]] = []
    for d, size in enumerate(shape):
        if d in reduced and size == 1:
            continue
        if d in reduced and joined and joined[-1][1]:
            joined[-1] = (joined[-1][0] * size, True)
        else:
            joined.append((size, d in reduced))
    return tuple(size for size, _ in joined), tuple(i for i, (_, is_run) in enumerate(joined) if is_run)


def sum_dims(x: Array, dims: Sequence[int]) -> Array:
    """The sum over several dims: runs from the last to the first (§3). Reduced dims are left out of the result."""
    shape, axes = runs(x.shape, dims)
    out = x.reshape(shape)
    for axis in reversed(axes):
        out = sum_run(out, axis)
    return out + x.dtype.type(0) if axes == () and out.dtype.kind == "f" else out


def mean_dims(x: Array, dims: Sequence[int]) -> Array:
    """sum ÷ n, one division (§3); NaN where n = 0."""
    with np.errstate(all="ignore"):
        return np.asarray(sum_dims(x, dims) / x.dtype.type(_count(x, dims)))


def _count(x: Array, dims: Sequence[int]) -> int:
    return int(np.prod([x.shape[d] for d in dims], dtype=np.int64))


def mean(x: Array, axis: int = -1) -> Array:
    """sum ÷ n of a run (§3); NaN where n = 0."""
    return mean_dims(x, (axis,))


def squared_deviations(x: Array, m: Array) -> Array:
    """M2 of the last axis about its mean m (§3): Σ over blocks of q_b + n_b·((m_b − m)·(m_b − m))."""
    terms = []
    with np.errstate(all="ignore"):
        for k in range(0, x.shape[-1], BLOCK):
            block = x[..., k : k + BLOCK]
            n = x.dtype.type(block.shape[-1])
            m_b = sum_run(block) / n
            apart = block - m_b[..., None]
            shift = m_b - m
            terms.append(sum_run(apart * apart) + n * (shift * shift))
    return tree_sum(np.stack(terms, -1)) if terms else np.zeros(x.shape[:-1], x.dtype)


def var_dims(x: Array, dims: Sequence[int], correction: float = 1) -> Array:
    """M2 ÷ max(n − correction, 0) over several dims (§3)."""
    shape, axes = runs(x.shape, dims)
    if not axes:
        shape, axes = (*shape, 1), (len(shape),)
    m, flat = mean_dims(x, dims), x.reshape(shape)
    for axis in axes:  # the mean, with the reduced dims put back
        m = np.expand_dims(m, axis)
    last = axes[-1]
    out = squared_deviations(np.moveaxis(flat, last, -1), np.squeeze(m, last))
    for axis in reversed(axes[:-1]):
        out = sum_run(out, axis)
    with np.errstate(all="ignore"):
        return np.asarray(out / x.dtype.type(max(_count(x, dims) - correction, 0)))


def var(x: Array, axis: int = -1, correction: float = 1) -> Array:
    """The variance of a run (§3): M2 ÷ max(n − correction, 0)."""
    return var_dims(x, (axis,), correction)


def _ordered(x: Array) -> Array:
    """Integers that sort as the floats do, with −0 < +0."""
    kind = np.dtype(f"i{x.dtype.itemsize}")
    bits = np.ascontiguousarray(x).view(kind).reshape(x.shape)
    return np.where(bits < 0, bits ^ np.iinfo(kind).max, bits)


def _extreme(x: Array, axis: int, best: Callable[..., Array], choose: Callable[..., Array]) -> Array:
    x = np.asarray(x)
    if x.shape[axis] == 0:
        raise ValueError(f"max/min over an empty dim {axis} of shape {x.shape}: reduce a dim that has elements")
    if x.dtype.kind != "f":
        return np.asarray(best(x, axis=axis))
    position = np.expand_dims(choose(_ordered(x), axis=axis), axis)
    value = np.take_along_axis(x, position, axis).squeeze(axis)
    return np.where(np.isnan(x).any(axis), x.dtype.type(np.nan), value)


def max_run(x: Array, axis: int = -1) -> Array:
    """The maximum of a run: any NaN makes it NaN, −0 < +0. Raises ValueError for an empty run."""
    return _extreme(x, axis, np.max, np.argmax)


def min_run(x: Array, axis: int = -1) -> Array:
    """The minimum of a run: any NaN makes it NaN, −0 < +0. Raises ValueError for an empty run."""
    return _extreme(x, axis, np.min, np.argmin)


def argmax(x: Array, axis: int = -1) -> Array:
    """Index (i64) of the maximum by `==`: the lowest of equals (−0 == +0), the first NaN if there is one."""
    return _position(x, axis, np.argmax, np.max)


def argmin(x: Array, axis: int = -1) -> Array:
    """Index (i64) of the minimum by `==`: the lowest of equals (−0 == +0), the first NaN if there is one."""
    return _position(x, axis, np.argmin, np.min)


def _position(x: Array, axis: int, choose: Callable[..., Array], best: Callable[..., Array]) -> Array:
    x = np.asarray(x)
    if x.shape[axis] == 0:
        raise ValueError(f"argmax/argmin over an empty dim {axis} of shape {x.shape}: reduce a dim with elements")
    if x.dtype.kind != "f":
        return np.asarray(choose(x, axis=axis), np.int64)
    nan = np.isnan(x)
    value = best(x, axis=axis, keepdims=True)  # NaN if there is one
    hit = np.where(np.isnan(value), nan, x == value)
    return np.asarray(np.argmax(hit, axis=axis), np.int64)


def contract(a: Array, b: Array) -> Array:
    """Σ_k a[..., k]·b[..., k] in the order of §4; a and b broadcast, the result is [...].

    Chunks of 256 terms by `fma` in ascending k from +0; chunk results through the tree of §3; the root is added to
    +0. Integers wrap. Raises ValueError where the k differ.
    """
    a, b = np.asarray(a), np.asarray(b)
    if a.shape[-1] != b.shape[-1] or a.dtype != b.dtype:
        raise ValueError(f"contract: operands {a.dtype}{a.shape} and {b.dtype}{b.shape} need one dtype and one k")
    if a.dtype.kind != "f":
        return np.asarray((a * b).sum(-1, dtype=a.dtype))
    zero = np.zeros(np.broadcast_shapes(a.shape[:-1], b.shape[:-1]), a.dtype)
    chunks = [_chunk(a[..., k : k + CHUNK], b[..., k : k + CHUNK], zero) for k in range(0, a.shape[-1], CHUNK)]
    if not chunks:
        return zero
    with np.errstate(all="ignore"):
        return np.asarray(tree_sum(np.stack(chunks, -1)) + zero)


def _chunk(a: Array, b: Array, total: Array) -> Array:
    fma: Callable[[Array, Array, Array], Array] = fma_f32 if a.dtype == np.float32 else fma_f64
    for k in range(a.shape[-1]):
        total = fma(a[..., k], b[..., k], total)
    return total


def matmul(a: Array, b: Array) -> Array:
    """a[..., M, K] · b[..., K, N] by `contract`; the leading dims broadcast."""
    return contract(a[..., :, None, :], np.swapaxes(b, -1, -2)[..., None, :, :])
