"""One optimizer step for one parameter: the rounded operations of torch.optim's single-tensor loops, in one statement.

Scalars are Python numbers or 0-d f64 tensors (numbers known at run time). What Python computes from hyper-parameters
and the step, binary64, is `adam_scalars`; the statements take its results.
"""

from __future__ import annotations

from dataclasses import dataclass

from isobit.ir.expr import Expr, call
from isobit.ir.graph import Value
from isobit.operators.elements import Operand, pointwise
from isobit.operators.pointwise import lerp_of, scaled
from isobit.operators.registry import operator


@dataclass(frozen=True)
class AdamScalars:
    """`decay` multiplies the parameter (decoupled), `weight_decay` adds parameter to the gradient; None: neither."""

    grad_weight: Operand  # 1 − beta1
    beta2: Operand
    square_weight: Operand  # 1 − beta2
    bias_correction2_sqrt: Operand
    eps: Operand
    minus_step_size: Operand  # −(lr ÷ (1 − beta1^step))
    decay: Operand | None = None  # 1 − lr·weight_decay
    weight_decay: Operand | None = None


def adam_scalars(
    lr: float, beta1: float, beta2: float, eps: float, weight_decay: float, step: float, decoupled: bool
) -> AdamScalars:
    """The host's binary64 arithmetic, operation by operation as torch/optim/adam.py of PyTorch 2.13."""
    bias_correction1 = 1 - beta1**step
    bias_correction2 = 1 - beta2**step
    step_size = lr / bias_correction1
    return AdamScalars(
        grad_weight=1 - beta1,
        beta2=beta2,
        square_weight=1 - beta2,
        bias_correction2_sqrt=bias_correction2**0.5,
        eps=eps,
        minus_step_size=-step_size,
        decay=1 - lr * weight_decay if weight_decay and decoupled else None,
        weight_decay=weight_decay if weight_decay and not decoupled else None,
    )


@operator
def adam_step(
    param: Value,
    grad: Value,
    exp_avg: Value,
    exp_avg_sq: Value,
    max_exp_avg_sq: Value | None,
    scalars: AdamScalars,
    maximize: bool = False,
) -> tuple[Value, Value, Value, Value | None]:
    """Adam and AdamW: (param, exp_avg, exp_avg_sq, max_exp_avg_sq) after one step.

    g = grad (or −grad) + weight_decay·param;  param = param·decay;  exp_avg = lerp(exp_avg, g, 1 − beta1);
    exp_avg_sq = exp_avg_sq·beta2 + ((1 − beta2)·g)·g;  denom = √exp_avg_sq ÷ √bias_correction2 + eps;
    param = param + (−step_size·exp_avg) ÷ denom. With AMSGrad denom takes the greatest exp_avg_sq so far.
    """
    s = scalars
    g = pointwise(lambda a: -a, grad) if maximize else grad
    if s.weight_decay is not None:
        g = pointwise(lambda a, p, k: a + scaled(k, p), g, param, s.weight_decay)
    if s.decay is not None:
        param = pointwise(lambda p, k: p * k, param, s.decay)
    exp_avg = pointwise(lerp_of, exp_avg, g, s.grad_weight)
    exp_avg_sq = pointwise(lambda v, a, b, w: v * b + scaled(w, a) * a, exp_avg_sq, g, s.beta2, s.square_weight)
    if max_exp_avg_sq is not None:
        max_exp_avg_sq = pointwise(lambda a, b: call("max", a, b), max_exp_avg_sq, exp_avg_sq)
    second = exp_avg_sq if max_exp_avg_sq is None else max_exp_avg_sq

    def moved(p: Expr, m: Expr, v: Expr, root: Expr, eps: Expr, step: Expr) -> Expr:
        return p + scaled(step, m) / (call("sqrt", v) / root + eps)

    param = pointwise(moved, param, exp_avg, second, s.bias_correction2_sqrt, s.eps, s.minus_step_size)
    return param, exp_avg, exp_avg_sq, max_exp_avg_sq


@operator
def sgd_step(
    param: Value,
    grad: Value,
    momentum_buffer: Value | None,
    minus_lr: Operand,
    weight_decay: Operand | None = None,
    momentum: Operand | None = None,
    grad_weight: Operand = 1,
    nesterov: bool = False,
    maximize: bool = False,
) -> tuple[Value, Value | None]:
    """SGD: (param, momentum buffer) after one step; `grad_weight` is 1 − dampening, `momentum` None or 0 is none.

    g = grad (or −grad) + weight_decay·param;  buffer = g at first, then buffer·momentum + grad_weight·g;
    g = buffer, or with nesterov g + momentum·buffer;  param = param + (−lr)·g.
    """
    g = pointwise(lambda a: -a, grad) if maximize else grad
    if weight_decay is not None:
        g = pointwise(lambda a, p, k: a + scaled(k, p), g, param, weight_decay)
    if momentum is not None and momentum != 0:
        buffer = g
        if momentum_buffer is not None:
            buffer = pointwise(lambda b, a, k, w: b * k + scaled(w, a), momentum_buffer, g, momentum, grad_weight)
        momentum_buffer = buffer
        g = pointwise(lambda a, b, k: a + scaled(k, b), g, buffer, momentum) if nesterov else buffer
    return pointwise(lambda p, a, k: p + scaled(k, a), param, g, minus_lr), momentum_buffer
