"""The recorded code of a run, file by file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from isobit.record.store import Run


@dataclass(frozen=True)
class CodeFile:
    """A recorded file: its BLAKE3 digest, and its bytes when they are wanted."""

    digest: str
    read: Callable[[], bytes]


def code_files(run: Run) -> dict[str, CodeFile]:
    """The files by their path below their tree; none where nothing was recorded."""
    code = run.manifest.code
    if code is None:
        return {}
    return {name: CodeFile(digest, partial((run.code / name).read_bytes)) for name, digest in code.files.items()}
