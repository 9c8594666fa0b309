"""How the data of two runs differs, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from isobit.record.causes import DATA, ORDER, Difference
from isobit.record.inputs import InputChange, compare_inputs, read_inputs
from isobit.record.manifest import FAILED, FINISHED
from isobit.record.store import Run

_NAMED = 5


def data_differences(first: Run, second: Run) -> Iterator[Difference]:
    """Files with other contents, files that only one run has read, another order. RecordError: a damaged list.

    Where one of the runs has no list, as those of older versions, nothing is known to differ.
    """
    one, two = read_inputs(first), read_inputs(second)
    if not (one.files and two.files):
        return
    found = compare_inputs(one, two, partial=second.status not in (FINISHED, FAILED))
    yield from _each(found.contents, "{} has other contents")
    # a run that did not come to its own end may not have come to its other files
    if two.complete and second.status in (FINISHED, FAILED):
        yield from _each(found.only_first, "{} was read by the first run alone")
    if one.complete and first.status in (FINISHED, FAILED):
        yield from _each(found.only_second, "{} was read by the second run alone")
    if found.order is not None:
        place, a, b = found.order
        text = f"files were opened in another order: file {place} (counted from 0) was {a}, then {b}"
        yield Difference(ORDER, "order of files", text)


def _each(paths: Sequence[str], text: str) -> Iterator[Difference]:
    for path in paths[:_NAMED]:
        yield Difference(DATA, path, text.format(path))
    rest = paths[_NAMED:]
    if rest:
        yield Difference(DATA, "more files", f"{text.format('a file')}: {len(rest)} more", "\n".join(rest))


def change_words(changes: Sequence[InputChange]) -> list[str]:
    """What a reader should know before data that has changed is used again, in at most a few lines."""
    lines = [f"{change.path}: {change.text}" for change in changes[:_NAMED]]
    rest = len(changes) - _NAMED
    return [*lines, f"and {rest} more files"] if rest > 0 else lines
