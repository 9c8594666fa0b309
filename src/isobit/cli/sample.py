"""``isobit replay --sample N``: spot checks of a long run. N segments between its checkpoints are run again."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from rich.console import Console

from isobit.cli import exits
from isobit.cli.child import run_child
from isobit.cli.output import print_json
from isobit.cli.plan import Plan
from isobit.record.checkpoints import Segment, sample, segments
from isobit.record.compare import with_causes
from isobit.record.errors import RecordError
from isobit.record.manifest import INTERRUPTED, Verdict
from isobit.record.parting import steps_text
from isobit.record.replay import DIFFERS, IDENTICAL, NONE
from isobit.record.store import Run, Store
from isobit.record.trace import open_trace
from isobit.torch.checkpoint_watch import RESUMED

_COLOURS = {IDENTICAL: "green", DIFFERS: "red"}
_EXIT = {IDENTICAL: exits.OK, DIFFERS: exits.DIFFERS}
_STDERR = 2


def replay_segments(run: Run, plan: Plan, folder: Path, count: int, as_json: bool) -> int:
    """Replay `count` segments of `run`, chosen by chance, each as `plan` says; returns 0 if all are identical, 1 if one
    differs, 2 if one gave no verdict, 130 after Ctrl-C.

    With `as_json` the verdicts are an object and alone on stdout. Raises RecordError if the run wrote no checkpoints
    that still exist.
    """
    available = segments(run)
    if not any(segment.checkpoint for segment in available):
        raise RecordError(
            f"run {run.manifest.id} has no checkpoints to begin from: the script must save them by isobit.Checkpoint, "
            "and they must still be there as they were written (isobit run --keep-checkpoints keeps each in the record)"
        )
    console = Console(highlight=False, soft_wrap=True, stderr=as_json)
    chosen = sample(available, count)
    verdicts = []
    for segment in chosen:
        verdict = _replayed(run, plan, folder, segment, _STDERR if as_json else None)
        if verdict is None:
            console.print("interrupted", style="yellow")
            return exits.INTERRUPTED
        for line in _lines(segment, verdict):
            console.print(line, markup=False)
        verdicts.append(verdict)
    worst = next((o for o in (DIFFERS, NONE) if any(v.outcome == o for v in verdicts)), IDENTICAL)
    text = _sentence(worst, verdicts, chosen, len(available), len(open_trace(run.folder)))
    console.print(text, style=_COLOURS.get(worst, "yellow"), markup=False)
    if as_json:
        found = [_object(segment, verdict) for segment, verdict in zip(chosen, verdicts, strict=True)]
        print_json({"run": run.manifest.id, "outcome": worst, "available": len(available), "segments": found})
    return _EXIT.get(worst, exits.NO_VERDICT)


def _lines(segment: Segment, verdict: Verdict) -> list[str]:
    where = "" if verdict.step is None else f" at step {verdict.step} (counted from 0), in the {verdict.what}"
    says = verdict.text if verdict.outcome != IDENTICAL else steps_text(verdict.steps)
    return [f"{segment}: {verdict.outcome}{where}: {says}", *(f"likely cause: {why}" for why in verdict.causes)]


def _sentence(worst: str, verdicts: list[Verdict], chosen: tuple[Segment, ...], available: int, total: int) -> str:
    steps = sum(segment.stop - segment.start for segment in chosen)
    same = sum(verdict.outcome == IDENTICAL for verdict in verdicts)
    lead = "no verdict" if worst == NONE else worst
    return f"{lead}: {same} of {len(chosen)} segments the same ({steps} of {steps_text(total)}; {available} segments)"


def _object(segment: Segment, verdict: Verdict) -> dict[str, Any]:
    return {"start": segment.start, "stop": segment.stop, **dataclasses.asdict(verdict)}


def _replayed(run: Run, plan: Plan, folder: Path, segment: Segment, stdout: int | None) -> Verdict | None:
    """The verdict on one segment; None if it was interrupted."""
    one = dataclasses.replace(
        plan,
        run_id=Store(Path(plan.home)).new_id(),
        steps=segment.stop - segment.start,
        segment=(segment.start, segment.stop),
        resume_from=str(segment.checkpoint) if segment.checkpoint is not None else None,
        quiet=True,
    )
    code, made = run_child(one, folder, stdout=stdout)
    if made is None or made.manifest.replay is None:
        return Verdict(NONE, 0, f"the replay ended with exit code {code} before it had a record")
    if made.status == INTERRUPTED:
        return None
    if segment.checkpoint is not None and not any(note.startswith(RESUMED) for note in made.manifest.notes):
        return Verdict(NONE, 0, "the script made its steps without isobit.Checkpoint.load before them")
    verdict = made.manifest.replay.verdict
    if verdict is None:
        return Verdict(NONE, 0, f"the replay {made.manifest.id} was {made.status} (exit code {code})")
    replay = with_causes(run, made, segment.start).manifest.replay
    return replay.verdict if replay is not None and replay.verdict is not None else verdict
