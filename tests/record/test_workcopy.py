"""A replay's folder mirrors the places that the code lay in: recorded files from the record, all else by links."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path

import pytest
from blake3 import blake3

from isobit.record.bundle import write_bundle
from isobit.record.checkout import OTHERS, checkout
from isobit.record.code_files import code_files, taken_over
from isobit.record.errors import RecordError
from isobit.record.inputs import Input, Inputs, write_inputs
from isobit.record.manifest import Replay
from isobit.record.resolve import resolve
from isobit.record.store import Run, Store, rewrite
from isobit.record.workcopy import Mirror, code_in, working_copy
from tests.record.manifests import manifest
from tests.record.projects import LATER, git, needs_git, recorded, repository, write

FILES = {
    "home/scripts/train.py": "import capture_lib", "home/lib/capture_lib.py": "V = 1", "home/lib/other.py": "",
    "home/scripts/data ü.txt": "data", "data/x.csv": "1", "home/scripts/out/a.txt": "a",
}  # fmt: skip


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Working copies go where pytest cleans up."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path / "temporary"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run of a script that imports from the folder beside its own."""
    write(tmp_path, FILES)
    monkeypatch.syspath_prepend(tmp_path / "home/lib")
    script = tmp_path / "home/scripts/train.py"
    return recorded(tmp_path / "s", script, ("capture_lib",), cwd=str(tmp_path / "home/scripts"))


def at(mirror: Mirror, path: Path) -> Path:
    return Path(mirror.map(str(path)))


def test_trees_keep_their_places_to_each_other_and_data_is_linked(run: Run, tmp_path: Path) -> None:
    write(tmp_path, {"home/lib/capture_lib.py": "V = 2"})
    mirror = working_copy(run)
    scripts, lib = at(mirror, tmp_path / "home/scripts"), at(mirror, tmp_path / "home/lib")
    assert (scripts / "train.py").read_text() == "import capture_lib" and not (scripts / "train.py").is_symlink()
    assert (scripts / "../lib/capture_lib.py").read_text() == "V = 1"
    assert (lib / "other.py").is_symlink() and (scripts / "../../data/x.csv").read_text() == "1"
    assert (scripts / "data ü.txt").read_text() == "data"
    assert [mirror.where(path) for path in run.manifest.code.paths] == [str(lib)]  # type: ignore[union-attr]
    shutil.rmtree(scripts / "out")  # as scripts do with what they made before
    assert (tmp_path / "home/scripts/out/a.txt").read_text() == "a"
    mirror.remove()
    assert not mirror.root.exists() and (tmp_path / "data/x.csv").exists()


def test_output_of_the_run_cannot_be_written_through_a_link(run: Run, tmp_path: Path) -> None:
    """What was written since the run began is a copy if the run has read it, and else is not there."""
    home = write(tmp_path / "home/scripts", {"state.pt": "new", "out/model.pt": "new", "../beside.pt": "new"})
    later = datetime.fromisoformat(LATER).timestamp() + 1
    for name in ("state.pt", "out/model.pt", "../beside.pt"):
        os.utime(home / name, (later, later))
    state = str(home / "state.pt")
    write_inputs(run.folder, Inputs({state: Input(state, 3, 0, 0)}))
    mirror = working_copy(run)
    copy = at(mirror, home)
    assert mirror.hidden == (str(home / "out/model.pt"),)  # what lies around the trees is not named
    (copy / "state.pt").write_text((copy / "state.pt").read_text() + "er")
    (copy / "out/model.pt").write_text("replayed")
    (copy / "../beside.pt").write_text("replayed")
    assert all((home / name).read_text() == "new" for name in ("state.pt", "out/model.pt", "../beside.pt"))
    assert (copy / "out/a.txt").is_symlink()  # it was there before
    again = Run(Path(shutil.copytree(run.folder, run.folder.with_name("z"))), run.manifest)
    again = rewrite(again, id="z", started="2200-01-01T00:00:00.000+00:00", replay=Replay(run.manifest.id, "record"))
    assert working_copy(again).hidden == mirror.hidden  # a replay's replay spares it, too


