"""Runs go when they are told to, contents when no run refers to them; what a run under way uses stays. Ids keep order."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from isobit.record import gc, store
from isobit.record.code_files import code_files
from isobit.record.errors import RecordError
from isobit.record.gc import GRACE, collect, delete
from isobit.record.ids import later_id, new_id
from isobit.record.objects import Objects
from isobit.record.packages import packages
from isobit.record.store import Run, Store, rewrite
from tests.record.manifests import manifest
from tests.record.projects import recorded, write

LONG_AGO = time.time() - 3 * GRACE


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    """Three ended runs: two of one script, one of another."""
    made = []
    for text in ("one", "one", "two"):
        write(tmp_path, {"p/train.py": text})
        made.append(rewrite(recorded(tmp_path / "s", tmp_path / "p/train.py"), status="finished"))
    age(tmp_path)
    return made


def age(tmp_path: Path) -> None:
    for path in (tmp_path / "s/objects").rglob("*"):
        os.utime(path, (LONG_AGO, LONG_AGO))


def objects(tmp_path: Path) -> int:
    return sum(path.is_file() for path in (tmp_path / "s/objects").rglob("*"))


def test_what_a_run_refers_to_stays(tmp_path: Path, runs: list[Run]) -> None:
    home = Store(tmp_path / "s")
    assert objects(tmp_path) == 4 and collect(home).objects == 0
    would = collect(home, [runs[0].manifest.id, runs[2].manifest.id], dry_run=True)
    assert len(home.ids()) == 3 and objects(tmp_path) == 4
    freed = collect(home, [runs[0].manifest.id, runs[2].manifest.id])
    assert freed == would and freed.objects == 2 and freed.bytes > 0
    assert home.ids() == [runs[1].manifest.id] and objects(tmp_path) == 2
    assert code_files(runs[1])["train.py"].read() == b"one"
    assert not list((tmp_path / "s/runs").glob(".*"))


def test_what_is_fresh_stays_and_what_is_used_again_is_fresh(tmp_path: Path, runs: list[Run]) -> None:
    home = Store(tmp_path / "s")
    ids = [run.manifest.id for run in runs]
    Objects(tmp_path / "s/objects").put(b"two")  # a run that starts now will refer to it
    assert collect(home, ids).objects == 3
    assert [path.read_bytes() for path in (tmp_path / "s/objects").rglob("*") if path.is_file()] == [b"two"]


def test_an_object_that_is_used_while_it_goes_stays(
    tmp_path: Path, runs: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, before = Store(tmp_path / "s"), os.rename
    held = runs[2].objects.path(code_files(runs[2])["train.py"].digest)

    def rename(source: Path, target: Path) -> None:
        if source == held:
            os.utime(source)  # another process puts the same contents
        before(source, target)

    monkeypatch.setattr(gc.os, "rename", rename)
    collect(home, [runs[2].manifest.id])
    assert held.read_bytes() == b"two"


def test_a_run_under_way_is_not_deleted_and_keeps_its_modules(tmp_path: Path) -> None:
    write(tmp_path, {"p/train.py": "x"})
    run = recorded(tmp_path / "s", tmp_path / "p/train.py")  # says "running", and this process is
    age(tmp_path)
    with pytest.raises(RecordError, match="is under way"):
        delete(run)
    assert collect(Store(tmp_path / "s")).objects == 0


def test_nothing_goes_where_a_run_cannot_be_read(tmp_path: Path, runs: list[Run]) -> None:
    (runs[0].folder / "manifest.json").write_text("{")
    with pytest.raises(RecordError, match="nothing is deleted, since what"):
        collect(Store(tmp_path / "s"), [runs[2].manifest.id])
    assert objects(tmp_path) == 4 and runs[2].folder.exists()


def test_what_killed_processes_left_goes_after_a_while(tmp_path: Path, runs: list[Run]) -> None:
    left = [tmp_path / "s/objects/ab/.x.12345678", tmp_path / "s/runs/.gone-x", tmp_path / "s/runs/.draft"]
    under_way = recorded(tmp_path / "s", tmp_path / "p/train.py")
    half = [".manifest.json.12345678", "trace/.header.json.12345678", "checkpoints/.1234"]
    left += [tmp_path / "s/cache/.packages.json.12345678", *(runs[0].folder / name for name in half)]
    write(tmp_path, {str(path.relative_to(tmp_path)) + "/f" * (n in (1, 2)): "" for n, path in enumerate(left)})
    fresh = write(tmp_path / "s/runs/.fresh", {"f": ""})
    for path in left:
        os.utime(path, (LONG_AGO, LONG_AGO))
    reserves = write(runs[1].folder, {"reserve": ""}) / "reserve", write(under_way.folder, {"reserve": ""}) / "reserve"
    collect(Store(tmp_path / "s"))
    assert not any(path.exists() for path in left) and fresh.exists()
    assert [path.exists() for path in reserves] == [False, True]


def test_two_at_once_share_objects(tmp_path: Path) -> None:
    data = [bytes([n]) * 5000 for n in range(40)]
    errors: list[BaseException] = []

    def put() -> None:
        try:
            held = Objects(tmp_path / "o")
            assert [held.read(held.put(one)) for one in data] == data
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=put) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [] and sum(path.is_file() for path in (tmp_path / "o").rglob("*")) == 40


def test_ids_keep_the_order_of_starts_when_the_clock_is_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, now = Store(tmp_path), 1_795_000_000_000_000_000
    made = []
    for back in (0, 0, 5, 3_600, 0, 86_400):
        monkeypatch.setattr(store.time, "time_ns", lambda back=back: now - back * 1_000_000_000)
        made.append(home.create(manifest).manifest.id)
    assert made == sorted(set(made)) == home.ids()
    assert later_id(now + 10**12, home.ids()) > made[-1]
    for tick in range(1024):  # every fraction of a second is read as it was written
        one = new_id(now + tick * 976_563)
        assert later_id(0, ["not an id", one])[:18] > one[:18]


def test_packages_are_read_once(tmp_path: Path) -> None:
    write(tmp_path, {
        "lib/a-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: A_b\nVersion: 1.0\n\nName: no\n", "lib/a-1.dist-info/RECORD": "a.py,,\n",
        "lib/e.dist-info/METADATA": "Name: edit\nVersion: 2\n", "lib/e.dist-info/direct_url.json": '{"url": "file:///w/my%20p", "dir_info": {"editable": true}}',
        "lib/half.dist-info/RECORD": "", "dev/dev.egg-info/PKG-INFO": "Name: dev\nVersion: 3\n", "two/a.dist-info/METADATA": "Name: A_b\nVersion: 9\n",
    })  # fmt: skip
    path = [str(tmp_path / name) for name in ("lib", "dev", "two", "none")]
    found = packages(tmp_path / "s", path)
    assert [(p.name, p.version, p.editable) for p in found] == [
        ("A_b", "1.0", None), ("dev", "3", str(tmp_path / "dev")), ("edit", "2", "/w/my p"),
    ]  # fmt: skip
    assert len(found[0].digest) == 64 and packages(tmp_path / "s", path) == found
    write(tmp_path, {"lib/a-1.dist-info/RECORD": "a.py,,1\n"})
    again = packages(tmp_path / "s", path)
    assert again[0].digest != found[0].digest and again[1:] == found[1:]


def test_a_run_that_cannot_be_read_can_be_deleted_by_its_id(tmp_path: Path, runs: list[Run]) -> None:
    home = Store(tmp_path / "s")
    (runs[0].folder / "manifest.json").write_text("{")
    with pytest.raises(RecordError, match=f"isobit rm {runs[0].manifest.id}"):
        collect(home)
    with pytest.raises(RecordError, match="no run"):
        gc.delete_unreadable(home, runs[0].manifest.id[:-1])
    assert gc.delete_unreadable(home, runs[0].manifest.id) > 0
    assert home.ids() == [run.manifest.id for run in runs[1:]] and collect(home).runs == ()
