"""The files of a trace as NumPy's structures, and whole columns as numbers; rows.py says how they lie."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from isobit.arithmetic.dtypes import DType
from isobit.record.rows import FIELDS, KINDS, STEPS, XXH3, packed

ROW = np.dtype(list(FIELDS[STEPS]))
ENTRIES = {name: np.dtype(list(fields)) for name, fields in FIELDS.items() if name != STEPS}


def number(bits: str) -> float:
    """The value of a number's bits as a float; beyond 2^53 integers are rounded, what is no number is NaN."""
    kind, value = packed(bits)
    return float(floats(np.array([kind], "u1"), np.array([value], "V16"))[0])


def floats(kinds: NDArray[Any], bits: NDArray[Any]) -> NDArray[np.float64]:
    """The values as f64, NaN where there is no number; beyond 2^53 integers are rounded."""
    values = np.full(len(kinds), np.nan)
    raw = np.ascontiguousarray(bits).view(np.uint8).reshape(len(kinds), bits.dtype.itemsize)
    for kind in np.unique(kinds):
        if XXH3 < kind < len(KINDS):
            dtype, chosen = DType(KINDS[kind]), kinds == kind
            values[chosen] = _values(dtype, np.ascontiguousarray(raw[chosen, : dtype.itemsize]))
    return values


def _values(dtype: DType, raw: NDArray[np.uint8]) -> NDArray[Any]:
    if dtype is DType.BF16:
        return (raw.view("<u2").astype("<u4") << 16).view("<f4").reshape(-1)
    return raw.view(dtype.numpy.newbyteorder("<")).reshape(-1)


def words(digests: NDArray[Any]) -> NDArray[np.uint64]:
    """Digests as two 64-bit words each, to be compared as whole columns."""
    return np.ascontiguousarray(digests).view("<u8").reshape(-1, 2)
