"""Elementwise arithmetic, comparisons, selection and conversion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from isobit.arithmetic.dtypes import DType
from isobit.ir.graph import Value
from isobit.operators import pointwise
from isobit.torch.dtypes import Unowned
from isobit.torch.lowering import Call
from isobit.torch.table import Family

FAMILY = Family()

UNARY: dict[str, Callable[[Value], Value]] = {
    "neg": pointwise.neg, "abs": pointwise.absolute, "sqrt": pointwise.sqrt, "rsqrt": pointwise.rsqrt,
    "reciprocal": pointwise.reciprocal, "exp": pointwise.exp, "exp2": pointwise.exp2, "expm1": pointwise.expm1,
    "log": pointwise.log, "log2": pointwise.log2, "log10": pointwise.log10, "log1p": pointwise.log1p,
    "sin": pointwise.sin, "cos": pointwise.cos, "tan": pointwise.tan, "asin": pointwise.asin,
    "acos": pointwise.acos, "atan": pointwise.atan, "sinh": pointwise.sinh, "cosh": pointwise.cosh,
    "tanh": pointwise.tanh, "erf": pointwise.erf, "erfc": pointwise.erfc, "floor": pointwise.floor,
    "ceil": pointwise.ceil, "trunc": pointwise.trunc, "sign": pointwise.sign, "sgn": pointwise.sign,
}  # fmt: skip
PREDICATES: dict[str, Callable[[Value], Value]] = {
    "isnan": pointwise.isnan, "isinf": pointwise.isinf, "signbit": pointwise.signbit,
    "logical_not": pointwise.logical_not,
}  # fmt: skip
COMPARISONS: dict[str, Callable[[Any, Any], Value]] = {
    "eq": pointwise.eq, "ne": pointwise.ne, "lt": pointwise.lt, "le": pointwise.le,
    "gt": pointwise.gt, "ge": pointwise.ge,
}  # fmt: skip
LOGICAL: dict[str, Callable[..., Value]] = {
    "logical_and": pointwise.logical_and, "logical_or": pointwise.logical_or, "logical_xor": pointwise.logical_xor,
}  # fmt: skip
BITWISE: dict[str, Callable[..., Value]] = {
    "bitwise_and": pointwise.bitwise_and, "bitwise_or": pointwise.bitwise_or, "bitwise_xor": pointwise.bitwise_xor,
    "bitwise_left_shift": pointwise.shift_left, "bitwise_right_shift": pointwise.shift_right,
}  # fmt: skip


def _file_unary(name: str, fn: Callable[[Value], Value]) -> None:
    @FAMILY.statement(name)
    def build(c: Call, x: Value) -> Value:
        return fn(*c.promote(x))


def _file_predicate(name: str, fn: Callable[[Value], Value]) -> None:
    @FAMILY.statement(name)
    def build(c: Call, x: Value) -> Value:
        return fn(x)


def _file_comparison(name: str, fn: Callable[[Any, Any], Value]) -> None:
    @FAMILY.statement(f"{name}.Tensor", f"{name}.Scalar")
    def build(c: Call, x: Any, y: Any) -> Value:
        return fn(*c.promote(x, y, dtype=c.common("self", "other")))


def _file_logical(name: str, fn: Callable[..., Value]) -> None:
    @FAMILY.statement(name)
    def build(c: Call, x: Value, y: Value) -> Value:
        return fn(pointwise.cast(x, DType.BOOL), pointwise.cast(y, DType.BOOL))


def _file_bitwise(name: str, fn: Callable[..., Value]) -> None:
    shift = name.endswith("shift")
    names = [f"{name}.Tensor", f"{name}.Tensor_Scalar" if shift else f"{name}.Scalar", f"{name}.Scalar_Tensor"]

    @FAMILY.statement(*names)
    def build(c: Call, x: Any, y: Any) -> Value:
        return fn(*c.promote(x, y))


for _name, _fn in UNARY.items():
    _file_unary(_name, _fn)
for _name, _fn in PREDICATES.items():
    _file_predicate(_name, _fn)
for _name, _compare in COMPARISONS.items():
    _file_comparison(_name, _compare)
for _name, _fn in LOGICAL.items():
    _file_logical(_name, _fn)
for _name, _fn in BITWISE.items():
    _file_bitwise(_name, _fn)


@FAMILY.statement("bitwise_not")
def bitwise_not(c: Call, x: Value) -> Value:
    return pointwise.bitwise_not(x)


@FAMILY.statement("add.Tensor", "add.Scalar")
def add(c: Call, x: Any, y: Any, alpha: Any) -> Value:
    x, y = c.promote(x, y)
    return pointwise.add(x, y, alpha)


@FAMILY.statement("sub.Tensor", "sub.Scalar")
def sub(c: Call, x: Any, y: Any, alpha: Any) -> Value:
    x, y = c.promote(x, y)
    return pointwise.sub(x, y, alpha)


@FAMILY.statement("rsub.Tensor", "rsub.Scalar")
def rsub(c: Call, x: Any, y: Any, alpha: Any) -> Value:
    x, y = c.promote(x, y)
    return pointwise.rsub(x, y, alpha)


@FAMILY.statement("mul.Tensor", "mul.Scalar")
def mul(c: Call, x: Any, y: Any) -> Value:
    return pointwise.mul(*c.promote(x, y))


@FAMILY.statement("div.Tensor", "div.Scalar")
def div(c: Call, x: Any, y: Any) -> Value:
    return pointwise.div(*c.promote(x, y))


@FAMILY.statement("div.Tensor_mode", "div.Scalar_mode")
def div_mode(c: Call, x: Any, y: Any, rounding_mode: str | None) -> Value:
    x, y = c.promote(x, y)
    return pointwise.div(x, y, rounding_mode)


@FAMILY.statement("floor_divide", "floor_divide.Scalar")
def floor_divide(c: Call, x: Any, y: Any) -> Value:
    x, y = c.promote(x, y)
    return pointwise.div(x, y, "floor")


@FAMILY.statement("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
def remainder(c: Call, x: Any, y: Any) -> Value:
    if c.dtype.is_float:
        raise Unowned("remainder of floats is outside version 1")
    return pointwise.remainder(*c.promote(x, y))


@FAMILY.statement("pow.Tensor_Scalar", static=["exponent"])
def pow_scalar(c: Call, x: Value, exponent: Any) -> Value:
    (x,) = c.promote(x)
    return pointwise.pow_(x, exponent)


@FAMILY.statement("pow.Tensor_Tensor", "pow.Scalar", static=["self"])
def pow_tensor(c: Call, x: Any, exponent: Value) -> Value:
    if not c.dtype.is_float:
        raise Unowned("an integer to the power of integers in a graph")
    return pointwise.pow_(*c.promote(x, exponent))


@FAMILY.statement("addcmul")
def addcmul(c: Call, x: Value, y: Value, z: Value, value: Any) -> Value:
    x, y, z = c.promote(x, y, z)
    return pointwise.addcmul(x, y, z, value)


@FAMILY.statement("addcdiv")
def addcdiv(c: Call, x: Value, y: Value, z: Value, value: Any) -> Value:
    x, y, z = c.promote(x, y, z)
    return pointwise.addcdiv(x, y, z, value)


@FAMILY.statement("lerp.Scalar", "lerp.Tensor")
def lerp(c: Call, x: Value, y: Value, weight: Any) -> Value:
    return pointwise.lerp(*c.promote(x, y, weight))


@FAMILY.statement("maximum")
def maximum(c: Call, x: Any, y: Any) -> Value:
    return pointwise.maximum(*c.promote(x, y))


@FAMILY.statement("minimum")
def minimum(c: Call, x: Any, y: Any) -> Value:
    return pointwise.minimum(*c.promote(x, y))


@FAMILY.statement("clamp", "clamp.Tensor")
def clamp(c: Call, x: Value, low: Any, high: Any) -> Value:
    return pointwise.clamp(*c.promote(x, low, high))


@FAMILY.statement("clamp_min", "clamp_min.Tensor")
def clamp_min(c: Call, x: Value, low: Any) -> Value:
    return pointwise.clamp(*c.promote(x, low))


@FAMILY.statement("clamp_max", "clamp_max.Tensor")
def clamp_max(c: Call, x: Value, high: Any) -> Value:
    x, high = c.promote(x, high)
    return pointwise.clamp(x, None, high)


@FAMILY.statement("where.self")
def where(c: Call, cond: Value, x: Any, y: Any) -> Value:
    return pointwise.where(pointwise.cast(cond, DType.BOOL), *c.promote(x, y))


@FAMILY.statement("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(c: Call, x: Value, mask: Value, value: Any) -> Value:
    return pointwise.where(pointwise.cast(mask, DType.BOOL), *c.promote(value, x))


@FAMILY.statement("copysign.Tensor", "copysign.Scalar")
def copysign(c: Call, x: Any, y: Any) -> Value:
    return pointwise.copysign(*c.promote(x, y))


@FAMILY.statement("round")
def round_(c: Call, x: Value) -> Value:
    return pointwise.round_(x)


@FAMILY.statement("round.decimals")
def round_decimals(c: Call, x: Value, decimals: int) -> Value:
    return pointwise.round_(x, decimals)


@FAMILY.statement("nan_to_num", static=["nan", "posinf", "neginf"])
def nan_to_num(c: Call, x: Value, nan: float | None, posinf: float | None, neginf: float | None) -> Value:
    return pointwise.nan_to_num(x, nan, posinf, neginf)


@FAMILY.statement("xlogy.Tensor", "xlogy.Scalar_Self", "xlogy.Scalar_Other")
def xlogy(c: Call, x: Any, y: Any) -> Value:
    x, y = c.tensor(x), c.tensor(y)
    product = pointwise.where(pointwise.eq(x, 0), 0, pointwise.mul(x, pointwise.log(y)))
    return pointwise.where(pointwise.isnan(y), float("nan"), product)


@FAMILY.statement("logit", static=["eps"])
def logit(c: Call, x: Value, eps: float | None) -> Value:
    (x,) = c.promote(x)
    z = x if eps is None else pointwise.clamp(x, float(eps), 1 - float(eps))
    return pointwise.log(pointwise.div(z, pointwise.rsub(z, 1)))


@FAMILY.statement("logit_backward", static=["eps"])
def logit_backward(c: Call, dy: Value, x: Value, eps: float | None) -> Value:
    """dy ÷ (x·(1 − x)) inside [eps, 1 − eps], else 0; without eps, NaN outside [0, 1]."""
    low, high = (0.0, 1.0) if eps is None else (float(eps), 1 - float(eps))
    inside = pointwise.logical_and(pointwise.ge(x, low), pointwise.le(x, high))
    slope = pointwise.div(dy, pointwise.mul(x, pointwise.rsub(x, 1)))
    return pointwise.where(inside, slope, float("nan") if eps is None else 0)


# Conversion and filling ----------------------------------------------------------------------------------------


@FAMILY.statement("copy", uniform=True)
def copy(c: Call, x: Value, source: Any, non_blocking: bool) -> Value:
    return _broadcast(c, pointwise.cast(c.number(source), c.dtype))


@FAMILY.statement("_to_copy", uniform=True)
def to_copy(c: Call, x: Value, *attributes: Any) -> Value:
    return pointwise.cast(x, c.dtype)


@FAMILY.statement("fill.Scalar", "fill.Tensor")
def fill(c: Call, x: Value, value: Any) -> Value:
    return _broadcast(c, pointwise.cast(c.number(value, x.dtype), x.dtype))


@FAMILY.statement("full")
def full(c: Call, size: Any, value: Any, *attributes: Any) -> Value:
    return pointwise.full(c.graph, size, value, c.dtype)


@FAMILY.statement("full_like")
def full_like(c: Call, x: Value, value: Any, *attributes: Any) -> Value:
    return pointwise.full(c.graph, c.shape, value, c.dtype)


@FAMILY.statement("new_full")
def new_full(c: Call, x: Value, size: Any, value: Any, *attributes: Any) -> Value:
    return pointwise.full(c.graph, c.shape, value, c.dtype)


@FAMILY.statement("scalar_tensor")
def scalar_tensor(c: Call, value: Any, *attributes: Any) -> Value:
    return pointwise.full(c.graph, (), value, c.dtype)


def _broadcast(c: Call, x: Value) -> Value:
    """x under the result's shape."""
    return x if x.shape == c.shape else pointwise.where(c.graph.constant(True, DType.BOOL), x, _blank(c, x))


def _blank(c: Call, x: Value) -> Value:
    return pointwise.full(c.graph, c.shape, 0, x.dtype)
