"""Fused multiply-add: an instruction where the CPU has one, else an exact sequence of IEEE operations."""

from __future__ import annotations

from isobit.arithmetic.dtypes import DType
from isobit.codegen.emit import Builder, Value
from isobit.codegen.softfma import soft_fma


def fma(b: Builder, x: Value, y: Value, z: Value) -> Value:
    """x·y + z rounded once, for float or double lanes."""
    if b.target.has_fma:
        return b.intrinsic("fma", [x, y, z])
    name, text = soft_fma(DType.F32 if x.element == "float" else DType.F64, x.lanes)
    b.module.helper(name, lambda: text)
    if x.lanes > 1:
        return b.call(name, x.element, x.lanes, [x, y, z])
    kind = f"<1 x {x.element}>"  # the helper takes vectors of one lane
    boxed = [b.emit(f"insertelement {kind} poison, {v.typed}, i64 0", kind) for v in (x, y, z)]
    return b.emit(f"extractelement {b.call(name, kind, 1, boxed).typed}, i64 0", x.element)
