"""Conversions between element types in registers and in memory.

In registers f16 and bf16 are f32 values that the narrow type represents exactly, and bool is i1. In memory they are
their 16 bits, and a byte. Every conversion rounds once, to nearest even.
"""

from __future__ import annotations

from isobit.arithmetic.dtypes import DType
from isobit.codegen.emit import Builder, Value, const, zero

REGISTER = {
    DType.F64: "double", DType.F32: "float", DType.F16: "float", DType.BF16: "float", DType.I64: "i64",
    DType.I32: "i32", DType.I16: "i16", DType.I8: "i8", DType.U8: "i8", DType.BOOL: "i1",
}  # fmt: skip
NARROW = (DType.F16, DType.BF16)
UNSIGNED = (DType.U8, DType.BOOL)
_SMALL = (DType.I16, DType.I8, DType.U8)


def memory_element(dtype: DType) -> str:
    """The element type that loads and stores move."""
    if dtype in NARROW:
        return "i16"
    return "i8" if dtype == DType.BOOL else REGISTER[dtype]


def from_memory(b: Builder, x: Value, dtype: DType) -> Value:
    """A loaded value as it is held in registers."""
    if dtype == DType.BOOL:
        return b.compare("ne", x, 0)
    if dtype == DType.BF16:
        return b.bitcast(b.binary("shl", b.convert("zext", x, "i32"), const(16, "i32", x.lanes)), "float")
    return _widen_f16(b, x) if dtype == DType.F16 else x


def to_memory(b: Builder, x: Value, dtype: DType) -> Value:
    """The value as memory holds it (a narrow float is representable already)."""
    if dtype == DType.BOOL:
        return b.convert("zext", x, "i8")
    if dtype == DType.BF16:
        high = b.binary("lshr", b.bitcast(x, "i32"), const(16, "i32", x.lanes))
        return b.convert("trunc", high, "i16")
    return _pack_f16(b, x) if dtype == DType.F16 else x


def cast(b: Builder, x: Value, source: DType, target: DType) -> Value:
    """`x` of dtype `source` as `target`: float to integer saturates, NaN gives 0; to bool is x ≠ 0."""
    if source == target:
        return x
    if target == DType.BOOL:
        return b.compare("une" if source.is_float else "ne", x, zero(x.element, x.lanes))
    if source.is_float:
        return _from_float(b, x, source, target) if target.is_float else _to_integer(b, x, target)
    if source == DType.BOOL and target.is_float:
        element = REGISTER[target]
        return b.select(x, const(1, element, x.lanes), zero(element, x.lanes))
    return _integer_to_float(b, x, source, target) if target.is_float else _resize(b, x, source, REGISTER[target])


def round_narrow(b: Builder, x: Value, dtype: DType) -> Value:
    """An f32 value rounded to f16 or bf16, still held as f32; other dtypes as they are."""
    if dtype == DType.BF16:
        return _round_bf16(b, x)
    return _round_f16(b, x) if dtype == DType.F16 else x


def _from_float(b: Builder, x: Value, source: DType, target: DType) -> Value:
    if target == DType.F64:
        return b.convert("fpext", x, "double")
    if target == DType.F32:
        return b.convert("fptrunc", x, "float") if source == DType.F64 else x
    return round_narrow(b, to_odd_f32(b, x) if source == DType.F64 else x, target)


def _to_integer(b: Builder, x: Value, target: DType) -> Value:
    kind = "fptoui" if target in UNSIGNED else "fptosi"
    element = REGISTER[target]
    if x.element == "float" and target in _SMALL:  # by way of i32, which CPUs convert to
        low, high = (0, 255) if target == DType.U8 else _range(target)
        wide = _saturate(b, "fptosi", x, "i32")
        above = b.intrinsic("smax", [wide, const(low, "i32", x.lanes)])
        return b.convert("trunc", b.intrinsic("smin", [above, const(high, "i32", x.lanes)]), element)
    return _saturate(b, kind, x, element)


