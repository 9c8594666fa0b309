"""Operator traces: written line by line, read back, and the first operator at which two part."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from isobit.record.errors import RecordError
from isobit.record.optrace import NAME, Operator, OperatorWriter, first_parting, read_operators

TRACE = tuple(
    Operator(i, f"aten::op{i}", "backward" if i == 2 else "forward", "net.head", f"/w/train.py:{i}", (f"a{i}", "0.5"), (f"b{i}",))
    for i in range(3)
)  # fmt: skip


def changed(number: int, **fields: object) -> tuple[Operator, ...]:
    return tuple(dataclasses.replace(o, **fields) if o.number == number else o for o in TRACE)  # type: ignore[arg-type]


def test_what_is_written_is_read_and_a_torn_line_left_out(tmp_path: Path) -> None:
    assert read_operators(tmp_path) == ()
    writer = OperatorWriter(tmp_path)
    for operator in TRACE:
        writer.add(operator)
    assert read_operators(tmp_path) == TRACE
    (tmp_path / NAME).write_bytes((tmp_path / NAME).read_bytes()[:-5])
    assert read_operators(tmp_path) == TRACE[:2]
    (tmp_path / NAME).write_bytes(b'{"number":0}\n')
    with pytest.raises(RecordError, match="damaged"):
        read_operators(tmp_path)


def test_equal_traces_do_not_part() -> None:
    assert first_parting(TRACE, TRACE) is None
    assert first_parting(TRACE, changed(1, line="/elsewhere/train.py:9")) is None


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (changed(1, outputs=("c",)), "operator 1, aten::op1 in net.head at /w/train.py:1: other results from the same inputs"),
        (changed(2, outputs=("c",)), "operator 2, aten::op2 (backward) in net.head"),
        (changed(1, inputs=("a1", "0.25")), "input 1 is 0.5, on the other side 0.25"),
        (changed(1, inputs=("a1",)), "takes 2 inputs, on the other side 1"),
        (changed(0, operator="aten::other"), "the code goes another way: operator 0, aten::op0"),
        (TRACE[:2], "one side ends, the other goes on with operator 2"),
    ],
)  # fmt: skip
def test_the_first_parting_is_named(other: tuple[Operator, ...], says: str) -> None:
    for first, second in ((TRACE, other), (other, TRACE)):
        parting = first_parting(first, second)
        assert parting is not None
        if first is TRACE:
            assert says in parting.text
