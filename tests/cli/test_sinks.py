"""MLflow on SQLite and TensorBoard's event files, as these packages read them back."""

from __future__ import annotations

import json
import math
import os
import socket
import struct
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from isobit.cli.sinks import observer
from isobit.cli.sinks.feed import points_of_step
from isobit.cli.sinks.observer import Sink, check_sinks
from isobit.record.errors import RecordError
from isobit.record.manifest import Hole
from isobit.record.process import Process, current_process
from isobit.record.store import Run, Store, rewrite
from isobit.record.trace import Step
from tests.record.manifests import manifest

needs_mlflow = pytest.mark.skipif(find_spec("mlflow") is None or find_spec("alembic") is None, reason="no MLflow")
needs_tensorboard = pytest.mark.skipif(find_spec("tensorboard") is None, reason="no TensorBoard")

LOSSES = (1.5, -2.0, math.inf, 0.25)


def begin(folder: Path, run_id: str = "a", **fields: object) -> Run:
    """A run that is under way in this process."""
    store = Store(folder / ".isobit")
    return store.create(lambda i: manifest(i, args=("--lr", "0.1", "data|x"), **fields), run_id)


def train(sink: Sink) -> None:
    """Four steps, two values of the script's own."""
    for i, loss in enumerate(LOSSES):
        sink.stepped(Step(i, 0, (f"f32:{struct.pack('>f', loss).hex()}",), "0" * 32, i / 10))
        if i % 2:
            sink.logged(i, "accuracy/top-1 %", i / 4)


def finish(run: Run, status: str = "finished", **fields: object) -> Run:
    hole = Hole("aten::fft", "outside", 2)
    return rewrite(run, status=status, ended="2026-11-30T18:43:00.000+00:00", exit_code=0, holes=(hole,), **fields)


READ = """\
import json, sys
from mlflow.tracking import MlflowClient
client = MlflowClient(sys.argv[1])
found = {}
for run in client.search_runs(["0"]):
    i = run.info.run_id
    metrics = {name: [(m.step, repr(m.value)) for m in client.get_metric_history(i, name)] for name in run.data.metrics}
    files = [f.path for f in client.list_artifacts(i)]
    text = open(client.download_artifacts(i, files[0])).read()
    found[run.info.run_name] = [run.info.status, run.data.params, run.data.tags, metrics, files, text]
print(json.dumps(found))
"""


def mlflow_runs(uri: str) -> dict[str, Any]:
    """All runs that MLflow knows, by name."""
    command = [sys.executable, "-W", "ignore", "-c", READ, uri]
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"}
    found: dict[str, Any] = json.loads(
        subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout
    )
    return found


@needs_mlflow
def test_mlflow_on_sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(observer, "FLUSH_SECONDS", 120.0)
    uri = f"sqlite:///{tmp_path / 'm.db'}"
    run, sink = begin(tmp_path), Sink("mlflow", uri)
    sink.started(run)
    train(sink)
    run = finish(run)
    sink.ended(run.manifest)
    # one that dies: its process is gone, and it has said no end
    gone = Process(2**22 + 1, 1, "", current_process().host)
    dead, other = begin(tmp_path, "b", process=gone), Sink("mlflow", uri)
    other.started(dead)
    train(other)
    assert other._watcher.close(120)
    assert capfd.readouterr() == ("", "")

    found = mlflow_runs(uri)
    status, params, tags, metrics, files, text = found["a"]
    assert (status, files, json.loads(text)["status"]) == ("FINISHED", ["manifest.json"], "finished")
    assert params == {
        "lr": "0.1", "arg1": "data|x", "isobit.seed": "7", "isobit.mode": "plain", "isobit.strict": "False",
        "isobit.arithmetic": "1", "isobit.threads": "1",
    }  # fmt: skip
    assert (tags["isobit.run"], tags["isobit.status"], tags["isobit.holes"]) == ("a", "finished", "aten::fft")
    assert tags["isobit.command"] == "isobit run 'é x.py'"
    top = sys.float_info.max  # what MLflow makes of infinity in a database
    assert [(s, float(v)) for s, v in metrics["loss"]] == [(0, 1.5), (1, -2.0), (2, pytest.approx(top)), (3, 0.25)]
    assert metrics["accuracy/top-1 _"] == [[1, "0.25"], [3, "0.75"]]
    assert found["b"][0] == "KILLED" and found["b"][2]["isobit.status"] == "killed" and len(found["b"][3]["loss"]) == 4


