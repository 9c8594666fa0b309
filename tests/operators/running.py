"""Helpers of the operator tests: run an operator on arrays through the interpreter, and judge its accuracy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from isobit.arithmetic.dtypes import DType
from isobit.ir.graph import Graph, Value
from isobit.ir.interpreter import interpret
from isobit.ir.verify import verify

OF_NUMPY = {np.dtype(d.numpy): d for d in DType if d not in (DType.BF16,)} | {np.dtype("u2"): DType.BF16}


def run(fn: Callable[..., Any], *arrays: Any) -> Any:
    """fn on inputs of the arrays' dtypes (uint16: bf16); results in the structure that fn returns."""
    graph = Graph()
    arrays = tuple(np.asarray(a) for a in arrays)
    result = fn(*(graph.input(OF_NUMPY[a.dtype], a.shape) for a in arrays))
    several = isinstance(result, tuple)
    values: list[Value | None] = list(result) if several else [result]
    graph.outputs = [v.id for v in values if v is not None]
    verify(graph)
    found = iter(interpret(graph, arrays))
    outs = [None if v is None else next(found) for v in values]
    return tuple(outs) if several else outs[0]


def ulps(x: Any, exact: Any, floor: float) -> float:
    """Greatest error in ulps of x's dtype; below `floor` an ulp is that of `floor`. Non-finite values must agree."""
    x, exact = np.asarray(x), np.asarray(exact, np.float64)
    with np.errstate(over="ignore"):
        rounded = exact.astype(x.dtype)
    finite = np.isfinite(rounded) & np.isfinite(x)
    if not np.array_equal(x[~finite], rounded[~finite], equal_nan=True):
        return float("inf")
    if not finite.any():
        return 0.0
    size = np.maximum(np.abs(rounded[finite]), np.asarray(floor, x.dtype))
    return float((np.abs(x[finite].astype(np.float64) - exact[finite]) / np.spacing(size).astype(np.float64)).max())


def check(ours: Any, peer: Any, exact: Any, allowed: float = 4, floor: float | None = None) -> None:
    """ours (f32) errs from exact (f64) at most 1.5 × as much as PyTorch's f32 result, or by `allowed` ulps.

    `floor` None: errors count relative to the greatest value of the tensor.
    """
    ours, peer, exact = np.asarray(ours), np.asarray(peer), np.asarray(exact)
    assert ours.dtype == np.float32 and peer.dtype == np.float32 and ours.shape == peer.shape == exact.shape
    if floor is None:
        with np.errstate(over="ignore"):
            finite = np.abs(exact[np.isfinite(exact.astype(np.float32))])
        floor = max(float(finite.max(initial=0)), 1e-30)
    error, peer_error = ulps(ours, exact, floor), ulps(peer, exact, floor)
    assert error <= max(allowed, 1.5 * peer_error), f"{error} ulps, PyTorch {peer_error}"


def close64(ours: Any, exact: Any, rtol: float = 1e-12) -> None:
    """ours (f64) agrees with PyTorch's f64, relative to the greatest value."""
    ours, exact = np.asarray(ours), np.asarray(exact)
    assert ours.dtype == np.float64 and ours.shape == exact.shape, (ours.dtype, ours.shape, exact.shape)
    scale = np.abs(exact[np.isfinite(exact)]).max(initial=1e-300)
    np.testing.assert_allclose(ours, exact, rtol=rtol, atol=rtol * float(scale))


def grads(fn: Callable[..., torch.Tensor], dy: Any, *arrays: Any, dtype: torch.dtype = torch.float64) -> list[Any]:
    """PyTorch's gradients, in `dtype`, of Σ fn(arrays)·dy for the float arrays."""
    tensors = [torch.tensor(np.asarray(a)) for a in arrays]
    tensors = [t.to(dtype).requires_grad_() if t.is_floating_point() else t for t in tensors]
    (fn(*tensors) * torch.tensor(np.asarray(dy)).to(dtype)).sum().backward()
    return [t.grad.numpy() for t in tensors if t.grad is not None]


def reference(fn: Callable[..., torch.Tensor], *arrays: Any, dtype: torch.dtype = torch.float64) -> Any:
    """PyTorch's result with the float arrays in `dtype`."""
    tensors = [torch.tensor(np.asarray(a)) for a in arrays]
    return fn(*(t.to(dtype) if t.is_floating_point() else t for t in tensors)).numpy()
