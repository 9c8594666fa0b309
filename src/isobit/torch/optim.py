"""PyTorch's optimizers while the exact arithmetic is on: one program a step instead of a dozen calls a tensor.

torch.optim has each update three times: as a loop over tensors, as foreach calls and as a fused kernel. Under Isobit
all three round alike (tests/torch/test_optimizers.py), so all may as well be one compiled program. What that does not
cover (Unowned, too) keeps PyTorch's own way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.graph import increment_version
from torch.optim import adam, sgd

from isobit.torch.dtypes import Unowned

Update = Callable[..., None]
Arguments = Sequence[Any]
Options = dict[str, Any]


@dataclass(frozen=True)
class Route:
    """`module.name` is replaced; calls with `tensors` lists of tensors that `fits` accepts go to `update`."""

    module: Any
    name: str
    tensors: int
    update: Callable[[Arguments, Options], None]
    fits: Callable[[Arguments, Options], bool]


_OWNED = frozenset({torch.Tensor, torch.nn.Parameter})
_FLOATS = frozenset({torch.float32, torch.float64})


def _plain(tensors: Sequence[Any]) -> bool:
    """Dense float tensors of the CPU, nothing else."""
    return all(type(t) in _OWNED and t.dtype in _FLOATS and t.is_cpu and not t.is_sparse for t in tensors)


def _outside_graphs() -> bool:
    """Whether nobody differentiates or maps the update: PyTorch's own operators can be, the program cannot."""
    return not torch.is_grad_enabled() and torch._C._functorch.peek_interpreter_stack() is None


def _numbers(options: Options, *names: str) -> bool:
    return all(isinstance(options[n], (int, float)) for n in names)


def _special(options: Options) -> bool:
    """Whether the call asks for what only PyTorch's own loops do."""
    return any(options.get(n) not in (None, False) for n in _SPECIAL)


_SPECIAL = ("grad_scale", "found_inf", "differentiable", "capturable", "has_sparse_grad")


def _fits_adam(args: Arguments, options: Options) -> bool:
    params, grads, firsts, seconds, tops, steps = args
    return (
        bool(params)
        and _numbers(options, "lr", "beta1", "beta2", "weight_decay", "eps")
        and not _special(options)
        and _plain([*params, *grads, *firsts, *seconds, *tops, *steps])
        and not any(t.dim() for t in steps)
    )


def _adam(args: Arguments, options: Options) -> None:
    params, grads, firsts, seconds, tops, steps = args
    torch.ops.isobit.adam_step_(
        params, grads, firsts, seconds, tops if options["amsgrad"] else [], steps,
        options["lr"], options["beta1"], options["beta2"], options["weight_decay"] or None, options["eps"],
        options["decoupled_weight_decay"], options["maximize"], True,
    )  # fmt: skip
    increment_version([*params, *firsts, *seconds, *tops, *steps])


def _fits_sgd(args: Arguments, options: Options) -> bool:
    params, grads, buffers = args
    held = [b for b in buffers if b is not None]
    return (
        bool(params)
        and _numbers(options, "lr", "momentum", "weight_decay", "dampening")
        and not _special(options)
        and (not options["momentum"] or len(held) in (0, len(params)))
        and _plain([*params, *grads, *held])
    )


def _sgd(args: Arguments, options: Options) -> None:
    params, grads, buffers = args
    held = buffers if options["momentum"] else []
    first = bool(held) and held[0] is None
    if first:
        held = [torch.empty_like(g) for g in grads]
    torch.ops.isobit.sgd_step_(
        params, grads, held, -options["lr"], options["weight_decay"] or None, options["momentum"] or None,
        options["dampening"], options["nesterov"], options["maximize"], first,
    )  # fmt: skip
    increment_version([*params, *held])
    if first:
        buffers[:] = held


ROUTES = (
    *(Route(adam, f"_{form}_adam", 6, _adam, _fits_adam) for form in ("single_tensor", "multi_tensor", "fused")),
    *(Route(sgd, f"_{form}_sgd", 3, _sgd, _fits_sgd) for form in ("single_tensor", "multi_tensor", "fused")),
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
        if len(args) == route.tensors and _outside_graphs() and route.fits(args, options):
            try:
                return route.update(args, options)
            except Unowned:  # before anything was written
                pass
        return original(*args, **options)

    # Dynamo would compute the bias corrections from a traced `step`, with other roundings than Python's.
    disabled: Update = torch._disable_dynamo(update)  # type: ignore[attr-defined]
    return disabled
