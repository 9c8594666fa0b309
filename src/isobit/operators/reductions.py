"""Reductions over any dims, in the order of ARITHMETIC.md §3.

`dims` are dims of x (negative ones count from the end); None, or none at all, means every dim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from isobit.arithmetic.dtypes import DType
from isobit.ir.expr import Axis, Expr, call, const
from isobit.ir.expr import where as select
from isobit.ir.graph import Shape, Value
from isobit.operators.elements import pointwise
from isobit.operators.pointwise import function
from isobit.operators.registry import operator

Dims = Sequence[int] | int | None
INF = float("inf")
_NEED_ELEMENTS = frozenset({"max", "min", "argmax", "argmin"})


def normal_dims(dims: Dims, ndim: int) -> tuple[int, ...]:
    """Ascending, non-negative; raises ValueError for a dim that is out of range or named twice."""
    if dims is None or (not isinstance(dims, int) and not len(dims)):
        return tuple(range(ndim))
    given = (dims,) if isinstance(dims, int) else tuple(dims)
    found = tuple(sorted(d + ndim if d < 0 else d for d in given))
    if len(set(found)) != len(found) or any(not 0 <= d < max(ndim, 1) for d in found):
        raise ValueError(f"dims {given} of a tensor with {ndim} dims")
    return found if ndim else ()


def runs(shape: Shape, dims: Sequence[int]) -> list[tuple[int, ...]]:
    """The runs of a reduction over `dims`, last first: neighbouring dims that are not of size 1 are one run.

    A kept dim always separates. Where nothing is left, one empty run (a run of one element) stays.
    """
    groups: list[list[int]] = []
    separated = True
    for d, extent in enumerate(shape):
        if d not in dims:
            separated = True
        elif extent != 1:
            if separated:
                groups.append([])
            groups[-1].append(d)
            separated = False
    return [tuple(g) for g in reversed(groups)] or [()]


def kept_shape(shape: Shape, dims: Sequence[int], keepdim: bool) -> Shape:
    if keepdim:
        return tuple(1 if d in dims else n for d, n in enumerate(shape))
    return tuple(n for d, n in enumerate(shape) if d not in dims)


def reduce_run(kind: str, x: Value, run: Sequence[int], body: Callable[[Expr], Expr] = lambda e: e) -> Value:
    """Reduces the dims `run` of x, which stay with size 1, as one run of `body` of its elements."""
    at = x.axes()
    keep = [Axis(1) if d in run else a for d, a in enumerate(at)]
    if kind in _NEED_ELEMENTS and 0 in (x.shape[d] for d in run) and 0 not in (a.extent for a in keep):
        raise ValueError(f"{kind} over dims {tuple(run)} of a tensor of shape {x.shape}, which has no element there")
    return x.graph.reduce(kind, keep, [at[d] for d in run], body(x[at]))


def fold(
    kind: str, x: Value, over: Sequence[int], keepdim: bool = False, body: Callable[[Expr], Expr] = lambda e: e
) -> Value:
    """`kind` ("sum" or "prod") of body(x) over exactly the dims `over` (non-negative), run after run.

    `body` is applied once, to the elements.
    """
    out = x
    for run in runs(x.shape, over):
        out = reduce_run(kind, out, run, body)
        body = _unchanged
    return x.graph.reshape(out, kept_shape(x.shape, over, keepdim))


def gather_all(kind: str, x: Value, dims: Dims, keepdim: bool, body: Callable[[Expr], Expr] = lambda e: e) -> Value:
    """A reduction whose order cannot matter (max, min, any, all): all dims at once."""
    over = normal_dims(dims, x.ndim)
    return x.graph.reshape(reduce_run(kind, x, over, body), kept_shape(x.shape, over, keepdim))


def _unchanged(e: Expr) -> Expr:
    return e


def count(shape: Shape, over: Sequence[int]) -> int:
    """How many elements a reduction over exactly `over` meets per result."""
    return math.prod(shape[d] for d in over)


def average(x: Value, over: Sequence[int], keepdim: bool = False, body: Callable[[Expr], Expr] = lambda e: e) -> Value:
    """Σ body(x) ÷ n over exactly `over`, one division."""
    n = count(x.shape, over)
    return pointwise(lambda s: s / n, fold("sum", x, over, keepdim, body))


@operator
def sum_(x: Value, dims: Dims = None, keepdim: bool = False) -> Value:
    """The sum in x's dtype, run after run."""
    return fold("sum", x, normal_dims(dims, x.ndim), keepdim)


@operator
def prod(x: Value, dims: Dims = None, keepdim: bool = False) -> Value:
    """The product in x's dtype, run after run."""
    return fold("prod", x, normal_dims(dims, x.ndim), keepdim)


@operator
def mean(x: Value, dims: Dims = None, keepdim: bool = False) -> Value:
    """sum ÷ n, one division."""
    return average(x, normal_dims(dims, x.ndim), keepdim)


