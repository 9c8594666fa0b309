"""Activation functions, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from isobit.ir.graph import Value
from isobit.operators import activations, pointwise, views
from isobit.torch.lowering import Call
from isobit.torch.table import Family

FAMILY = Family()

FORWARD: dict[str, Callable[[Value], Value]] = {
    "relu": activations.relu, "sigmoid": activations.sigmoid, "silu": activations.silu,
    "hardsigmoid": activations.hardsigmoid, "hardswish": activations.hardswish,
}  # fmt: skip
BACKWARD: dict[str, Callable[[Value, Value], Value]] = {
    "sigmoid_backward": activations.sigmoid_backward, "tanh_backward": activations.tanh_backward,
    "silu_backward": activations.silu_backward, "hardsigmoid_backward": activations.hardsigmoid_backward,
    "hardswish_backward": activations.hardswish_backward,
}  # fmt: skip


def _file_forward(name: str, fn: Callable[[Value], Value]) -> None:
    @FAMILY.statement(name)
    def build(c: Call, x: Value) -> Value:
        return fn(*c.promote(x))


def _file_backward(name: str, fn: Callable[[Value, Value], Value]) -> None:
    @FAMILY.statement(name)
    def build(c: Call, g: Value, x: Value) -> Value:
        return fn(*c.promote(g, x))


for _name, _forward in FORWARD.items():
    _file_forward(_name, _forward)
for _name, _backward in BACKWARD.items():
    _file_backward(_name, _backward)


@FAMILY.statement("threshold")
def threshold(c: Call, x: Value, limit: Any, value: Any) -> Value:
    (x,) = c.promote(x)
    return activations.threshold(x, limit, value)


@FAMILY.statement("threshold_backward")
def threshold_backward(c: Call, g: Value, x: Value, limit: Any) -> Value:
    g, x = c.promote(g, x)
    return activations.threshold_backward(g, x, limit)


@FAMILY.statement("leaky_relu", static=["negative_slope"])
def leaky_relu(c: Call, x: Value, slope: Any) -> Value:
    (x,) = c.promote(x)
    return activations.leaky_relu(x, slope)


@FAMILY.statement("leaky_relu_backward")
def leaky_relu_backward(c: Call, g: Value, x: Value, slope: Any, is_result: bool) -> Value:
    g, x = c.promote(g, x)
    return activations.leaky_relu_backward(g, x, slope)


@FAMILY.statement("_prelu_kernel")
def prelu(c: Call, x: Value, weight: Value) -> Value:
    return activations.leaky_relu(x, weight)


@FAMILY.statement("_prelu_kernel_backward")
def prelu_backward(c: Call, g: Value, x: Value, weight: Value) -> tuple[Value, Value]:
    return activations.leaky_relu_backward(g, x, weight), pointwise.where(pointwise.gt(x, 0), 0, pointwise.mul(x, g))


@FAMILY.statement("elu", static=["alpha", "scale", "input_scale"])
def elu(c: Call, x: Value, alpha: float, scale: float, input_scale: float) -> Value:
    return activations.elu(x, float(alpha), float(scale), float(input_scale))


@FAMILY.statement("elu_backward", static=["alpha", "scale", "input_scale"])
def elu_backward(c: Call, g: Value, alpha: float, scale: float, input_scale: float, is_result: bool, x: Value) -> Value:
    return activations.elu_backward(g, float(alpha), float(scale), float(input_scale), is_result, x)


@FAMILY.statement("softplus", static=["beta", "threshold"])
def softplus(c: Call, x: Value, beta: float, threshold: float) -> Value:
    return activations.softplus(x, float(beta), float(threshold))


@FAMILY.statement("softplus_backward", static=["beta", "threshold"])
def softplus_backward(c: Call, g: Value, x: Value, beta: float, threshold: float) -> Value:
    return activations.softplus_backward(g, x, float(beta), float(threshold))


@FAMILY.statement("log_sigmoid_forward")
def log_sigmoid(c: Call, x: Value) -> tuple[Value, Value]:
    buffer = c.results[1]  # which PyTorch's backward reads and ours does not
    return activations.logsigmoid(x), pointwise.full(c.graph, buffer.shape, 0, c.result_dtype(1))


@FAMILY.statement("log_sigmoid_backward")
def log_sigmoid_backward(c: Call, g: Value, x: Value, buffer: Value) -> Value:
    return activations.logsigmoid_backward(g, x)


@FAMILY.statement("hardtanh")
def hardtanh(c: Call, x: Value, low: Any, high: Any) -> Value:
    (x,) = c.promote(x)
    return activations.hardtanh(x, low, high)


@FAMILY.statement("hardtanh_backward")
def hardtanh_backward(c: Call, g: Value, x: Value, low: Any, high: Any) -> Value:
    return activations.hardtanh_backward(g, x, low, high)


@FAMILY.statement("gelu")
def gelu(c: Call, x: Value, approximate: str) -> Value:
    return activations.gelu(x, approximate)


@FAMILY.statement("gelu_backward")
def gelu_backward(c: Call, g: Value, x: Value, approximate: str) -> Value:
    return activations.gelu_backward(g, x, approximate)


@FAMILY.statement("mish")
def mish(c: Call, x: Value) -> Value:
    return pointwise.mul(x, pointwise.tanh(activations.softplus(x, 1.0, float("inf"))))


@FAMILY.statement("mish_backward")
def mish_backward(c: Call, g: Value, x: Value) -> Value:
    t = pointwise.tanh(activations.softplus(x, 1.0, float("inf")))
    slope = pointwise.mul(pointwise.mul(x, activations.sigmoid(x)), pointwise.rsub(pointwise.mul(t, t), 1.0))
    return pointwise.mul(g, pointwise.add(t, slope))


def _halves(x: Value, dim: int) -> tuple[Value, Value]:
    half = x.shape[dim] // 2
    return views.slice_(x, dim, 0, half), views.slice_(x, dim, half)


@FAMILY.statement("glu")
def glu(c: Call, x: Value, dim: int) -> Value:
    a, b = _halves(x, dim)
    return pointwise.mul(a, activations.sigmoid(b))


@FAMILY.statement("glu_backward")
def glu_backward(c: Call, g: Value, x: Value, dim: int) -> Value:
    a, b = _halves(x, dim)
    gate = activations.sigmoid(b)
    return views.cat([pointwise.mul(g, gate), activations.sigmoid_backward(pointwise.mul(g, a), gate)], dim)


@FAMILY.statement("hardshrink", static=["lambd"])
def hardshrink(c: Call, x: Value, limit: Any) -> Value:
    return pointwise.where(pointwise.le(pointwise.absolute(x), limit), 0, x)


@FAMILY.statement("hardshrink_backward", "softshrink_backward")
def hardshrink_backward(c: Call, g: Value, x: Value, limit: Any) -> Value:
    return pointwise.where(pointwise.le(pointwise.absolute(x), limit), 0, g)


@FAMILY.statement("softshrink", static=["lambd"])
def softshrink(c: Call, x: Value, limit: Any) -> Value:
    inner = pointwise.where(pointwise.lt(x, pointwise.neg(c.number(limit))), pointwise.add(x, limit), 0)
    kept = pointwise.where(pointwise.gt(x, limit), pointwise.sub(x, limit), inner)
    return pointwise.where(pointwise.isnan(x), x, kept)
