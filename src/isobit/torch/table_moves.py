"""What is exact by nature (ARITHMETIC.md §1): bit moves and integer arithmetic, on PyTorch's own kernels.

In compiled graphs the moves are statements, so that they fuse; where a move is not written down here, PyTorch's
kernel runs between two compiled pieces.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from isobit.arithmetic.dtypes import DType
from isobit.ir.expr import Affine, axes, coord
from isobit.ir.expr import where as select_
from isobit.ir.graph import Value
from isobit.operators import pointwise, views
from isobit.torch.dtypes import Unowned
from isobit.torch.lowering import Call
from isobit.torch.original import original
from isobit.torch.table import Family

FAMILY = Family()

# Views, metadata, memory.
FAMILY.passes("""
    as_strided as_strided_ _reshape_alias view.dtype unfold view_as_real view_as_complex
    set_ set_.source_Storage set_.source_Storage_storage_offset set_.source_Tensor resize_ resize_as_ is_set_to
    empty.memory_format empty_strided empty_like empty_permuted new_empty new_empty_strided _efficientzerotensor
    zero_ zero _local_scalar_dense from_file _lazy_clone _pin_memory is_pinned _has_same_storage_numel
    detach_ lift squeeze_ squeeze_.dim squeeze_.dims t_ transpose_ unsqueeze_ is_same_size _resize_output
    _assert_async _assert_async.msg _functional_assert_async.msg _assert_tensor_metadata _assert_scalar
    _functional_assert_scalar sym_constrain_range sym_constrain_range_for_size _make_dep_token _print
    _nested_compute_contiguous_strides_offsets
""")

# Moves.
FAMILY.passes("""
    narrow_copy narrow_copy.out _stack _stack.out index.Tensor index.Tensor_out _unsafe_index.Tensor
    index_select index_select.out gather gather.out take take.out masked_select masked_select.out
    scatter.src scatter.src_out scatter_.src scatter.value scatter.value_out scatter_.value
    masked_scatter_ masked_scatter embedding channel_shuffle native_channel_shuffle pixel_shuffle pixel_unshuffle
    im2col im2col.out reflection_pad1d reflection_pad1d.out reflection_pad2d reflection_pad2d.out reflection_pad3d
    reflection_pad3d.out replication_pad1d replication_pad1d.out replication_pad2d replication_pad2d.out
    replication_pad3d replication_pad3d.out tril.out tril_ triu.out triu_ eye.out eye.m_out diagonal_scatter
    as_strided_scatter select_backward slice_backward diagonal_backward
    upsample_nearest1d upsample_nearest1d.out upsample_nearest2d upsample_nearest2d.out upsample_nearest3d
    upsample_nearest3d.out _upsample_nearest_exact1d _upsample_nearest_exact1d.out _upsample_nearest_exact2d
    _upsample_nearest_exact2d.out _upsample_nearest_exact3d _upsample_nearest_exact3d.out
""")

# Integers alone.
FAMILY.passes("""
    random_ random_.from random_.to tril_indices triu_indices repeat_interleave.Tensor gcd gcd.out gcd_ lcm lcm.out
    lcm_ _convert_indices_from_coo_to_csr _convert_indices_from_coo_to_csr.out _convert_indices_from_csr_to_coo
    _convert_indices_from_csr_to_coo.out _int_mm _int_mm.out __ilshift__.Scalar __ilshift__.Tensor
    __irshift__.Scalar __irshift__.Tensor __lshift__.Scalar __lshift__.Tensor __rshift__.Scalar __rshift__.Tensor
