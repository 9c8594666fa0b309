"""MLflow: a run in the experiment that MLFLOW_EXPERIMENT_NAME names, "Default" where it names none."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping

from mlflow.entities import Metric, Param, RunTag
from mlflow.tracking import MlflowClient

from isobit.cli.sinks.facts import ending, parameters, tags, used
from isobit.cli.sinks.feed import Point, feed, final_status
from isobit.record.manifest import FAILED, FINISHED, NAME, STOPPED
from isobit.record.store import Run

_STATUS = {FINISHED: "FINISHED", STOPPED: "FINISHED", FAILED: "FAILED"}
_ODD = re.compile(r"[^\w\-. :/]", re.ASCII)  # what a name in MLflow may not hold
_LONGEST_NAME, _LONGEST_PARAM, _LONGEST_TAG = 250, 6000, 5000
_PARAMS = 100  # as many as it takes at a time


def main() -> None:
    """Serve one run."""
    for name in ("mlflow", "alembic"):  # a new database is no news to whoever trains
        logging.getLogger(name).setLevel(logging.WARNING)
    feed("mlflow", MLflow)


class MLflow:
    """Writes to a tracking server, a database or a folder, whichever the URI means."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._id: str | None = None

    def open(self, run: Run) -> None:
        """Create the run there, once, with its parameters and tags."""
        if self._id is None:
            self._client = MlflowClient(tracking_uri=self._uri)
            logging.getLogger("alembic").setLevel(logging.WARNING)  # which has set it otherwise
            names = {"mlflow.source.name": run.manifest.script, "mlflow.source.type": "LOCAL"}
            code = run.manifest.code
            if code is not None and code.git is not None and code.git.commit is not None:
                names["mlflow.source.git.commit"] = code.git.commit
            made = self._client.create_run(
                self._experiment(), run_name=run.manifest.id, tags=_tags({**tags(run.manifest), **names})
            )
            self._id = made.info.run_id
        self._params(parameters(run.manifest))

    def send(self, points: list[Point]) -> None:
        """Write metrics; the same ones twice are one."""
        metrics = [Metric(_name(p.name), p.value, int(p.seconds * 1000), p.step) for p in points]
        self._client.log_batch(self._id, metrics=metrics)

    def close(self, run: Run) -> None:
        """Write how it ended, and its manifest as an artifact."""
        status = final_status(run)
        self._params(used(run.manifest))
        found = [RunTag(name, value) for name, value in _tags(ending(run.manifest, status)).items()]
        self._client.log_batch(self._id, tags=found)
        self._client.log_artifact(self._id, str(run.folder / NAME))
        self._client.set_terminated(self._id, _STATUS.get(status, "KILLED"))

    def _experiment(self) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "Default")
        found = self._client.get_experiment_by_name(name)
        return str(found.experiment_id if found else self._client.create_experiment(name))

    def _params(self, values: Mapping[str, str]) -> None:
        params = [Param(_name(name), value[:_LONGEST_PARAM]) for name, value in values.items()]
        for start in range(0, len(params), _PARAMS):
            self._client.log_batch(self._id, params=params[start : start + _PARAMS])


def _name(name: str) -> str:
    """A name that MLflow takes."""
    return _ODD.sub("_", name)[:_LONGEST_NAME] or "_"


def _tags(values: Mapping[str, str]) -> dict[str, str]:
    return {name: value[:_LONGEST_TAG] for name, value in values.items()}
