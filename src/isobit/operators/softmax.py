"""Softmax, its logarithm and their backwards, along one dim."""

from __future__ import annotations

import math

from isobit.ir.expr import Expr, call
from isobit.ir.expr import where as select
from isobit.ir.graph import Value
from isobit.operators.elements import pointwise
from isobit.operators.reductions import fold, gather_all, normal_dims
from isobit.operators.registry import operator


def _total(x: Value, dim: int) -> Value:
    return fold("sum", x, normal_dims(dim, x.ndim), True)


def _shifted_exp(a: Expr, m: Expr) -> Expr:
    return call("exp", a - m)


@operator
def softmax(x: Value, dim: int) -> Value:
    """e ÷ Σe, e = exp(x − m), m = max x. A row of −inf gives NaN."""
    if 0 in x.shape:
        return x
    e = pointwise(_shifted_exp, x, gather_all("max", x, dim, True))
    return pointwise(lambda a, s: a / s, e, _total(e, dim))


@operator
def safe_softmax(x: Value, dim: int) -> Value:
    """Softmax that is 0 along a row of −inf."""
    if 0 in x.shape:
        return x
    top = gather_all("max", x, dim, True)
    e = pointwise(_shifted_exp, x, top)
    return pointwise(lambda a, s, m: select(m.eq(-math.inf), a.like(0), a / s), e, _total(e, dim), top)


@operator
def softmax_backward(dy: Value, y: Value, dim: int) -> Value:
    """(dy − Σ dy·y)·y, y the result."""
    s = _total(pointwise(lambda g, a: g * a, dy, y), dim)
    return pointwise(lambda g, a, t: (g - t) * a, dy, y, s)


@operator
def log_softmax(x: Value, dim: int) -> Value:
    """(x − m) − log Σ exp(x − m), m = max x."""
    if 0 in x.shape:
        return x
    z = pointwise(lambda a, m: a - m, x, gather_all("max", x, dim, True))
    s = _total(pointwise(lambda a: call("exp", a), z), dim)
    return pointwise(lambda a, t: a - call("log", t), z, s)


@operator
def log_softmax_backward(dy: Value, y: Value, dim: int) -> Value:
    """dy − exp(y)·Σ dy, y the result."""
    return pointwise(lambda g, a, t: g - call("exp", a) * t, dy, y, _total(dy, dim))
