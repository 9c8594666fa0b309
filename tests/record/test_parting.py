"""Where two steps differ first, in the order in which a step comes about; parts that one side lacks do not count."""

from __future__ import annotations

import dataclasses
from itertools import product

import pytest

from isobit.record.parting import BATCH, GRADIENT, LENGTH, LOSS, OPTIMIZER, RANDOM, UPDATE, first_parting, part
from isobit.record.trace import Step

STEP = Step(3, 0, ("f32:3f800000",), "p", 1.0, batch="b", gradients="g", settings="s", state="o", random="r")
# field, what a difference in it alone is called; in the order of a step
FIELDS = {
    "optimizer": (1, OPTIMIZER), "batch": ("x", BATCH), "losses": (("f32:00000000",), LOSS), "gradients": ("x", GRADIENT),
    "parameters": ("x", UPDATE), "state": ("x", UPDATE), "random": ("x", RANDOM),
}  # fmt: skip
NAMES = list(FIELDS)


def changed(*names: str) -> Step:
    return dataclasses.replace(STEP, **{name: FIELDS[name][0] for name in names})  # type: ignore[arg-type]


def test_equal_steps_do_not_part() -> None:
    assert part(STEP, dataclasses.replace(STEP, seconds=9.0)) is None


@pytest.mark.parametrize(("first", "second"), list(product(NAMES, NAMES)))
def test_the_earlier_part_is_named(first: str, second: str) -> None:
    found = part(STEP, changed(first, second))
    earlier = min(first, second, key=NAMES.index)
    assert found is not None and (found.step, found.part) == (3, FIELDS[earlier][1])


@pytest.mark.parametrize("name", ["batch", "gradients", "settings", "state", "random"])
def test_what_one_side_did_not_take_is_not_compared(name: str) -> None:
    without = dataclasses.replace(STEP, **{name: ""})
    assert part(STEP, without) is None and part(without, STEP) is None


def test_hyper_parameters_alone_are_no_difference_but_explain_one() -> None:
    assert part(STEP, dataclasses.replace(STEP, settings="x")) is None
    found = part(STEP, dataclasses.replace(STEP, settings="x", parameters="x"))
    assert found is not None and found.settings and "hyper-parameters are not" in found.text


def test_traces_part_at_the_first_step_that_differs() -> None:
    steps = [dataclasses.replace(STEP, index=i) for i in range(5)]
    other = [dataclasses.replace(s, random="x") if s.index in (2, 4) else s for s in steps]
    found = first_parting(steps, other)
    assert found is not None and (found.step, found.part) == (2, RANDOM)
    assert first_parting(steps, steps) is None
    for one, two, side in ((steps, steps[:2], "first"), (steps[:2], steps, "second")):
        shorter = first_parting(one, two)
        assert shorter is not None and (shorter.step, shorter.part) == (2, LENGTH) and side in shorter.text


def test_the_text_says_which_side_is_which() -> None:
    found, compared = part(STEP, changed("losses")), first_parting([STEP], [changed("losses")])
    assert found is not None and found.text.startswith("the loss is 0 (f32:00000000), recorded 1 (f32:3f800000)")
    assert compared is not None and ", in the first run 1 (f32:3f800000)" in compared.text
