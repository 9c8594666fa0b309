"""The script's end of a sink: tells the process that writes to another tracker what happens."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from isobit.cli.watcher import Watcher
from isobit.record.errors import RecordError
from isobit.record.manifest import Hole, Manifest
from isobit.record.rows import Step
from isobit.record.store import Run

FLUSH_SECONDS = 30.0  # that the end of a run waits for a slow server
_GRACE = 5.0  # more than the other process allows itself: it says what was not sent
_DATABASES = ("sqlite", "mysql", "postgresql", "mssql")
_QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false"}


def check_sinks(mlflow: str | None, tensorboard: Path | None) -> None:
    """Raises RecordError, before anything runs, if a package or the folder for what was asked is missing."""
    if mlflow is not None:
        database = mlflow.partition(":")[0].partition("+")[0] in _DATABASES
        _need("mlflow", ("mlflow", *(("sqlalchemy", "alembic") if database else ())))
    if tensorboard is not None:
        _need("tensorboard", ("tensorboard",))
        try:
            tensorboard.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RecordError(f"--tensorboard: cannot make {tensorboard}: {error.strerror}") from error


def _need(extra: str, packages: tuple[str, ...]) -> None:
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise RecordError(f"--{extra} needs {' and '.join(missing)}: pip install 'isobit[{extra}]'")


class Sink:
    """An observer that passes all on to ``isobit.cli.sinks.<name>``; the script never waits for that process."""

    def __init__(self, name: str, target: str) -> None:
        self._name = name
        self._target = target

    def started(self, run: Run) -> None:
        """Start the process."""
        argument = {"target": self._target, "folder": str(run.folder), "seconds": FLUSH_SECONDS}
        self._watcher = Watcher(f"isobit.cli.sinks.{self._name}", argument, env=_defaults(os.environ))

    def stepped(self, step: Step) -> None:
        """Pass the losses on."""
        self._tell(kind="step", step=step.index, optimizer=step.optimizer, losses=step.losses)

    def logged(self, step: int, name: str, value: float) -> None:
        """Pass the value on."""
        self._tell(kind="value", step=step, name=name, value=float(value))

    def fell(self, hole: Hole) -> None:
        """The manifest has the holes in the end."""

    def ended(self, manifest: Manifest) -> None:
        """Wait for what was said to be written, for a while."""
        self._tell(kind="end")
        if not self._watcher.close(FLUSH_SECONDS + _GRACE):
            print(f"isobit: {self._name} has not taken all yet; its process goes on trying", file=sys.stderr)

    def _tell(self, **event: Any) -> None:
        self._watcher.tell({**event, "time": time.time()})


def _defaults(environment: Mapping[str, str]) -> dict[str, str]:
    """What MLflow reads, where the user has not said otherwise."""
    return {name: environment.get(name, value) for name, value in _QUIET.items()}
