"""Manifest, trace, ids, store: what is written can be read, whatever happened in between."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from isobit.record.bundle import is_bundle, write_bundle
from isobit.record.errors import RecordError
from isobit.record.files import write_atomic
from isobit.record.ids import new_id
from isobit.record.manifest import (
    Code,
    Environment,
    GitState,
    Hole,
    Machine,
    Replay,
    Tree,
    Verdict,
    read_manifest,
    write_manifest,
)
from isobit.record.process import Process, current_process, is_alive
from isobit.record.recorder import Recorder
from isobit.record.remarks import remarks
from isobit.record.resolve import resolve, resolve_id
from isobit.record.store import Run, Store, open_run, rewrite
from isobit.record.trace import Step, TraceWriter, open_trace, read_steps
from tests.record.manifests import manifest

SAMPLES = Path(__file__).parent / "samples"


FULL = manifest(
    status="finished", exit_code=0, seconds=1.5, steps=2, ended="2026-11-30T18:42:09+00:00",
    code=Code(
        "/w/a.py", (Tree("/w", "script", "00", 1, 9, 1, git=GitState(None, "main", True, {"origin": "git@x:y"})),),
        ("/w/src",), {"/w/b": "a.py"},
    ),
    environment=Environment({"TZ": "UTC"}, {"LR": "00"}, ("HF_TOKEN",), "01"), editable={"a": "/w"},
    machine=Machine("Linux", "EPYC", 2, 1 << 34, "CPython 3.11"), packages={"torch": "2.13.0"},
    holes=(Hole("aten.fft", "outside version 1", 3),), notes=("a note",),
    replay=Replay("20261130-184000-aaaa", "record", Verdict("differs", 1, "the loss", 1, "loss")),
)  # fmt: skip


def test_a_manifest_reads_as_it_was_written(tmp_path: Path) -> None:
    write_manifest(tmp_path, FULL)
    assert read_manifest(tmp_path) == FULL
    assert [p.name for p in tmp_path.iterdir()] == ["manifest.json"]


def test_unknown_fields_are_ignored_and_newer_schemas_refused(tmp_path: Path) -> None:
    write_manifest(tmp_path, FULL)
    data = json.loads((tmp_path / "manifest.json").read_text("utf-8"))
    data["new"] = data["settings"]["new"] = 1
    (tmp_path / "manifest.json").write_text(json.dumps(data), "utf-8")
    assert read_manifest(tmp_path) == FULL
    (tmp_path / "manifest.json").write_text(json.dumps({**data, "schema": 99}), "utf-8")
    with pytest.raises(RecordError, match=r"schema 99.*update Isobit"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema": 1, "id": "x"}'])
def test_a_damaged_manifest_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text, "utf-8")
    with pytest.raises(RecordError, match=r"manifest\.json cannot be read"):
        read_manifest(tmp_path)


def test_the_sample_of_version_1_is_still_read() -> None:
    run = open_run(SAMPLES / "v1")
    assert run.manifest.script == "mlp.py" and run.manifest.settings.threads == 1
    assert run.status == "finished"
    steps = list(read_steps(run.folder))
    assert [s.index for s in steps] == [0, 1, 2]
    assert steps[0].losses == ("f32:3f9f7fff",)
    assert steps[2].parameters == "ae9dceed1f2c526bd14c0729410058f4"
    trace = open_trace(run.folder)
    assert (trace.version, trace.step(-1), [s.index for s in trace.steps(1)]) == (1, steps[2], [1, 2])
    losses = [struct.unpack(">f", bytes.fromhex(s.losses[0][4:]))[0] for s in steps]
    assert trace.column("loss").tolist() == losses


def test_files_are_for_whom_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomic(tmp_path / "a", b"")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "x"
    write_atomic(target, b"old")

    def refuse(source: str, target: str) -> None:
        raise OSError("no")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="no"):
        write_atomic(target, b"new")
    assert target.read_bytes() == b"old" and list(tmp_path.iterdir()) == [target]


def test_ids_sort_by_time_and_differ() -> None:
    times = [1_795_000_000_000_000_000 + n * 2_000_000 for n in range(1500)]
    ids = [new_id(t) for t in times]
    assert ids == sorted(ids)
    assert len({new_id(times[0]) for _ in range(50)}) > 30
    assert new_id(times[0]).startswith("20261118-")


STEPS = [Step(i, 0, (f"f32:{i:08x}",), f"{i:032x}", i / 8) for i in range(3)]


def write_steps(folder: Path) -> None:
    writer = TraceWriter(folder)
    for step in STEPS:
        writer.step(step)
    writer.close()


def test_the_store_is_found_from_below_and_keeps_out_of_git(tmp_path: Path) -> None:
    run = Store.find(tmp_path).create(manifest)
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert Store.find(below).ids() == [run.manifest.id]
    assert (tmp_path / ".isobit" / ".gitignore").read_text() == "*\n"
    assert (run.folder.stat().st_mode & 0o777) == 0o755


def test_a_store_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / ".isobit").write_text("a file")
    with pytest.raises(RecordError, match="cannot write a record"):
        Store(tmp_path / ".isobit").create(manifest)


def test_a_taken_id_is_an_error_and_many_at_once_are_not(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.create(manifest, "one")
    with pytest.raises(RecordError, match="run id one is taken"):
        store.create(manifest, "one")
    threads = [threading.Thread(target=lambda: [store.create(manifest) for _ in range(10)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.ids()) == 41


def test_a_run_whose_process_is_gone_was_killed(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    alive = current_process()
    assert Run(tmp_path, manifest()).status == "running"
    for process in (
        dataclasses.replace(alive, pid=gone.pid),
        dataclasses.replace(alive, started=alive.started + 1),  # the number was given to a later process
        dataclasses.replace(alive, boot="another"),
    ):
        assert not is_alive(process)
        assert Run(tmp_path, manifest(process=process)).status == "killed"
        assert Run(tmp_path, manifest(process=process, status="failed")).status == "failed"
    assert is_alive(Process(1, 0, "x", "another-machine"))


def test_the_recorder_closes_its_record(tmp_path: Path) -> None:
    recorder = Recorder(Store(tmp_path).create(manifest))
    assert recorder.step(0, ("f32:00000000",), "aa" * 16) is not None
    recorder.hole("aten.fft", "outside", 1)
    recorder.note("hello")
    recorder.note("hello")
    before = open_run(recorder.run.folder)
    assert remarks(before) == ((Hole("aten.fft", "outside", 0),), ("hello",))
    recorder.hole("aten.fft", "outside", 4)
    recorder.finish("finished", 0, None)
    run = open_run(recorder.run.folder)
    assert (run.status, run.manifest.steps, run.manifest.exit_code) == ("finished", 1, 0)
    assert remarks(run) == ((Hole("aten.fft", "outside", 5),), ("hello",))
    assert recorder.step(0, (), "bb" * 16) is None


def test_a_forked_child_writes_nothing(tmp_path: Path) -> None:
    recorder = Recorder(Store(tmp_path).create(manifest))
    child = os.fork()
    if child == 0:
        recorder.step(0, (), "cc" * 16)
        recorder.note("child")
        recorder.finish("failed", 1, "child")
        os._exit(0)
    os.waitpid(child, 0)
    recorder.step(0, (), "aa" * 16)
    assert [s.parameters for s in read_steps(recorder.run.folder)] == ["aa" * 16]
    assert open_run(recorder.run.folder).status == "running"


IDS = ["20261129-100000-aaaa", "20261130-100000-bbbb", "20261130-100000-cccc"]


def test_names_of_runs(tmp_path: Path) -> None:
    cases = {
        "latest": 2, "latest~0": 2, "latest~2": 0, IDS[1]: 1, "20261129": 0, "20261130-100000-b": 1, "cccc": 2,
    }  # fmt: skip
    assert {name: resolve_id(IDS, name, tmp_path) for name in cases} == {n: IDS[i] for n, i in cases.items()}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("20261130", "'20261130' means 2 runs:\n  20261130-100000-cccc\n  20261130-100000-bbbb"),
        ("nope", "no run 'nope' in .*; the latest are\n  20261130-100000-cccc"),
        ("", "no run ''"),
        ("latest~3", "there are 3 runs"),
    ],
)
def test_names_that_mean_no_run_or_several(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(RecordError, match=message):
        resolve_id(IDS, name, tmp_path)


def test_no_runs_at_all(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no runs in"):
        resolve(Store(tmp_path), "latest")


def test_a_bundle_holds_the_run(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    run = store.create(manifest)
    write_steps(run.folder)
    (run.code / "ü").mkdir(parents=True)  # as schema 1 had it
    (run.code / "ü" / "a b.py").write_bytes(b"x")
    run = rewrite(run, process=dataclasses.replace(current_process(), boot="before"))
    target = tmp_path / "a run.iso"
    write_bundle(run, target)
    assert is_bundle(target) and sorted(p.name for p in tmp_path.iterdir()) == ["a run.iso", "store"]
    read = resolve(Store(tmp_path / "elsewhere"), str(target))
    assert read.status == read.manifest.status == "killed"  # settled when it was bundled
    assert list(read_steps(read.folder)) == STEPS
    assert (read.code / "ü" / "a b.py").read_bytes() == b"x"
    assert resolve(store, str(run.folder)).manifest == run.manifest


def test_a_damaged_bundle_is_an_error_wherever_the_damage_is(tmp_path: Path) -> None:
    write_bundle(Store(tmp_path).create(manifest), tmp_path / "a.iso")
    whole = (tmp_path / "a.iso").read_bytes()
    for place in range(0, len(whole), 3):
        (tmp_path / "b.iso").write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        with contextlib.suppress(RecordError):  # a byte that nothing depends on may change
            resolve(Store(tmp_path), str(tmp_path / "b.iso"))


def test_what_is_no_bundle(tmp_path: Path) -> None:
    other = tmp_path / "x.iso"
    other.write_bytes(b"PK nothing")
    with pytest.raises(RecordError, match="neither a run nor a bundle"):
        resolve(Store(tmp_path), str(other))
    with pytest.raises(RecordError, match="cannot write"):
        write_bundle(Store(tmp_path).create(manifest), tmp_path / "missing" / "x.iso")
