"""Compares a run, step by step as it goes, with the record of an earlier one, and judges."""

from __future__ import annotations

import struct

from isobit.record.errors import RecordError
from isobit.record.manifest import FAILED, FINISHED, INTERRUPTED, Verdict
from isobit.record.store import Run
from isobit.record.trace import Step, read_steps

IDENTICAL = "identical"
DIFFERS = "differs"
NONE = "none"  # no verdict: the replay failed, or there was nothing to compare


class Comparison:
    """Compares steps with those of `recorded`; raises RecordError if its trace is damaged.

    A record that ended by itself is compared to its end; one that was killed, interrupted or stopped, or
    whose trace could not be written to the end, as far as it goes.
    """

    def __init__(self, recorded: Run) -> None:
        self.recorded = recorded
        _check_length(recorded)
        whole = recorded.manifest.trace_error is None
        self._complete = whole and recorded.status in (FINISHED, FAILED)
        self._steps = read_steps(recorded.folder)
        self._next = next(self._steps, None)
        self._equal = 0
        self._difference: Verdict | None = None

    def matches(self, step: Step) -> bool:
        """Compare one more step; False if there is no need for another one."""
        expected = self._next
        if expected is None and not self._complete:  # the record breaks off before its first step
            return False
        if self._difference is None:
            self._difference = self._compare(expected, step)
        if self._difference is not None:
            return False
        self._equal += 1
        self._next = next(self._steps, None)
        return self._next is not None or self._complete

    def verdict(self, status: str, exit_code: int, error: str | None) -> Verdict:
        """The judgement on a replay that ended with `status`."""
        recorded = self.recorded.manifest
        if self._difference is not None:
            return self._difference
        if status == INTERRUPTED:
            return self._verdict(NONE, f"the replay was interrupted after {_count(self._equal)}, all equal")
        if error is not None and (exit_code != recorded.exit_code or _kind(error) != _kind(recorded.error or error)):
            return self._verdict(NONE, f"the replay failed after {_count(self._equal)}, all equal: {error}")
        if self._next is not None:
            text = f"the replay ended after {_count(self._equal)}, the recorded run went on"
            return self._differs("missing", self._next.index, text)
        if self._complete and exit_code != recorded.exit_code:
            text = f"exit code {exit_code}, recorded {recorded.exit_code}, after {_count(self._equal)}, all equal"
            return self._verdict(DIFFERS, text, what="exit code")
        if self._equal == 0:
            why = "no optimizer made a step" if self._complete else "the record breaks off before its first step"
            return self._verdict(NONE, f"nothing to compare: {why}")
        return self._verdict(IDENTICAL, f"{_count(self._equal)}, losses and parameters to the last bit")

    def _compare(self, expected: Step | None, got: Step) -> Verdict | None:
        if expected is None:
            text = f"the recorded run ended after {_count(self._equal)}, the replay goes on"
            return self._differs("extra", got.index, text)
        if got.optimizer != expected.optimizer:
            text = f"optimizer {got.optimizer} made the step, recorded {expected.optimizer}"
            return self._differs("optimizer", got.index, text)
        if got.losses != expected.losses:
            text = f"the loss is {_losses(got)}, recorded {_losses(expected)}"
            return self._differs("loss", got.index, text)
        if got.parameters != expected.parameters:
            text = f"the parameters after the update are {got.parameters}, recorded {expected.parameters}"
            return self._differs("parameters", got.index, f"{text}; the loss before it is the same")
        return None

    def _differs(self, what: str, step: int, text: str) -> Verdict:
        return self._verdict(DIFFERS, text, step, what)

    def _verdict(self, outcome: str, text: str, step: int | None = None, what: str | None = None) -> Verdict:
        return Verdict(outcome, self._equal, text, step, what)


def _check_length(recorded: Run) -> None:
    """Raises RecordError if a closed record's trace does not hold the steps that its manifest counts."""
    told, held = recorded.manifest.steps, sum(1 for _ in read_steps(recorded.folder))
    if told is not None and recorded.manifest.trace_error is None and held != told:
        raise RecordError(f"the trace in {recorded.folder} holds {held} of {told} steps: the record is damaged")


def _kind(error: str) -> str:
    """The exception's name; its message may hold addresses and the names of temporary folders."""
    return error.partition(":")[0]


def _count(steps: int) -> str:
    return f"{steps} step{'s' * (steps != 1)}"


def _losses(step: Step) -> str:
    return ", ".join(readable(loss) for loss in step.losses) or "none"


def readable(bits: str) -> str:
    """``f32:3f317218`` as ``0.6931472 (f32:3f317218)``; other bits as they are."""
    kind, _, digits = bits.partition(":")
    if kind == "f32":
        value = struct.unpack(">f", bytes.fromhex(digits))[0]
        return f"{value:.9g} ({bits})"
    if kind == "f64":
        value = struct.unpack(">d", bytes.fromhex(digits))[0]
        return f"{value:.17g} ({bits})"
    return bits
