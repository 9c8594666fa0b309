"""Reductions."""

from __future__ import annotations

from typing import Any

from isobit.ir.graph import Value
from isobit.operators import reductions
from isobit.torch.lowering import Call
from isobit.torch.table import Family

FAMILY = Family()


@FAMILY.statement("sum")
def sum_all(c: Call, x: Value, dtype: Any) -> Value:
    return reductions.sum_(*c.promote(x))


@FAMILY.statement("sum.dim_IntList")
def sum_dims(c: Call, x: Value, dims: Any, keepdim: bool, dtype: Any) -> Value:
    return reductions.sum_(*c.promote(x), dims, keepdim)
