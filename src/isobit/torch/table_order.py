"""Sorting, scanning, scattering and searching: exact on integers; on floats what version 1 covers, else holes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from isobit.ir.graph import Value
from isobit.operators import pointwise, reductions
from isobit.torch.dtypes import Unowned
from isobit.torch.lowering import Call
from isobit.torch.memory import resize_output
from isobit.torch.original import original
from isobit.torch.table import Family

FAMILY = Family()
aten = torch.ops.aten


@FAMILY.statement(
    "cumsum", "cumprod", "_cummax_helper", "_cummin_helper", "bincount", "index_add", "index_reduce",
    "scatter_add", "scatter_reduce.two", "scatter.reduce", "scatter.value_reduce", "isin.Tensor_Tensor",
    "isin.Tensor_Scalar", "isin.Scalar_Tensor", "bucketize.Tensor", "bucketize.Scalar", "searchsorted.Tensor",
    "searchsorted.Scalar", "_unique", "_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive",
    "fmod.Tensor", "fmod.Scalar", "nextafter",
)  # fmt: skip
def integers_alone(c: Call, *arguments: Any) -> Any:
    """PyTorch's kernel is exact on integers; for floats there is no statement yet."""
    raise Unowned("on floats it is outside version 1")


FAMILY.passes("index_fill_.int_Scalar index_fill_.int_Tensor _fused_sdp_choice")


def sort_key(x: torch.Tensor) -> torch.Tensor:
    """Integers that compare as the floats do: −0 with +0, NaN as the greatest. Integer arithmetic, so exact."""
    if not x.is_floating_point():
        return x
    integers, infinity = _PATTERNS[x.dtype]
    bits = x.contiguous().view(integers)
    size = bits & torch.iinfo(integers).max
    signed = torch.where(bits < 0, -size, size)
    return torch.where(size > infinity, torch.iinfo(integers).max, signed)


_PATTERNS = {
    torch.float64: (torch.int64, 0x7FF0000000000000),
    torch.float32: (torch.int32, 0x7F800000),
    torch.float16: (torch.int16, 0x7C00),
    torch.bfloat16: (torch.int16, 0x7F80),
}


def sorted_by_key(x: torch.Tensor, dim: int, descending: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """(values, indices) in stable order."""
    if x.is_complex():
        raise Unowned("complex numbers are outside version 1")
    order = original("aten::sort.stable")(sort_key(x), stable=True, dim=dim, descending=descending)[1]
    return (x.gather(dim, order) if x.dim() else x.clone()), order


@FAMILY.decomposition("sort.stable")
def sort(
    x: torch.Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """PyTorch's stable sort of integers that compare as the floats do."""
    return sorted_by_key(x, dim, descending)


@FAMILY.decomposition("sort.values_stable")
def sort_out(
    x: torch.Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False, values: torch.Tensor,
    indices: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """As sort."""
    found = sorted_by_key(x, dim, descending)
    return _given(values, found[0]), _given(indices, found[1])


def _given(out: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    resize_output(out, result.shape)
    return out.copy_(result)


@FAMILY.decomposition("topk")
def topk(
    x: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """The first k of the stable order, so the lowest index comes first among equals."""
    values, order = sorted_by_key(x, dim, largest)
    if not x.dim():
        return values, order
    if not 0 <= k <= x.size(dim):
        raise RuntimeError("selected index k out of range")
    return values.narrow(dim, 0, k).contiguous(), order.narrow(dim, 0, k).contiguous()


@FAMILY.decomposition("topk.values")
def topk_out(
    x: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True, *, values: torch.Tensor,
    indices: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """As topk."""
    found = topk(x, k, dim, largest)
    return _given(values, found[0]), _given(indices, found[1])


@FAMILY.decomposition("nonzero")
def nonzero(x: torch.Tensor) -> torch.Tensor:
    """Positions of x ≠ 0; the comparison is ours."""
    found: torch.Tensor = original("aten::nonzero")(x if x.dtype == torch.bool else x != 0)
    return found


@FAMILY.decomposition("nonzero.out")
def nonzero_out(x: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    """As nonzero."""
    found: torch.Tensor = original("aten::nonzero.out")(x if x.dtype == torch.bool else x != 0, out=out)
    return found


@FAMILY.decomposition("equal")
def equal(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether shapes and all elements are equal."""
    return x.shape == y.shape and bool((x == y).all())


@FAMILY.decomposition("trace", traced=True)
def trace(x: torch.Tensor) -> torch.Tensor:
    """The sum of the diagonal as one run."""
    return x.diagonal().sum()


@FAMILY.decomposition("_index_put_impl_")
def index_put(
    x: torch.Tensor, indices: Sequence[torch.Tensor | None], values: torch.Tensor, accumulate: bool = False,
    unsafe: bool = False,
) -> torch.Tensor:  # fmt: skip
    """One thread writes in source order, so that the last source of a place wins (ARITHMETIC.md §5)."""
    if accumulate and x.is_floating_point():
        raise Unowned("accumulating floats at indices is outside version 1")
    with _one_after_another():
        written: torch.Tensor = original("aten::_index_put_impl_")(x, indices, values, accumulate, unsafe)
    return written


@contextmanager
def _one_after_another() -> Iterator[None]:
    """PyTorch's index_put_ goes through its sources in order only in deterministic mode."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


@FAMILY.statement("frac")
def frac(c: Call, x: Value) -> Value:
    return pointwise.sub(x, pointwise.trunc(x))


@FAMILY.statement("isposinf", "isneginf")
def is_infinite(c: Call, x: Value) -> Value:
    return pointwise.eq(x, float("inf") if "pos" in c.name else float("-inf"))


@FAMILY.statement("fmax", "fmin")
def fmax(c: Call, x: Any, y: Any) -> Value:
    x, y = c.promote(x, y)
    chosen = pointwise.maximum(x, y) if "max" in c.name else pointwise.minimum(x, y)
    return pointwise.where(pointwise.isnan(x), y, pointwise.where(pointwise.isnan(y), x, chosen))


@FAMILY.statement("nansum")
def nansum(c: Call, x: Value, dims: Any, keepdim: bool, dtype: Any) -> Value:
    (x,) = c.promote(x)
    return reductions.sum_(pointwise.where(pointwise.isnan(x), 0, x), dims if x.ndim else None, keepdim)