""")


@FAMILY.moves("view", "_unsafe_view", "view_copy")
def view(c: Call, x: Value, shape: Any) -> Value:
    return views.view(x, c.shape)


@FAMILY.moves("reshape")
def reshape(c: Call, x: Value, shape: Any) -> Value:
    return views.view(x, c.shape)


@FAMILY.moves("alias", "detach", "lift_fresh", "lift_fresh_copy", "clone", "_conj", "alias_copy", "contiguous")
def alias(c: Call, x: Value, *attributes: Any) -> Value:
    return x


@FAMILY.moves("expand", "expand_copy")
def expand(c: Call, x: Value, shape: Any, implicit: bool = False) -> Value:
    return views.expand(x, c.shape)


@FAMILY.moves("permute", "permute_copy")
def permute(c: Call, x: Value, dims: Any) -> Value:
    return views.permute(x, dims)


@FAMILY.moves("t", "t_copy")
def transpose_matrix(c: Call, x: Value) -> Value:
    return views.permute(x, tuple(reversed(range(x.ndim))))


@FAMILY.moves("transpose.int", "transpose_copy.int")
def transpose(c: Call, x: Value, first: int, second: int) -> Value:
    order = list(range(x.ndim))
    if order:
        order[first], order[second] = order[second], order[first]
    return views.permute(x, order)


@FAMILY.moves("unsqueeze", "squeeze", "squeeze.dim", "squeeze.dims", "unsqueeze_copy", "squeeze_copy.dims")
def squeeze(c: Call, x: Value, *dims: Any) -> Value:
    return views.view(x, c.shape)


@FAMILY.moves("slice.Tensor", "slice_copy.Tensor")
def slice_(c: Call, x: Value, dim: int, start: int | None, end: int | None, step: int) -> Value:
    return views.slice_(x, dim, start or 0, end, step)


@FAMILY.moves("select.int", "select_copy.int")
def select(c: Call, x: Value, dim: int, index: int) -> Value:
    return views.select_(x, dim, index)


@FAMILY.moves("diagonal")
def diagonal(c: Call, x: Value, offset: int, dim1: int, dim2: int) -> Value:
    first, second = dim1 % x.ndim, dim2 % x.ndim
    at = axes(*c.shape)
    rest = iter(at[:-1])
    place = {first: at[-1] + max(-offset, 0), second: at[-1] + max(offset, 0)}
    return c.graph.map(at, x[tuple(place[d] if d in place else next(rest) for d in range(x.ndim))])


@FAMILY.moves("split.Tensor", "split_with_sizes", "split_with_sizes_copy", "split_copy.Tensor", "unsafe_split.Tensor")
def split(c: Call, x: Value, sizes: Any, dim: int) -> list[Value]:
    parts, start = [], 0
    for result in c.results:
        stop = start + result.shape[dim]
        parts.append(views.slice_(x, dim, start, stop))
        start = stop
    return parts


@FAMILY.moves("unbind.int")
def unbind(c: Call, x: Value, dim: int) -> list[Value]:
    return [views.select_(x, dim, i) for i in range(x.shape[dim])]


@FAMILY.moves("repeat")
def repeat(c: Call, x: Value, repeats: Any) -> Value:
    lead = len(repeats) - x.ndim
    shape = (1,) * lead + x.shape
    apart = views.view(x, [n for extent in shape for n in (1, extent)])
    wide = views.expand(apart, [n for r, extent in zip(repeats, shape, strict=True) for n in (r, extent)])
    return views.view(wide, c.shape)


@FAMILY.moves("constant_pad_nd")
def pad(c: Call, x: Value, pads: Any, value: Any) -> Value:
    return views.pad(x, pads, value)


@FAMILY.moves("flip")
def flip(c: Call, x: Value, dims: Any) -> Value:
    return views.flip(x, dims)


@FAMILY.moves("roll")
def roll(c: Call, x: Value, shifts: Any, dims: Any) -> Value:
    if not dims:
        return views.view(views.roll(views.view(x, [math.prod(x.shape)]), shifts, [0]), x.shape)
    return views.roll(x, shifts, dims)


@FAMILY.moves("tril")
def tril(c: Call, x: Value, diagonal: int) -> Value:
    return views.tril(x, diagonal)


@FAMILY.moves("triu")
def triu(c: Call, x: Value, diagonal: int) -> Value:
    return views.triu(x, diagonal)


@FAMILY.moves("slice_scatter")
def slice_scatter(c: Call, x: Value, source: Value, dim: int, start: int | None, end: int | None, step: int) -> Value:
    dim = dim % x.ndim
    span = range(*slice(start, end, step).indices(x.shape[dim]))
    if step != 1:
        raise Unowned("slice_scatter with a step in a graph")
    return views.cat([views.slice_(x, dim, 0, span.start), source, views.slice_(x, dim, span.start + len(span))], dim)


@FAMILY.moves("select_scatter")
def select_scatter(c: Call, x: Value, source: Value, dim: int, index: int) -> Value:
    dim, index = dim % x.ndim, index % x.shape[dim]
    row = views.view(source, (*x.shape[:dim], 1, *x.shape[dim + 1 :]))
    return views.cat([views.slice_(x, dim, 0, index), row, views.slice_(x, dim, index + 1)], dim)


@FAMILY.moves("zeros", "zeros_like", "new_zeros")
def zeros(c: Call, *attributes: Any) -> Value:
    return pointwise.full(c.graph, c.shape, 0, c.dtype)


@FAMILY.moves("ones", "ones_like", "new_ones")
def ones(c: Call, *attributes: Any) -> Value:
    return pointwise.full(c.graph, c.shape, 1, c.dtype)


@FAMILY.moves("eye", "eye.m")
def eye(c: Call, *attributes: Any) -> Value:
    i, j = axes(*c.shape)
    return c.graph.map((i, j), _equal(i - j).cast(c.dtype))


def _equal(difference: Affine) -> Any:
    return coord(difference).eq(0)


@FAMILY.statement("cat", uniform=True)
def cat(c: Call, tensors: Any, dim: int) -> Value:
    return views.cat(c.promote(*tensors), dim)


@FAMILY.statement("stack", uniform=True)
def stack(c: Call, tensors: Any, dim: int) -> Value:
    return views.stack(c.promote(*tensors), dim)


@FAMILY.statement("arange.start_step", static=["start", "end", "step"])
def arange(c: Call, start: Any, end: Any, step: Any, *attributes: Any) -> Value:
    return arange_of(c, start, step)


@FAMILY.statement("arange.start", static=["start", "end"])
def arange_from(c: Call, start: Any, end: Any, *attributes: Any) -> Value:
    return arange_of(c, start, 1)


@FAMILY.statement("arange", static=["end"])
def arange_to(c: Call, end: Any, *attributes: Any) -> Value:
    return arange_of(c, 0, 1)


@FAMILY.decomposition("arange.start_out")
def arange_out(start: Any, end: Any, step: Any = 1, *, out: torch.Tensor) -> torch.Tensor:
    """Integers on PyTorch's kernel."""
    if not out.is_floating_point():
        filled: torch.Tensor = original("aten::arange.start_out")(start, end, step, out=out)
        return filled
    values = torch.ops.aten.arange.start_step(start, end, step, dtype=out.dtype)
    return out.resize_(values.shape).copy_(values)