@needs_tensorboard
@pytest.mark.parametrize("status", ["finished", "killed"])
def test_tensorboard_files(tmp_path: Path, capfd: pytest.CaptureFixture[str], status: str) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    dead = {} if status == "finished" else {"process": Process(2**22 + 1, 1, "", current_process().host)}
    run, sink = begin(tmp_path, **dead), Sink("tensorboard", str(tmp_path / "events"))
    sink.started(run)
    train(sink)
    if status == "finished":
        sink.ended(finish(run).manifest)
    else:
        assert sink._watcher.close(60)
    assert capfd.readouterr() == ("", "")

    read = EventAccumulator(str(tmp_path / "events" / "a"))
    read.Reload()
    assert [(e.step, e.value) for e in read.Scalars("loss")] == list(enumerate(LOSSES))
    assert [(e.step, e.value) for e in read.Scalars("accuracy/top-1 %")] == [(1, 0.25), (3, 0.75)]
    assert abs(read.Scalars("loss")[0].wall_time - time.time()) < 600
    began, ended = (read.Tensors(f"isobit/{name}")[0].tensor_proto.string_val[0].decode() for name in ("run", "end"))
    assert "| isobit.run | a |" in began and "| lr | 0.1 |" in began and r"| arg1 | data\|x |" in began
    assert f"| isobit.status | {status} |" in ended
    assert json.loads((tmp_path / "events" / "a" / "manifest.json").read_text())["id"] == "a"


@needs_mlflow
def test_a_server_that_does_not_answer_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(observer, "FLUSH_SECONDS", 0.5)
    monkeypatch.setattr(observer, "_GRACE", 60.0)
    with socket.create_server(("127.0.0.1", 0)) as server:  # takes connections and says nothing
        run, sink = begin(tmp_path), Sink("mlflow", f"http://127.0.0.1:{server.getsockname()[1]}")
        sink.started(run)
        start = time.perf_counter()
        for i in range(5000):
            sink.stepped(Step(i, 0, ("f32:3f800000",), "0" * 32, i / 10))
        assert time.perf_counter() - start < 5
        sink.ended(finish(run).manifest)
    assert "isobit: mlflow: 5000 values and the end of the run were not written" in capfd.readouterr().err


def test_a_missing_package_or_folder_is_told_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(observer, "find_spec", lambda name: object())
    check_sinks("sqlite:///x", tmp_path / "new" / "folder")
    assert (tmp_path / "new" / "folder").is_dir()
    with pytest.raises(RecordError, match="cannot make"):
        check_sinks(None, tmp_path / "file" / "x")
    monkeypatch.setattr(observer, "find_spec", lambda name: None)
    for mlflow, folder, says in (
        ("http://x", None, r"--mlflow needs mlflow: pip install 'isobit\[mlflow\]'"),
        ("sqlite:///x", None, "needs mlflow and sqlalchemy and alembic"),
        (None, tmp_path, r"--tensorboard needs tensorboard: pip install 'isobit\[tensorboard\]'"),
    ):
        with pytest.raises(RecordError, match=says):
            check_sinks(mlflow, folder)


def test_names_of_losses() -> None:
    points = [
        *points_of_step(3, 0, ["f32:3f800000", "xxh3:00", "f64:3ff0000000000000"], 9.0),
        *points_of_step(4, 2, ["f32:40000000"], 9.5),
    ]
    assert [(p.name, p.step, p.value, p.seconds) for p in points] == [
        ("loss", 3, 1.0, 9.0), ("loss.2", 3, 1.0, 9.0), ("optimizer2.loss", 4, 2.0, 9.5),
    ]  # fmt: skip
