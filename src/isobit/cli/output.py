"""What commands write for programs: JSON on stdout, errors too."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from isobit.cli import exits
from isobit.record.errors import RecordError


def print_json(data: Any) -> None:
    """Print `data` as JSON; numbers that JSON lacks become strings."""
    json.dump(_plain(data), sys.stdout, indent=1, allow_nan=False)
    print(flush=True)


@contextmanager
def errors(as_json: bool) -> Iterator[None]:
    """Under ``--json`` a RecordError is an object with "error" on stdout; otherwise `main` prints it on stderr."""
    try:
        yield
    except RecordError as error:
        if not as_json:
            raise
        print_json({"error": str(error)})
        raise typer.Exit(exits.USAGE) from None


def _plain(data: Any) -> Any:
    if isinstance(data, float) and not math.isfinite(data):
        return repr(data)
    if isinstance(data, dict):
        return {key: _plain(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_plain(value) for value in data]
    return data
