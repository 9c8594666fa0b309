"""How the recorded code of two runs differs: files only here or there, and patches of those that changed.

A snapshot of a tree holds more than code. Of the rest, what a run has read is data (data_differences.py), and what
neither has read cannot explain anything.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from isobit.record.causes import CODE, FILE, Difference
from isobit.record.code_files import code_files
from isobit.record.inputs import read_inputs
from isobit.record.listing import SOURCE
from isobit.record.store import Run

_LONGEST = 1 << 20  # bytes of a file that a patch is made of


def code_differences(first: Run, second: Run) -> Iterator[Difference]:
    """One difference for each file, named by its path below its tree."""
    one, two = code_files(first), code_files(second)
    data = _data(first, second)
    for name in sorted(one.keys() | two.keys()):
        a, b = one.get(name), two.get(name)
        kind = CODE if data is None or name.endswith(SOURCE) else FILE
        if kind == FILE and data is not None and any(path.endswith(f"/{name}") for path in data):
            continue
        what = "code" if kind == CODE else "tree"
        if a is None or b is None:
            side = "first" if b is None else "second"
            yield Difference(kind, name, f"{name} is in the {side} run's {what} only")
        elif a.digest != b.digest:
            patch = _patch(name, a.read(), b.read())
            said = f"the code of {name}" if kind == CODE else f"{name}, which neither run has read,"
            yield Difference(kind, name, f"{said} differs{_where(patch)}", patch)


def _data(first: Run, second: Run) -> frozenset[str] | None:
    """The files that either run has read; None where one of them has no list, as those of older versions."""
    lists = read_inputs(first), read_inputs(second)
    if any(run.manifest.data is None and not found.files for run, found in zip((first, second), lists, strict=True)):
        return None
    return frozenset(path for found in lists for path in found.files)


def _patch(name: str, old: bytes, new: bytes) -> str:
    """A unified diff; "" for what is not text or very long."""
    if max(len(old), len(new)) > _LONGEST:
        return ""
    try:
        before, after = old.decode("utf-8").splitlines(), new.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        return ""
    return "\n".join(difflib.unified_diff(before, after, f"a/{name}", f"b/{name}", lineterm="", n=2))


def _where(patch: str) -> str:
    """The first line that was taken away or added, for a sentence."""
    changed = [line for line in patch.splitlines()[2:] if line[:1] in ("-", "+")]
    if not changed:
        return ""
    pairs = [next((line for line in changed if line.startswith(sign)), None) for sign in "-+"]
    shown = " → ".join(line[1:].strip()[:60] for line in pairs if line is not None)
    return f" ({shown}{', and more' if len(changed) > 2 else ''})"
