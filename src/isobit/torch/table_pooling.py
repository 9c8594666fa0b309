"""Pooling."""

from __future__ import annotations

from typing import Any

import torch

from isobit.ir.graph import Value
from isobit.operators import pooling
from isobit.torch.lowering import Call
from isobit.torch.table import Family

FAMILY = Family()
aten = torch.ops.aten


@FAMILY.statement("max_pool2d_with_indices", "max_pool3d_with_indices")
def max_pool(c: Call, x: Value, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Any:
    return pooling.max_pool(x, _full(c, kernel), stride, padding, dilation, ceil_mode)


@FAMILY.statement("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward")
def max_pool_backward(
    c: Call, dy: Value, x: Value, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, index: Value
) -> Value:
    return pooling.max_pool_backward(dy, x, index, _full(c, kernel), stride, padding, dilation, ceil_mode)


def _full(c: Call, kernel: Any) -> tuple[int, ...]:
    """The kernel's extents, one per spatial dim."""
    dims = 3 if "3d" in c.name else 2
    return tuple(kernel) * dims if len(kernel) == 1 else tuple(kernel)


@FAMILY.statement("avg_pool2d", "avg_pool3d")
def avg_pool(
    c: Call, x: Value, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, count_pad: bool, divisor: int | None
) -> Value:
    return pooling.avg_pool(x, _full(c, kernel), stride or (), padding, ceil_mode, count_pad, divisor)


@FAMILY.statement("avg_pool2d_backward", "avg_pool3d_backward")
def avg_pool_backward(
    c: Call, dy: Value, x: Value, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, count_pad: bool,
    divisor: int | None,
) -> Value:  # fmt: skip
    kernel = _full(c, kernel)
    return pooling.avg_pool_backward(dy, x, kernel, stride or (), padding, ceil_mode, count_pad, divisor)


@FAMILY.statement("_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
def adaptive_avg_pool(c: Call, x: Value, size: Any) -> Value:
    return pooling.adaptive_avg_pool(x, size)


@FAMILY.statement("_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward")
def adaptive_avg_pool_backward(c: Call, dy: Value, x: Value) -> Value:
    return pooling.adaptive_avg_pool_backward(dy, x, 3 if "3d" in c.name else 2)


@FAMILY.statement("adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(c: Call, x: Value, size: Any) -> Any:
    return pooling.adaptive_max_pool(x, size)


@FAMILY.statement("adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward")
def adaptive_max_pool_backward(c: Call, dy: Value, x: Value, index: Value) -> Value:
    return pooling.adaptive_max_pool_backward(dy, x, index, 3 if "3d" in c.name else 2)


@FAMILY.decomposition("max_pool1d", composite=True)
def max_pool1d(
    x: torch.Tensor, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Any:
    """PyTorch takes a kernel of its own where no gradient is asked for."""
    return aten.max_pool1d_with_indices(x, kernel, stride, padding, dilation, ceil_mode)[0]


@FAMILY.decomposition("max_pool2d", composite=True)
def max_pool2d(
    x: torch.Tensor, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Any:
    """Never the oneDNN or quantized kernels."""
    return aten.max_pool2d_with_indices(x, kernel, stride, padding, dilation, ceil_mode)[0]


@FAMILY.decomposition("max_pool3d", composite=True)
def max_pool3d(
    x: torch.Tensor, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> Any:
    """Never the oneDNN kernel."""
    return aten.max_pool3d_with_indices(x, kernel, stride, padding, dilation, ceil_mode)[0]
