"""Reductions."""

from __future__ import annotations

from typing import Any

from isobit.arithmetic.dtypes import DType
from isobit.ir.graph import Value
from isobit.operators import pointwise, reductions
from isobit.torch.dtypes import Unowned
from isobit.torch.lowering import Call
from isobit.torch.table import Family

FAMILY = Family()


@FAMILY.statement("sum")
def sum_all(c: Call, x: Value, dtype: Any) -> Value:
    return reductions.sum_(*c.promote(x))


@FAMILY.statement("sum.dim_IntList")
def sum_dims(c: Call, x: Value, dims: Any, keepdim: bool, dtype: Any) -> Value:
    (x,) = c.promote(x)
    return reductions.sum_(x, _dims(x, dims), keepdim)


@FAMILY.statement("mean")
def mean_all(c: Call, x: Value, dtype: Any) -> Value:
    return reductions.mean(*c.promote(x))


@FAMILY.statement("mean.dim")
def mean_dims(c: Call, x: Value, dims: Any, keepdim: bool, dtype: Any) -> Value:
    (x,) = c.promote(x)
    return reductions.mean(x, _dims(x, dims), keepdim)


@FAMILY.statement("prod")
def prod_all(c: Call, x: Value, dtype: Any) -> Value:
    return reductions.prod(*c.promote(x))


@FAMILY.statement("prod.dim_int")
def prod_dim(c: Call, x: Value, dim: int, keepdim: bool, dtype: Any) -> Value:
    (x,) = c.promote(x)
    return reductions.prod(x, _dims(x, dim), keepdim)


@FAMILY.statement("amax")
def amax(c: Call, x: Value, dims: Any, keepdim: bool) -> Value:
    return reductions.amax(x, _dims(x, dims), keepdim)


@FAMILY.statement("amin")
def amin(c: Call, x: Value, dims: Any, keepdim: bool) -> Value:
    return reductions.amin(x, _dims(x, dims), keepdim)


@FAMILY.statement("max")
def max_all(c: Call, x: Value) -> Value:
    return reductions.amax(_filled(x))


@FAMILY.statement("min")
def min_all(c: Call, x: Value) -> Value:
    return reductions.amin(_filled(x))


@FAMILY.statement("max.dim")
def max_dim(c: Call, x: Value, dim: int, keepdim: bool) -> Any:
    return reductions.max_(x, _dims(x, dim), keepdim)


@FAMILY.statement("min.dim")
def min_dim(c: Call, x: Value, dim: int, keepdim: bool) -> Any:
    return reductions.min_(x, _dims(x, dim), keepdim)


@FAMILY.statement("aminmax")
def aminmax(c: Call, x: Value, dim: int | None, keepdim: bool) -> tuple[Value, Value]:
    return reductions.amin(x, _dims(x, dim), keepdim), reductions.amax(x, _dims(x, dim), keepdim)


@FAMILY.statement("argmax")
def argmax(c: Call, x: Value, dim: int | None, keepdim: bool) -> Value:
    return reductions.argmax(_filled(x), _dims(x, dim), keepdim)


@FAMILY.statement("argmin")
def argmin(c: Call, x: Value, dim: int | None, keepdim: bool) -> Value:
    return reductions.argmin(_filled(x), _dims(x, dim), keepdim)


@FAMILY.statement("any", "any.dim", "any.dims")
def any_(c: Call, x: Value, dims: Any = None, keepdim: bool = False) -> Value:
    return reductions.any_(x, _dims(x, dims), keepdim)


@FAMILY.statement("all", "all.dim", "all.dims")
def all_(c: Call, x: Value, dims: Any = None, keepdim: bool = False) -> Value:
    return reductions.all_(x, _dims(x, dims), keepdim)


@FAMILY.statement("count_nonzero.dim_IntList", "count_nonzero")
def count_nonzero(c: Call, x: Value, dims: Any) -> Value:
    return reductions.sum_(pointwise.cast(pointwise.cast(x, DType.BOOL), DType.I64), _dims(x, dims))


@FAMILY.statement("var.correction", static=["correction"])
def var(c: Call, x: Value, dims: Any, correction: Any, keepdim: bool) -> Value:
    return reductions.var(x, _dims(x, dims), _correction(correction), keepdim)


@FAMILY.statement("std.correction", static=["correction"])
def std(c: Call, x: Value, dims: Any, correction: Any, keepdim: bool) -> Value:
    return reductions.std(x, _dims(x, dims), _correction(correction), keepdim)


@FAMILY.statement("var_mean.correction", static=["correction"])
def var_mean(c: Call, x: Value, dims: Any, correction: Any, keepdim: bool) -> Any:
    return reductions.var_mean(x, _dims(x, dims), _correction(correction), keepdim)


@FAMILY.statement("std_mean.correction", static=["correction"])
def std_mean(c: Call, x: Value, dims: Any, correction: Any, keepdim: bool) -> Any:
    v, m = reductions.var_mean(x, _dims(x, dims), _correction(correction), keepdim)
    return pointwise.sqrt(v), m


@FAMILY.statement("logsumexp")
def logsumexp(c: Call, x: Value, dims: Any, keepdim: bool) -> Value:
    (x,) = c.promote(x)
    return reductions.logsumexp(x, _dims(x, dims), keepdim)


@FAMILY.statement("linalg_vector_norm", static=["ord"])
def vector_norm(c: Call, x: Value, ord: Any, dims: Any, keepdim: bool, dtype: Any) -> Value:
    (x,) = c.promote(x)
    return reductions.norm(x, float(ord), _dims(x, dims), keepdim)


@FAMILY.statement("norm.Scalar", static=["p"])
def norm_all(c: Call, x: Value, p: Any) -> Value:
    return reductions.norm(x, float(p))


@FAMILY.statement("norm.ScalarOpt_dim", static=["p"])
def norm_dim(c: Call, x: Value, p: Any, dims: Any, keepdim: bool) -> Value:
    return reductions.norm(x, 2.0 if p is None else float(p), _dims(x, dims), keepdim)


@FAMILY.statement("norm.ScalarOpt_dim_dtype", static=["p"])
def norm_dim_dtype(c: Call, x: Value, p: Any, dims: Any, keepdim: bool, dtype: Any) -> Value:
    (x,) = c.promote(x)
    return reductions.norm(x, 2.0 if p is None else float(p), _dims(x, dims), keepdim)


def _dims(x: Value, dims: Any) -> Any:
    """`dims`, which for a 0-d tensor may say 0 or −1 and mean none."""
    return dims if x.ndim else None


def _correction(given: Any) -> float:
    return 1 if given is None else float(given)


def _filled(x: Value) -> Value:
    """x, which must have elements; PyTorch's shape function lets an empty tensor pass."""
    if 0 in x.shape:
        raise Unowned("an extremum over no elements (PyTorch raises its error)")
    return x
