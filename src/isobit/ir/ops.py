"""The scalar operations an expression may hold: one table, read by interpreter and code generator."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from isobit.arithmetic.dtypes import DType

Scalar = float | int | bool


@dataclass(frozen=True)
class OpSpec:
    """`result`: "same" as the arguments, "bool", "where" (dtype of the branches), "i64" or "cast"."""

    arity: int
    result: str
    doc: str


_SAME = {
    "add": 2, "sub": 2, "mul": 2, "div": 2, "neg": 1, "abs": 1, "sqrt": 1, "fma": 3,
    "floor": 1, "ceil": 1, "trunc": 1, "round": 1,
    "max": 2, "min": 2,
    "and": 2, "or": 2, "xor": 2, "not": 1, "shl": 2, "shr": 2,
    "floordiv": 2, "mod": 2,
}  # fmt: skip
_DOCS = {
    "add": "IEEE addition; integers wrap",
    "div": "IEEE division (floats only)",
    "fma": "a·b + c, rounded once",
    "round": "to integer, ties to even",
    "max": "NaN wins, −0 < +0",
    "min": "NaN wins, −0 < +0",
    "not": "bitwise; logical on bool",
    "shr": "arithmetic shift right",
    "floordiv": "integer division rounding down; by zero gives 0 (callers check)",
    "mod": "integer remainder with the divisor's sign; by zero gives 0",
}
_ELEMENTARY = {
    "exp": 1, "exp2": 1, "expm1": 1, "log": 1, "log2": 1, "log10": 1, "log1p": 1, "sin": 1, "cos": 1,
    "tan": 1, "asin": 1, "acos": 1, "atan": 1, "sinh": 1, "cosh": 1, "tanh": 1, "erf": 1, "erfc": 1,
    "rsqrt": 1, "pow": 2,
}  # fmt: skip
TABLE: dict[str, OpSpec] = (
    {n: OpSpec(k, "same", _DOCS.get(n, "IEEE, correctly rounded")) for n, k in _SAME.items()}
    | {n: OpSpec(k, "same", "elementary function of ARITHMETIC.md §2 (f32, f64)") for n, k in _ELEMENTARY.items()}
    | {n: OpSpec(2, "bool", "comparison; false on NaN, except ne") for n in ("eq", "ne", "lt", "le", "gt", "ge")}
    | {
        "where": OpSpec(3, "where", "second argument where the first (bool) is true, else the third"),
        "cast": OpSpec(1, "cast", "conversion; float to integer saturates, NaN gives 0; to bool is x ≠ 0"),
        "philox": OpSpec(2, "i64", "word j (0 ≤ word < 2^32) of the Philox 4x32-10 stream of a key: philox(key, j)"),
    }
)
ELEMENTARY = frozenset(_ELEMENTARY)
REDUCTIONS = frozenset({"sum", "prod", "max", "min", "argmax", "argmin", "any", "all", "m2", "tree_sum", "tree_prod"})


def result_dtype(name: str, args: tuple[DType, ...]) -> DType:
    """The dtype of operation `name`; raises TypeError where the arguments do not fit it."""
    spec = TABLE[name]
    if len(args) != spec.arity:
        raise TypeError(f"{name} takes {spec.arity} arguments, got {len(args)}")
    if spec.result == "where":
        if args[0] != DType.BOOL or args[1] != args[2]:
            raise TypeError(f"where needs (bool, T, T), got {args}")
        return args[1]
    if spec.result == "i64":
        if set(args) != {DType.I64}:
            raise TypeError(f"{name} takes i64, got {args}")
        return DType.I64
    if len(set(args)) != 1:
        raise TypeError(f"{name} needs arguments of one dtype, got {args}")
    return DType.BOOL if spec.result == "bool" else args[0]


_INT_BITS = {DType.I64: 64, DType.I32: 32, DType.I16: 16, DType.I8: 8, DType.U8: 8}


def round_scalar(value: Scalar, dtype: DType) -> Scalar:
    """A Python scalar in `dtype`: one rounding for floats (kept as the exact binary64), wrapping for integers."""
    if dtype == DType.BOOL:
        return bool(value)
    if dtype.is_int:
        bits = _INT_BITS[dtype]
        wrapped = int(value) & ((1 << bits) - 1)
        return wrapped - (1 << bits) if dtype != DType.U8 and wrapped >> (bits - 1) else wrapped
    return _round_float(float(value), dtype)


def _round_float(x: float, dtype: DType) -> float:
    if dtype == DType.F64 or x != x or x in (float("inf"), float("-inf")):
        return x
    if dtype == DType.BF16:
        return _round_bf16(x)
    code = "<f" if dtype == DType.F32 else "<e"
    try:
        return float(struct.unpack(code, struct.pack(code, x))[0])
    except OverflowError:
        return float("inf") if x > 0 else float("-inf")


def _round_bf16(x: float) -> float:
    """binary64 → bf16 in one rounding: round to f32 by round-to-odd first, then to even at 8 bits."""
    single = _round_float(x, DType.F32)
    if single in (float("inf"), float("-inf")):
        return single
    (bits,) = struct.unpack("<I", struct.pack("<f", single))
    if single != x:  # make the f32 value odd and truncated towards zero, so that the second rounding is the only one
        bits = (bits - 1 if abs(single) > abs(x) else bits) | 1
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return float(struct.unpack("<f", struct.pack("<I", bits & 0xFFFFFFFF))[0])
