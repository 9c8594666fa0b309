"""How a tensor lies in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

from isobit.arithmetic.dtypes import DType


@dataclass(frozen=True)
class Layout:
    """dtype, shape and strides (in elements, row-major where `contiguous`)."""

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def is_contiguous(self) -> bool:
        return self.size == 0 or all(
            s == want or n == 1
            for n, s, want in zip(self.shape, self.strides, contiguous_strides(self.shape), strict=True)
        )


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements; extents of 0 count as 1, as in PyTorch."""
    out: list[int] = []
    step = 1
    for n in reversed(shape):
        out.append(step)
        step *= max(n, 1)
    return tuple(reversed(out))


def contiguous(dtype: DType, shape: tuple[int, ...]) -> Layout:
    return Layout(dtype, shape, contiguous_strides(shape))
