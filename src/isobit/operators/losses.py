"""Losses and their backwards. `reduction` is "none", "mean" (sum ÷ n) or "sum"; sums over all dims are one run."""

from __future__ import annotations

import math

from isobit.arithmetic.dtypes import DType
from isobit.ir.expr import Expr, call, coord
from isobit.ir.expr import where as select
from isobit.ir.graph import Value
from isobit.operators.activations import sigmoid_of
from isobit.operators.elements import pointwise
from isobit.operators.reductions import average, fold
from isobit.operators.registry import operator

REDUCTIONS = ("none", "mean", "sum")


def _reduced(x: Value, reduction: str) -> Value:
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction is one of {REDUCTIONS}, not {reduction!r}")
    if reduction == "none":
        return x
    return average(x, range(x.ndim)) if reduction == "mean" else fold("sum", x, range(x.ndim))


def _share(dy: Value, x: Value, reduction: str, factor: float = 1) -> Value:
    """What each element is sent: factor·dy, over n for the mean."""
    n = math.prod(x.shape) if reduction == "mean" else 1
    return pointwise(lambda g: (g if factor == 1 else g * factor) / n, dy) if n != 1 or factor != 1 else dy


def _weighted(x: Value, w: Value | None) -> Value:
    return x if w is None else pointwise(lambda a, b: a * b, x, w)


@operator
def mse_loss(x: Value, y: Value, reduction: str = "mean") -> Value:
    """(x − y)·(x − y)."""

    def squared(a: Expr, b: Expr) -> Expr:
        d = a - b
        return d * d

    return _reduced(pointwise(squared, x, y), reduction)


@operator
def mse_loss_backward(dy: Value, x: Value, y: Value, reduction: str = "mean") -> Value:
    """(x − y)·s, s = (2·dy) ÷ n; the gradient of y is its negative."""
    return pointwise(lambda a, b, s: (a - b) * s, x, y, _share(dy, x, reduction, 2))


@operator
def smooth_l1_loss(x: Value, y: Value, reduction: str = "mean", beta: float = 1.0) -> Value:
    """((½·d)·d) ÷ beta where d = |x − y| < beta, else d − ½·beta."""

    def statement(a: Expr, b: Expr) -> Expr:
        d = call("abs", a - b)
        return select(d < beta, ((0.5 * d) * d) / beta, d - 0.5 * beta) if beta else d

    return _reduced(pointwise(statement, x, y), reduction)


@operator
def smooth_l1_loss_backward(dy: Value, x: Value, y: Value, reduction: str = "mean", beta: float = 1.0) -> Value:
    """s·d ÷ beta where |d| < beta, else ±s by the sign of d = x − y; s = dy ÷ n."""

    def statement(a: Expr, b: Expr, s: Expr) -> Expr:
        d = a - b
        ends = select(d >= beta, s, (s * d) / beta if beta else s * 0)
        return select(d <= -beta, -s, ends) if beta else select(d < 0, -s, select(d > 0, s, 0))

    return pointwise(statement, x, y, _share(dy, x, reduction))


@operator
def huber_loss(x: Value, y: Value, reduction: str = "mean", delta: float = 1.0) -> Value:
    """(½·d)·d where d = |x − y| ≤ delta, else delta·(d − ½·delta)."""

    def statement(a: Expr, b: Expr) -> Expr:
        d = call("abs", a - b)
        return select(d <= delta, (0.5 * d) * d, delta * (d - 0.5 * delta))

    return _reduced(pointwise(statement, x, y), reduction)


@operator
def huber_loss_backward(dy: Value, x: Value, y: Value, reduction: str = "mean", delta: float = 1.0) -> Value:
    """s·d where |d| < delta, else ±delta·s by the sign of d = x − y; s = dy ÷ n."""

    def statement(a: Expr, b: Expr, s: Expr) -> Expr:
        d = a - b
        return select(d <= -delta, -delta * s, select(d >= delta, delta * s, d * s))

    return pointwise(statement, x, y, _share(dy, x, reduction))


@operator
def bce_loss(x: Value, y: Value, w: Value | None = None, reduction: str = "mean") -> Value:
    """((y − 1)·max(log1p(−x), −100) − y·max(log x, −100))·w, as PyTorch."""

    def statement(a: Expr, b: Expr) -> Expr:
        floor = a.like(-100)
        return (b - 1) * call("max", call("log1p", -a), floor) - b * call("max", call("log", a), floor)

    return _reduced(_weighted(pointwise(statement, x, y), w), reduction)


@operator
def bce_loss_backward(dy: Value, x: Value, y: Value, w: Value | None = None, reduction: str = "mean") -> Value:
    """((s·(x − y)) ÷ max((1 − x)·x, 1e-12))·w, s = dy ÷ n."""

    def statement(a: Expr, b: Expr, s: Expr) -> Expr:
        return (s * (a - b)) / call("max", (1 - a) * a, a.like(1e-12))

    return _weighted(pointwise(statement, x, y, _share(dy, x, reduction)), w)


