"""Activation functions and their backwards, in forms that are accurate over the whole range (ARITHMETIC.md §2)."""

from __future__ import annotations

import math

from isobit.ir.expr import Expr, call
from isobit.ir.expr import where as select
from isobit.ir.graph import Value
from isobit.operators.elements import Operand, pointwise
from isobit.operators.registry import operator

SQRT_HALF = math.sqrt(0.5)
INV_SQRT_TAU = 0.3989422804014327  # 1 ÷ √(2π)
TANH_1 = 2 * math.sqrt(2 / math.pi)  # the tanh form of gelu is x·sigmoid(x·(TANH_1 + TANH_3·x²))
TANH_3 = TANH_1 * 0.044715


def _exp(a: Expr) -> Expr:
    return call("exp", a)


def _max(a: Expr, b: Expr | float) -> Expr:
    return call("max", a, a.like(b))


def _min(a: Expr, b: Expr | float) -> Expr:
    return call("min", a, a.like(b))


def sigmoid_of(z: Expr, scale: Expr | float = 1) -> Expr:
    """scale·(1 ÷ (1 + exp(−z))) with e = exp(−|z|): no overflow, and small values keep their precision."""
    e = _exp(-call("abs", z))
    s = z.like(scale)
    return select(z >= 0, s, e if scale == 1 else s * e) / (1 + e)


def sigmoid_both(z: Expr) -> tuple[Expr, Expr]:
    """(sigmoid(z), sigmoid(−z)), which share e."""
    e = _exp(-call("abs", z))
    one = z.like(1)
    return select(z >= 0, one, e) / (1 + e), select(z >= 0, e, one) / (1 + e)


def softplus_of(z: Expr) -> Expr:
    """log(1 + exp(z)) = max(z, 0) + log1p(exp(−|z|))."""
    return _max(z, 0) + call("log1p", _exp(-call("abs", z)))


@operator
def relu(x: Value) -> Value:
    """max(x, +0): −0 gives +0."""
    return pointwise(lambda a: _max(a, 0), x)


@operator
def threshold(x: Value, limit: Operand, value: Operand) -> Value:
    """x where x > limit, else value; NaN stays."""
    return pointwise(lambda a, t, v: select(a <= t, v, a), x, limit, value)


@operator
def threshold_backward(g: Value, x: Value, limit: Operand) -> Value:
    """g where x > limit (or NaN), else 0."""
    return pointwise(lambda dy, a, t: select(a <= t, dy.like(0), dy), g, x, limit)


@operator
def leaky_relu(x: Value, slope: Operand = 0.01) -> Value:
    """x where x > 0, else slope·x."""
    return pointwise(lambda a, k: select(a > 0, a, k * a), x, slope)


@operator
def leaky_relu_backward(g: Value, x: Value, slope: Operand = 0.01) -> Value:
    """g where x > 0, else slope·g. With a positive slope x may be the result instead of the input."""
    return pointwise(lambda dy, a, k: select(a > 0, dy, k * dy), g, x, slope)


