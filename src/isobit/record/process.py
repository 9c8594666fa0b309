"""Which process wrote a record, and whether it still runs."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Process:
    """A process, told apart from a later one that has the same number.

    ``started`` counts clock ticks from boot to the process's start (field 22 of /proc/PID/stat); 0 where
    that is unknown.
    """

    pid: int
    started: int
    boot: str
    host: str


def current_process() -> Process:
    """This process."""
    pid = os.getpid()
    return Process(pid, _start_ticks(pid), _boot_id(), platform.node())


def is_alive(process: Process) -> bool:
    """Whether the process still runs. One of another machine counts as running: it cannot be asked from
    here.
    """
    if process.host != platform.node():
        return True
    if process.boot != _boot_id() or not _exists(process.pid):
        return False
    return _start_ticks(process.pid) == process.started


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        return True
    return True


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except OSError:  # no Linux
        return ""


def _start_ticks(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return 0
    fields = stat.rpartition(")")[2].split()  # the name in parentheses may hold spaces and parentheses
    return 0 if fields[0] == "Z" else int(fields[19])  # a zombie has ended, though nobody has asked how
