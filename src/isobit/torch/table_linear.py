"""Matrix products and convolution. Composites choose by shape alone, never by strides (ARITHMETIC.md §0)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from isobit.ir.graph import Value
from isobit.operators import convolution as conv
from isobit.operators import linear, views
from isobit.torch.lowering import Call
from isobit.torch.table import Family

FAMILY = Family()
aten: Any = torch.ops.aten


@FAMILY.statement("mm")
def mm(c: Call, a: Value, b: Value) -> Value:
    return linear.mm(a, b)


@FAMILY.statement("bmm")
def bmm(c: Call, a: Value, b: Value) -> Value:
    return linear.bmm(a, b)


@FAMILY.statement("mv")
def mv(c: Call, a: Value, x: Value) -> Value:
    return linear.mv(a, x)


@FAMILY.statement("dot", "vdot")
def dot(c: Call, x: Value, y: Value) -> Value:
    return linear.dot(x, y)


@FAMILY.statement("addmm")
def addmm(c: Call, m: Value, a: Value, b: Value, beta: Any, alpha: Any) -> Value:
    return linear.addmm(m, a, b, beta, alpha)


@FAMILY.statement("addmv")
def addmv(c: Call, m: Value, a: Value, x: Value, beta: Any, alpha: Any) -> Value:
    return linear.addmv(m, a, x, beta, alpha)


@FAMILY.statement("baddbmm")
def baddbmm(c: Call, m: Value, a: Value, b: Value, beta: Any, alpha: Any) -> Value:
    return linear.baddbmm(m, a, b, beta, alpha)


@FAMILY.decomposition("linear", composite=True)
def linear_composite(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Any:
    """One product over all leading dims of x, whatever its strides."""
    if weight.dim() == 1:
        y = torch.matmul(x, weight)
        return y if bias is None else y + bias
    flat = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    y = aten.mm(flat, weight.t()) if bias is None else aten.addmm(bias, flat, weight.t())
    return y.reshape(*x.shape[:-1], weight.shape[0])


@FAMILY.decomposition("matmul", composite=True)
def matmul(a: torch.Tensor, b: torch.Tensor) -> Any:
    """mm over all leading dims where b is a matrix, else one product per batch element."""
    if a.dim() == 0 or b.dim() == 0:
        raise RuntimeError(f"both arguments to matmul need to be at least 1D, but they are {a.dim()}D and {b.dim()}D")
    if a.dim() == 1 or b.dim() == 1:
        return _with_vector(a, b)
    if b.dim() == 2:
        if a.dim() == 2:
            return aten.mm(a, b)
        return aten.mm(a.reshape(math.prod(a.shape[:-1]), a.shape[-1]), b).reshape(*a.shape[:-1], b.shape[-1])
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return aten.bmm(_batched(a, batch), _batched(b, batch)).reshape(*batch, a.shape[-2], b.shape[-1])


def _with_vector(a: torch.Tensor, b: torch.Tensor) -> Any:
    if a.dim() == 1 and b.dim() == 1:
        return aten.dot(a, b)
    if b.dim() == 1:
        return torch.matmul(a, b.unsqueeze(1)).squeeze(-1)
    return torch.matmul(a.unsqueeze(0), b).squeeze(-2)


def _batched(x: torch.Tensor, batch: Sequence[int]) -> torch.Tensor:
    return x.expand(*batch, *x.shape[-2:]).reshape(math.prod(batch), *x.shape[-2:])


@FAMILY.statement("convolution")
def convolution(
    c: Call, x: Value, w: Value, bias: Value | None, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int,
) -> Value:  # fmt: skip
    return conv.convolution(x, w, bias, stride, padding, dilation, transposed, output_padding, groups)


@FAMILY.statement("_convolution")
def convolution_with_flags(
    c: Call, x: Value, w: Value, bias: Value | None, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int, *flags: bool,
) -> Value:  # fmt: skip
    return conv.convolution(x, w, bias, stride, padding, dilation, transposed, output_padding, groups)


@FAMILY.statement("convolution_backward")
def convolution_backward(
    c: Call, dy: Value, x: Value, w: Value, bias_sizes: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int, mask: Sequence[bool],
) -> Any:  # fmt: skip
    dx, dw, db = conv.convolution_backward(dy, x, w, stride, padding, dilation, transposed, groups, mask)
    return None if dx is None else _cut(dx, x.shape), dw, db


def _cut(x: Value, shape: Sequence[int]) -> Value:
    """x without what an output padding adds at the ends."""
    for dim, extent in enumerate(shape):
        x = x if x.shape[dim] == extent else views.slice_(x, dim, 0, extent)
    return x
