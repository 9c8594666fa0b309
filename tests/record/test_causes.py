"""Which differences explain a parting, in which order, and that there is always a sentence."""

from __future__ import annotations

import pytest

from isobit.record.causes import (
    ARGUMENT,
    CODE,
    DATA,
    ENTROPY,
    ENVIRONMENT,
    FOLDER,
    HYPER,
    INITIAL,
    MACHINE,
    ORDER,
    PACKAGE,
    SEED,
    SETTING,
    Difference,
    causes,
)  # fmt: skip
from isobit.record.manifest import Hole
from isobit.record.parting import PARTS, Parting

ALL = [
    Difference(kind, kind, f"the {kind} differs")
    for kind in (MACHINE, FOLDER, SETTING, ENTROPY, PACKAGE, ENVIRONMENT, SEED, ARGUMENT, CODE, ORDER, DATA, INITIAL, HYPER)
]  # fmt: skip
FIRST = {
    "batch": DATA, "loss": INITIAL, "gradient": CODE, "update": HYPER, "random state": SEED, "length": ARGUMENT, "optimizer": CODE,
}  # fmt: skip


@pytest.mark.parametrize("part", sorted(PARTS))
def test_the_likeliest_comes_first_and_the_machine_never(part: str) -> None:
    found = causes(Parting(3, part, ""), ALL, [])
    assert found[0] == f"the {FIRST[part]} differs"
    assert not any(kind in text for kind in (MACHINE, FOLDER) for text in found)


@pytest.mark.parametrize("part", sorted(PARTS))
def test_nothing_that_differs_is_said_in_words(part: str) -> None:
    (text,) = causes(Parting(3, part, ""), [Difference(MACHINE, "cpu", "cpu: a → b")], [])
    assert "not recorded" in text


def test_a_hole_comes_after_what_else_differs() -> None:
    hole = Hole("aten::cumsum", "why", 3)
    assert causes(Parting(0, "loss", ""), [], [hole])[0].startswith("aten::cumsum ran outside the arithmetic")
    assert causes(Parting(0, "update", ""), [Difference(HYPER, "lr", "lr: 1 → 2")], [hole])[1].startswith(
        "aten::cumsum"
    )


def test_many_are_counted() -> None:
    many = [Difference(PACKAGE, str(i), f"package {i}") for i in range(40)]
    assert causes(Parting(0, "loss", ""), many, [])[-1] == "and 35 more differences"