def _range(dtype: DType) -> tuple[int, int]:
    half = 1 << (8 * dtype.itemsize - 1)
    return -half, half - 1


def _saturate(b: Builder, kind: str, x: Value, element: str) -> Value:
    from_name = "f64" if x.element == "double" else "f32"
    prefix = "" if x.lanes == 1 else f"v{x.lanes}"
    result = Value("", element, x.lanes)
    name = f"llvm.{kind}.sat.{prefix}{element}.{prefix}{from_name}"
    b.module.declare(name, result.type, [x.type])
    return b.call(name, element, x.lanes, [x])


def _resize(b: Builder, x: Value, source: DType, element: str) -> Value:
    width, wanted = (int(e[1:]) for e in (x.element, element))
    if width == wanted:
        return x
    if width > wanted:
        return b.convert("trunc", x, element)
    return b.convert("zext" if source in UNSIGNED else "sext", x, element)


def _integer_to_float(b: Builder, x: Value, source: DType, target: DType) -> Value:
    opcode = "uitofp" if source in UNSIGNED else "sitofp"
    if target == DType.F64:
        return integer_to_double(b, x) if source == DType.I64 else b.convert(opcode, x, "double")
    if source == DType.I64 and target == DType.F32:
        native = x.lanes == 1 or b.target.vector_bytes == 64
        return b.convert("sitofp", x, "float") if native else b.convert("fptrunc", _sticky_double(b, x), "float")
    if source in (DType.I64, DType.I32) and target in NARROW:
        wide = _sticky_double(b, x) if source == DType.I64 else b.convert("sitofp", x, "double")
        return round_narrow(b, to_odd_f32(b, wide), target)
    return round_narrow(b, b.convert(opcode, x, "float"), target)


def integer_to_double(b: Builder, x: Value) -> Value:
    """i64 to f64 in one rounding. AVX2 and SSE have no such instruction for vectors: the halves are biased instead."""
    if x.lanes == 1 or b.target.vector_bytes == 64 or b.target.arch != "x86_64":
        return b.convert("sitofp", x, "double")
    n = x.lanes
    high = b.binary("lshr", b.binary("xor", x, const(-(1 << 63), "i64", n)), const(32, "i64", n))
    biased_high = b.bitcast(b.binary("or", high, const(0x4530000000000000, "i64", n)), "double")  # 2^84 + high·2^32
    low = b.binary("and", x, const(0xFFFFFFFF, "i64", n))
    biased_low = b.bitcast(b.binary("or", low, const(0x4330000000000000, "i64", n)), "double")  # 2^52 + low
    bias = const(2.0**84 + 2.0**63 + 2.0**52, "double", n)
    return b.binary("fadd", b.binary("fsub", biased_high, bias), biased_low)


def _sticky_double(b: Builder, x: Value) -> Value:
    """i64 as an f64 that lies on the same side of every f32 tie: exact, or with the lost bits gathered in one."""
    n = x.lanes
    low = b.binary("and", x, const(0x7FF, "i64", n))
    half = b.select(b.compare("ne", low, zero("i64", n)), const(0x400, "i64", n), zero("i64", n))
    sticky = b.binary("or", b.sub(x, low), half)
    exact = b.compare("ult", b.add(x, const(1 << 53, "i64", n)), const(1 << 54, "i64", n))
    return integer_to_double(b, b.select(exact, x, sticky))


def to_odd_f32(b: Builder, x: Value) -> Value:
    """f64 to f32 towards zero, the last bit set where inexact: rounding that to a narrower float rounds once."""
    near = b.convert("fptrunc", x, "float")
    back = b.convert("fpext", near, "double")
    bits = b.bitcast(near, "i32")
    above = b.compare("ogt", b.intrinsic("fabs", [back]), b.intrinsic("fabs", [x]))
    bits = b.binary("sub", bits, b.convert("zext", above, "i32"))
    inexact = b.convert("zext", b.compare("one", back, x), "i32")
    return b.bitcast(b.binary("or", bits, inexact), "float")


