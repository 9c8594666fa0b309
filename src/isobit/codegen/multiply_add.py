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
        return _call(b, name, [x, y, z])
    kind = f"<1 x {x.element}>"  # the helper takes vectors of one lane
    boxed = [b.emit(f"insertelement {kind} poison, {v.typed}, i64 0", kind) for v in (x, y, z)]
    return b.emit(f"extractelement {_call(b, name, boxed).typed}, i64 0", x.element)


def _call(b: Builder, name: str, args: list[Value]) -> Value:
    """Not inlined: a polynomial would become a hundred kilobytes, and a second of LLVM's time."""
    x = args[0]
    return b.emit(f"call {x.type} @{name}({', '.join(a.typed for a in args)}) noinline", x.element, x.lanes)
