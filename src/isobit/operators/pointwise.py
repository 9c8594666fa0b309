"""Elementwise operators: one statement each, every step rounded in the compute dtype (ARITHMETIC.md §2).

An operand is a tensor, a Python number (rounded once to the compute dtype) or a 0-d f64 tensor, a number known only at
run time. Tensors come in one dtype; type promotion is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from isobit.arithmetic.dtypes import DType
from isobit.arithmetic.functions import FUNCTIONS
from isobit.ir.expr import Const, Expr, Scalar, axes, call, const
from isobit.ir.expr import where as select
from isobit.ir.graph import Graph, Value
from isobit.ir.ops import ELEMENTARY
from isobit.operators.elements import Operand, broadcast_shape, compute_dtype, pointwise, read
from isobit.operators.registry import bit_move, operator, recast

INF = float("inf")


def function(name: str, *args: Expr) -> Expr:
    """An elementary function; NotImplementedError where ARITHMETIC.md's reference does not have it yet."""
    if name not in FUNCTIONS:
        raise NotImplementedError(f"{name} is not in the reference of version 1 yet")
    return call(name, *args)


def _unary(name: str) -> Callable[[Value], Value]:
    compute = function if name in ELEMENTARY else call

    def fn(x: Value) -> Value:
        return pointwise(lambda a: compute(name, a), x)

    fn.__name__, fn.__doc__ = name, f"{name}(x), one rounding."
    return operator(fn)


def _binary(name: str) -> Callable[[Operand, Operand], Value]:
    def fn(x: Operand, y: Operand) -> Value:
        return pointwise(lambda a, b: call(name, a, b), x, y)

    fn.__name__, fn.__doc__ = name, f"{name}(x, y) with broadcasting."
    return operator(fn)


neg, absolute, sqrt, rsqrt = _unary("neg"), _unary("abs"), _unary("sqrt"), _unary("rsqrt")
exp, exp2, expm1 = _unary("exp"), _unary("exp2"), _unary("expm1")
log, log2, log10, log1p = _unary("log"), _unary("log2"), _unary("log10"), _unary("log1p")
sin, cos, tan = _unary("sin"), _unary("cos"), _unary("tan")
asin, acos, atan = _unary("asin"), _unary("acos"), _unary("atan")
sinh, cosh, tanh = _unary("sinh"), _unary("cosh"), _unary("tanh")
erf, erfc = _unary("erf"), _unary("erfc")
floor, ceil, trunc = _unary("floor"), _unary("ceil"), _unary("trunc")
eq, ne, lt, le, gt, ge = (_binary(n) for n in ("eq", "ne", "lt", "le", "gt", "ge"))


def scaled(factor: Expr, x: Expr) -> Expr:
    """factor·x, one rounding; a literal 1 is left out, which changes no bit."""
    return x if isinstance(factor, Const) and factor.value == 1 else factor * x


@operator
def add(x: Operand, y: Operand, alpha: Operand = 1) -> Value:
    """x + alpha·y: the product is rounded, then the sum. On bool it is `or`."""
    if compute_dtype([x, y]) == DType.BOOL:
        return pointwise(lambda a, b: a | b, x, y)
    return pointwise(lambda a, b, k: a + scaled(k, b), x, y, alpha)


@operator
def sub(x: Operand, y: Operand, alpha: Operand = 1) -> Value:
    """x − alpha·y: the product is rounded, then the difference."""
    return pointwise(lambda a, b, k: a - scaled(k, b), x, y, alpha)


@operator
def rsub(x: Operand, y: Operand, alpha: Operand = 1) -> Value:
    """y − alpha·x."""
    return pointwise(lambda a, b, k: b - scaled(k, a), x, y, alpha)


@operator
def mul(x: Operand, y: Operand) -> Value:
    """x·y. On bool it is `and`."""
    return pointwise(lambda a, b: a & b if a.dtype == DType.BOOL else a * b, x, y)


@operator
def div(x: Operand, y: Operand, rounding_mode: str | None = None) -> Value:
    """x ÷ y; "floor" and "trunc" round the exact quotient to an integer. Integer operands need a rounding mode."""
    if rounding_mode is None:
        if not compute_dtype([x, y]).is_float:
            raise TypeError("division of integers needs floats, or a rounding mode")
        return pointwise(lambda a, b: a / b, x, y)
    if rounding_mode not in ("floor", "trunc"):
        raise ValueError(f"rounding_mode is None, 'floor' or 'trunc', not {rounding_mode!r}")
    return pointwise(_FLOOR if rounding_mode == "floor" else _TRUNC, x, y)


