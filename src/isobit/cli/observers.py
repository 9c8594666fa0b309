"""Who looks on while a run goes on: the live line, sinks of other trackers. None of them may stop a run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Protocol

from isobit.record.manifest import Hole, Manifest
from isobit.record.rows import Step
from isobit.record.store import Run


class Observer(Protocol):
    """Told what was recorded, in order, from whichever thread it happened in."""

    def started(self, run: Run) -> None:
        """The record is open; the script has not begun."""

    def stepped(self, step: Step) -> None:
        """An optimizer step was recorded."""

    def logged(self, step: int, name: str, value: float) -> None:
        """The script said `isobit.log(name=value)` before step number `step`."""

    def fell(self, hole: Hole) -> None:
        """An operator ran outside the arithmetic, `hole.count` more times."""

    def ended(self, manifest: Manifest) -> None:
        """The record is closed."""


class Observers:
    """Several observers as one. One that fails is named on stderr and not told any more; the run goes on."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = list(observers)

    def started(self, run: Run) -> None:
        self._tell(lambda o: o.started(run))

    def stepped(self, step: Step) -> None:
        self._tell(lambda o: o.stepped(step))

    def logged(self, step: int, name: str, value: float) -> None:
        self._tell(lambda o: o.logged(step, name, value))

    def fell(self, hole: Hole) -> None:
        self._tell(lambda o: o.fell(hole))

    def ended(self, manifest: Manifest) -> None:
        self._tell(lambda o: o.ended(manifest))

    def _tell(self, what: Callable[[Observer], None]) -> None:
        for observer in tuple(self._observers):
            try:
                what(observer)
            except Exception as error:
                self._observers.remove(observer)
                name = type(observer).__name__
                print(f"isobit: {name} failed and is left out from here on: {error}", file=sys.stderr, flush=True)
