"""Layer, batch and group norm with their backwards.

Throughout: m = Σx ÷ n, rstd = rsqrt(M2 ÷ n + eps) with M2 of ARITHMETIC.md §3, x̂ = (x − m)·rstd, y = x̂·w + b. The
backward of what is normalised together is ((dŷ − c1) − x̂·c2)·scale, c1 = Σ dŷ ÷ n, c2 = Σ dŷ·x̂ ÷ n.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from isobit.ir.expr import Expr, call
from isobit.ir.graph import Value
from isobit.operators.elements import Operand, pointwise
from isobit.operators.reductions import average, count, fold, second_moment
from isobit.operators.registry import operator

Optional3 = tuple[Value | None, Value | None, Value | None]


def _rstd(second: Value, n: int, eps: Operand) -> Value:
    return pointwise(lambda s, e: call("rsqrt", s / n + e), second, eps)


def _statistics(x: Value, over: Sequence[int], eps: Operand) -> tuple[Value, Value]:
    """(m, rstd), the dims `over` of size 1."""
    m = average(x, over, True)
    return m, _rstd(second_moment(x, m, over, True), count(x.shape, over), eps)


def _hat(a: Expr, m: Expr, rstd: Expr) -> Expr:
    return (a - m) * rstd


def _normalised(x: Value, m: Value, rstd: Value) -> Value:
    return pointwise(_hat, x, m, rstd)


def _scaled(y: Value, w: Value | None, b: Value | None) -> Value:
    """y·w + b, either of which may be missing."""
    if w is not None:
        y = pointwise(lambda a, s: a * s, y, w)
    return y if b is None else pointwise(lambda a, t: a + t, y, b)


def _times(x: Value, y: Value) -> Value:
    return pointwise(lambda a, b: a * b, x, y)


def _centred(dy: Value, hat: Value, c1: Value, c2: Value, scale: Value) -> Value:
    return pointwise(lambda g, h, a, b, s: ((g - a) - h * b) * s, dy, hat, c1, c2, scale)


@operator
def layer_norm(
    x: Value, normalized_dims: int, w: Value | None, b: Value | None, eps: Operand
) -> tuple[Value, Value, Value]:
    """(y, m, rstd) over the last `normalized_dims` dims; m and rstd keep them with size 1."""
    over = range(x.ndim - normalized_dims, x.ndim)
    _fits("layer_norm", x.shape[x.ndim - normalized_dims :], w, b)
    m, rstd = _statistics(x, over, eps)
    return _scaled(_normalised(x, m, rstd), w, b), m, rstd


def _fits(name: str, shape: Sequence[int], *tensors: Value | None) -> None:
    for t in tensors:
        if t is not None and t.shape != tuple(shape):
            raise ValueError(f"{name}: weight or bias of shape {t.shape}, needed {tuple(shape)}")


@operator
def layer_norm_backward(
    dy: Value,
    x: Value,
    normalized_dims: int,
    m: Value,
    rstd: Value,
    w: Value | None,
    output_mask: Sequence[bool] = (True, True, True),
) -> Optional3:
    """Gradients of x, w, b; dŷ = dy·w, scale = rstd."""
    first = x.ndim - normalized_dims
    over, rows = range(first, x.ndim), range(first)
    hat = _normalised(x, m, rstd)
    dx = dw = db = None
    if output_mask[0]:
        dhat = dy if w is None else _times(dy, w)
        dx = _centred(dhat, hat, average(dhat, over, True), average(_times(dhat, hat), over, True), rstd)
    if output_mask[1]:
        dw = fold("sum", _times(dy, hat), rows)
    if output_mask[2]:
        db = fold("sum", dy, rows)
    return dx, dw, db


def _channels(ndim: int) -> list[int]:
    """All dims but 1."""
    return [d for d in range(ndim) if d != 1]


def _per_channel(v: Value, ndim: int) -> Value:
    """v[c] as a tensor that broadcasts along dim 1."""
    return v.graph.reshape(v, (1, v.shape[0], *(1,) * (ndim - 2)))


def _blend(old: Value, new: Value, momentum: Operand) -> Value:
    """(1 − momentum)·old + momentum·new; 1 − momentum in binary64."""
    rest: Operand = pointwise(lambda p: 1 - p, momentum) if isinstance(momentum, Value) else 1 - momentum
    return pointwise(lambda a, b, q, p: q * a + p * b, old, new, rest, momentum)


@operator
def batch_norm(
    x: Value,
    w: Value | None,
    b: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    momentum: Operand,
    eps: Operand,
) -> tuple[Value, Value, Value, Value | None, Value | None]:
    """Training: (y, m[c], rstd[c], new running mean, new running variance) of x[n, c, …].

    The running variance takes M2 ÷ (n − 1).
    """
    over, n = _channels(x.ndim), count(x.shape, _channels(x.ndim))
    _fits("batch_norm", x.shape[1:2], w, b, running_mean, running_var)
    m = average(x, over, True)
    second = second_moment(x, m, over, True)
    rstd = _rstd(second, n, eps)
    y = _scaled(_normalised(x, m, rstd), *(None if v is None else _per_channel(v, x.ndim) for v in (w, b)))
    flat_m, flat_rstd, flat_second = (x.graph.reshape(v, x.shape[1:2]) for v in (m, rstd, second))
    if running_mean is not None:
        running_mean = _blend(running_mean, flat_m, momentum)
    if running_var is not None:
        unbiased = pointwise(lambda s: s / max(n - 1, 0), flat_second)
        running_var = _blend(running_var, unbiased, momentum)
    return y, flat_m, flat_rstd, running_mean, running_var


def _inverse_deviation(variance: Value, eps: Operand) -> Value:
    return pointwise(lambda v, e: call("rsqrt", v + e), variance, eps)


@operator
def batch_norm_inference(
    x: Value, w: Value | None, b: Value | None, running_mean: Value, running_var: Value, eps: Operand
) -> Value:
    """((x − running mean)·rsqrt(running variance + eps))·w + b."""
    _fits("batch_norm", x.shape[1:2], w, b, running_mean, running_var)
    m, rstd = (_per_channel(v, x.ndim) for v in (running_mean, _inverse_deviation(running_var, eps)))
    return _scaled(_normalised(x, m, rstd), *(None if v is None else _per_channel(v, x.ndim) for v in (w, b)))


@operator
def batch_norm_backward(
    dy: Value,
    x: Value,
    w: Value | None,
    m: Value,
    rstd: Value,
    output_mask: Sequence[bool] = (True, True, True),
) -> Optional3:
    """Training: gradients of x, w, b; m, rstd as batch_norm gave them. dŷ = dy, scale = rstd·w."""
    over, n = _channels(x.ndim), count(x.shape, _channels(x.ndim))
    hat = _normalised(x, _per_channel(m, x.ndim), _per_channel(rstd, x.ndim))
    dw, db = fold("sum", _times(dy, hat), over), fold("sum", dy, over)
    dx = None
    if output_mask[0]:
        c1, c2 = (_per_channel(pointwise(lambda s: s / n, v), x.ndim) for v in (db, dw))
        scale = _per_channel(rstd if w is None else _times(rstd, w), x.ndim)
        dx = _centred(dy, hat, c1, c2, scale)
    return dx, dw if output_mask[1] else None, db if output_mask[2] else None


@operator
def batch_norm_inference_backward(
    dy: Value,
    x: Value,
    w: Value | None,
    running_mean: Value,
    running_var: Value,
    eps: Operand,
    output_mask: Sequence[bool] = (True, True, True),
) -> Optional3:
    """Gradients of x, w, b through fixed statistics: dx = dy·(rstd·w)."""
    rstd = _inverse_deviation(running_var, eps)
    over = _channels(x.ndim)
    dx = dw = db = None
    if output_mask[0]:
        dx = _times(dy, _per_channel(rstd if w is None else _times(rstd, w), x.ndim))
    if output_mask[1]:
        hat = _normalised(x, _per_channel(running_mean, x.ndim), _per_channel(rstd, x.ndim))
        dw = fold("sum", _times(dy, hat), over)
    if output_mask[2]:
        db = fold("sum", dy, over)
    return dx, dw, db


def _groups(x: Value, groups: int) -> Value:
    """x[n, c, …] as [n, group, channel, position]."""
    n, c, *rest = x.shape
    return x.graph.reshape(x, (n, groups, c // groups, math.prod(rest)))


def _channel_groups(v: Value, groups: int) -> Value:
    return v.graph.reshape(v, (1, groups, v.shape[0] // groups, 1))


@operator
def group_norm(x: Value, w: Value | None, b: Value | None, groups: int, eps: Operand) -> tuple[Value, Value, Value]:
    """(y, m[n, group], rstd[n, group]) of x[n, c, …]; a group's channels and positions are one run."""
    if x.ndim < 2 or x.shape[1] % groups:
        raise ValueError(f"group_norm of {x.shape} in {groups} groups")
    _fits("group_norm", x.shape[1:2], w, b)
    split = _groups(x, groups)
    m, rstd = _statistics(split, (2, 3), eps)
    y = _scaled(_normalised(split, m, rstd), *(None if v is None else _channel_groups(v, groups) for v in (w, b)))
    flat_m, flat_rstd = (x.graph.reshape(v, (x.shape[0], groups)) for v in (m, rstd))
    return x.graph.reshape(y, x.shape), flat_m, flat_rstd


@operator
def group_norm_backward(
    dy: Value,
    x: Value,
    m: Value,
    rstd: Value,
    w: Value | None,
    groups: int,
    output_mask: Sequence[bool] = (True, True, True),
) -> Optional3:
    """Gradients of x, w, b; dŷ = dy·w, scale = rstd."""
    graph, g = x.graph, _groups(dy, groups)
    scale = graph.reshape(rstd, (*rstd.shape, 1, 1))
    hat = _normalised(_groups(x, groups), graph.reshape(m, (*m.shape, 1, 1)), scale)
    dx = dw = db = None
    if output_mask[0]:
        dhat = g if w is None else _times(g, _channel_groups(w, groups))
        c1, c2 = average(dhat, (2, 3), True), average(_times(dhat, hat), (2, 3), True)
        dx = graph.reshape(_centred(dhat, hat, c1, c2, scale), x.shape)
    if output_mask[1]:
        dw = graph.reshape(fold("sum", _times(g, hat), (0, 3)), x.shape[1:2])
    if output_mask[2]:
        db = graph.reshape(fold("sum", g, (0, 3)), x.shape[1:2])
    return dx, dw, db