@FAMILY.statement("linspace", static=["start", "end"])
def linspace(c: Call, start: Any, end: Any, steps: int, *attributes: Any) -> Value:
    """From both ends, as PyTorch: start + i·step for the first half, end − (n − 1 − i)·step for the rest, binary64."""
    (i,) = axes(*c.shape)
    if not c.dtype.is_float:
        raise Unowned("linspace of integers")
    low, high = float(start), float(end)
    step = (high - low) / (steps - 1) if steps > 1 else 0.0
    up = low + coord(i).cast(DType.F64) * step
    down = high - coord(steps - 1 - i).cast(DType.F64) * step
    return c.graph.map((i,), select_(coord(i) < max(steps // 2, 1), up, down).cast(c.dtype))


@FAMILY.decomposition("linspace.out")
def linspace_out(start: Any, end: Any, steps: int, *, out: torch.Tensor) -> torch.Tensor:
    values = torch.ops.aten.linspace(start, end, steps, dtype=out.dtype)
    return out.resize_(values.shape).copy_(values)


def arange_of(c: Call, start: Any, step: Any) -> Value:
    """start + i·step: in i64 for integers, else in binary64 with two roundings, and one more to the dtype."""
    (i,) = axes(*c.shape)
    if not c.dtype.is_float:
        return views.arange(c.graph, i.extent, int(start), int(step), c.dtype)
    place = coord(i).cast(DType.F64)
    return c.graph.map((i,), (float(start) + place * float(step)).cast(c.dtype))
