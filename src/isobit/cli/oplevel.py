"""Which operator two runs part at: both are run again up to one step, whose operators are traced on either side."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from pathlib import Path

from isobit.cli.child import run_child
from isobit.cli.plan import Plan
from isobit.record.errors import RecordError
from isobit.record.ids import new_id
from isobit.record.optrace import Operator, first_parting, read_operators

_TAIL = 8  # lines of a failed script's output


def operator_parting(first: Plan, second: Plan, folders: tuple[Path, Path], step: int) -> str:
    """Runs both plans, each in its folder, to the end of step `step`; says in a sentence where their operators part.

    Raises RecordError if one of them does not come that far.
    """
    sides = [_operators(plan, folder, step) for plan, folder in zip((first, second), folders, strict=True)]
    parting = first_parting(*sides)
    if parting is not None:
        return parting.text
    return (
        f"all {len(sides[0])} operators of step {step} are the same when both sides are run again today: "
        "the difference comes from something that has changed since the record, or that changes from run to run"
    )


def _operators(plan: Plan, folder: Path, step: int) -> tuple[Operator, ...]:
    with tempfile.TemporaryDirectory(prefix="isobit-operators-") as home, tempfile.TemporaryFile() as output:
        traced = dataclasses.replace(
            plan, home=home, run_id=new_id(time.time_ns()), steps=step + 1, operators_at=step,
            replay_folder=None, replay_of=None, quiet=True,
        )  # fmt: skip
        code, run = run_child(traced, folder, output)
        found = () if run is None else read_operators(run.folder)
        if found:
            return found
        output.seek(0)
        tail = "\n".join(output.read().decode("utf-8", "replace").splitlines()[-_TAIL:])
    raise RecordError(f"running again to step {step} to trace its operators failed (exit code {code})\n{tail}".rstrip())
