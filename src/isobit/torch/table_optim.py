"""Optimizer steps: one program over all tensors, rounding as the single-tensor loops of torch.optim do.

Hyper-parameters and the number of steps reach the program when it runs, so one program serves every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from isobit.ir.graph import Value
from isobit.operators import optimizers
from isobit.operators.optimizers import AdamSettings
from isobit.operators.pointwise import add
from isobit.torch.dtypes import Unowned
from isobit.torch.lowering import Call
from isobit.torch.table import Family, Result

FAMILY = Family()
Tensors = list[torch.Tensor]


@FAMILY.statement("isobit::adam_step_")
def adam_step(
    c: Call, params: Sequence[Value], grads: Sequence[Value], firsts: Sequence[Value], seconds: Sequence[Value],
    greatest: Sequence[Value], steps: Sequence[Value], lr: Any, beta1: Any, beta2: Any, weight_decay: Any, eps: Any,
    decoupled: bool, maximize: bool, advance: bool,
) -> Result:  # fmt: skip
    _check_alike(params, grads, firsts, seconds, greatest)
    if any(t.shape for t in steps):
        raise Unowned("a step number that is not a 0-d tensor")
    settings = AdamSettings(lr, beta1, beta2, eps, weight_decay, decoupled, maximize)
    tops: list[Value | None] = list(greatest) or [None] * len(params)
    counts = [add(t, 1) for t in steps] if advance else steps
    new = [
        optimizers.adam_step(p, g, m, v, top, t, settings)
        for p, g, m, v, top, t in zip(params, grads, firsts, seconds, tops, counts, strict=True)
    ]
    p, m, v, top = (tuple(column) for column in zip(*new, strict=True))
    writes: dict[str, Any] = {"params": p, "exp_avgs": m, "exp_avg_sqs": v}
    writes |= {"max_exp_avg_sqs": top} if greatest else {}
    return Result((), writes | ({"steps": tuple(counts)} if advance else {}))


@FAMILY.statement("isobit::sgd_step_")
def sgd_step(
    c: Call, params: Sequence[Value], grads: Sequence[Value], buffers: Sequence[Value], minus_lr: Any,
    weight_decay: Any, momentum: Any, dampening: Any, nesterov: bool, maximize: bool, first: bool,
) -> Result:  # fmt: skip
    _check_alike(params, grads, () if first else buffers)
    held: list[Value | None] = [None if first else b for b in buffers] or [None] * len(params)
    new = [
        optimizers.sgd_step(p, g, b, minus_lr, weight_decay, momentum, dampening, nesterov, maximize)
        for p, g, b in zip(params, grads, held, strict=True)
    ]
    p, b = (tuple(column) for column in zip(*new, strict=True))
    return Result((), {"params": p} | ({"buffers": b} if buffers else {}))


def _check_alike(params: Sequence[Value], *others: Sequence[Value]) -> None:
    """PyTorch's own operators say what happens, or what is wrong, where state and parameter differ."""
    for values in others:
        for p, v in zip(params, values, strict=False):
            if (v.dtype, v.shape) != (p.dtype, p.shape):
                raise Unowned("gradient or state of another dtype or shape than the parameter")


def _check_shapes(params: Tensors, *others: Tensors) -> None:
    """PyTorch's fused kernels would read behind the end of state that is too small."""
    for tensors in others:
        for p, t in zip(params, tensors, strict=False):
            if t.shape != p.shape:
                raise RuntimeError(f"a parameter has shape {list(p.shape)}, its gradient or state {list(t.shape)}")


def _adam(
    decoupled: bool, lists: Sequence[Tensors], lr: Any, beta1: float, beta2: float, weight_decay: float, eps: float,
    amsgrad: bool, maximize: bool, scaling: Sequence[Any],
) -> None:  # fmt: skip
    if any(s is not None for s in scaling):
        raise Unowned("gradient scaling inside a fused optimizer is outside version 1")
    *others, greatest, steps = lists
    _check_shapes(*others, greatest)
    tops = greatest if amsgrad else []
    numbers = (float(lr), beta1, beta2, weight_decay or None, eps)
    torch.ops.isobit.adam_step_(*others, tops, steps, *numbers, decoupled, maximize, False)


@FAMILY.decomposition("_fused_adam_", "_fused_adam_.tensor_lr")
def fused_adam(
    params: Tensors, grads: Tensors, exp_avgs: Tensors, exp_avg_sqs: Tensors, greatest: Tensors, steps: Tensors, *,
    lr: Any, beta1: float, beta2: float, weight_decay: float, eps: float, amsgrad: bool, maximize: bool,
    grad_scale: Any = None, found_inf: Any = None,
) -> None:  # fmt: skip
    lists = (params, grads, exp_avgs, exp_avg_sqs, greatest, steps)
    _adam(False, lists, lr, beta1, beta2, weight_decay, eps, amsgrad, maximize, (grad_scale, found_inf))


@FAMILY.decomposition("_fused_adamw_", "_fused_adamw_.tensor_lr")
def fused_adamw(
    params: Tensors, grads: Tensors, exp_avgs: Tensors, exp_avg_sqs: Tensors, greatest: Tensors, steps: Tensors, *,
    lr: Any, beta1: float, beta2: float, weight_decay: float, eps: float, amsgrad: bool, maximize: bool,
    grad_scale: Any = None, found_inf: Any = None,
) -> None:  # fmt: skip
    lists = (params, grads, exp_avgs, exp_avg_sqs, greatest, steps)
    _adam(True, lists, lr, beta1, beta2, weight_decay, eps, amsgrad, maximize, (grad_scale, found_inf))


@FAMILY.decomposition("_fused_sgd_", "_fused_sgd_.tensor_lr")
def fused_sgd(
    params: Tensors, grads: Tensors, buffers: Tensors, *, weight_decay: float, momentum: float, lr: Any,
    dampening: float, nesterov: bool, maximize: bool, is_first_step: bool, grad_scale: Any = None,
    found_inf: Any = None,
) -> None:  # fmt: skip
    if grad_scale is not None or found_inf is not None:
        raise Unowned("gradient scaling inside a fused optimizer is outside version 1")
    held = buffers if momentum else []
    _check_shapes(params, grads, held)
    numbers = (-float(lr), weight_decay or None, momentum or None, dampening)
    torch.ops.isobit.sgd_step_(params, grads, held, *numbers, nesterov, maximize, is_first_step)
