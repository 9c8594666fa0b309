"""A process of its own beside a run: it is told what happens, and the script never waits for it.

Not a thread of the script's process: a script that forks must not have threads that it does not know of, other
packages must not show in its modules nor draw from its random numbers, and whoever looks on should outlive a `kill -9`
and say so. It is no child of the script's process either, since a script may wait for all of its children.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_BOOT = (
    "import os, sys\n"
    "os.fork() and os._exit(0)\n"
    "sys.path[:1] = [] if sys.path[:1] == [''] else sys.path[:1]\n"
    "sys.path += [] if {home!r} in sys.path else [{home!r}]\n"
    "from {module} import main\n"
    "main()\n"
)


class Watcher:
    """The script's end of the connection to a process that runs `main` of `module` with `argument` as JSON.

    The process reads lines of JSON from its standard input; its standard error is this process's. Safe to use from
    several threads. Raises OSError if it cannot be started.
    """

    def __init__(
        self, module: str, argument: Mapping[str, Any], files: Sequence[int] = (), env: Mapping[str, str] | None = None
    ) -> None:
        self._socket, theirs = socket.socketpair()
        self._waiting: deque[bytes] = deque()
        self._lock = threading.Lock()
        with theirs:
            boot = _BOOT.format(home=str(Path(__file__).resolve().parents[2]), module=module)
            done = subprocess.run(
                [sys.executable, "-W", "ignore", "-c", boot, json.dumps(argument)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                pass_fds=files,
                env={**os.environ, **(env or {})},
                process_group=0,  # Ctrl-C and Ctrl-Z are for the script
            )
        if done.returncode != 0:
            raise OSError(f"{module} did not start")

    @property
    def waiting(self) -> int:
        """How many lines the other process has not taken yet."""
        return len(self._waiting)

    def tell(self, event: Mapping[str, Any]) -> None:
        """Hand over one line; what does not fit into the connection now waits for the next call. Never blocks."""
        with self._lock:
            self._waiting.append(json.dumps(event).encode() + b"\n")
            self._push()

    def close(self, seconds: float) -> bool:
        """Hand over the rest and wait for the process to end, but no longer than `seconds`; whether it has ended."""
        end = time.monotonic() + seconds
        with self._lock, self._socket:
            while self._waiting and (left := end - time.monotonic()) > 0:
                select.select([], [self._socket], [], left)
                self._push()
            try:
                self._socket.shutdown(socket.SHUT_WR)  # which a child of the script's, forked since, cannot hold open
            except OSError:
                return True
            readable, _, _ = select.select([self._socket], [], [], max(0.0, end - time.monotonic()))
            return bool(readable)  # nothing is ever said here: it is the end

    def _push(self) -> None:
        """Send what can be sent. The signal for a broken connection is off: some scripts let it kill them."""
        while self._waiting:
            line = self._waiting[0]
            try:
                sent = self._socket.send(line, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return
            except OSError:  # it is gone; it has said why
                self._waiting.clear()
                return
            if sent < len(line):
                self._waiting[0] = line[sent:]
            else:
                self._waiting.popleft()
