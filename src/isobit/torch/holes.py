"""Operators outside the exact arithmetic: named once per kind, counted, reported; in strict mode an error."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from isobit.torch.events import Event, HoleEvent

UNNAMED = "it is not in Isobit's table of operators"


class HoleError(RuntimeError):
    """A hole in strict mode. It is raised before the operator runs."""


class HoleMonitor:
    """Counts holes. `sink` gets an event for the first of each kind, and one with the remaining count at `close`."""

    def __init__(self, sink: Callable[[Event], None] | None = None, strict: bool = False) -> None:
        self.sink = sink
        self.strict = strict
        self.counts: Counter[str] = Counter()
        self._told: Counter[str] = Counter()  # of which it has been told
        self._owner = os.getpid()
        self._reasons: dict[str, str] = {}
        self._inside = threading.local()

    def report(self, name: str, reason: str) -> None:
        """A hole is about to run; raises HoleError in strict mode. What runs inside another hole is part of it."""
        if getattr(self._inside, "depth", 0):
            return
        if self.strict:
            raise HoleError(
                f"{name} is outside the exact arithmetic: {reason}. It would run on PyTorch's own kernel, whose bits "
                "depend on the machine; replace the operator, or run without strict."
            )
        self._follow_fork()
        self.counts[name] += 1
        self._reasons[name] = reason
        if self.counts[name] == 1:
            self._told[name] = 1
            print(f"isobit: hole: {name} runs on PyTorch's own kernel: {reason}", file=sys.stderr, flush=True)
            self._emit(name, 1)

    @contextmanager
    def running(self) -> Iterator[None]:
        """While a hole runs on this thread, operators that its kernel calls are not holes of their own.

        PyTorch has one thread meanwhile: so its bits depend on the machine, but not on `--threads`.
        """
        self._inside.depth = getattr(self._inside, "depth", 0) + 1
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            self._inside.depth -= 1

    def close(self) -> None:
        """Reports the counts that have not been reported."""
        self._follow_fork()
        for name, count in self.counts.items():
            if count > self._told[name]:
                self._emit(name, count - self._told[name])
        self.counts.clear()
        self._told.clear()

    def _follow_fork(self) -> None:
        """What a forked process finds counted is its parent's to report."""
        if self._owner != os.getpid():
            self._owner = os.getpid()
            self._told = self.counts.copy()

    def _emit(self, name: str, count: int) -> None:
        if self.sink is not None:
            self.sink(HoleEvent(name, self._reasons[name], count))
