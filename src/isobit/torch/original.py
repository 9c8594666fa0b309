"""PyTorch's own CPU kernels, as they were before anything was overridden."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch

from isobit.torch.signature import Kind, overload_of, signature

_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)


@cache
def original(name: str) -> Callable[..., Any]:
    """The kernel behind `name` on the CPU. It must be asked for before `name` is overridden; then it is kept."""
    if name.startswith("isobit::"):
        return _nothing
    slots = signature(overload_of(name)).slots
    kernel = torch._C._dispatch_get_computed_kernel_for_dispatch_key(name, torch._C.DispatchKey.CPU)
    holds_tensors = [s.kind is Kind.TENSOR for s in slots]

    def call(*args: Any, **kwargs: Any) -> Any:
        args = tuple(
            _tensor(a, args) if wants and isinstance(a, (int, float, complex)) else a
            for a, wants in zip(args, holds_tensors, strict=False)
        )
        return kernel.call_boxed(_CPU, *args, **kwargs)

    return call


def _nothing(*args: Any, **kwargs: Any) -> Any:
    """What stands behind Isobit's own operators."""
    raise NotImplementedError("an operator of Isobit without a statement for these arguments")


def _tensor(number: complex, others: Sequence[Any]) -> torch.Tensor:
    """A Python number as a tensor that promotes as the number does; boxed kernels take no numbers for tensors."""
    beside = next((t for t in others if isinstance(t, torch.Tensor)), None)
    dtype = torch.result_type(beside, number) if beside is not None else None
    return torch.tensor(number, dtype=dtype)


DIRECT = frozenset(
    f"aten::{name}"
    for name in (
        "mkldnn_convolution", "_nnpack_spatial_convolution", "_grid_sampler_2d_cpu_fallback",
        "_grid_sampler_2d_cpu_fallback_backward", "_philox_normal", "_philox_uniform",
    )
)  # fmt: skip
"""Operators whose kernel PyTorch files as composite, though it computes on its own."""


@cache
def cpu_kernels() -> dict[str, set[str]]:
    """All operators with a CPU kernel, by namespace, as they are without Isobit. Composites are not among them."""
    found: dict[str, set[str]] = {}
    for name in torch._C._dispatch_get_registrations_for_dispatch_key("CPU"):
        found.setdefault(name.partition("::")[0], set()).add(name)
    return found


def has_cpu_path(name: str) -> bool:
    """Whether a call on CPU tensors reaches a kernel of the operator itself (not one for autograd alone)."""
    return bool(torch._C._dispatch_has_computed_kernel_for_dispatch_key(name, "CPU"))


def is_composite_implicit(name: str) -> bool:
    """Whether the operator decomposes above autograd, so that it has no kernel of its own on the CPU."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return bool(has(name, "CompositeImplicitAutograd") and not has(name, "CPU"))


Arguments = tuple[Sequence[Any], Mapping[str, Any]]