def _FLOOR(a: Expr, b: Expr) -> Expr:
    """⌊a ÷ b⌋. A rounded quotient may reach the integer above, which the remainder, exact by fma, tells."""
    if not a.dtype.is_float:
        return call("floordiv", a, b)
    q = call("floor", a / b)
    rest = call("fma", -q, b, a)
    above = ((rest < 0) & (b > 0)) | ((rest > 0) & (b < 0))
    return select(above, q - 1, q)


def _TRUNC(a: Expr, b: Expr) -> Expr:
    if not a.dtype.is_float:
        q = call("floordiv", a, b)
        inexact = (q * b).ne(a)
        return select(inexact & (q < 0), q + 1, q)
    q = call("trunc", a / b)
    rest = call("fma", -q, b, a)
    beyond = ((rest < 0) & (a > 0)) | ((rest > 0) & (a < 0))
    return select(beyond, select(q > 0, q - 1, q + 1), q)


@operator
def remainder(x: Operand, y: Operand) -> Value:
    """Integer remainder with the divisor's sign, as Python's %."""
    if compute_dtype([x, y]).is_float:
        raise TypeError("remainder of floats is outside version 1")
    return pointwise(lambda a, b: call("mod", a, b), x, y)


@operator
def reciprocal(x: Value) -> Value:
    """1 ÷ x."""
    return pointwise(lambda a: 1 / a, x)


@operator
def square(x: Value) -> Value:
    """x·x."""
    return pointwise(lambda a: a * a, x)


@operator
def sign(x: Value) -> Value:
    """−1, 0 or 1; 0 for NaN and for −0, as PyTorch."""
    return pointwise(lambda a: select(a > 0, a.like(1), select(a < 0, a.like(-1), 0)), x)


@operator
def round_(x: Value, decimals: int = 0) -> Value:
    """To the nearest integer, ties to even; with `decimals`, of x·10^d ÷ 10^d as PyTorch."""
    if decimals == 0:
        return pointwise(lambda a: call("round", a), x)
    ten = 10.0 ** abs(decimals)
    if decimals > 0:
        return pointwise(lambda a: call("round", a * ten) / ten, x)
    return pointwise(lambda a: call("round", a / ten) * ten, x)


@operator
def pow_(x: Operand, y: Operand) -> Value:
    """x^y. Constant exponents ½, −½, 2 and −1 are sqrt, rsqrt, x·x and 1 ÷ x (their zeros and infinities too)."""
    if isinstance(y, Value):
        return pointwise(lambda a, b: function("pow", a, b), x, y)
    if isinstance(x, Value) and not x.dtype.is_float:
        return _integer_power(x, y)
    special: dict[float, Callable[[Expr], Expr]] = {
        0.0: lambda a: a.like(1), 1.0: lambda a: a, 2.0: lambda a: a * a, -1.0: lambda a: 1 / a,
        0.5: lambda a: call("sqrt", a), -0.5: lambda a: call("rsqrt", a),
    }  # fmt: skip
    return pointwise(special.get(float(y), lambda a: function("pow", a, a.like(y))), x)


def _integer_power(x: Value, k: Scalar) -> Value:
    if k != int(k) or k < 0:
        raise ValueError(f"an integer to the power {k} is no integer")

    def power(a: Expr) -> Expr:
        out, base, rest = a.like(1), a, int(k)
        while rest:
            out, base, rest = (out * base if rest & 1 else out), base * base, rest >> 1
        return out

    return pointwise(power, x)


@operator
def fma(x: Operand, y: Operand, z: Operand) -> Value:
    """x·y + z in one rounding."""
    return pointwise(lambda a, b, c: call("fma", a, b, c), x, y, z)


@operator
def addcmul(x: Operand, y: Operand, z: Operand, value: Operand = 1) -> Value:
    """x + (value·y)·z, three roundings."""
    return pointwise(lambda a, b, c, k: a + scaled(k, b) * c, x, y, z, value)


@operator
def addcdiv(x: Operand, y: Operand, z: Operand, value: Operand = 1) -> Value:
    """x + (value·y) ÷ z, three roundings."""
    return pointwise(lambda a, b, c, k: a + scaled(k, b) / c, x, y, z, value)


def lerp_of(a: Expr, b: Expr, w: Expr) -> Expr:
    """a + w·(b − a) where |w| < ½, else b − (b − a)·(1 − w), as PyTorch."""
    near, far = a + w * (b - a), b - (b - a) * (1 - w)
    if isinstance(w, Const):
        return near if abs(w.value) < 0.5 else far
    return select(call("abs", w) < 0.5, near, far)


@operator
def lerp(x: Value, y: Value, weight: Operand) -> Value:
    """From x (weight 0) to y (weight 1); see `lerp_of`."""
    return pointwise(lerp_of, x, y, weight)


@operator
def maximum(x: Operand, y: Operand) -> Value:
    """The greater; NaN wins, −0 < +0."""
    return pointwise(lambda a, b: call("max", a, b), x, y)


