"""``isobit report``: one page about one run, or about several side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from isobit.cli.report.page import report
from isobit.record.errors import RecordError
from isobit.record.files import write_atomic
from isobit.record.store import Run


def write_report(runs: Sequence[Run], output: Path | None) -> Path:
    """Write the page about `runs` to `output`, by default report-<id>.html here; raises RecordError if that fails."""
    target = output or Path(f"report-{runs[0].manifest.id}.html")
    page = report(runs)
    try:
        write_atomic(target, page)
    except OSError as error:
        raise RecordError(f"cannot write {target}: {error.strerror or error}") from error
    return target