def _log1p_exp(a: Expr) -> Expr:
    return call("log1p", call("exp", -call("abs", a)))


@operator
def bce_with_logits_loss(
    x: Value, y: Value, w: Value | None = None, pos_weight: Value | None = None, reduction: str = "mean"
) -> Value:
    """((max(x, 0) − x·y) + log1p(exp(−|x|)))·w.

    With pos_weight p: ((1 − y)·x + ((p − 1)·y + 1)·(log1p(exp(−|x|)) + max(−x, 0)))·w.
    """

    def plain(a: Expr, b: Expr) -> Expr:
        return (call("max", a, a.like(0)) - a * b) + _log1p_exp(a)

    def weighted(a: Expr, b: Expr, p: Expr) -> Expr:
        return (1 - b) * a + ((p - 1) * b + 1) * (_log1p_exp(a) + call("max", -a, a.like(0)))

    loss = pointwise(plain, x, y) if pos_weight is None else pointwise(weighted, x, y, pos_weight)
    return _reduced(_weighted(loss, w), reduction)


@operator
def bce_with_logits_loss_backward(
    dy: Value,
    x: Value,
    y: Value,
    w: Value | None = None,
    pos_weight: Value | None = None,
    reduction: str = "mean",
) -> Value:
    """((sigmoid(x) − y)·s)·w, s = dy ÷ n; with pos_weight p and t = p·y: ((((t + 1) − y)·sigmoid(x) − t)·s)·w."""

    def plain(a: Expr, b: Expr, s: Expr) -> Expr:
        return (sigmoid_of(a) - b) * s

    def weighted(a: Expr, b: Expr, s: Expr, p: Expr) -> Expr:
        t = p * b
        return (((t + 1) - b) * sigmoid_of(a) - t) * s

    s = _share(dy, x, reduction)
    slope = pointwise(plain, x, y, s) if pos_weight is None else pointwise(weighted, x, y, s, pos_weight)
    return _weighted(slope, w)


def _class_first(logp: Value, target: Value) -> tuple[Value, Value]:
    """A sample alone as a batch of one; checks the shapes."""
    if logp.ndim == 1 and target.ndim == 0:
        logp, target = logp.graph.reshape(logp, (1, *logp.shape)), target.graph.reshape(target, (1,))
    if logp.ndim < 2 or target.shape != logp.shape[:1] + logp.shape[2:]:
        raise ValueError(f"nll_loss of {logp.shape} with targets {target.shape}")
    return logp, target


@operator
def nll_loss(
    logp: Value, target: Value, weight: Value | None = None, reduction: str = "mean", ignore_index: int = -100
) -> tuple[Value, Value]:
    """(loss, total weight) of logp[n, c, …] or logp[c] and class numbers target[n, …].

    Each element is −(w[t]·logp[t]), +0 where t is `ignore_index`, NaN where t is no class; the mean divides their sum
    by the sum of w[t]. Total weight is 0 for reduction "none".
    """
    single = logp.ndim == 1
    logp, target = _class_first(logp, target)
    at = target.axes()
    t = target[at].cast(DType.I64)
    kept = t.ne(ignore_index)
    picked: Expr = logp.at(at[0], t, *at[1:], fill=math.nan)
    if weight is not None:
        picked = picked * weight.at(t, fill=math.nan)
    each = logp.graph.map(at, select(kept, -picked, 0))
    if reduction == "none":
        return logp.graph.reshape(each, () if single else each.shape), logp.graph.constant(0, logp.dtype)
    counted = each[at].like(1) if weight is None else weight.at(t, fill=math.nan)
    total = fold("sum", logp.graph.map(at, select(kept, counted, 0)), range(len(at)))
    loss = fold("sum", each, range(len(at)))
    return (loss if reduction == "sum" else pointwise(lambda a, b: a / b, loss, total)), total


@operator
def nll_loss_backward(
    dy: Value,
    logp: Value,
    target: Value,
    weight: Value | None,
    reduction: str,
    ignore_index: int,
    total_weight: Value,
) -> Value:
    """−(w[c]·s) at the target's class, +0 elsewhere; s = dy, over the total weight for the mean."""
    shape = logp.shape
    logp, target = _class_first(logp, target)
    s = pointwise(lambda g, t: g / t, dy, total_weight) if reduction == "mean" else dy
    if reduction == "none":
        s = s.graph.reshape(s, target.shape)
    at = logp.axes()
    place = (at[0], *at[2:])
    t = target[place].cast(DType.I64)
    sent: Expr = s[place] if reduction == "none" else s[()]
    if weight is not None:
        sent = weight[at[1]] * sent
    hit = t.eq(coord(at[1])) & t.ne(ignore_index)
    return logp.graph.reshape(logp.graph.map(at, select(hit, -sent, 0)), shape)
