"""PyTorch's optimizers while the exact arithmetic is on: one program a step instead of a dozen calls a tensor.

torch.optim has each update three times: as a loop over tensors, as foreach calls and as a fused kernel. Under Isobit
all three round alike (tests/torch/test_optimizers.py), so the first two may as well take the third, which is one
compiled program. What the fused form does not cover keeps PyTorch's own way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import adam, sgd

Update = Callable[..., None]


@dataclass(frozen=True)
class Route:
    """`module.name` is replaced; calls that `fits` accepts go to `fused`."""

    module: Any
    name: str
    fused: Update
    fits: Callable[[Sequence[Any], dict[str, Any]], bool]


def _plain(tensors: Sequence[Any]) -> bool:
    """Dense float tensors of the CPU, nothing else."""
    return all(
        type(t) in (torch.Tensor, torch.nn.Parameter)
        and t.dtype in (torch.float32, torch.float64)
        and t.device.type == "cpu"
        and t.layout is torch.strided
        for t in tensors
    )


def _fits_adam(args: Sequence[Any], options: dict[str, Any]) -> bool:
    params, grads, firsts, seconds, tops, steps, *_ = args
    numbers = [options[k] for k in ("lr", "beta1", "beta2", "weight_decay", "eps")]
    return (
        bool(params)
        and all(isinstance(x, (int, float)) for x in numbers)
        and not (options["differentiable"] or options["capturable"])
        and _plain([*params, *grads, *firsts, *seconds, *tops, *steps])
    )


def _fits_sgd(args: Sequence[Any], options: dict[str, Any]) -> bool:
    params, grads, buffers, *_ = args
    numbers = [options[k] for k in ("lr", "momentum", "weight_decay", "dampening")]
    held = [b for b in buffers if b is not None]
    return (
        bool(params)
        and all(isinstance(x, (int, float)) for x in numbers)
        and not options["has_sparse_grad"]
        and (not options["momentum"] or len(held) in (0, len(params)))
        and _plain([*params, *grads, *held])
    )


ROUTES = (
    Route(adam, "_single_tensor_adam", adam._fused_adam, _fits_adam),
    Route(adam, "_multi_tensor_adam", adam._fused_adam, _fits_adam),
    Route(sgd, "_single_tensor_sgd", sgd._fused_sgd, _fits_sgd),
    Route(sgd, "_multi_tensor_sgd", sgd._fused_sgd, _fits_sgd),
)


class OptimizerRoutes:
    """The replacements, in place from `install` to `remove`."""

    def __init__(self) -> None:
        self._originals: list[tuple[Route, Update]] = []

    def install(self) -> None:
        for route in ROUTES:
            original: Update = getattr(route.module, route.name)
            self._originals.append((route, original))
            setattr(route.module, route.name, _routed(route, original))

    def remove(self) -> None:
        for route, original in self._originals:
            setattr(route.module, route.name, original)
        self._originals = []


def _routed(route: Route, original: Update) -> Update:
    def update(*args: Any, **options: Any) -> None:
        if route.fits(args, options):
            route.fused(*args, **options)
        else:
            original(*args, **options)

    # Dynamo would compute the bias corrections from a traced `step`, with other roundings than Python's.
    disabled: Update = torch._disable_dynamo(update)  # type: ignore[attr-defined]
    return disabled
