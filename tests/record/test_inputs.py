"""What a run has read: which openings count, what is hashed and when, and how two lists compare."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from blake3 import blake3

import isobit
from isobit.record import opened as opened_module
from isobit.record.declare import data, tell_declared
from isobit.record.hashes import Digests, FileChangedError, FileState, hash_file
from isobit.record.hashing import Budget, Hashing
from isobit.record.inputs import (
    CHILD,
    CONTENTS,
    MISSING,
    SIZE,
    UNCHECKED,
    Input,
    Inputs,
    changed_inputs,
    compare_inputs,
    inputs_of,
    read_inputs,
    write_inputs,
)
from isobit.record.opened import NAME, OpenedFiles, OpenedLog, Watch, begin_watch
from isobit.record.store import Run, Store
from tests.record.manifests import manifest

READ = os.O_RDONLY | os.O_CLOEXEC
UPDATE = os.O_RDWR | os.O_CLOEXEC
WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
LONG_AGO = 1_000_000_000_000_000_000


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Store(tmp_path / ".isobit").create(lambda run_id: manifest(run_id))


@pytest.fixture
def opened(run: Run) -> OpenedFiles:
    return OpenedFiles(begin_watch(run.folder, (str(run.folder.parents[1]),)))


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file is small enough to be hashed at once."""
    monkeypatch.setattr(opened_module, "SMALL", -1)


