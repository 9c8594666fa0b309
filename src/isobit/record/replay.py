"""Compares a run, step by step as it goes, with the record of an earlier one, and judges."""

from __future__ import annotations

import dataclasses

from isobit.record.errors import RecordError
from isobit.record.manifest import FAILED, FINISHED, INTERRUPTED, Verdict
from isobit.record.parting import Parting, part, steps_text
from isobit.record.store import Run
from isobit.record.trace import Step, open_trace

IDENTICAL = "identical"
DIFFERS = "differs"
NONE = "none"  # no verdict: the replay failed, or there was nothing to compare


class Comparison:
    """Compares steps with those of `recorded`; raises RecordError if its trace is damaged.

    A record that ended by itself is compared to its end; one that was killed, interrupted or stopped, or
    whose trace could not be written to the end, as far as it goes. With `keep_going` a difference does not end the
    comparison: the steps that differ are counted. A `segment` (start, stop) compares these steps only, the first that
    is made with number `start`.
    """

    def __init__(self, recorded: Run, keep_going: bool = False, segment: tuple[int, int] | None = None) -> None:
        self.recorded = recorded
        _check_length(recorded)
        whole = recorded.manifest.trace_error is None
        self._complete = whole and recorded.status in (FINISHED, FAILED) and segment is None
        self._start, stop = segment or (0, None)
        self._steps = open_trace(recorded.folder).steps(self._start, stop)
        self._next = next(self._steps, None)
        self._keep_going = keep_going
        self._seen = 0
        self._equal = 0
        self._difference: Parting | None = None
        self._extra: Step | None = None

    def matches(self, step: Step) -> bool:
        """Compare one more step; False if there is no need for another one."""
        step = dataclasses.replace(step, index=step.index + self._start)
        expected = self._next
        if expected is None:  # with an incomplete record: it breaks off before its first step
            self._extra = step if self._complete else None
            return False
        found = part(expected, step)
        self._seen += 1
        self._equal += found is None
        self._difference = self._difference or found
        if found is not None and not self._keep_going:
            return False
        self._next = next(self._steps, None)
        return self._next is not None or self._complete

    def verdict(self, status: str, exit_code: int, error: str | None) -> Verdict:
        """The judgement on a replay that ended with `status`."""
        recorded = self.recorded.manifest
        if self._difference is not None:
            return self._parted(self._difference)
        if status == INTERRUPTED:
            return self._verdict(NONE, f"the replay was interrupted after {self._count()}, all equal")
        if error is not None and (exit_code != recorded.exit_code or _kind(error) != _kind(recorded.error or error)):
            return self._verdict(NONE, f"the replay failed after {self._count()}, all equal: {error}")
        if self._extra is not None:
            text = f"the recorded run ended after {self._count()}, the replay goes on"
            return self._verdict(DIFFERS, text, self._extra.index, "extra")
        if self._next is not None:
            text = f"the replay ended after {self._count()}, the recorded run went on"
            return self._verdict(DIFFERS, text, self._next.index, "missing")
        if self._complete and exit_code != recorded.exit_code:
            text = f"exit code {exit_code}, recorded {recorded.exit_code}, after {self._count()}, all equal"
            return self._verdict(DIFFERS, text, what="exit code")
        if self._equal == 0:
            why = "no optimizer made a step" if self._complete else "the record breaks off before its first step"
            return self._verdict(NONE, f"nothing to compare: {why}")
        return self._verdict(IDENTICAL, f"{self._count()}, losses and parameters to the last bit")

    def _parted(self, difference: Parting) -> Verdict:
        text = difference.text
        if self._keep_going:
            text += f"; {self._seen - self._equal} of {steps_text(self._seen)} differ"
        return self._verdict(DIFFERS, text, difference.step, difference.part)

    def _count(self) -> str:
        return steps_text(self._equal)

    def _verdict(self, outcome: str, text: str, step: int | None = None, what: str | None = None) -> Verdict:
        return Verdict(outcome, self._equal, text, step, what)


def _check_length(recorded: Run) -> None:
    """Raises RecordError if a closed record's trace does not hold the steps that its manifest counts."""
    told, held = recorded.manifest.steps, len(open_trace(recorded.folder))
    if told is not None and recorded.manifest.trace_error is None and held != told:
        raise RecordError(f"the trace in {recorded.folder} holds {held} of {told} steps: the record is damaged")


def _kind(error: str) -> str:
    """The exception's name; its message may hold addresses and the names of temporary folders."""
    return error.partition(":")[0]