@operator
def minimum(x: Operand, y: Operand) -> Value:
    """The lesser; NaN wins, −0 < +0."""
    return pointwise(lambda a, b: call("min", a, b), x, y)


@operator
def clamp(x: Value, low: Operand | None = None, high: Operand | None = None) -> Value:
    """min(max(x, low), high); a bound that is None does not bind."""
    if low is not None:
        x = pointwise(lambda a, b: call("max", a, b), x, low)
    return x if high is None else pointwise(lambda a, b: call("min", a, b), x, high)


@operator
def where(cond: Value, x: Operand, y: Operand) -> Value:
    """x where cond (bool), else y."""
    dtype = compute_dtype([x, y])
    at = axes(*broadcast_shape(*(v.shape for v in (cond, x, y) if isinstance(v, Value))))
    chosen = select(read(cond, at, DType.BOOL), read(x, at, dtype), read(y, at, dtype))
    return cond.graph.map(at, chosen)


@operator
def isnan(x: Value) -> Value:
    return pointwise(lambda a: a.ne(a), x)


@operator
def isinf(x: Value) -> Value:
    return pointwise(lambda a: call("abs", a).eq(INF), x)


@operator
def isfinite(x: Value) -> Value:
    return pointwise(lambda a: call("abs", a) < INF, x)


def is_negative(a: Expr) -> Expr:
    """The sign bit of a float, false for NaN (all NaNs are one, positive value)."""
    return (a < 0) | (a.eq(0) & (1 / a < 0))


@operator
def signbit(x: Value) -> Value:
    """The sign bit, false for NaN."""
    return pointwise(lambda a: is_negative(a) if a.dtype.is_float else a < 0, x)


@operator
def copysign(x: Operand, y: Operand) -> Value:
    """|x| with the sign of y (floats)."""

    def signed(a: Expr, b: Expr) -> Expr:
        size = call("abs", a)
        return select(is_negative(b), -size, size)

    return pointwise(signed, x, y)


_LARGEST = {DType.F64: 1.7976931348623157e308, DType.F32: 3.4028234663852886e38}
_LARGEST_NARROW = {DType.F16: 65504.0, DType.BF16: 3.3895313892515355e38}


@bit_move
def nan_to_num(x: Value, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Value:
    """NaN and infinities replaced: by 0, the dtype's largest and least finite value unless given."""
    largest = (_LARGEST | _LARGEST_NARROW)[x.dtype]
    at = x.axes()
    wide = DType.F32 if x.dtype in _LARGEST_NARROW else x.dtype
    a = x[at].cast(wide)
    top = select(a.eq(INF), a.like(largest if posinf is None else posinf), a)
    low = select(a.eq(-INF), a.like(-largest if neginf is None else neginf), top)
    return x.graph.map(at, select(a.ne(a), a.like(nan or 0.0), low).cast(x.dtype))


def _logical(name: str, fn: Callable[..., Expr]) -> Callable[..., Value]:
    def logical(*operands: Operand) -> Value:
        return pointwise(lambda *args: fn(*(a.cast(DType.BOOL) for a in args)), *operands)

    logical.__name__, logical.__doc__ = name, f"{name} of x ≠ 0, as bool."
    return operator(logical)


logical_and = _logical("logical_and", lambda a, b: a & b)
logical_or = _logical("logical_or", lambda a, b: a | b)
logical_xor = _logical("logical_xor", lambda a, b: call("xor", a, b))
logical_not = _logical("logical_not", lambda a: call("not", a))


def _bitwise(name: str, op: str) -> Callable[..., Value]:
    def bitwise(*operands: Operand) -> Value:
        return pointwise(lambda *args: call(op, *args), *operands)

    bitwise.__name__, bitwise.__doc__ = name, f"{name} on integers and bool."
    return operator(bitwise)


bitwise_and, bitwise_or = _bitwise("bitwise_and", "and"), _bitwise("bitwise_or", "or")
bitwise_xor, bitwise_not = _bitwise("bitwise_xor", "xor"), _bitwise("bitwise_not", "not")
shift_left, shift_right = _bitwise("shift_left", "shl"), _bitwise("shift_right", "shr")


@bit_move
def cast(x: Value, dtype: DType) -> Value:
    """x in another dtype: one rounding; float → integer saturates, NaN → 0; to bool is x ≠ 0."""
    return recast(x, dtype)


@bit_move
def full(graph: Graph, shape: Iterable[int], value: Scalar | Value, dtype: DType) -> Value:
    """A tensor that holds `value` everywhere; a run-time scalar is rounded once."""
    at = axes(*shape)
    return graph.map(at, value[()].cast(dtype) if isinstance(value, Value) else const(value, dtype))
