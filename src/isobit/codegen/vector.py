"""Every operation of ir.ops.TABLE on registers: what the interpreter's `numeric` does, as LLVM instructions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from isobit.arithmetic.dtypes import DType
from isobit.codegen import elementary, philox
from isobit.codegen.convert import NARROW, REGISTER, UNSIGNED, cast, round_narrow
from isobit.codegen.emit import Builder, Value, const, zero
from isobit.codegen.multiply_add import fma
from isobit.ir import ops

_FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INTEGER = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor", "shl": "shl"}
_BOOL = {"add": "or", "mul": "and", "max": "or", "min": "and"}
_UNARY = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "roundeven", "abs": "fabs"}
_COMPARE = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}


def operation(b: Builder, name: str, dtype: DType, args: Sequence[Value], arg_dtype: DType) -> Value:
    """Operation `name` with result `dtype` on arguments of `arg_dtype` (for where: the branches) and equal lanes."""
    if name == "cast":
        return cast(b, args[0], arg_dtype, dtype)
    if name == "where":
        return b.select(*args)
    if name == "philox":
        return philox.word(b, args[0], args[1])
    if name in _COMPARE:
        return _compare(b, name, args, arg_dtype)
    if arg_dtype.is_float:
        return round_narrow(b, _float(b, name, args, arg_dtype), arg_dtype) if name != "neg" else _negate(b, args[0])
    return _integer(b, name, args, arg_dtype)


def _compare(b: Builder, name: str, args: Sequence[Value], dtype: DType) -> Value:
    if dtype.is_float:
        return b.compare("une" if name == "ne" else "o" + name, *args)
    sign = "" if name in ("eq", "ne") else "u" if dtype in UNSIGNED else "s"
    return b.compare(sign + name, *args)


def _negate(b: Builder, x: Value) -> Value:
    return b.emit(f"fneg {x.typed}", x.element, x.lanes)


def _float(b: Builder, name: str, args: Sequence[Value], dtype: DType) -> Value:
    if name in _FLOAT:
        return b.binary(_FLOAT[name], *args)
    if name in _UNARY:
        return b.intrinsic(_UNARY[name], args)
    if name in ("max", "min"):
        return b.intrinsic(name + "imum", args)
    if name == "fma":
        return fma(b, *args)
    if name in ops.ELEMENTARY:
        return elementary.call(b, name, DType.F32 if dtype in NARROW else dtype, args)
    raise TypeError(f"no operation {name} on {dtype}")


def _integer(b: Builder, name: str, args: Sequence[Value], dtype: DType) -> Value:
    if dtype == DType.BOOL and name in _BOOL:
        return b.binary(_BOOL[name], *args)
    if name in _INTEGER:
        return b.binary(_INTEGER[name], *args)
    unsigned = dtype in UNSIGNED
    if name in ("max", "min"):
        return b.intrinsic(("u" if unsigned else "s") + name, args)
    if name == "shr":
        return b.binary("lshr" if unsigned else "ashr", *args)
    if name in _INTEGER_OTHER:
        return _INTEGER_OTHER[name](b, args, unsigned)
    raise TypeError(f"no operation {name} on {dtype}")


def _neg(b: Builder, args: Sequence[Value], unsigned: bool) -> Value:
    x = args[0]
    return b.binary("sub", zero(x.element, x.lanes), x)


def _not(b: Builder, args: Sequence[Value], unsigned: bool) -> Value:
    x = args[0]
    return b.binary("xor", x, const(1 if x.element == "i1" else -1, x.element, x.lanes))


def _abs(b: Builder, args: Sequence[Value], unsigned: bool) -> Value:
    return args[0] if unsigned else b.intrinsic("abs", args, [const(False, "i1")])


def _divide(b: Builder, args: Sequence[Value], unsigned: bool) -> Value:
    """Quotient rounding down; by zero 0; the least integer by −1 wraps. Never traps."""
    x, y = args
    nil = zero(x.element, x.lanes)
    by_zero = b.compare("eq", y, nil)
    if unsigned:
        safe = b.select(by_zero, const(1, x.element, x.lanes), y)
        return b.select(by_zero, nil, b.binary("udiv", x, safe))
    by_minus_one = b.compare("eq", y, const(-1, x.element, x.lanes))
    safe = b.select(b.binary("or", by_zero, by_minus_one), const(1, x.element, x.lanes), y)
    quotient = b.binary("sdiv", x, safe)
    rest = b.binary("sub", x, b.binary("mul", quotient, safe))
    floored = b.binary("add", quotient, b.convert("sext", _down(b, rest, safe), x.element))
    return b.select(by_zero, nil, b.select(by_minus_one, b.binary("sub", nil, x), floored))


def _down(b: Builder, rest: Value, divisor: Value) -> Value:
    """Where truncation and floor differ: a remainder whose sign is not the divisor's."""
    nil = zero(rest.element, rest.lanes)
    apart = b.compare("slt", b.binary("xor", rest, divisor), nil)
    return b.binary("and", apart, b.compare("ne", rest, nil))


def _mod(b: Builder, args: Sequence[Value], unsigned: bool) -> Value:
    """Remainder with the divisor's sign; by zero 0."""
    x, y = args
    nil, one = zero(x.element, x.lanes), const(1, x.element, x.lanes)
    if unsigned:
        by_zero = b.compare("eq", y, nil)
        return b.select(by_zero, nil, b.binary("urem", x, b.select(by_zero, one, y)))
    trivial = b.binary("or", b.compare("eq", y, nil), b.compare("eq", y, const(-1, x.element, x.lanes)))
    safe = b.select(trivial, one, y)  # the remainder by 1 is 0, as it is by −1 and, here, by 0
    rest = b.binary("srem", x, safe)
    return b.binary("add", rest, b.select(_down(b, rest, safe), safe, nil))


_INTEGER_OTHER: dict[str, Callable[[Builder, Sequence[Value], bool], Value]] = {
    "neg": _neg, "not": _not, "abs": _abs, "floordiv": _divide, "mod": _mod,
}  # fmt: skip


def literal(value: float | int | bool, dtype: DType, lanes: int = 1) -> Value:
    """A constant of `dtype` as registers hold it."""
    return const(value, REGISTER[dtype], lanes)
