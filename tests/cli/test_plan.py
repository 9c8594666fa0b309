"""A plan reaches the process that runs it whole, however long it is."""

from __future__ import annotations

import sys

import pytest

from isobit.cli.plan import Plan, become
from isobit.record.errors import RecordError

ONE_ARGUMENT = 128 << 10  # bytes that Linux takes


def test_a_plan_with_many_arguments_goes_into_several() -> None:
    args = tuple(f"data/ö \udcff\n {n}.bin" for n in range(20_000))
    plan = Plan("/x/train.py", "train.py", args, ("isobit", *args), "/x/.isobit", segment=(1, 2))
    pieces = plan.to_arguments()
    assert len(pieces) > 1 and max(map(len, pieces)) < ONE_ARGUMENT and all(map(str.isascii, pieces))
    assert Plan.from_arguments(pieces) == plan


def test_what_the_system_refuses_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(RecordError, match="cannot start /nowhere/python: No such file"):
        become(Plan("x.py", "x.py", (), ("isobit",), "/x/.isobit"))
