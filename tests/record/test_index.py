"""The index of a store: what it saves, and that it is never more than a cache."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
from pathlib import Path

import pytest

from isobit.record import index
from isobit.record.files import write_atomic
from isobit.record.index import NAME, entries, last_step
from isobit.record.losses import loss_value
from isobit.record.manifest import Replay, Verdict, read_manifest, write_manifest
from isobit.record.peek import last_step as last_of
from isobit.record.process import Process
from isobit.record.store import Run, Store
from isobit.record.trace import Step, TraceWriter
from tests.record.manifests import manifest

ENDED = {"status": "finished", "ended": "2026-11-30T18:43:00.000+00:00", "seconds": 1.5, "steps": 3, "exit_code": 0}


def make(store: Store, run_id: str, count: int = 3, loss: str = "", **fields: object) -> Run:
    """A run with a trace, ended unless `fields` say otherwise."""
    run = store.create(lambda i: manifest(i, **{**ENDED, "steps": count, **fields}), run_id)
    trace = TraceWriter(run.folder)
    for i in range(count):
        trace.step(Step(i, 0, (loss or f"f32:3f80000{i}",), "0" * 32, i / 10))
    trace.note("the last line is no step")
    trace.close()
    return run


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / ".isobit")
    make(store, "a", replay=Replay("z", "record", Verdict("identical", 3, "3 steps")))
    make(store, "b", args=("--lr", "\udcff"))
    return store


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders whose manifest is read from here on."""
    read: list[Path] = []
    monkeypatch.setattr(index, "read_manifest", lambda folder: (read.append(folder), read_manifest(folder))[1])
    return read


def test_only_changed_manifests_are_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    first = entries(store)
    assert [(e.id, e.status, e.steps, e.loss, e.verdict, e.args) for e in first] == [
        ("a", "finished", 3, "f32:3f800002", "identical", ["--a", ""]),
        ("b", "finished", 3, "f32:3f800002", None, ["--lr", "\udcff"]),
    ]
    read = count_reads(monkeypatch)
    assert entries(store) == first and read == []
    write_manifest(store.runs / "b", dataclasses.replace(read_manifest(store.runs / "b"), status="failed"))
    make(store, "c")
    assert [e.status for e in entries(store)] == ["finished", "failed", "finished"]
    assert sorted(folder.name for folder in read) == ["b", "c"]


def test_a_run_that_is_gone_leaves_the_index(store: Store) -> None:
    entries(store)
    os.rename(store.runs / "a", store.runs / ".a")
    assert [e.id for e in entries(store)] == ["b"]
    assert '"a":' not in (store.home / NAME).read_text()


@pytest.mark.parametrize("damage", ["gone", "half", "a byte", "another version"])
def test_a_damaged_index_is_built_anew(store: Store, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    first, path = entries(store), store.home / NAME
    data = path.read_bytes()
    match damage:
        case "gone":
            path.unlink()
        case "half":
            path.write_bytes(data[: len(data) // 2])
        case "a byte":
            path.write_bytes(data.replace(b"finished", b"finishes", 1))
        case _:
            path.write_bytes(data.replace(b"isobit index 2", b"isobit index 1"))
    read = count_reads(monkeypatch)
    assert entries(store) == first and len(read) == 2
    assert path.read_bytes() == data


def test_a_store_that_cannot_be_written_is_listed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, data: bytes) -> None:
        raise PermissionError

    monkeypatch.setattr(index, "write_atomic", refuse)
    assert len(entries(store)) == 2 and not (store.home / NAME).exists()
    monkeypatch.setattr(index, "write_atomic", write_atomic)
    entries(store)
    assert (store.home / NAME).exists()


def test_what_has_not_ended_is_looked_at_each_time(store: Store) -> None:
    open_ = {"status": "running", "ended": None, "steps": None, "seconds": None}
    run = store.create(lambda i: manifest(i, **{**ENDED, **open_}), "c")
    make(store, "d", **open_, process=Process(2**22 + 1, 1, "", run.manifest.process.host))
    trace = TraceWriter(run.folder)
    trace.step(Step(0, 0, ("f32:3f800000",), "0" * 32, 0.1))
    assert [(e.status, e.steps, e.seconds) for e in entries(store)[2:]] == [("running", 1, 0.1), ("killed", 3, 0.2)]
    trace.step(Step(1, 0, (), "0" * 32, 0.3))
    trace.close()
    assert [(e.steps, e.loss) for e in entries(store)[2:]] == [(2, None), (3, "f32:3f800002")]


def test_the_trace_of_a_killed_run_is_read_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {"status": "running", "ended": None, "steps": None, "seconds": None}
    made = make(store, "c", **fields, process=Process(2**22 + 1, 1, "", platform.node()))
    first = entries(store)
    assert (first[2].status, first[2].steps, first[2].seconds) == ("killed", 3, 0.2)
    reads: list[Path] = []
    monkeypatch.setattr(index, "last_of", lambda folder: (reads.append(folder), last_of(folder))[1])
    before = (store.home / NAME).stat().st_ino
    assert entries(store) == first and reads == [] and (store.home / NAME).stat().st_ino == before
    steps = made.folder / "trace" / "steps"
    steps.write_bytes(steps.read_bytes()[:-1])  # what was taken for its end was none
    assert [(e.status, e.steps) for e in entries(store)[2:]] == [("killed", 2)] and reads == [made.folder]


def test_a_run_that_goes_on_does_not_rewrite_the_index(store: Store) -> None:
    run = store.create(lambda i: manifest(i, status="running", ended=None), "c")
    trace = TraceWriter(run.folder)
    entries(store)
    before = (store.home / NAME).stat().st_ino
    trace.step(Step(0, 0, (), "0" * 32, 0.1))
    trace.close()
    assert [(e.status, e.steps) for e in entries(store)[2:]] == [("running", 1)]
    assert (store.home / NAME).stat().st_ino == before


@pytest.mark.parametrize(
    ("field", "value"),
    [("args", "x"), ("settings", []), ("steps", "9"), ("holes", [1]), ("packages", {"a": 1}), ("seconds", True)],
)
def test_a_field_of_another_type_is_unreadable(store: Store, field: str, value: object) -> None:
    path = store.runs / "a" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    found = entries(store)
    assert found[0].status == "unreadable" and "cannot be read" in str(found[0].error) and found[1].status == "finished"
    (store.runs / "a" / "manifest.json").unlink()
    assert "manifest.json is missing" in str(entries(store)[0].error)


def test_a_damaged_trace_has_no_last_step(store: Store) -> None:
    assert last_step(store.runs / "a") == (2, "f32:3f800002", 0.2)
    (store.runs / "a" / "trace" / "header.json").write_text("{")
    assert last_step(store.runs / "a") is None and last_step(store.runs / "none") is None


def test_losses_as_numbers() -> None:
    bits = ("f32:3f800000", "f64:3ff8000000000000", "f16:3c00", "bf16:3f80", "xxh3:00", "f32:zz", "f32:3f", "")
    assert [loss_value(b) for b in bits] == [1.0, 1.5, 1.0, 1.0, None, None, None, None]
