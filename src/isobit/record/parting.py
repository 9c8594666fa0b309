"""Where two runs part: the first step, and the first part of that step in the order in which a step comes about."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest

from isobit.record.losses import loss_value
from isobit.record.rows import Step

BATCH = "batch"
LOSS = "loss"
GRADIENT = "gradient"
UPDATE = "update"
RANDOM = "random state"
LENGTH = "length"  # one side has more steps
OPTIMIZER = "optimizer"  # another optimizer made the step
PARTS = frozenset({BATCH, LOSS, GRADIENT, UPDATE, RANDOM, LENGTH, OPTIMIZER})


@dataclass(frozen=True)
class Parting:
    """Step `step` (counted from 0) differs first in `part`; ``settings``: its hyper-parameters differ, too.

    ``text`` names both sides, the second first, as a replay does that looks back at its record.
    """

    step: int
    part: str
    text: str
    settings: bool = False


def part(first: Step, second: Step, before: str = "recorded") -> Parting | None:
    """The first part in which two steps of the same index differ; None where they are the same.

    A part that one side did not take is not compared. `before` is how the text calls the first side.
    """
    if second.optimizer != first.optimizer:
        text = f"optimizer {second.optimizer} made the step, {before} {first.optimizer}"
        return Parting(second.index, OPTIMIZER, text)
    if _other(first.batch, second.batch):
        return Parting(second.index, BATCH, f"the batch is {second.batch}, {before} {first.batch}")
    if first.losses != second.losses:
        return Parting(second.index, LOSS, _loss_text(first, second, before))
    if _other(first.gradients, second.gradients):
        return Parting(second.index, GRADIENT, f"the gradients differ{_though(first, 'the loss is the same')}")
    if first.parameters != second.parameters or _other(first.state, second.state):
        return _update(first, second)
    if _other(first.random, second.random):
        text = "the generators are in another state after the step, though it came to the same parameters"
        return Parting(second.index, RANDOM, text)
    return None


def first_parting(first: Iterable[Step], second: Iterable[Step]) -> Parting | None:
    """Where two traces part; None where they are the same to the end of both."""
    for a, b in zip_longest(first, second):
        if a is None or b is None:
            longer = a or b
            side = "first" if b is None else "second"
            text = f"only the {side} run has a step {longer.index}, {steps_text(longer.index)} are the same in both"
            return Parting(longer.index, LENGTH, text)
        found = part(a, b, "in the first run")
        if found is not None:
            return found
    return None


def _update(first: Step, second: Step) -> Parting:
    settings = _other(first.settings, second.settings)
    known = bool(first.gradients and second.gradients)
    same = "loss and gradients are the same" if known else "the loss is the same"
    what = "the parameters after the update" if first.parameters != second.parameters else "the optimizer's state"
    hyper = ", the optimizer's hyper-parameters are not" if settings else ""
    text = f"{what} differ, though {same}{hyper}"
    return Parting(second.index, UPDATE, text, settings)


def _loss_text(first: Step, second: Step, before: str) -> str:
    same = "; the batch is the same" if first.batch and second.batch else ""
    return f"the loss is {_losses(second)}, {before} {_losses(first)}{same}"


def _though(step: Step, what: str) -> str:
    return f", though {what}" if step.losses else ""


def _other(first: str, second: str) -> bool:
    return bool(first and second) and first != second


def _losses(step: Step) -> str:
    return ", ".join(readable(loss) for loss in step.losses) or "none"


def steps_text(steps: int) -> str:
    """``1 step``, ``2 steps``."""
    return f"{steps} step{'s' * (steps != 1)}"


def readable(bits: str) -> str:
    """``f32:3f317218`` as ``0.693147182 (f32:3f317218)``; what is no floating-point number as it is."""
    value = loss_value(bits)
    digits = 17 if bits.startswith("f64") else 9
    return bits if value is None else f"{value:.{digits}g} ({bits})"
