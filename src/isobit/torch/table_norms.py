"""Batch, layer and group norm; softmax; losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from isobit.ir.graph import Value
from isobit.operators import losses, norms, pointwise, softmax, views
from isobit.torch.lowering import Call
from isobit.torch.table import Check, Family, Result

FAMILY = Family()
Maybe = Value | None

REDUCTIONS = ("none", "mean", "sum")  # at::Reduction


def _empty(c: Call, like: Value) -> Value:
    return pointwise.full(c.graph, (0,), 0, like.dtype)


def _batch_norm(
    c: Call, x: Value, w: Maybe, b: Maybe, mean: Maybe, variance: Maybe, training: bool, momentum: Any, eps: Any
) -> tuple[Value, Value, Value, Maybe, Maybe]:
    """(y, saved mean, saved rstd, running mean, running variance); in evaluation nothing is saved."""
    if training or mean is None or variance is None:
        return norms.batch_norm(x, w, b, mean, variance, momentum, eps)
    y = norms.batch_norm_inference(x, w, b, mean, variance, eps)
    return y, _empty(c, mean), _empty(c, mean), mean, variance


@FAMILY.statement("native_batch_norm", "_native_batch_norm_legit", mutates=["running_mean", "running_var"])
def batch_norm(
    c: Call, x: Value, w: Maybe, b: Maybe, mean: Maybe, variance: Maybe, training: bool, momentum: Any, eps: Any
) -> Result:
    *outputs, new_mean, new_variance = _batch_norm(c, x, w, b, mean, variance, training, momentum, eps)
    writes = {"running_mean": new_mean, "running_var": new_variance} if training else {}
    return Result(tuple(outputs), {k: v for k, v in writes.items() if v is not None})


@FAMILY.statement("_native_batch_norm_legit_functional")
def batch_norm_functional(
    c: Call, x: Value, w: Maybe, b: Maybe, mean: Maybe, variance: Maybe, training: bool, momentum: Any, eps: Any
) -> Any:
    return _batch_norm(c, x, w, b, mean, variance, training, momentum, eps)


@FAMILY.statement("_native_batch_norm_legit.no_stats")
def batch_norm_no_stats(c: Call, x: Value, w: Maybe, b: Maybe, training: bool, momentum: Any, eps: Any) -> Any:
    return _batch_norm(c, x, w, b, None, None, True, momentum, eps)[:3]


@FAMILY.statement("_native_batch_norm_legit_no_training")
def batch_norm_no_training(
    c: Call, x: Value, w: Maybe, b: Maybe, mean: Value, variance: Value, momentum: Any, eps: Any
) -> Any:
    return _batch_norm(c, x, w, b, mean, variance, False, momentum, eps)[:3]


@FAMILY.statement("native_batch_norm_backward")
def batch_norm_backward(
    c: Call, dy: Value, x: Value, w: Maybe, mean: Maybe, variance: Maybe, saved_mean: Maybe, saved_rstd: Maybe,
    training: bool, eps: Any, mask: Sequence[bool],
) -> Any:  # fmt: skip
    if training or mean is None or variance is None:
        assert saved_mean is not None and saved_rstd is not None
        return norms.batch_norm_backward(dy, x, w, saved_mean, saved_rstd, mask)
    return norms.batch_norm_inference_backward(dy, x, w, mean, variance, eps, mask)


@FAMILY.statement("native_layer_norm")
def layer_norm(c: Call, x: Value, shape: Sequence[int], w: Maybe, b: Maybe, eps: Any) -> Any:
    return norms.layer_norm(x, len(shape), w, b, eps)


@FAMILY.statement("native_layer_norm_backward")
def layer_norm_backward(
    c: Call, dy: Value, x: Value, shape: Sequence[int], mean: Value, rstd: Value, w: Maybe, b: Maybe,
    mask: Sequence[bool],
) -> Any:  # fmt: skip
    kept = (*x.shape[: x.ndim - len(shape)], *(1,) * len(shape))
    mean, rstd = views.view(mean, kept), views.view(rstd, kept)
    return norms.layer_norm_backward(dy, x, len(shape), mean, rstd, w, mask)


@FAMILY.statement("native_group_norm")
def group_norm(c: Call, x: Value, w: Maybe, b: Maybe, n: int, channels: int, size: int, groups: int, eps: Any) -> Any:
    return norms.group_norm(x, w, b, groups, eps)


@FAMILY.statement("native_group_norm_backward")
def group_norm_backward(
    c: Call, dy: Value, x: Value, mean: Value, rstd: Value, w: Maybe, n: int, channels: int, size: int, groups: int,
    mask: Sequence[bool],
) -> Any:  # fmt: skip
    return norms.group_norm_backward(dy, x, mean, rstd, w, groups, mask)


@FAMILY.statement("_softmax")
def softmax_(c: Call, x: Value, dim: int, half_to_float: bool) -> Value:
    (x,) = c.promote(x)
    return softmax.softmax(x, dim)


@FAMILY.statement("_safe_softmax")
def safe_softmax(c: Call, x: Value, dim: int, dtype: Any) -> Value:
    (x,) = c.promote(x)
    return softmax.safe_softmax(x, dim)


@FAMILY.statement("_softmax_backward_data")
def softmax_backward(c: Call, dy: Value, y: Value, dim: int, dtype: Any) -> Value:
    return softmax.softmax_backward(dy, y, dim)


@FAMILY.statement("_log_softmax")
def log_softmax(c: Call, x: Value, dim: int, half_to_float: bool) -> Value:
    (x,) = c.promote(x)
    return softmax.log_softmax(x, dim)


@FAMILY.statement("_log_softmax_backward_data")
def log_softmax_backward(c: Call, dy: Value, y: Value, dim: int, dtype: Any) -> Value:
    return softmax.log_softmax_backward(dy, y, dim)


@FAMILY.statement("mse_loss")
def mse_loss(c: Call, x: Value, y: Value, reduction: int) -> Value:
    x, y = c.promote(x, y)
    return losses.mse_loss(x, y, REDUCTIONS[reduction])


@FAMILY.statement("mse_loss_backward")
def mse_loss_backward(c: Call, dy: Value, x: Value, y: Value, reduction: int) -> Value:
    dy, x, y = c.promote(dy, x, y)
    return losses.mse_loss_backward(dy, x, y, REDUCTIONS[reduction])


@FAMILY.statement("smooth_l1_loss", static=["beta"])
def smooth_l1_loss(c: Call, x: Value, y: Value, reduction: int, beta: float) -> Value:
    x, y = c.promote(x, y)
    return losses.smooth_l1_loss(x, y, REDUCTIONS[reduction], beta)


@FAMILY.statement("smooth_l1_loss_backward", static=["beta"])
def smooth_l1_loss_backward(c: Call, dy: Value, x: Value, y: Value, reduction: int, beta: float) -> Value:
    dy, x, y = c.promote(dy, x, y)
    return losses.smooth_l1_loss_backward(dy, x, y, REDUCTIONS[reduction], beta)


@FAMILY.statement("huber_loss", static=["delta"])
def huber_loss(c: Call, x: Value, y: Value, reduction: int, delta: float) -> Value:
    x, y = c.promote(x, y)
    return losses.huber_loss(x, y, REDUCTIONS[reduction], delta)


@FAMILY.statement("huber_loss_backward", static=["delta"])
def huber_loss_backward(c: Call, dy: Value, x: Value, y: Value, reduction: int, delta: float) -> Value:
    dy, x, y = c.promote(dy, x, y)
    return losses.huber_loss_backward(dy, x, y, REDUCTIONS[reduction], delta)


@FAMILY.statement("binary_cross_entropy")
def bce_loss(c: Call, x: Value, y: Value, w: Maybe, reduction: int) -> Value:
    x, y, w = c.promote(x, y, w)
    return losses.bce_loss(x, y, w, REDUCTIONS[reduction])


@FAMILY.statement("binary_cross_entropy_backward")
def bce_loss_backward(c: Call, dy: Value, x: Value, y: Value, w: Maybe, reduction: int) -> Value:
    dy, x, y, w = c.promote(dy, x, y, w)
    return losses.bce_loss_backward(dy, x, y, w, REDUCTIONS[reduction])


@FAMILY.statement("binary_cross_entropy_with_logits")
def bce_with_logits_loss(c: Call, x: Value, y: Value, w: Maybe, pos_weight: Maybe, reduction: int) -> Value:
    x, y, w, pos_weight = c.promote(x, y, w, pos_weight)
    return losses.bce_with_logits_loss(x, y, w, pos_weight, REDUCTIONS[reduction])


def _classes_exist(values: Sequence[Any], target: torch.Tensor) -> None:
    """Raises IndexError, as PyTorch does, for a target that is no class and not `ignore_index`."""
    scores, ignore, given = values[0], values[4], target.numpy()
    classes = scores.shape[1 if scores.dim() > 1 else 0]
    if given.size and not (given.min() >= 0 and given.max() < classes):
        wrong = given[((given < 0) | (given >= classes)) & (given != ignore)]
        if wrong.size:
            raise IndexError(f"Target {wrong[0]} is out of bounds: there are {classes} classes.")


@FAMILY.statement("nll_loss_forward", "nll_loss2d_forward", check=Check(1, _classes_exist))
def nll_loss(c: Call, x: Value, target: Value, w: Maybe, reduction: int, ignore: int) -> Any:
    return losses.nll_loss(x, target, w, REDUCTIONS[reduction], ignore)


@FAMILY.statement("nll_loss_backward", "nll_loss2d_backward")
def nll_loss_backward(
    c: Call, dy: Value, x: Value, target: Value, w: Maybe, reduction: int, ignore: int, total: Value
) -> Value:
    return losses.nll_loss_backward(dy, x, target, w, REDUCTIONS[reduction], ignore, total)
