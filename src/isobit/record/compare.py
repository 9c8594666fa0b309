"""What differs between two runs: code, data, arguments, packages, machine; and the first step at which they part."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from isobit.record.causes import (
    ARGUMENT,
    ENTROPY,
    FOLDER,
    HYPER,
    INITIAL,
    MACHINE,
    PACKAGE,
    SEED,
    SETTING,
    Difference,
    causes,
)
from isobit.record.code_differences import code_differences
from isobit.record.data_differences import data_differences
from isobit.record.manifest import FAILED, FINISHED, Hole, Manifest
from isobit.record.parting import LENGTH, PARTS, Parting, first_parting
from isobit.record.remarks import remarks
from isobit.record.store import Run, rewrite
from isobit.record.surrounding_differences import surrounding_differences
from isobit.record.trace import Trace, open_trace

ENTROPY_NOTE = "entropy: "  # how notes on randomness without a seed begin


@dataclass(frozen=True)
class Compared:
    """Two runs side by side. ``parting`` is None where all steps of both are the same, or all up to the end of one that
    did not come to its own end (killed, interrupted, stopped).
    """

    differences: tuple[Difference, ...]
    parting: Parting | None
    causes: tuple[str, ...]
    steps: tuple[int, int]


def compare(first: Run, second: Run) -> Compared:
    """Compare two records; raises RecordError if one is damaged."""
    found = differences(first, second)
    one, two = open_trace(first.folder), open_trace(second.folder)
    parting = first_parting(one.steps(), two.steps())
    shorter = first if len(one) < len(two) else second
    if parting is not None and parting.part == LENGTH and shorter.status not in (FINISHED, FAILED):
        parting = None
    why = () if parting is None else explain(parting, first, second, found)
    return Compared(found, parting, why, (len(one), len(two)))


def explain(
    parting: Parting, first: Run, second: Run, found: tuple[Difference, ...], start: int = 0
) -> tuple[str, ...]:
    """Likely causes of `parting`, from the differences `found` and from what both runs say of themselves. The second
    began with the first one's step number `start`.
    """
    entropy = dict.fromkeys(
        note for run in (first, second) for note in remarks(run)[1] if note.startswith(ENTROPY_NOTE)
    )
    texts = [note.removeprefix(ENTROPY_NOTE) for note in entropy]
    own = [Difference(ENTROPY, text, f"randomness that no seed reaches: {text}") for text in texts]
    traces = open_trace(first.folder), open_trace(second.folder)
    holes = [*_holes(first, traces[0], parting.step), *_holes(second, traces[1], parting.step - start)]
    return causes(parting, [*found, *_in_trace(parting, *traces, start), *own], holes)


def _holes(run: Run, trace: Trace, step: int) -> list[Hole]:
    """The holes that had opened when the runs parted; a record that does not say when: all of them."""
    later = {event["op"] for event in trace.events("h") if event.get("i", 0) > step}
    return [hole for hole in remarks(run)[0] if hole.operator not in later]


def _in_trace(parting: Parting, first: Trace, second: Trace, start: int) -> Iterator[Difference]:
    """What the traces tell apart from the steps: hyper-parameters where they part, parameters before the first step."""
    if parting.step >= min(len(first), len(second) + start):
        return
    optimizer = first.step(parting.step).optimizer
    one, two = first.settings(parting.step, optimizer), second.settings(parting.step - start, optimizer)
    for name in dict.fromkeys([*one, *two]):
        a, b = one.get(name), two.get(name)
        if a != b:
            text = (
                f"hyper-parameter {name} of optimizer {optimizer} in step {parting.step}: {a or 'none'} → {b or 'none'}"
            )
            yield Difference(HYPER, name, text)
    if start == 0 and _initial(first, optimizer) != _initial(second, optimizer):
        yield Difference(INITIAL, f"optimizer {optimizer}", "the parameters differ before the first step")


def _initial(trace: Trace, optimizer: int) -> str | None:
    """The digest of the optimizer's parameters before its first step."""
    return next((event["d"] for event in trace.events("b") if event["o"] == optimizer), None)


def with_causes(recorded: Run, made: Run, start: int = 0) -> Run:
    """The replay `made` of `recorded`, from its step number `start` on, with likely causes of its difference added to
    its verdict, on disk too.
    """
    replay = made.manifest.replay
    verdict = replay.verdict if replay is not None else None
    if replay is None or verdict is None or verdict.step is None or verdict.what is None:
        return made
    known = verdict.what if verdict.what in PARTS else LENGTH
    parting = Parting(verdict.step, known, verdict.text)
    why = explain(parting, recorded, made, differences(recorded, made), start)
    return rewrite(made, replay=dataclasses.replace(replay, verdict=dataclasses.replace(verdict, causes=why)))


def differences(first: Run, second: Run) -> tuple[Difference, ...]:
    """All that is not the same in two runs, apart from their steps, in the order in which one would look."""
    started = _started(first.manifest, second.manifest)
    return (*code_differences(first, second), *data_differences(first, second), *started)


def _started(first: Manifest, second: Manifest) -> Iterator[Difference]:
    yield from _arguments(first, second)
    yield from _settings(first, second)
    yield from surrounding_differences(first, second)
    yield from _machine(first, second)


def _arguments(first: Manifest, second: Manifest) -> Iterator[Difference]:
    if first.args != second.args:
        one, two = shlex.join(first.args), shlex.join(second.args)
        changed = [f"{a or 'none'} → {b or 'none'}" for a, b in zip_longest(first.args, second.args) if a != b]
        yield Difference(ARGUMENT, "arguments", f"the arguments differ: {', '.join(changed)}", f"- {one}\n+ {two}")


def _settings(first: Manifest, second: Manifest) -> Iterator[Difference]:
    one, two = first.settings, second.settings
    for kind, name in ((SEED, "seed"), (SETTING, "mode"), (SETTING, "arithmetic"), (SETTING, "strict")):
        a, b = getattr(one, name), getattr(two, name)
        if a != b:
            yield Difference(kind, name, f"the {name} differs: {a} → {b}")
    if first.isobit != second.isobit:
        yield Difference(PACKAGE, "isobit", f"Isobit differs: {first.isobit} → {second.isobit}")


def _machine(first: Manifest, second: Manifest) -> Iterator[Difference]:
    """Where it ran: under the exact arithmetic none of it changes a bit, outside it may."""
    one, two = first.machine, second.machine
    if one is not None and two is not None and one.processor != two.processor:
        yield Difference(MACHINE, "processor", f"processor: {one.processor} → {two.processor}")
    for name in ("threads", "cpu"):
        x, y = getattr(first.settings, name), getattr(second.settings, name)
        if x != y:
            yield Difference(MACHINE, name, f"{name}: {x} → {y}")
    if first.cwd != second.cwd:
        yield Difference(FOLDER, "folder", f"the folder differs: {first.cwd} → {second.cwd}")
