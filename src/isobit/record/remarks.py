"""What a run says of itself beside its steps: holes and notes."""

from __future__ import annotations

from isobit.record.children import read_children
from isobit.record.manifest import Hole
from isobit.record.peek import read_events
from isobit.record.store import Run


def remarks(run: Run) -> tuple[tuple[Hole, ...], tuple[str, ...]]:
    """Holes and notes of a run. One that has not closed its record has them in its trace and in what its processes
    said, without counts (0).
    """
    if run.manifest.ended is not None:
        return run.manifest.holes, run.manifest.notes
    children, said = read_children(run.folder)
    reasons = {hole.operator: hole.reason for hole in children} | {
        e["op"]: e["why"] for e in read_events(run.folder, "h")
    }
    notes = dict.fromkeys([*(event["text"] for event in read_events(run.folder, "n")), *said])
    return tuple(Hole(name, why, 0) for name, why in reasons.items()), tuple(notes)
