"""Matrix products: contractions in the order of ARITHMETIC.md §4, with what is added to them."""

from __future__ import annotations

from isobit.ir.expr import Expr, axes
from isobit.ir.graph import Value
from isobit.operators.elements import Operand, pointwise
from isobit.operators.pointwise import scaled
from isobit.operators.registry import operator


def _needs(ok: bool, name: str, *tensors: Value) -> None:
    if not ok:
        raise ValueError(f"{name} of shapes {', '.join(str(t.shape) for t in tensors)}")


def product(a: Value, b: Value) -> Value:
    """a[m, k]·b[k, n], or with a leading batch dim in both."""
    _needs(a.ndim == b.ndim and a.shape[:-2] == b.shape[:-2] and a.shape[-1] == b.shape[-2], "mm", a, b)
    batch = axes(*a.shape[:-2], names="b")
    m, n, k = axes(a.shape[-2], b.shape[-1], a.shape[-1], names="mnk")
    return a.graph.contract((*batch, m, n), (k,), a[(*batch, m, k)], b[(*batch, k, n)])


def _plus(c: Operand, out: Value, beta: Operand, alpha: Operand) -> Value:
    """beta·c + alpha·out; with beta a literal 0, c is not read."""
    if not isinstance(beta, Value) and beta == 0:
        return pointwise(lambda y, k: scaled(k, y), out, alpha)
    return pointwise(lambda y, x, j, k: scaled(j, x) + scaled(k, y), out, c, beta, alpha)


@operator
def mm(a: Value, b: Value) -> Value:
    """a[m, k]·b[k, n]."""
    _needs(a.ndim == 2, "mm", a, b)
    return product(a, b)


@operator
def bmm(a: Value, b: Value) -> Value:
    """a[b, m, k]·b[b, k, n]."""
    _needs(a.ndim == 3, "bmm", a, b)
    return product(a, b)


@operator
def mv(a: Value, x: Value) -> Value:
    """a[m, k]·x[k]."""
    _needs(a.ndim == 2 and x.ndim == 1 and a.shape[1] == x.shape[0], "mv", a, x)
    m, k = axes(*a.shape, names="mk")
    return a.graph.contract((m,), (k,), a[m, k], x[k])


@operator
def dot(x: Value, y: Value) -> Value:
    """x[k]·y[k], a scalar."""
    _needs(x.ndim == 1 and x.shape == y.shape, "dot", x, y)
    (k,) = axes(*x.shape, names="k")
    return x.graph.contract((), (k,), x[k], y[k])


@operator
def outer(x: Value, y: Value) -> Value:
    """x[m]·y[n], one product each."""
    _needs(x.ndim == 1 and y.ndim == 1, "outer", x, y)
    m, n = axes(x.shape[0], y.shape[0], names="mn")
    return x.graph.map((m, n), x[m] * y[n])


@operator
def addmm(c: Value, a: Value, b: Value, beta: Operand = 1, alpha: Operand = 1) -> Value:
    """beta·c + alpha·(a @ b); c broadcasts to [m, n]."""
    _needs(a.ndim == 2, "addmm", a, b)
    return _plus(c, product(a, b), beta, alpha)


@operator
def addmv(c: Value, a: Value, x: Value, beta: Operand = 1, alpha: Operand = 1) -> Value:
    """beta·c + alpha·(a @ x)."""
    return _plus(c, mv(a, x), beta, alpha)


@operator
def baddbmm(c: Value, a: Value, b: Value, beta: Operand = 1, alpha: Operand = 1) -> Value:
    """beta·c + alpha·(a @ b) per batch."""
    _needs(a.ndim == 3, "baddbmm", a, b)
    return _plus(c, product(a, b), beta, alpha)


@operator
def linear(x: Value, w: Value, bias: Value | None = None) -> Value:
    """x[..., k]·w[n, k] + bias[n]; w may be a vector w[k]."""
    _needs(x.ndim >= 1 and w.ndim in (1, 2) and x.shape[-1] == w.shape[-1], "linear", x, w)
    batch = axes(*x.shape[:-1], names="b")
    n = axes(*w.shape[:-1], names="n")
    (k,) = axes(x.shape[-1], names="k")
    out = x.graph.contract((*batch, *n), (k,), x[(*batch, k)], w[(*n, k)])
    return out if bias is None else pointwise(_sum, out, bias)


def _sum(a: Expr, b: Expr) -> Expr:
    return a + b
