"""A folder to run recorded code in: the copies, and around them links to whatever else lies in the original tree.

Scripts open data next to themselves (`Path(__file__).parent / "data.csv"`). Such files are not part of the record,
so they are reached where they are; the code is the recorded one, checked against its digests.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from blake3 import blake3

from isobit.record.errors import RecordError
from isobit.record.manifest import Code
from isobit.record.store import Run


def recorded_code(run: Run) -> Code:
    """What the record holds of the run's code; raises RecordError if that is not even its script."""
    code = run.manifest.code
    if code is None or code.script not in code.files:
        raise RecordError(f"run {run.manifest.id} has no copy of its script: it cannot be replayed")
    return code


def working_copy(run: Run) -> Path:
    """A new temporary folder with the code of `run`; the caller deletes it.

    Raises RecordError if a file of the record is missing or not what was recorded.
    """
    code = recorded_code(run)
    folder = Path(tempfile.mkdtemp(prefix="isobit-replay-"))
    for name, digest in code.files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(_checked(run.code / name, digest))
    for place in sorted({Path(name).parent for name in code.files}):
        for part in (place, *place.parents):
            _link_rest(Path(code.root) / part, folder / part)
    return folder


def code_in(folder: Path, run: Run) -> Path:
    """`folder` if it holds the script that `run` ran, at the same place below; raises RecordError if not."""
    script = recorded_code(run).script
    if not (folder / script).is_file():
        raise RecordError(f"there is no {script} in {folder}")
    return folder


def _checked(path: Path, digest: str) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RecordError(f"the record has lost {path}: {error.strerror}") from error
    if blake3(data).hexdigest() != digest:
        raise RecordError(f"{path} is not what was recorded: its digest differs")
    return data


def _link_rest(original: Path, copy: Path) -> None:
    """Link all that `original` holds and `copy` does not."""
    try:
        entries = list(os.scandir(original))
    except OSError:  # another machine, or the folder is gone: the code alone must do
        return
    for entry in entries:
        target = copy / entry.name
        if entry.name != "__pycache__" and not target.exists():
            target.symlink_to(entry.path)
