"""Elementwise operators."""

from __future__ import annotations

from typing import Any

from isobit.arithmetic.dtypes import DType
from isobit.ir.graph import Value
from isobit.operators import activations, pointwise
from isobit.torch.lowering import Call
from isobit.torch.table import Family

FAMILY = Family()


@FAMILY.statement("add.Tensor", "add.Scalar")
def add(c: Call, x: Any, y: Any, alpha: Any) -> Value:
    return pointwise.add(*c.promote(x, y), alpha)


@FAMILY.statement("mul.Tensor", "mul.Scalar")
def mul(c: Call, x: Any, y: Any) -> Value:
    return pointwise.mul(*c.promote(x, y))


@FAMILY.statement("relu")
def relu(c: Call, x: Value) -> Value:
    return activations.relu(x)


@FAMILY.statement("threshold_backward")
def threshold_backward(c: Call, g: Value, x: Value, limit: Any) -> Value:
    return activations.threshold_backward(*c.promote(g, x), limit)


__all__ = ["DType", "FAMILY"]
