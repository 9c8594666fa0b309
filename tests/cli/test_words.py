"""What replay and check say of results that are hard to bring about."""

from __future__ import annotations

import dataclasses

from isobit.cli.check import Result, Setting, first_difference
from isobit.cli.replay import _sentence
from isobit.record.manifest import Hole, Verdict
from isobit.record.trace import Step
from tests.record.manifests import manifest

HOLE = Hole("aten::fft", "outside version 1", 2)


def test_holes_of_either_side_are_in_the_verdict() -> None:
    verdict = Verdict("identical", 4, "4 steps")
    clean, holed = manifest(), manifest(holes=(HOLE,))
    assert _sentence(verdict, clean, clean) == (
        "green", "identical: 4 steps (1 thread, PyTorch itself and 1 thread, PyTorch itself)",
    )  # fmt: skip
    for pair in ((holed, clean), (clean, holed), (holed, holed)):
        colour, text = _sentence(verdict, *pair)
        assert colour == "yellow" and text.endswith("but with 1 hole outside the arithmetic")


def test_other_verdicts_name_the_step() -> None:
    one = manifest()
    assert (
        _sentence(Verdict("differs", 2, "why", 2, "loss"), one, one)[1]
        == "differs at step 2 (counted from 0), in the loss: why"
    )
    assert _sentence(Verdict("differs", 2, "why"), one, one)[1] == "differs: why"
    assert _sentence(Verdict("none", 0, "why"), one, one)[1] == "no verdict: why"


STEPS = tuple(Step(i, 0, (f"f32:{i:08x}",), str(i), i * i) for i in range(5))


def result(steps: tuple[Step, ...]) -> Result:
    return Result(Setting(1, None), steps)


def test_first_difference() -> None:
    same = result(STEPS)
    assert first_difference([]) is first_difference([same]) is first_difference([same, same]) is None
    assert first_difference([same, same, result(STEPS[:3])]) == 3
    for field in ({"losses": ()}, {"parameters": "x"}, {"optimizer": 1}):
        other = (*STEPS[:2], dataclasses.replace(STEPS[2], **field), *STEPS[3:])  # type: ignore[arg-type]
        assert first_difference([same, result(other), same]) == 2
    later = tuple(dataclasses.replace(step, seconds=9.0) for step in STEPS)
    assert first_difference([same, result(later)]) is None


def test_the_median_step_leaves_the_start_out() -> None:
    assert result(STEPS).step_seconds == 4.0  # of 1, 3, 5, 7
    assert result(STEPS[:1]).step_seconds is None
