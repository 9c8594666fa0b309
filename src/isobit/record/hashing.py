"""Hashes the files that a run has opened, in the background, with little of the machine.

One thread reads the log of opened files as it grows and takes the smallest file first. While the script runs it has the
lowest priority and rests three times as long as it works; when the script has ended, what is left has a few seconds.
"""

from __future__ import annotations

import heapq
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from isobit.record.hashes import Digests, FileChangedError, FileState, hash_file
from isobit.record.opened import LIMIT, Opened, OpenedLog

_LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class Budget:
    """How much hashing may cost. ``rescued``: the largest file that is hashed at once, before it is overwritten."""

    bytes: int = 64 << 30
    share: float = 0.25  # of one core, while the script runs
    last_seconds: float = 5.0  # when it has ended
    files: int = LIMIT
    rescued: int = 256 << 20


@dataclass(frozen=True)
class Hashed:
    """A file of the log, and its digest or why it has none."""

    opened: Opened
    digest: str | None = None
    why: str | None = None


class Hashing:
    """Hashes what the log names, from `start` to `finish`. ``files`` has the results, in the order of the log."""

    def __init__(self, log: Path, home: Path, budget: Budget) -> None:
        self.files: dict[str, Hashed] = {}
        self.unlisted = 0
        self._log = OpenedLog(log)
        self._home = home
        self._budget = budget
        self._left = budget.bytes
        self._todo: list[tuple[bool, int, int, Opened]] = []  # what the run wrote itself comes last
        self._rescued: dict[str, tuple[FileState, str]] = {}
        self._ending = threading.Event()
        self._deadline = float("inf")
        self._thread: threading.Thread | None = None

    def start(self, begun: Callable[[int], None]) -> None:
        """Start the thread, which first says its number. Where there is no thread left, `finish` does all the work."""
        thread = threading.Thread(target=self._work, args=(begun,), name="isobit-hash", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return
        self._thread = thread

    def rescue(self, path: str) -> None:
        """The file is about to be overwritten by the run that has read it: hash it now unless that has been done."""
        known = self.files.get(path)
        if path in self._rescued or (known is not None and known.digest is not None):
            return
        try:
            state = FileState.of(os.stat(path))
            if state.size <= self._budget.rescued:
                self._rescued[path] = (state, hash_file(path, state))
        except OSError:  # the hash that the thread finds missing will say so
            return

    def finish(self) -> None:
        """Hash what is left, as far as the budget goes, and say of the rest why it has no digest."""
        self._deadline = time.monotonic() + self._budget.last_seconds
        self._ending.set()
        if self._thread is None:
            self._work(lambda number: None)
        else:
            self._thread.join(self._budget.last_seconds + 1.0)  # a file system may hang
        for path, found in list(self.files.items()):
            if found.digest is None and found.why is None:
                late = "the run wrote it" if found.opened.made else "there was no time left at the end of the run"
                self.files[path] = Hashed(found.opened, None, late)

    def _work(self, begun: Callable[[int], None]) -> None:
        begun(threading.get_ident())
        if self._thread is not None or not self._ending.is_set():
            _give_way()
        digests = Digests(self._home)
        try:
            while True:
                last = self._ending.is_set()  # what was opened before the end is in the log by now
                self._collect()
                self._drain(digests)
                digests.flush()
                if last:
                    return
                self._ending.wait(_LOOK_SECONDS)
        finally:
            digests.close()

    def _collect(self) -> None:
        """Take up what the log has that is new; the first line of a path counts."""
        for found in self._log.new():
            if found.path in self.files:
                continue
            if len(self.files) >= self._budget.files:
                self.unlisted += 1
                continue
            self.files[found.path] = Hashed(found, None, None)
            heapq.heappush(self._todo, (found.made, found.state.size, len(self.files), found))

    def _drain(self, digests: Digests) -> None:
        """Hash what is known, and look into the log from time to time."""
        looked = time.monotonic()
        while self._todo and time.monotonic() < self._deadline:
            if self._todo[0][0] and self._ending.is_set():
                return
            found = heapq.heappop(self._todo)[-1]
            result = self._hashed(found, digests)
            if result is None:  # out of time
                return
            self.files[found.path] = result
            if not self._ending.is_set() and time.monotonic() - looked > _LOOK_SECONDS:
                self._collect()
                looked = time.monotonic()

    def _hashed(self, opened: Opened, digests: Digests) -> Hashed | None:
        path, state = opened.path, opened.state
        if opened.digest is not None:
            return Hashed(opened, opened.digest)
        rescued = self._rescued.pop(path, None)
        if rescued is not None and rescued[0] == state:
            return Hashed(opened, rescued[1])
        pace = _Pace(self._budget.share, self._ending, lambda: self._deadline)
        try:
            known = digests.known(path, state)
            if known is None and state.size > self._left:
                return Hashed(opened, None, f"more than {self._budget.bytes} bytes would have been hashed")
            if known is None:
                self._left -= state.size
                known = digests.digest_of(path, state, pace)
            pace(0)
            return Hashed(opened, known)
        except _OutOfTimeError:
            return None
        except FileChangedError as error:
            return Hashed(opened, None, str(error))
        except FileNotFoundError:
            return Hashed(opened, None, "it was deleted before it was hashed")
        except OSError as error:
            return Hashed(opened, None, f"it cannot be read: {error.strerror or error}")


class _OutOfTimeError(Exception):
    """The time for hashing is over."""


class _Pace:
    """Called after each piece of work: rests, so that work takes but its share of the time."""

    def __init__(self, share: float, ending: threading.Event, deadline: Callable[[], float]) -> None:
        self._rest = 1.0 / share - 1.0
        self._ending = ending
        self._deadline = deadline
        self._worked = time.thread_time()

    def __call__(self, size: int) -> None:
        if not self._ending.is_set():
            self._ending.wait((time.thread_time() - self._worked) * self._rest)
        elif size and time.monotonic() > self._deadline():
            raise _OutOfTimeError
        self._worked = time.thread_time()


def _give_way() -> None:
    """Lowest priority for this thread, where the system has priorities of threads (Linux)."""
    if hasattr(threading, "get_native_id") and hasattr(os, "setpriority") and os.path.isdir("/proc/self/task"):
        try:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        except OSError:
            return