def test_a_mirror_needs_no_original(run: Run, tmp_path: Path) -> None:
    (tmp_path / "home").rename(tmp_path / "moved")
    mirror = working_copy(run)
    assert at(mirror, tmp_path / "home/lib/capture_lib.py").read_text() == "V = 1"


def test_links_lead_to_the_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"real/proj/train.py": "old", "bin/x": ""})
    (tmp_path / "home").symlink_to(tmp_path / "real")
    (tmp_path / "bin/go").symlink_to("../home/proj/train.py")
    run = recorded(tmp_path / "s", tmp_path / "bin/go")
    write(tmp_path, {"real/proj/train.py": "new"})
    mirror = working_copy(run)
    assert at(mirror, tmp_path / "bin/go").read_text() == "old"
    assert os.path.realpath(at(mirror, tmp_path / "bin/go")) == mirror.map(str(tmp_path / "real/proj/train.py"))
    assert mirror.holds(str(tmp_path / "home/proj")) and not mirror.holds(str(tmp_path / "bin"))


@needs_git
def test_data_in_a_work_tree_comes_from_the_record(tmp_path: Path) -> None:
    root = repository(
        tmp_path / "p", {"train.py": "", "rate.txt": "1", ".gitignore": "big/\n", "big/x": "x", "d/y": "y"}
    )
    (root / "far").symlink_to(root / "d")
    run = recorded(tmp_path / "s", root / "train.py")
    write(root, {"rate.txt": "2", "later.txt": "", "d/later.txt": ""})
    mirror = working_copy(run)
    copy = at(mirror, root)
    assert (copy / "rate.txt").read_text() == "1" and (copy / "big/x").read_text() == "x"
    assert not (copy / "later.txt").exists() and not (copy / "d/later.txt").exists()  # it was not there
    assert os.readlink(copy / "far") == str(copy / "d")
    assert git(copy, "rev-parse", "HEAD") == git(root, "rev-parse", "HEAD")
    shutil.rmtree(root)
    assert (at(working_copy(run), root) / "d/y").read_text() == "y"


def test_a_damaged_record_is_not_run_and_nothing_stays(run: Run, temporary: Path) -> None:
    digest = code_files(run)["train.py"].digest
    place = run.objects.path(digest)
    place.write_bytes(b"x" * place.stat().st_size)
    with pytest.raises(RecordError, match="not what was recorded"):
        working_copy(run)
    place.unlink()
    with pytest.raises(RecordError, match="has lost"):
        working_copy(run)
    assert list(temporary.iterdir()) == []


def test_a_script_that_names_the_old_place_gets_the_recorded_module(run: Run, tmp_path: Path) -> None:
    write(tmp_path, {"home/lib/capture_lib.py": "V = 2"})
    mirror = working_copy(run)
    code = (
        "import sys; from isobit.record.mirror_imports import redirect\n"
        f"sys.path.insert(0, {str(tmp_path / 'home/lib')!r}); redirect({str(mirror.root)!r}, {mirror.trees!r})\n"
        "import capture_lib; print(capture_lib.V)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout == "1\n", done.stderr


def old_record(tmp_path: Path) -> Run:
    """A record of schema 1, with its code in a folder of its own."""
    run = Store(tmp_path / "old").create(lambda run_id: manifest(run_id, cwd=str(tmp_path / "w")))
    write(run.folder / "code", {"a.py": "A", "src/b.py": "B"})
    path = run.folder / "manifest.json"
    files = {name: blake3(text).hexdigest() for name, text in (("a.py", b"A"), ("src/b.py", b"B"))}
    code = {
        "root": str(tmp_path / "w"),
        "script": "a.py",
        "paths": [".", "src"],
        "files": files,
        "left_out": {},
        "git": None,
    }
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 1, "code": code}))
    return Store(tmp_path / "old").open(run.manifest.id)


