"""Signals that end a script: its record is closed, and the process ends as it would under plain Python."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn


def on_termination(close: Callable[[], None]) -> None:
    """Call `close` when SIGTERM is about to end the process. A handler that the script sets takes the place of this."""
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:  # ignored, perhaps
        return
    owner = os.getpid()

    def end(number: int, frame: Any) -> None:
        if os.getpid() == owner:
            close()
        _default(number)

    def in_child() -> None:
        if signal.getsignal(signal.SIGTERM) is end:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    signal.signal(signal.SIGTERM, end)
    os.register_at_fork(after_in_child=in_child)


def _default(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def leave_interrupted() -> NoReturn:
    """End as Python does after a Ctrl-C that nobody caught: all handlers run, then the signal kills the process."""
    sys.excepthook = lambda *error: None  # it has been shown
    raise KeyboardInterrupt
