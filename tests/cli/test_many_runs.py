"""A store of many runs is listed quickly: the time of the CPU, which a busy machine changes little."""

from __future__ import annotations

from pathlib import Path

from bench.commands import child_times, isobit
from bench.records import make_records

MOST = 3.0  # seconds; several times what it takes, half of which is the start


def test_two_thousand_runs_are_listed_quickly(tmp_path: Path) -> None:
    make_records(tmp_path, 2_000, killed=40)
    child_times(isobit("runs"), tmp_path)
    assert min(child_times(isobit("runs"), tmp_path)[0] for _ in range(2)) < MOST
