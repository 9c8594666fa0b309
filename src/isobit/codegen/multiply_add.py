"""Fused multiply-add: an instruction where the CPU has one, else an exact sequence of IEEE operations."""

from __future__ import annotations

from isobit.codegen.emit import Builder, Value


def fma(b: Builder, x: Value, y: Value, z: Value) -> Value:
    """x·y + z rounded once, for float or double lanes."""
    if b.target.has_fma:
        return b.intrinsic("fma", [x, y, z])
    raise NotImplementedError("fma without an instruction")