def old(path: Path, text: bytes = b"text") -> str:
    """A file that was written long before the run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)
    os.utime(path, ns=(LONG_AGO, LONG_AGO))
    return str(path)


def log(run: Run) -> list[opened_module.Opened]:
    return list(OpenedLog(run.folder / NAME).new())


def names(run: Run) -> list[str]:
    return [os.path.basename(line.path) for line in log(run)]


def hashing(run: Run, **budget: object) -> Hashing:
    return Hashing(run.folder / NAME, run.folder.parents[1], Budget(**budget))  # type: ignore[arg-type]


def finished(run: Run, **budget: object) -> Inputs:
    done = hashing(run, **budget)
    done.finish()
    return inputs_of(done.files.values(), done.unlisted)


def test_reading_is_noted_once_and_in_order(opened: OpenedFiles, run: Run, tmp_path: Path) -> None:
    b, a = old(tmp_path / "b"), old(tmp_path / "a")
    for path in (b, a, b, os.fsencode(a), f"{tmp_path}/x/../a"):
        opened("open", (path, "r", READ))
    opened("open", (old(tmp_path / "c"), "r+", UPDATE))
    opened("open", (3, "r", READ))
    state = FileState.of(os.stat(b))
    assert (names(run), log(run)[0].state, log(run)[0].made) == (["b", "a", "c"], state, False)
    assert opened.failed is None


def test_relative_paths_are_those_of_the_folder_at_that_time(
    opened: OpenedFiles, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("one", "two"):
        old(tmp_path / place / "x")
        monkeypatch.chdir(tmp_path / place)
        opened("open", ("x", "r", READ))
    assert [line.path for line in log(run)] == [f"{tmp_path}/one/x", f"{tmp_path}/two/x"]


def test_what_is_no_file_is_not_noted(opened: OpenedFiles, run: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path, tmp_path / "absent", "/dev/null", "/proc/self/stat", "a\0b"):
        opened("open", (str(path), "r", READ))
    assert (names(run), opened.failed) == ([], None)
    opened("open", (old(tmp_path / "absent"), "r", READ))  # it is there now
    assert names(run) == ["absent"]


def test_code_is_no_data_but_data_beside_it_is(opened: OpenedFiles, run: Run, tmp_path: Path) -> None:
    installed = tmp_path / "lib" / "site-packages"
    code = [
        installed / "p" / "a.py",
        installed / "p" / "b.so",
        installed / "p-1.dist-info" / "METADATA",
        tmp_path / "x.pyc",
    ]
    for path in code:
        opened("open", (old(path), "r", READ))
    opened("open", (old(tmp_path / "module.py"), "rb", 0))  # as the import system opens it
    opened("open", (os.path.join(sysconfig.get_path("stdlib"), "LICENSE.txt"), "r", READ))
    opened("open", (__file__, "r", READ))  # a loaded module, read again for its source
    opened("open", (str(run.folder / "manifest.json"), "r", READ))
    assert names(run) == []
    opened("open", (old(installed / "p" / "digits.csv.gz"), "r", READ))
    opened("open", (old(tmp_path / "config.py"), "r", READ))
    opened("open", (old(tmp_path / "packed.txt"), "rb", 0))  # pkgutil.get_data
    assert names(run) == ["digits.csv.gz", "config.py", "packed.txt"]


def test_what_the_run_wrote_is_no_input(opened: OpenedFiles, run: Run, tmp_path: Path) -> None:
    for name in ("plain", "draft"):
        opened("open", (str(tmp_path / name), "w", WRITE))
        old(tmp_path / name)
    os.rename(tmp_path / "draft", tmp_path / "final")
    opened("os.rename", (str(tmp_path / "draft"), str(tmp_path / "final"), -1, -1))
    (tmp_path / "below_python").write_bytes(b"")  # as torch.save writes
    while (tmp_path / "below_python").stat().st_mtime_ns <= opened.watch.began:  # the clock of files has large ticks
        (tmp_path / "below_python").write_bytes(b"")
    for name in ("plain", "final", "below_python"):
        opened("open", (str(tmp_path / name), "r", READ))
    assert [line.made for line in log(run)] == [True, True, True]
    inputs = finished(run)
    assert (inputs.read, inputs.summary().files, inputs.summary().made) == ([], 0, 3)


def test_odd_names_are_kept(opened: OpenedFiles, run: Run, tmp_path: Path) -> None:
    raw = os.fsencode(tmp_path) + b"/\xff\xfe"
    paths = [old(tmp_path / name) for name in ("ünï", "a b\n", "'\"\\")] + [old(Path(os.fsdecode(raw)))]
    for path in paths:
        opened("open", (path, "r", READ))
    inputs = finished(run)
    write_inputs(run.folder, inputs)
    assert list(read_inputs(run).files) == paths
    assert all(file.digest == blake3(b"text").hexdigest() for file in inputs.read)
    again = finished(run)  # from the memory, which takes such names as well
    assert again == inputs


def test_databases_are_noted(opened: OpenedFiles, run: Run, tmp_path: Path) -> None:
    path = old(tmp_path / "my data.db")
    opened("sqlite3.connect", (":memory:",))
    opened("sqlite3.connect", (f"file:{tmp_path}/my%20data.db?mode=ro",))
    assert [line.path for line in log(run)] == [path]


def test_children_append_to_the_same_log(opened: OpenedFiles, run: Run, tmp_path: Path) -> None:
    paths = [old(tmp_path / str(n)) for n in range(400)]
    opened("open", (paths[0], "r", READ))
    children = []
    for part in range(4):
        child = os.fork()
        if child == 0:
            for path in (paths[0], *paths[1 + part :: 4]):
                opened("open", (path, "r", READ))
            os._exit(0)
        children.append(child)
    assert all(os.waitpid(child, 0)[1] == 0 for child in children)
    fresh = OpenedFiles(Watch.of(opened.watch.text))  # a process that was started afresh
    assert fresh.watch == opened.watch
    inputs = finished(run)
    assert sorted(inputs.files) == sorted(paths)
    assert [file.process for file in inputs.read].count(CHILD) == 399 and inputs.summary().unhashed == 0


def test_a_descriptor_that_the_script_took_is_not_written_to(opened: OpenedFiles, run: Run, tmp_path: Path) -> None:
    opened("open", (old(tmp_path / "a"), "r", READ))
    os.close(opened._handle)
    stolen = os.open(tmp_path / "mine", os.O_RDWR | os.O_CREAT)
    assert stolen == opened._handle
    opened("open", (old(tmp_path / "b"), "r", READ))
    os.close(stolen)
    assert ((tmp_path / "mine").read_bytes(), names(run)) == (b"", ["a", "b"])


def test_a_log_that_cannot_be_written_stops_nothing(opened: OpenedFiles, run: Run, tmp_path: Path) -> None:
    (run.folder / NAME).unlink()
    opened("open", (old(tmp_path / "a"), "r", READ))
    assert opened.failed is not None and NAME in opened.failed


def test_an_exception_from_elsewhere_passes(
    opened: OpenedFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def handler() -> int:
        raise TimeoutError("the script's own")

    monkeypatch.setattr(os, "getpid", handler)  # stands for a signal's handler that runs in the middle
    with pytest.raises(TimeoutError):
        opened("open", (old(tmp_path / "a"), "r", READ))


def test_beyond_the_limit_files_are_counted(
    opened: OpenedFiles, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opened_module, "LIMIT", 3)
    for n in range(5):
        opened("open", (old(tmp_path / str(n)), "r", READ))
    assert (names(run), opened.unnoted) == (["0", "1", "2"], 2)
    assert finished(run, files=2).unlisted == 1


def test_a_replay_notes_the_tree_that_it_stands_for(run: Run, tmp_path: Path) -> None:
    old(tmp_path / "tree" / "x")
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "x").symlink_to(tmp_path / "tree" / "x")
    opened = OpenedFiles(begin_watch(run.folder, (), str(tmp_path / "copy"), str(tmp_path / "tree")))
    opened("open", (str(tmp_path / "copy" / "x"), "r", READ))
    assert list(finished(run).files) == [str(tmp_path / "tree" / "x")]


@pytest.mark.usefixtures("later")
def test_ten_thousand_files(opened: OpenedFiles, run: Run, tmp_path: Path) -> None:
    paths = [tmp_path / f"{n:05}" for n in range(10_000)]
    for path in paths:
        path.write_bytes(path.name.encode())
        os.utime(path, ns=(LONG_AGO, LONG_AGO))
        opened("open", (str(path), "r", READ))
    inputs = finished(run, last_seconds=60.0)
    assert [(file.path, file.order) for file in inputs.read] == [(str(path), n) for n, path in enumerate(paths)]
    assert inputs.files[str(paths[77])].digest == blake3(b"00077").hexdigest()
    assert inputs.summary().unhashed == 0


@pytest.mark.usefixtures("later")
def test_hashing_goes_on_beside_the_run(opened: OpenedFiles, run: Run, tmp_path: Path) -> None:
    opened("open", (old(tmp_path / "a"), "r", READ))
    work = hashing(run)
    work.start(opened.deaf.add)
    deadline = time.monotonic() + 20
    while not (work.files and next(iter(work.files.values())).digest) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert next(iter(work.files.values())).digest == blake3(b"text").hexdigest()
    opened("open", (old(tmp_path / "b"), "r", READ))
    work.finish()
    assert [found.digest is not None for found in work.files.values()] == [True, True]
    assert not [thread for thread in threading.enumerate() if thread.name == "isobit-hash"]


@pytest.mark.usefixtures("later")
def test_what_was_not_hashed_says_why(opened: OpenedFiles, run: Run, tmp_path: Path) -> None:
    for name in ("gone", "replaced", "fifo", "large", "fine"):
        opened("open", (old(tmp_path / name, b"12345678" if name == "large" else b"text"), "r", READ))
    (tmp_path / "gone").unlink()
    old(tmp_path / "new", b"TEXT")
    os.replace(tmp_path / "new", tmp_path / "replaced")
    (tmp_path / "fifo").unlink()
    os.mkfifo(tmp_path / "fifo")
    inputs = finished(run, bytes=16)
    assert {os.path.basename(p): file.why for p, file in inputs.files.items()} == {
        "gone": "it was deleted before it was hashed",
        "replaced": "it changed before it was hashed",
        "fifo": "it changed before it was hashed",
        "large": "more than 16 bytes would have been hashed",
        "fine": None,
    }
    assert inputs.summary().unhashed == 4


@pytest.mark.usefixtures("later")
def test_an_unreadable_file_says_why(
    opened: OpenedFiles, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened("open", (old(tmp_path / "secret"), "r", READ))

    def refuse(path: str, *rest: object) -> str:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("isobit.record.hashes.hash_file", refuse)
    assert finished(run).read[0].why == "it cannot be read: Permission denied"


@pytest.mark.usefixtures("later")
def test_a_huge_file_is_left_when_the_time_is_over(opened: OpenedFiles, run: Run, tmp_path: Path) -> None:
    with open(tmp_path / "huge", "wb") as file:
        file.truncate(2 << 30)
    os.utime(tmp_path / "huge", ns=(LONG_AGO, LONG_AGO))
    opened("open", (str(tmp_path / "huge"), "r", READ))
    opened("open", (old(tmp_path / "small"), "r", READ))
    begin = time.monotonic()
    inputs = finished(run, last_seconds=0.05)
    assert time.monotonic() - begin < 2
    assert [file.why for file in inputs.read] == ["there was no time left at the end of the run", None]


@pytest.mark.usefixtures("later")
def test_a_file_that_is_overwritten_is_hashed_before(opened: OpenedFiles, run: Run, tmp_path: Path) -> None:
    work = hashing(run)
    opened.overwritten = work.rescue
    for name in ("checkpoint", "target"):
        opened("open", (old(tmp_path / name), "r", READ))
    opened("open", (str(tmp_path / "checkpoint"), "w", WRITE))
    (tmp_path / "checkpoint").write_bytes(b"overwritten")
    opened("os.rename", (str(tmp_path / "draft"), str(tmp_path / "target"), -1, -1))
    (tmp_path / "target").unlink()
    work.finish()
    assert [found.digest for found in work.files.values()] == [blake3(b"text").hexdigest()] * 2


def test_a_small_file_is_hashed_at_once(opened: OpenedFiles, run: Run, tmp_path: Path) -> None:
    opened("open", (old(tmp_path / "small"), "r", READ))
    opened("open", (old(tmp_path / "large", bytes(opened_module.SMALL + 1)), "r", READ))
    assert [line.digest for line in log(run)] == [blake3(b"text").hexdigest(), None]
    (tmp_path / "small").unlink()
    assert finished(run).summary().unhashed == 0


def test_hashing_notices_changes_under_way(tmp_path: Path) -> None:
    path = old(tmp_path / "x")
    state = FileState.of(os.stat(path))
    assert hash_file(path, state) == blake3(b"text").hexdigest()
    with pytest.raises(FileChangedError, match="while"):
        hash_file(path, state, lambda size: os.utime(path))
    with pytest.raises(FileChangedError, match="before"):
        hash_file(path, state)


def test_digests_are_remembered_by_state(tmp_path: Path) -> None:
    path = old(tmp_path / "x")
    state = FileState.of(os.stat(path))
    settled = state._replace(ctime_ns=LONG_AGO)
    memory, other = Digests(tmp_path), Digests(tmp_path)
    memory.remember(path, settled, "0" * 64)
    assert memory.known(path, settled) == "0" * 64 and other.known(path, settled) is None
    memory.flush()
    assert other.known(path, settled) == "0" * 64
    assert [other.known(path, settled._replace(**{name: 5})) for name in FileState._fields] == [None] * 4
    memory.remember(path, state, "1" * 64)  # it changed just now: it could change again unseen
    assert memory.known(path, state) is None
    memory.close()
    other.close()


def test_a_damaged_memory_is_started_anew(tmp_path: Path) -> None:
    settled = FileState(4, LONG_AGO, 7, LONG_AGO)
    (tmp_path / "digests.sqlite").write_bytes(b"no database at all" * 100)
    memory = Digests(tmp_path)
    assert memory.known("/x", settled) is None
    memory.remember("/x", settled, "2" * 64)
    memory.close()
    again = Digests(tmp_path)
    assert again.known("/x", settled) == "2" * 64
    again.close()


def test_a_memory_that_is_locked_or_nowhere_is_done_without(tmp_path: Path) -> None:
    path = old(tmp_path / "x")
    state = FileState.of(os.stat(path))
    for home in (None, tmp_path / "absent"):
        memory = Digests(home)
        assert memory.digest_of(path, state) == blake3(b"text").hexdigest()
        memory.remember(path, state._replace(ctime_ns=LONG_AGO), "3" * 64)
        memory.close()
    first = Digests(tmp_path)
    first.remember("/x", FileState(1, 1, 1, 1), "0" * 64)
    first.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "digests.sqlite", isolation_level=None)) as lock:
        lock.execute("BEGIN EXCLUSIVE")
        second = Digests(tmp_path)
        second.remember("/y", FileState(1, 1, 1, 1), "1" * 64)
        second.close()


@pytest.mark.usefixtures("later")
def test_a_killed_run_is_read_from_its_log(opened: OpenedFiles, run: Run, tmp_path: Path) -> None:
    paths = [old(tmp_path / name) for name in ("a", "b")]
    memory = Digests(run.folder.parents[1])
    settled = FileState.of(os.stat(paths[0]))._replace(ctime_ns=LONG_AGO)
    memory.remember(paths[0], settled, "a" * 64)
    memory.close()
    for path in paths:
        opened("open", (path, "r", READ))
    text = (run.folder / NAME).read_text("ascii").splitlines()
    text[0] = json.dumps(json.loads(text[0]) | {"c": LONG_AGO})
    (run.folder / NAME).write_text("\n".join([*text, "{damaged}", text[1], text[1][:20]]), "ascii")
    inputs = read_inputs(run)
    assert [(file.path, file.digest) for file in inputs.read] == [(paths[0], "a" * 64), (paths[1], None)]
    assert not inputs.complete and inputs.read[1].why == "the run ended before it was hashed"


def test_changes_before_a_replay(opened: OpenedFiles, run: Run, tmp_path: Path) -> None:
    kinds = ("same", "copied", "gone", "grown", "other", "late")
    for name in kinds:
        opened("open", (old(tmp_path / name), "r", READ))
    write_inputs(run.folder, finished(run))
    assert changed_inputs(run) == []
    os.utime(tmp_path / "copied", ns=(5, 5))
    (tmp_path / "gone").unlink()
    old(tmp_path / "grown", b"longer text")
    old(tmp_path / "other", b"TEXT")
    found = [(os.path.basename(change.path), change.what) for change in changed_inputs(run)]
    assert found == [("gone", MISSING), ("grown", SIZE), ("other", CONTENTS)]
    hurried = {os.path.basename(change.path): change.what for change in changed_inputs(run, seconds=-1)}
    assert hurried == {"copied": UNCHECKED, "gone": MISSING, "grown": SIZE, "other": UNCHECKED}


def test_changes_of_files_without_digests(run: Run, tmp_path: Path) -> None:
    path = old(tmp_path / "x")
    file = Input(path, 4, LONG_AGO, 0, None, "there was no time left")
    write_inputs(run.folder, Inputs({path: file}))
    assert changed_inputs(run) == []
    os.utime(path, ns=(5, 5))
    assert [change.what for change in changed_inputs(run)] == [UNCHECKED]


def listed(*files: tuple[str, str | None] | str, process: str = "main") -> Inputs:
    pairs = [(file, "0") if isinstance(file, str) else file for file in files]
    return Inputs({p: Input(p, 1, 0, n, digest, None, process) for n, (p, digest) in enumerate(pairs)})


def test_two_runs_compare() -> None:
    one = listed("a", "b", ("c", "1"), ("d", None))
    assert compare_inputs(one, one).same
    found = compare_inputs(one, listed("a", ("c", "2"), ("d", "5"), "e"))
    assert (found.only_first, found.only_second, found.contents, found.unknown) == (("b",), ("e",), ("c",), ("d",))
    assert compare_inputs(listed("a", "b", "c"), listed("a", "c", "b")).order == (1, "b", "c")
    workers = (listed("a", "b", process=CHILD), listed("b", "a", process=CHILD))
    assert compare_inputs(*workers).same


@pytest.fixture
def told() -> Iterator[list[str]]:
    seen: list[str] = []
    tell_declared(seen.append)
    yield seen
    tell_declared(lambda path: None)


def test_declared_files_are_told_and_returned(told: list[str], tmp_path: Path) -> None:
    for name in ("d/z", "d/a/y", "d/b"):
        old(tmp_path / name)
    folder, file = tmp_path / "d", str(tmp_path / "d" / "b")
    assert (isobit.data(folder), data(file)) == (folder, file)
    assert [os.path.relpath(path, folder) for path in told] == ["b", "z", "a/y", "b"]
    with pytest.raises(FileNotFoundError):
        data(tmp_path / "absent")


def test_declared_files_are_inputs(opened: OpenedFiles, run: Run, tmp_path: Path) -> None:
    opened.declare(old(tmp_path / "x.h5"))
    assert [file.declared for file in finished(run).read] == [True]


def test_a_full_disk_leaves_the_log_as_it_is(opened: OpenedFiles, run: Run, tmp_path: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    opened("open", (old(tmp_path / "a"), "r", READ))
    opened._handle = os.open("/dev/full", os.O_WRONLY)
    found = os.fstat(opened._handle)
    opened._log = (found.st_dev, found.st_ino)
    opened("open", (old(tmp_path / "b"), "r", READ))
    os.close(opened._handle)
    assert names(run) == ["a"] and opened.failed is not None and "No space" in opened.failed


def test_names_of_modules_that_are_no_text_do_no_harm(opened: OpenedFiles, tmp_path: Path) -> None:
    odd = type(sys)("odd")
    odd.__file__ = 3  # type: ignore[assignment]
    sys.modules["odd"] = odd
    try:
        opened("open", (old(tmp_path / "x.py"), "r", READ))
    finally:
        del sys.modules["odd"]
    assert opened.failed is None
    shutil.rmtree(tmp_path)