def test_records_of_schema_1_run_and_can_be_taken_over_and_bundled(tmp_path: Path) -> None:
    run = old_record(tmp_path)
    assert at(working_copy(run), tmp_path / "w/src/b.py").read_text() == "B"
    write_bundle(run, tmp_path / "old.iso")
    read = resolve(Store(tmp_path / "new"), str(tmp_path / "old.iso"))
    assert at(working_copy(read), tmp_path / "w/a.py").read_text() == "A"
    store = Store(tmp_path / "new")
    code = taken_over(read, store.objects)
    again = store.create(lambda run_id: manifest(run_id, code=code))
    assert {name: file.read() for name, file in code_files(again).items()} == {"a.py": b"A", "src/b.py": b"B"}
    (run.code / "a.py").write_text("changed")
    with pytest.raises(RecordError, match="not what was recorded"):
        working_copy(run)


def test_a_bundle_has_all_it_needs(run: Run, tmp_path: Path) -> None:
    write_bundle(run, tmp_path / "a.iso")
    names = code_files(run).keys()
    shutil.rmtree(tmp_path / "s")
    shutil.rmtree(tmp_path / "home")
    read = resolve(Store(tmp_path / "none"), str(tmp_path / "a.iso"))
    assert at(working_copy(read), tmp_path / "home/lib/capture_lib.py").read_text() == "V = 1"
    write_bundle(read, tmp_path / "b.iso")  # a bundle of a bundle
    again = resolve(Store(tmp_path / "none"), str(tmp_path / "b.iso"))
    assert code_files(again).keys() == names


def test_code_of_another_folder(run: Run, tmp_path: Path) -> None:
    write(tmp_path, {"fork/train.py": ""})
    assert code_in(tmp_path / "fork", run) == str(tmp_path / "fork/train.py")
    with pytest.raises(RecordError, match=r"there is no train\.py in"):
        code_in(tmp_path, run)


def test_checkout_restores_the_trees(run: Run, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "home")
    script = checkout(run, tmp_path / "c d/e")
    assert script == tmp_path / "c d/e/train.py" and script.read_text() == "import capture_lib"
    other = tmp_path / "c d/e" / OTHERS / str(tmp_path / "home/lib/capture_lib.py").lstrip("/")
    assert other.read_text() == "V = 1"
    (tmp_path / "empty").mkdir()
    assert checkout(run, tmp_path / "empty").exists()
    with pytest.raises(RecordError, match="not an empty folder"):
        checkout(run, tmp_path / "empty")


@needs_git
def test_checkout_restores_modes_links_and_submodules(tmp_path: Path) -> None:
    library = repository(tmp_path / "lib", {"l.py": "L"})
    root = repository(tmp_path / "p", {"train.py": "", "run.sh": ""})
    (root / "run.sh").chmod(0o755)
    (root / "a").symlink_to("train.py")
    git(root, "submodule", "add", "-q", str(library), "third/lib")
    run = recorded(tmp_path / "s", root / "train.py")
    target = checkout(run, tmp_path / "out").parent
    assert os.access(target / "run.sh", os.X_OK) and os.readlink(target / "a") == "train.py"
    assert (target / "third/lib/l.py").read_text() == "L"


def test_a_damaged_record_is_not_checked_out(run: Run, tmp_path: Path) -> None:
    run.objects.path(code_files(run)["train.py"].digest).unlink()
    with pytest.raises(RecordError, match="has lost"):
        checkout(run, tmp_path / "c")
    assert not (tmp_path / "c").exists() and not list(tmp_path.glob(".c.*"))


@pytest.mark.parametrize("name", ["../x.py", "/x.py", "a/../../x.py"])
def test_a_record_from_elsewhere_cannot_write_outside(run: Run, tmp_path: Path, name: str) -> None:
    tree = run.manifest.code.trees[0]  # type: ignore[union-attr]
    data = run.objects.read(tree.listing).replace(b'"train.py"', json.dumps(name).encode())
    data = data.replace(
        b'"files":{', b'"files":{"train.py":["100644",18,"%s"],' % code_files(run)["train.py"].digest.encode()
    )
    path = run.folder / "manifest.json"
    path.write_text(path.read_text().replace(tree.listing, run.objects.put(data)))
    with pytest.raises(RecordError, match="outside its tree"):
        checkout(Store(tmp_path / "s").open(run.manifest.id), tmp_path / "c")
