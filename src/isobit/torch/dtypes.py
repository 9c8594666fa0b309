"""PyTorch element types and tensors as the compiler sees them."""

from __future__ import annotations

import torch

from isobit.arithmetic.dtypes import DType
from isobit.ir.layout import Layout

FROM_TORCH: dict[torch.dtype, DType] = {
    torch.float64: DType.F64,
    torch.float32: DType.F32,
    torch.float16: DType.F16,
    torch.bfloat16: DType.BF16,
    torch.int64: DType.I64,
    torch.int32: DType.I32,
    torch.int16: DType.I16,
    torch.int8: DType.I8,
    torch.uint8: DType.U8,
    torch.bool: DType.BOOL,
}
TO_TORCH: dict[DType, torch.dtype] = {ours: theirs for theirs, ours in FROM_TORCH.items()}

# Integer arithmetic on these is exact on PyTorch's own kernels (ARITHMETIC.md §1).
INTEGERS = frozenset(d for d in FROM_TORCH if not d.is_floating_point) | {
    torch.uint16,
    torch.uint32,
    torch.uint64,
}


class Unowned(Exception):
    """The call lies outside version 1 of the arithmetic; the message says why. It becomes a hole."""


def dtype_of(theirs: torch.dtype) -> DType:
    """The compiler's name of a PyTorch dtype; raises Unowned where it has none."""
    ours = FROM_TORCH.get(theirs)
    if ours is None:
        raise Unowned(f"{theirs} is outside version 1")
    return ours


def layout_of(t: torch.Tensor) -> Layout:
    """How `t` lies in memory (strides in elements)."""
    return Layout(dtype_of(t.dtype), tuple(t.shape), tuple(t.stride()))


def is_plain(t: torch.Tensor) -> bool:
    """Dense, in host memory, without lazy conjugation or negation: a tensor whose bytes are its values."""
    return t.layout is torch.strided and t.device.type == "cpu" and not (t.is_conj() or t.is_neg())