@operator
def elu(x: Value, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Value:
    """scale·x where x > 0, else (alpha·scale)·expm1(input_scale·x)."""
    return pointwise(
        lambda a: select(a > 0, a * scale, call("expm1", a * input_scale) * (alpha * scale)),
        x,
    )


@operator
def elu_backward(g: Value, alpha: float, scale: float, input_scale: float, is_result: bool, x: Value) -> Value:
    """g·scale where x > 0, else g·(alpha·scale·input_scale)·exp(input_scale·x); of the result y if `is_result`.

    From the result: the slope is input_scale·(y + alpha·scale).
    """
    top = alpha * scale

    def slope(a: Expr) -> Expr:
        return (a + top) * input_scale if is_result else _exp(a * input_scale) * (top * input_scale)

    return pointwise(lambda dy, a: dy * select(a > 0, a.like(scale), slope(a)), g, x)


@operator
def softplus(x: Value, beta: float = 1.0, threshold: float = 20.0) -> Value:
    """x where z = beta·x exceeds `threshold`, else softplus(z) ÷ beta."""

    def statement(a: Expr) -> Expr:
        z = a * beta
        return select(z > threshold, a, softplus_of(z) / beta)

    return pointwise(statement, x)


@operator
def softplus_backward(g: Value, x: Value, beta: float = 1.0, threshold: float = 20.0) -> Value:
    """g where beta·x exceeds `threshold`, else g·sigmoid(beta·x)."""

    def statement(dy: Expr, a: Expr) -> Expr:
        z = a * beta
        return select(z > threshold, dy, dy * sigmoid_of(z))

    return pointwise(statement, g, x)


@operator
def logsigmoid(x: Value) -> Value:
    """−softplus(−x)."""
    return pointwise(lambda a: -softplus_of(-a), x)


@operator
def logsigmoid_backward(g: Value, x: Value) -> Value:
    """g·sigmoid(−x)."""
    return pointwise(lambda dy, a: dy * sigmoid_of(-a), g, x)


@operator
def hardtanh(x: Value, low: Operand = -1.0, high: Operand = 1.0) -> Value:
    """min(max(x, low), high)."""
    return pointwise(lambda a, lo, hi: _min(_max(a, lo), hi), x, low, high)


@operator
def hardtanh_backward(g: Value, x: Value, low: Operand = -1.0, high: Operand = 1.0) -> Value:
    """g where low < x < high (or NaN), else 0."""
    return pointwise(lambda dy, a, lo, hi: select((a <= lo) | (a >= hi), dy.like(0), dy), g, x, low, high)


def _relu6(a: Expr) -> Expr:
    return _min(_max(a, 0), 6)


@operator
def hardsigmoid(x: Value) -> Value:
    """min(max(x + 3, 0), 6) ÷ 6."""
    return pointwise(lambda a: _relu6(a + 3) / 6, x)


@operator
def hardsigmoid_backward(g: Value, x: Value) -> Value:
    """g ÷ 6 where −3 < x < 3, else 0."""
    return pointwise(lambda dy, a: select((a > -3) & (a < 3), dy / 6, 0), g, x)


@operator
def hardswish(x: Value) -> Value:
    """x·min(max(x + 3, 0), 6) ÷ 6."""
    return pointwise(lambda a: a * _relu6(a + 3) / 6, x)


@operator
def hardswish_backward(g: Value, x: Value) -> Value:
    """0 where x ≤ −3, g where x ≥ 3, between them g·(x ÷ 3 + ½)."""
    return pointwise(
        lambda dy, a: select(a <= -3, dy.like(0), select(a >= 3, dy, dy * (a / 3 + 0.5))),
        g,
        x,
    )


@operator
def sigmoid(x: Value) -> Value:
    """1 ÷ (1 + e) for x ≥ 0, e ÷ (1 + e) below, e = exp(−|x|)."""
    return pointwise(sigmoid_of, x)


@operator
def sigmoid_backward(g: Value, y: Value) -> Value:
    """g·((1 − y)·y), y the result."""
    return pointwise(lambda dy, s: dy * ((1 - s) * s), g, y)


@operator
def tanh_backward(g: Value, y: Value) -> Value:
    """g·((1 − y)·(1 + y)), y the result: 1 − y·y would cancel near ±1."""
    return pointwise(lambda dy, t: dy * ((1 - t) * (1 + t)), g, y)


@operator
def silu(x: Value) -> Value:
    """x·sigmoid(x), as x ÷ (1 + e) or (x·e) ÷ (1 + e)."""
    return pointwise(lambda a: sigmoid_of(a, a), x)


@operator
def silu_backward(g: Value, x: Value) -> Value:
    """g·(s·(1 + x·t)) with s = sigmoid(x), t = sigmoid(−x) = 1 − s."""

    def statement(dy: Expr, a: Expr) -> Expr:
        s, t = sigmoid_both(a)
        return dy * (s * (1 + a * t))

    return pointwise(statement, g, x)


@operator
def gelu(x: Value, approximate: str = "none") -> Value:
    """(½·x)·erfc(−x·√½), or ("tanh") x·sigmoid(2u) with 2u = x·(TANH_1 + TANH_3·(x·x))."""
    if _is_tanh_form(approximate):
        return pointwise(lambda a: sigmoid_of(a * (TANH_1 + TANH_3 * (a * a)), a), x)
    return pointwise(lambda a: (0.5 * a) * call("erfc", -a * SQRT_HALF), x)


@operator
def gelu_backward(g: Value, x: Value, approximate: str = "none") -> Value:
    """g·(Φ(x) + x·φ(x)), Φ = ½·erfc(−x·√½), φ = exp(−½·x·x) ÷ √(2π); "tanh": g·(s + (x·(s·t))·(2u)′)."""
    if _is_tanh_form(approximate):
        return pointwise(lambda dy, a: dy * _gelu_tanh_slope(a), g, x)

    def slope(a: Expr) -> Expr:
        return 0.5 * call("erfc", -a * SQRT_HALF) + a * (_exp(-0.5 * (a * a)) * INV_SQRT_TAU)

    return pointwise(lambda dy, a: dy * slope(a), g, x)


def _gelu_tanh_slope(a: Expr) -> Expr:
    """s + (c·(s·t))·(TANH_1 + 3·TANH_3·c²), where c is x held within ±1000, beyond which s·t is 0."""
    c = _min(_max(a, -1000), 1000)
    z = c * (TANH_1 + TANH_3 * (c * c))
    s, t = sigmoid_both(z)
    return s + (c * (s * t)) * (TANH_1 + 3 * TANH_3 * (c * c))


def _is_tanh_form(approximate: str) -> bool:
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu's approximate is 'none' or 'tanh', not {approximate!r}")
    return approximate == "tanh"
