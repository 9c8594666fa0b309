"""Where a call's results go: fresh tensors, or memory that already holds something."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from isobit.arithmetic.dtypes import DType
from isobit.ir.layout import Layout

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
