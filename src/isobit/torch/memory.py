"""Where a call's results go: fresh tensors, or memory that already holds something."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from isobit.arithmetic.dtypes import DType
from isobit.ir.expr import Affine, Axis, Expr, loads
from isobit.ir.graph import Assemble, Contract, Graph, Input, Map, Reduce, Reshape, Stmt
from isobit.ir.layout import Layout

Index = tuple[Affine | Expr, ...]

OVERLAPS_ITSELF = (
    "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
    "Please clone() the tensor before performing the operation."
)


def span(layout: Layout) -> int:
    """Bytes from the first to behind the last element of a tensor with non-negative strides."""
    if layout.size == 0:
        return 0
    reach = sum((n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True))
    return (reach + 1) * layout.dtype.itemsize


def overlaps_itself(layout: Layout) -> bool:
    """Whether two elements may share memory (sufficient for no: strides that nest)."""
    dims = sorted((s, n) for n, s in zip(layout.shape, layout.strides, strict=True) if n > 1)
    reach = 0
    for stride, extent in dims:
        if stride <= reach:
            return layout.size > 0
        reach += stride * (extent - 1)
    return False


def is_elementwise(graph: Graph, position: int, output: int) -> bool:
    """Whether output `output` alone reads input `position`, each element only where it writes it: then it may
    overwrite it, in whatever order the outputs are computed.
    """
    source = next(n for n in graph.nodes if isinstance(n.stmt, Input) and n.stmt.position == position)
    readers = {source.id}
    for node in graph.nodes:
        found = [index for origin, index in _reads(node.stmt) if origin in readers]
        if found and not (node.shape == source.shape and _reads_in_place(node.stmt, found)):
            return False
        readers |= {node.id} if found else set()
    return not readers & {i for i in graph.outputs if i != output}


def _reads_in_place(stmt: Stmt, found: Sequence[Index | None]) -> bool:
    """Whether a statement reads at `found` only the place that it writes."""
    return isinstance(stmt, Map) and all(
        index is not None and all(map(_is_position, index, stmt.axes)) for index in found
    )


def _is_position(index: Affine | Expr, axis: Axis) -> bool:
    return index == Affine.of(axis) or (axis.extent == 1 and index == Affine())


def _reads(stmt: Stmt) -> list[tuple[int, Index | None]]:
    """(source node, index) of everything a statement reads; index None where it is not a plain load."""
    match stmt:
        case Map(_, body):
            return [(x.source, x.index if x.fill is None else None) for x in loads(body)]
        case Reduce(_, _, _, body, aux):
            return [(x.source, None) for e in (body, aux) if e is not None for x in loads(e)]
        case Contract(_, _, lhs, rhs):
            return [(x.source, None) for e in (lhs, rhs) for x in loads(e)]
        case Reshape(source):
            return [(source, None)]
        case Assemble(parts):
            return [(part.source, None) for part in parts]
    return []


def fresh_strides(shape: Sequence[int], meta_strides: Sequence[int] | None) -> tuple[int, ...]:
    """Strides for a new result: PyTorch's own where they do not overlap, else row-major."""
    row_major: list[int] = []
    step = 1
    for n in reversed(shape):
        row_major.append(step)
        step *= max(n, 1)
    default = tuple(reversed(row_major))
    if meta_strides is None:
        return default
    wanted = Layout(DType.U8, tuple(shape), tuple(meta_strides))
    dense = span(wanted) <= math.prod(shape)
    return default if overlaps_itself(wanted) or not dense else tuple(meta_strides)


def resize_output(out: torch.Tensor, shape: Sequence[int]) -> None:
    """Gives an `out=` tensor the result's shape, with PyTorch's warning where it held something."""
    if tuple(out.shape) != tuple(shape):
        torch._prims_common.wrappers._maybe_resize_out(out, tuple(shape))
