"""Digests: one value for one tensor, on every machine and in every version."""

from __future__ import annotations

import numpy as np
import pytest
from blake3 import blake3

from isobit.arithmetic.digests import canonical_bytes, digest, header, trace_digest
from isobit.arithmetic.dtypes import DType

PLAIN = np.array([[1.0, -0.0, np.inf], [np.nan, 2.5, 1e-45]], np.float32)


def test_header_and_bytes() -> None:
    assert header(DType.BF16, (2, 3)) == b"bf16[2,3]" and header(DType.I64, ()) == b"i64[]"
    assert canonical_bytes(np.array([1.0, -2.0], np.float32), DType.F32) == bytes.fromhex("0000803f000000c0")
    assert canonical_bytes(np.array([258], np.int16), DType.I16) == b"\x02\x01"
    assert canonical_bytes(np.array([True, False]), DType.BOOL) == b"\x01\x00"


def test_golden() -> None:
    """Changed digests mean a new version of the arithmetic or of the record's format."""
    assert digest(PLAIN, DType.F32) == "4d0a1c7e1331568a35c1339f2cd8375b304816dec7c67c42d20feedca286627b"
    assert trace_digest(PLAIN, DType.F32) == "6121e4170d09e72d5bc0f3dd63e1f109"
    payload = b"f32[2,3]" + canonical_bytes(PLAIN, DType.F32)
    assert digest(PLAIN, DType.F32) == blake3(payload).hexdigest()


@pytest.mark.parametrize(
    "dtype,patterns",
    [
        (DType.F32, [0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF]),
        (DType.F64, [0x7FF8000000000000, 0xFFF8000000000000, 0x7FF0000000000001, 0xFFFFFFFFFFFFFFFF]),
        (DType.F16, [0x7E00, 0xFE00, 0x7C01, 0xFFFF]),
        (DType.BF16, [0x7FC0, 0xFFC0, 0x7F81, 0xFFFF]),
    ],
)
def test_all_nans_are_one_value(dtype: DType, patterns: list[int]) -> None:
    bits = np.array(patterns, f"u{dtype.itemsize}")
    one = bits[:1].tobytes()
    assert canonical_bytes(bits.view(dtype.numpy), dtype) == one * 4


@pytest.mark.parametrize("dtype,infinity", [(DType.F32, 0x7F800000), (DType.F16, 0x7C00), (DType.BF16, 0x7F80)])
def test_infinities_and_signs_stay(dtype: DType, infinity: int) -> None:
    sign = 1 << (8 * dtype.itemsize - 1)
    bits = np.array([infinity, infinity | sign, 0, sign], f"u{dtype.itemsize}")
    assert canonical_bytes(bits.view(dtype.numpy), dtype) == bits.tobytes()


def test_memory_layout_does_not_enter() -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    strided = np.zeros((6, 8), np.float32).T[::2]
    strided[...] = x
    assert digest(strided, DType.F32) == digest(x, DType.F32) == digest(np.asfortranarray(x), DType.F32)
    assert trace_digest(strided, DType.F32) == trace_digest(x, DType.F32)


def test_dtype_shape_and_sign_of_zero_enter() -> None:
    zero = np.zeros(4, np.float32)
    seen = {digest(zero, DType.F32), digest(zero.reshape(2, 2), DType.F32), digest(-zero, DType.F32)}
    seen |= {digest(zero.view(np.int32), DType.I32), digest(zero[:0], DType.F32), digest(zero[:0, None], DType.F32)}
    assert len(seen) == 6


def test_a_wrong_representation_is_refused() -> None:
    with pytest.raises(TypeError, match="bf16 is held as uint16, got float32"):
        digest(PLAIN, DType.BF16)
