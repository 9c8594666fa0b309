"""Losses as numbers: the trace keeps them as bits, such as ``f32:3f317218``."""

from __future__ import annotations

import struct

_FORMATS = {"f16": ">e", "f32": ">f", "f64": ">d"}


def loss_value(bits: str) -> float | None:
    """The number that the bits stand for; None for what is no floating-point scalar."""
    kind, _, digits = bits.partition(":")
    try:
        if kind == "bf16":  # the upper half of a float32
            kind, digits = "f32", digits + "0000"
        value: float = struct.unpack(_FORMATS[kind], bytes.fromhex(digits))[0]
    except (KeyError, ValueError, struct.error):
        return None
    return value
