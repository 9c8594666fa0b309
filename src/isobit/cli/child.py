"""Runs a plan in a child process and reads what became of it from its record."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from isobit.cli.plan import Plan, process_command, process_environment
from isobit.record.errors import RecordError
from isobit.record.store import Run, Store


def run_child(
    plan: Plan, folder: Path, output: IO[bytes] | None = None, stdout: int | None = None
) -> tuple[int, Run | None]:
    """Run `plan` in `folder` and wait; returns its exit code and its record, if it came so far.

    A negative code is the signal that killed it. With `output` that gets all the script prints, with `stdout` that
    file what it prints to stdout. ``plan.run_id`` must be given. Ctrl-C reaches the child, and this waits for it to
    close its record.
    """
    redirect = None if output is None else output.fileno()
    with ExitStack() as files:
        stdin: Any = None if output is None else subprocess.DEVNULL
        if plan.stdin is not None:
            stdin = files.enter_context(open(plan.stdin, "rb"))
        child = subprocess.Popen(
            process_command(plan),
            cwd=folder,
            env=process_environment(plan),
            stdin=stdin,
            stdout=redirect if stdout is None else stdout,
            stderr=redirect,
        )
    code = _wait(child)
    try:
        return code, Store(Path(plan.home)).open(plan.run_id or "")
    except RecordError:
        return code, None


def _wait(child: subprocess.Popen[bytes]) -> int:
    """Wait for the child, which handles an interrupt as it will and closes its record."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, lambda number, frame: None if _at_terminal() else child.send_signal(number))
    signal.signal(signal.SIGTERM, lambda number, frame: child.send_signal(number))
    try:
        return child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _at_terminal() -> bool:
    """Whether Ctrl-C has reached the child already: a terminal sends it to every process in the foreground."""
    try:
        return os.tcgetpgrp(2) == os.getpgrp()
    except OSError:
        return False
