"""Records the files that a run reads: brings the audit hook, the log of opened files and the hashing together."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from isobit.codegen.target import host_target
from isobit.record.children import ChildLog
from isobit.record.declare import tell_declared
from isobit.record.hashing import Budget, Hashing
from isobit.record.inputs import inputs_of, write_inputs
from isobit.record.manifest import Data
from isobit.record.opened import EVENTS, NAME, OpenedFiles, Watch, begin_watch, loaded_files
from isobit.record.store import Run
from isobit.runtime.audit import AuditHook
from isobit.torch.untraced import untraced

_FAILURES = (OSError, RuntimeError, AttributeError)  # of Python, LLVM or the disk: the run goes on without


class DataWatch:
    """What one run reads, from `start` to `finish`. Where it cannot be recorded the run goes on, and `note` says so.

    `copy` is the folder that a replay runs in, `original` the tree that it stands for.
    """

    def __init__(self, run: Run, copy: str, original: str, budget: Budget | None = None) -> None:
        self.note: str | None = None
        self._folder = run.folder
        self._home = run.folder.parents[1]
        self._moved = (copy, original)
        self._budget = budget or Budget()
        self._opened: OpenedFiles | None = None
        self._hashing: Hashing | None = None
        self._stop: Callable[[], None] = lambda: None

    def start(self) -> None:
        """From now on files that are opened are noted, in this process and those that it starts by multiprocessing."""
        try:
            ours = (str(self._home), str(Path(__file__).parents[1]), str(_kernels()))
            watch = begin_watch(self._folder, ours, *self._moved)
            self._opened = OpenedFiles(watch)
            self._hashing = Hashing(Path(watch.log), self._home, self._budget)
            self._opened.overwritten = self._hashing.rescue
            self._hashing.start(self._opened.deaf.add)
            self._stop = _listen(self._opened)
        except _FAILURES as error:
            self.note = f"the files that it opens are not recorded: {error}"

    def finish(self) -> Data | None:
        """Write the list of what was read. None where it was never started."""
        self._stop()
        if self._hashing is None or self._opened is None or self.note is not None:
            return Data(note=self.note) if self.note else None
        self._hashing.finish()
        code = {self._opened.name_of(path) for path in loaded_files()}
        inputs = inputs_of(self._hashing.files.values(), self._hashing.unlisted, code)
        inputs = dataclasses.replace(inputs, unlisted=inputs.unlisted + self._opened.unnoted)
        try:
            write_inputs(self._folder, inputs)
        except OSError as error:
            return dataclasses.replace(inputs.summary(), note=f"the list of files could not be written: {error}")
        with contextlib.suppress(OSError):
            (self._folder / NAME).unlink()
        failed = self._opened.failed
        return dataclasses.replace(inputs.summary(), note=failed and f"not all files could be recorded: {failed}")


def join_watch(text: str) -> None:
    """Take part in the run that `text` (`Watch.text`) describes, in a process that was started afresh."""
    watch = Watch.of(text)
    try:
        _listen(OpenedFiles(watch))
    except _FAILURES as error:
        ChildLog(Path(watch.log).parent).note(f"the files that a child process opens are not recorded: {error}")


def begin_in_child(text: str, begin: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Runs in a process that multiprocessing has started afresh, before its target is known."""
    join_watch(text)
    return begin(*arguments)


def _kernels() -> Path:
    return Path.home() / ".cache" / "isobit"


def _listen(opened: OpenedFiles) -> Callable[[], None]:
    """Hear of files that are opened here and in children; returns what ends it."""
    untraced(nested=True)(OpenedFiles.__call__)
    hook = AuditHook(EVENTS, opened, host_target(), _kernels())
    tell_declared(opened.declare)
    atexit.register(hook.switch, False)  # of a forked child, too: the listener does not outlive its modules
    _pass_on(opened.watch.text)
    hook.switch(True)
    return lambda: hook.switch(False)


def _pass_on(text: str) -> None:
    """Process objects are pickled behind a call that makes their process take part."""
    before = BaseProcess.__reduce__

    def reduce(process: BaseProcess) -> Any:
        plain: Any = before(process)
        begin, arguments, *state = plain
        return begin_in_child, (text, begin, arguments), *state

    BaseProcess.__reduce__ = reduce  # type: ignore[method-assign, assignment]
