"""One optimizer step for one parameter: the rounded operations of torch.optim's single-tensor loops, in one statement.

Scalars are Python numbers or 0-d f64 tensors (numbers known at run time). What torch.optim computes on the host from
hyper-parameters and the step is computed here, in binary64, so that the host's libm and rounding mode do not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from isobit.arithmetic.dtypes import DType
from isobit.ir.expr import Expr, call, const
from isobit.ir.graph import Value
from isobit.operators.elements import Operand, pointwise
from isobit.operators.pointwise import function, lerp_of, scaled
from isobit.operators.registry import operator, recast


@dataclass(frozen=True)
class AdamSettings:
    """Hyper-parameters. `weight_decay`: None is none; `decoupled` (AdamW): it shrinks the parameter, else it is added
    to the gradient.
    """

    lr: Operand
    beta1: Operand
    beta2: Operand
    eps: Operand
    weight_decay: Operand | None = None
    decoupled: bool = False
    maximize: bool = False


@dataclass(frozen=True)
class AdamScalars:
    """What one step takes from the settings. `decay` multiplies the parameter, `weight_decay` adds parameter to the
    gradient; None: neither.
    """

    grad_weight: Value  # 1 − beta1
    beta2: Operand
    square_weight: Value  # 1 − beta2
    bias_correction2_sqrt: Value
    eps: Operand
    minus_step_size: Value  # −(lr ÷ (1 − beta1^step))
    decay: Value | None = None  # 1 − lr·weight_decay
    weight_decay: Operand | None = None


def adam_scalars(settings: AdamSettings, step: Value) -> AdamScalars:
    """The binary64 arithmetic of torch/optim/adam.py (PyTorch 2.13), operation by operation; `step` is 0-d."""
    s, steps = settings, recast(step, DType.F64)

    def scalar(fn: Callable[..., Expr], *operands: Operand) -> Value:
        """fn(operands), any of which may be a literal."""
        literal = step.graph.constant
        return pointwise(fn, *(x if isinstance(x, Value) else literal(x, DType.F64) for x in operands))

    bias_correction1 = scalar(lambda b, t: _ONE - function("pow", b, t), s.beta1, steps)
    bias_correction2 = scalar(lambda b, t: _ONE - function("pow", b, t), s.beta2, steps)
    decay = None
    if s.decoupled and s.weight_decay is not None:
        decay = scalar(lambda r, w: _ONE - r * w, s.lr, s.weight_decay)
    return AdamScalars(
        grad_weight=scalar(lambda b: _ONE - b, s.beta1),
        beta2=s.beta2,
        square_weight=scalar(lambda b: _ONE - b, s.beta2),
        bias_correction2_sqrt=scalar(lambda c: call("sqrt", c), bias_correction2),
        eps=s.eps,
        minus_step_size=scalar(lambda r, c: -(r / c), s.lr, bias_correction1),
        decay=decay,
        weight_decay=None if s.decoupled else s.weight_decay,
    )


_ONE = const(1, DType.F64)


@operator
def adam_step(
    param: Value,
    grad: Value,
    exp_avg: Value,
    exp_avg_sq: Value,
    max_exp_avg_sq: Value | None,
    step: Value,
    settings: AdamSettings,
) -> tuple[Value, Value, Value, Value | None]:
    """Adam and AdamW: (param, exp_avg, exp_avg_sq, max_exp_avg_sq) after step number `step`, a 0-d tensor.

    g = grad (or −grad) + weight_decay·param;  param = param·decay;  exp_avg = lerp(exp_avg, g, 1 − beta1);
    exp_avg_sq = exp_avg_sq·beta2 + ((1 − beta2)·g)·g;  denom = √exp_avg_sq ÷ √bias_correction2 + eps;
    param = param + (−step_size·exp_avg) ÷ denom. With AMSGrad denom takes the greatest exp_avg_sq so far.
    """
    s = adam_scalars(settings, step)
    g = pointwise(lambda a: -a, grad) if settings.maximize else grad
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
    dampening: Operand = 0,
    nesterov: bool = False,
    maximize: bool = False,
) -> tuple[Value, Value | None]:
    """SGD: (param, momentum buffer) after one step; `momentum` None or 0 is none.

    g = grad (or −grad) + weight_decay·param;  buffer = g at first, then buffer·momentum + (1 − dampening)·g;
    g = buffer, or with nesterov g + momentum·buffer;  param = param + (−lr)·g.
    """
    g = pointwise(lambda a: -a, grad) if maximize else grad
    if weight_decay is not None:
        g = pointwise(lambda a, p, k: a + scaled(k, p), g, param, weight_decay)
    if momentum is not None and momentum != 0:
        buffer = g
        if momentum_buffer is not None:
            grad_weight = pointwise(lambda d: _ONE - d, dampening) if isinstance(dampening, Value) else 1 - dampening
            buffer = pointwise(lambda b, a, k, w: b * k + scaled(w, a), momentum_buffer, g, momentum, grad_weight)
        momentum_buffer = buffer
        g = pointwise(lambda a, b, k: a + scaled(k, b), g, buffer, momentum) if nesterov else buffer
    return pointwise(lambda p, a, k: p + scaled(k, a), param, g, minus_lr), momentum_buffer
