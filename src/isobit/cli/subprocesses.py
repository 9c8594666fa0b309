"""Inside a Python process that a script has started: the exact arithmetic, and the way of its holes to the record."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from multiprocessing import util
from pathlib import Path

from isobit.cli.inherited import Child
from isobit.record.children import ChildLog
from isobit.torch.events import Event, HoleEvent, NoteEvent, SessionOptions
from isobit.torch.session import child_session


def begin(config: str) -> None:
    """Runs in such a process when PyTorch has been imported."""
    child = Child.from_json(config)
    options = SessionOptions(
        child.threads, child.cpu, child.strict, child.plain, child.seed, hidden_devices=child.hidden_devices
    )
    log = ChildLog(Path(child.run))
    at_process_end(child_session(options, lambda event: tell(log, event)))


def tell(log: ChildLog, event: Event) -> None:
    """Write down what happened in another process than the script's first."""
    match event:
        case HoleEvent():
            log.hole(event.operator, event.reason, event.count)
        case NoteEvent():
            log.note(event.text)


def at_process_end(close: Callable[[], None]) -> None:
    """Call `close` when this process ends, or one that is forked from it; multiprocessing's skip the usual handlers."""
    atexit.register(close)
    util.register_after_fork(close, _close_at_end)


def _close_at_end(close: Callable[[], None]) -> None:
    util.Finalize(None, close, exitpriority=0)
