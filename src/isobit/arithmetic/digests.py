"""Digests of arrays (ARITHMETIC.md §7): BLAKE3 for records, XXH3-128 for per-step traces, over the same bytes.

The bytes are the ASCII text of dtype and shape, as "f32[2,3]" ("f32[]" without dims), then the elements in
row-major order, little-endian, every NaN written as the dtype's positive quiet NaN, bools as 0 or 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash
from blake3 import blake3

from isobit.arithmetic.dtypes import DType

Array = npt.NDArray[Any]

_NAN = {DType.F64: 0x7FF8000000000000, DType.F32: 0x7FC00000, DType.F16: 0x7E00, DType.BF16: 0x7FC0}
_INFINITY = {DType.F64: 0x7FF0000000000000, DType.F32: 0x7F800000, DType.F16: 0x7C00, DType.BF16: 0x7F80}


def header(dtype: DType, shape: Sequence[int]) -> bytes:
    """The bytes before the elements: dtype and shape."""
    return f"{dtype}[{','.join(map(str, shape))}]".encode("ascii")


def canonical_bytes(x: Array, dtype: DType) -> bytes:
    """The elements in row-major order, little-endian, with one NaN. x is in the representation `dtype.numpy`.

    Raises TypeError where x's NumPy dtype is another.
    """
    if x.dtype != dtype.numpy:
        raise TypeError(f"digest: an array of {dtype} is held as {dtype.numpy}, got {x.dtype}")
    flat = np.ascontiguousarray(x).reshape(-1)
    if dtype.is_float:
        bits = flat.view(f"u{dtype.itemsize}")
        kind = bits.dtype.type
        nan = (bits & kind(2 ** (8 * dtype.itemsize - 1) - 1)) > kind(_INFINITY[dtype])
        flat = np.where(nan, kind(_NAN[dtype]), bits)
    return flat.astype(flat.dtype.newbyteorder("<"), copy=False).tobytes()


def digest(x: Array, dtype: DType) -> str:
    """BLAKE3 of header and elements: 64 hex digits."""
    return blake3(header(dtype, x.shape) + canonical_bytes(x, dtype)).hexdigest()


def trace_digest(x: Array, dtype: DType) -> str:
    """XXH3-128 of header and elements: 32 hex digits."""
    return xxhash.xxh3_128_hexdigest(header(dtype, x.shape) + canonical_bytes(x, dtype))