def _round_bf16(b: Builder, x: Value) -> Value:
    n = x.lanes
    bits = b.bitcast(x, "i32")
    even = b.binary("and", b.binary("lshr", bits, const(16, "i32", n)), const(1, "i32", n))
    rounded = b.binary("add", b.binary("add", bits, const(0x7FFF, "i32", n)), even)
    kept = b.bitcast(b.binary("and", rounded, const(-65536, "i32", n)), "float")
    return b.select(b.compare("uno", x, x), const(float("nan"), "float", n), kept)


def _round_f16(b: Builder, x: Value) -> Value:
    if b.target.has_f16:
        return b.convert("fpext", b.convert("fptrunc", x, "half"), "float")
    n = x.lanes
    size = b.intrinsic("fabs", [x])
    half = const(0.5, "float", n)
    small = b.binary("fsub", b.binary("fadd", size, half), half)  # multiples of 2^-24, the subnormal spacing
    bits = b.bitcast(size, "i32")
    even = b.binary("and", b.binary("lshr", bits, const(13, "i32", n)), const(1, "i32", n))
    rounded = b.binary("add", b.binary("add", bits, const(0xFFF, "i32", n)), even)
    large = b.bitcast(b.binary("and", rounded, const(-8192, "i32", n)), "float")
    large = b.select(b.compare("oge", large, const(65536.0, "float", n)), const(float("inf"), "float", n), large)
    out = b.select(b.compare("olt", size, const(2.0**-14, "float", n)), small, large)
    out = b.intrinsic("copysign", [out, x])
    return b.select(b.compare("uno", x, x), const(float("nan"), "float", n), out)


def _widen_f16(b: Builder, x: Value) -> Value:
    if b.target.has_f16:
        return b.convert("fpext", b.bitcast(x, "half"), "float")
    n = x.lanes
    wide = b.convert("zext", x, "i32")
    size = b.binary("shl", b.binary("and", wide, const(0x7FFF, "i32", n)), const(13, "i32", n))
    value = b.binary("fmul", b.bitcast(size, "float"), const(2.0**112, "float", n))
    endless = b.compare("uge", size, const(0x0F800000, "i32", n))
    special = b.binary("or", size, const(0x7F800000, "i32", n))
    bits = b.select(endless, special, b.bitcast(value, "i32"))
    sign = b.binary("shl", b.binary("and", wide, const(0x8000, "i32", n)), const(16, "i32", n))
    return b.bitcast(b.binary("or", bits, sign), "float")


def _pack_f16(b: Builder, x: Value) -> Value:
    if b.target.has_f16:
        return b.bitcast(b.convert("fptrunc", x, "half"), "i16")
    n = x.lanes
    bits = b.bitcast(b.intrinsic("fabs", [x]), "i32")
    normal = b.binary("lshr", b.binary("sub", bits, const(112 << 23, "i32", n)), const(13, "i32", n))
    biased = b.bitcast(b.binary("fadd", b.bitcast(bits, "float"), const(0.5, "float", n)), "i32")
    small = b.binary("sub", biased, const(0x3F000000, "i32", n))
    out = b.select(b.compare("ult", bits, const(113 << 23, "i32", n)), small, normal)
    out = b.select(b.compare("uge", bits, const(0x7F800000, "i32", n)), const(0x7C00, "i32", n), out)
    out = b.select(b.compare("ugt", bits, const(0x7F800000, "i32", n)), const(0x7E00, "i32", n), out)
    sign = b.binary("and", b.binary("lshr", b.bitcast(x, "i32"), const(16, "i32", n)), const(0x8000, "i32", n))
    return b.convert("trunc", b.binary("or", out, sign), "i16")
