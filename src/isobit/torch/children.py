"""Processes that `multiprocessing` starts afresh (spawn, forkserver) while the exact arithmetic is on have it, too.

A forked child inherits everything. A fresh one gets its process object through pickle, target and arguments inside; so
the object is pickled behind a call that switches the exact arithmetic on first.
"""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any


class ChildProcesses:
    """The way process objects are pickled, changed from `install` to `remove`.

    `begin(options, kind, numbers)`, a function of a module, runs in the child and gives an empty object of class
    `kind`; `numbers` are those by which multiprocessing tells its processes apart. `options()` is asked in the parent
    when the child is started.
    """

    def __init__(self, begin: Callable[[Any, type, tuple[int, ...]], Any], options: Callable[[], Any]) -> None:
        self._begin = begin
        self._options = options

    def install(self) -> None:
        begin, options = self._begin, self._options

        def reduce(process: Any) -> Any:
            return begin, (options(), type(process), process._identity), process.__dict__

        BaseProcess.__reduce__ = reduce  # type: ignore[method-assign, assignment]

    def remove(self) -> None:
        del BaseProcess.__reduce__