def second_moment(x: Value, mean_of: Value, over: Sequence[int], keepdim: bool = False) -> Value:
    """M2 of ARITHMETIC.md §3: squared deviations from `mean_of`, which has the dims `over` of size 1."""
    first, *rest = runs(x.shape, over)
    at = x.axes()
    keep = [Axis(1) if d in first else a for d, a in enumerate(at)]
    aux = mean_of[tuple(0 if d in over else keep[d] for d in range(x.ndim))]
    out = x.graph.reduce("m2", keep, [at[d] for d in first], x[at], aux)
    for run in rest:
        out = reduce_run("sum", out, run)
    return x.graph.reshape(out, kept_shape(x.shape, over, keepdim))


@operator
def var_mean(x: Value, dims: Dims = None, correction: float = 1, keepdim: bool = False) -> tuple[Value, Value]:
    """(M2 ÷ max(n − correction, 0), mean)."""
    over = normal_dims(dims, x.ndim)
    n = count(x.shape, over)
    m = average(x, over, True)
    v = pointwise(lambda s: s / max(n - correction, 0), second_moment(x, m, over, True))
    shape = kept_shape(x.shape, over, keepdim)
    return x.graph.reshape(v, shape), x.graph.reshape(m, shape)


@operator
def var(x: Value, dims: Dims = None, correction: float = 1, keepdim: bool = False) -> Value:
    """M2 ÷ max(n − correction, 0)."""
    return var_mean(x, dims, correction, keepdim)[0]


@operator
def std(x: Value, dims: Dims = None, correction: float = 1, keepdim: bool = False) -> Value:
    """√var."""
    return pointwise(lambda v: call("sqrt", v), var_mean(x, dims, correction, keepdim)[0])


@operator
def amax(x: Value, dims: Dims = None, keepdim: bool = False) -> Value:
    """The greatest; NaN wins, −0 < +0."""
    return gather_all("max", x, dims, keepdim)


@operator
def amin(x: Value, dims: Dims = None, keepdim: bool = False) -> Value:
    """The least; NaN wins, −0 < +0."""
    return gather_all("min", x, dims, keepdim)


@operator
def argmax(x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    """The position, i64, of the greatest; the lowest among equals (−0 == +0; NaN is the greatest)."""
    return gather_all("argmax", x, dim, keepdim)


@operator
def argmin(x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    """The position, i64, of the least; the lowest among equals (NaN is the least)."""
    return gather_all("argmin", x, dim, keepdim)


@operator
def max_(x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    """(amax, argmax) along `dim`."""
    return gather_all("max", x, dim, keepdim), gather_all("argmax", x, dim, keepdim)


@operator
def min_(x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    """(amin, argmin) along `dim`."""
    return gather_all("min", x, dim, keepdim), gather_all("argmin", x, dim, keepdim)


@operator
def any_(x: Value, dims: Dims = None, keepdim: bool = False) -> Value:
    """Is an element not 0 (NaN is not)?"""
    return gather_all("any", x, dims, keepdim, lambda e: e.cast(DType.BOOL))


@operator
def all_(x: Value, dims: Dims = None, keepdim: bool = False) -> Value:
    """Is no element 0?"""
    return gather_all("all", x, dims, keepdim, lambda e: e.cast(DType.BOOL))


@operator
def norm(x: Value, p: float = 2, dims: Dims = None, keepdim: bool = False) -> Value:
    """Vector norm: √Σx·x (2), Σ|x| (1), max|x| (inf), min|x| (−inf), count of x ≠ 0 (0), else (Σ|x|^p)^(1/p)."""
    if p in (INF, -INF):
        return gather_all("max" if p > 0 else "min", x, dims, keepdim, _abs)
    over = normal_dims(dims, x.ndim)
    if p == 0:
        return fold("sum", x, over, keepdim, lambda a: select(a.ne(0), a.like(1), 0))
    if p == 1:
        return fold("sum", x, over, keepdim, _abs)
    if p == 2:
        return pointwise(lambda s: call("sqrt", s), fold("sum", x, over, keepdim, lambda a: a * a))
    powers = fold("sum", x, over, keepdim, lambda a: function("pow", _abs(a), a.like(p)))
    return pointwise(lambda s: function("pow", s, const(1 / p, s.dtype)), powers)


def _abs(a: Expr) -> Expr:
    return call("abs", a)


@operator
def logsumexp(x: Value, dims: Dims, keepdim: bool = False) -> Value:
    """log Σ exp(x − m) + m with m = max x, or 0 where that is infinite."""
    m = pointwise(lambda a: select(call("abs", a).eq(INF), a.like(0), a), gather_all("max", x, dims, True))
    powers = pointwise(lambda a, b: call("exp", a - b), x, m)
    total = fold("sum", powers, normal_dims(dims, x.ndim), keepdim)
    base = x.graph.reshape(m, total.shape)
    return pointwise(lambda s, b: call("log", s) + b, total, base)
