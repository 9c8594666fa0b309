"""Our kernels under PyTorch's older tracer (torch.jit.trace).

It has recorded the operator by the time that they run, and inside them would hand out tensors in place of sizes; so it
is kept out. One operator it leaves to the kernel to record: `convolution`, by the name of `_convolution`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

tracing_state = torch._C._get_tracing_state
_set: Callable[[Any], None] = getattr(torch._C, "_set_tracing_state")  # noqa: B009 — missing in the stubs


def untraced_call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls `function` while nothing is traced on this thread."""
    state = tracing_state()
    _set(None)
    try:
        return function(*args, **kwargs)
    finally:
        _set(state)


def untraced(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, untraced."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if tracing_state() is None:
            return function(*args, **kwargs)
        return untraced_call(function, *args, **kwargs)

    return call


def recorded_convolution(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """`kernel` of aten::convolution; while something is traced, the operator that PyTorch's own kernel calls."""
    inner: Any = torch.ops.aten._convolution.default

    def call(*args: Any) -> Any:
        if tracing_state() is None:
            return kernel(*args)
        benchmark = deterministic = cudnn = tf32 = False
        return inner(*args, benchmark, deterministic, cudnn, tf32)

    return call
