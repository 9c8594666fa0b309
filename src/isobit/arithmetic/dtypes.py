"""The element types of ARITHMETIC.md §1 and their NumPy representation."""

from __future__ import annotations

from enum import StrEnum

import numpy as np


class DType(StrEnum):
    """An element type; the value is its short name in printed IR, cache keys and file formats."""

    F64 = "f64"
    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    I64 = "i64"
    I32 = "i32"
    I16 = "i16"
    I8 = "i8"
    U8 = "u8"
    BOOL = "bool"

    @property
    def itemsize(self) -> int:
        """Bytes an element takes in memory."""
        return _ITEMSIZE[self]

    @property
    def is_float(self) -> bool:
        return self in _FLOATS

    @property
    def is_int(self) -> bool:
        """True for integers, not for bool."""
        return not self.is_float and self is not DType.BOOL

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy dtype of the same bits; bf16, which NumPy lacks, is its uint16 pattern."""
        return np.dtype(_NUMPY[self])


_FLOATS = frozenset({DType.F64, DType.F32, DType.F16, DType.BF16})
_ITEMSIZE = {
    DType.F64: 8, DType.F32: 4, DType.F16: 2, DType.BF16: 2,
    DType.I64: 8, DType.I32: 4, DType.I16: 2, DType.I8: 1, DType.U8: 1, DType.BOOL: 1,
}  # fmt: skip
_NUMPY = {
    DType.F64: "f8", DType.F32: "f4", DType.F16: "f2", DType.BF16: "u2",
    DType.I64: "i8", DType.I32: "i4", DType.I16: "i2", DType.I8: "i1", DType.U8: "u1", DType.BOOL: "?",
}  # fmt: skip
