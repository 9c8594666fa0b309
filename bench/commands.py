"""CPU and wall-clock time of commands, each a process of its own, by turns; medians."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

Times = tuple[float, float]  # seconds of the CPU, seconds on the clock


def child_times(command: Sequence[str], cwd: Path) -> Times:
    """What one process takes from its start to its end. Raises CalledProcessError where it fails."""
    before, begun = os.times(), time.perf_counter()
    subprocess.run(command, cwd=cwd, stdout=subprocess.DEVNULL, check=True)
    wall, after = time.perf_counter() - begun, os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return used, wall


def by_turns(commands: dict[str, Sequence[str]], cwd: Path, rounds: int) -> dict[str, Times]:
    """The medians of all commands; the first round, which fills caches, does not count."""
    found: dict[str, list[Times]] = {name: [] for name in commands}
    for turn in range(rounds + 1):
        for name, command in commands.items():
            times = child_times(command, cwd)
            if turn:
                found[name].append(times)
    return {
        name: (statistics.median(cpu for cpu, _ in times), statistics.median(wall for _, wall in times))
        for name, times in found.items()
    }


def isobit(*args: str) -> list[str]:
    """The command line of an `isobit` command."""
    return [sys.executable, "-m", "isobit", *args]
