"""Who is told of checkpoints, and from where a script that is to begin in the middle goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from isobit.torch.events import CheckpointEvent, EventSink, NoteEvent

RESUMED = "the run began from the checkpoint "  # how the note begins


class _Watch:
    """One run under way: where its events go, and the file that its first `load` reads in place of its own. With
    `anew` it finds none.
    """

    def __init__(self, sink: EventSink, resume_from: Path | None, anew: bool) -> None:
        self.sink = sink
        self.resume_from = resume_from
        self.anew = anew


_WATCHES: list[_Watch] = []  # a script's own Checkpoint can reach no other place


@contextmanager
def watching(sink: EventSink, resume_from: Path | None = None, anew: bool = False) -> Iterator[None]:
    """While it is entered, `sink` gets a CheckpointEvent for each file that is written. With `resume_from` the first
    `Checkpoint.load` reads that file, whatever its own is, and `sink` gets a note that begins with RESUMED; with `anew`
    it finds no file, whatever a later part of the run has left there.
    """
    watch = _Watch(sink, resume_from, anew)
    _WATCHES.append(watch)
    try:
        yield
    finally:
        _WATCHES.remove(watch)


def saved(path: Path, digest: str) -> None:
    """A checkpoint with this digest has been written to `path`."""
    for watch in tuple(_WATCHES):
        watch.sink(CheckpointEvent(str(path.absolute()), digest))


def to_load(path: Path) -> Path | None:
    """The file to load where the script asks for `path`; None where there shall be none."""
    for watch in tuple(_WATCHES):
        if watch.anew:
            watch.anew = False
            return None
        if watch.resume_from is not None:
            path, watch.resume_from = watch.resume_from, None
            watch.sink(NoteEvent(f"{RESUMED}{path}"))
    return path
