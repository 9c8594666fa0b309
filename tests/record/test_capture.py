"""Modules are recorded as they were when they were imported, from wherever they come; nothing else is without git."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
from pathlib import Path

import pytest

from isobit.record.capture import JOURNAL, tree_of
from isobit.record.code_files import code_files, recorded_code, recorded_trees
from isobit.record.errors import RecordError
from isobit.record.manifest import OUTSIDE, SCRIPT, Code
from isobit.record.store import Run, Store
from tests.record.manifests import manifest
from tests.record.projects import capturing, recorded, write

FILES = {
    "proj/train.py": "import capture_pkg.inner",
    "proj/src/capture_pkg/__init__.py": "",
    "proj/src/capture_pkg/inner.py": "VALUE = 1",
    "proj/src/capture_pkg/unused.py": "",
    "proj/src/capture_space/deep/leaf.py": "",
    "proj/venv/site-packages/capture_dep.py": "",
    "proj/data ü.txt": "data",
    "other/capture_far.py": "",
}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a script, packages under src, an installed package and data."""
    for entry in ("proj/src", "proj/venv/site-packages", "other"):
        monkeypatch.syspath_prepend(tmp_path / entry)
    return write(tmp_path, FILES)


def names(run: Run) -> dict[tuple[str, str], list[str]]:
    return {(Path(t.root).name, t.kind): sorted(held.files) for t, held in recorded_trees(run)}


def test_the_tree_is_the_git_work_tree_or_the_folder(tree: Path) -> None:
    (tree / "proj/.git").mkdir()
    assert tree_of(tree / "proj/src/capture_pkg/inner.py") == tree / "proj"
    assert tree_of(tree / "other/capture_far.py") == tree / "other"


def test_imported_modules_are_recorded_wherever_they_come_from(tree: Path) -> None:
    imports = ("capture_pkg.inner", "capture_space.deep.leaf", "capture_dep", "capture_far", "json.tool")
    run = recorded(tree / ".isobit", tree / "proj/train.py", imports)
    own = ["src/capture_pkg/__init__.py", "src/capture_pkg/inner.py", "src/capture_space/deep/leaf.py", "train.py"]
    assert names(run) == {("proj", SCRIPT): own, ("other", OUTSIDE): ["capture_far.py"]}
    assert recorded_code(run).paths == (str(tree / "other"), str(tree / "proj/src"))
    assert code_files(run)["src/capture_pkg/inner.py"].read() == b"VALUE = 1"


def test_a_module_beside_the_script_and_one_loaded_by_its_file(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tree, {"plugins/capture_plugin.py": "VALUE = 3", "lib/capture_lib.py": ""})
    monkeypatch.syspath_prepend(tree / "lib")
    with capturing(tree / ".isobit", tree / "proj/train.py") as capture:
        spec = importlib.util.spec_from_file_location("odd", tree / "plugins/capture_plugin.py")
        assert spec is not None and spec.loader is not None
        spec.loader.exec_module(importlib.util.module_from_spec(spec))  # not even in sys.modules
        importlib.import_module("capture_lib")
        code = capture.code()
    run = Store(tree / ".isobit").create(lambda run_id: manifest(run_id, code=code))
    assert names(run)[("plugins", OUTSIDE)] == ["capture_plugin.py"]
    assert names(run)[("lib", OUTSIDE)] == ["capture_lib.py"]


def test_a_script_started_by_a_link_has_the_tree_that_it_leads_to(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "bin").mkdir()
    (tree / "bin/go").symlink_to("../proj/train.py")
    run = recorded(tree / ".isobit", tree / "bin/go", ("capture_pkg.inner",))
    code = recorded_code(run)
    assert code.script == str(tree / "bin/go") and code.links[str(tree / "bin/go")] == "../proj/train.py"
    assert "train.py" in names(run)[("proj", SCRIPT)]


def test_the_record_is_of_the_time_of_the_import(tree: Path) -> None:
    source = tree / "proj/src/capture_pkg/inner.py"
    with capturing(tree / ".isobit", tree / "proj/train.py") as capture:
        source.write_text("VALUE = 11")
        importlib.import_module("capture_pkg.inner")
        source.write_text("VALUE = 222")
        capture.add_loaded()
        code = capture.code()
    run = Store(tree / ".isobit").create(lambda run_id: manifest(run_id, code=code))
    assert code_files(run)["src/capture_pkg/inner.py"].read() == b"VALUE = 11"


def test_a_killed_run_keeps_what_it_imported(tree: Path) -> None:
    store = Store(tree / ".isobit")
    with capturing(store.home, tree / "proj/train.py") as capture:
        run = store.create(lambda run_id: manifest(run_id, code=capture.code()))
        capture.uninstall()
        capture.install(run.folder)
        importlib.import_module("capture_far")
        importlib.import_module("capture_pkg.inner")
    assert run.manifest.code is not None and len(run.manifest.code.trees) == 1
    assert names(run)[("other", OUTSIDE)] == ["capture_far.py"]
    assert code_files(run)["src/capture_pkg/inner.py"].read() == b"VALUE = 1"
    path = run.folder / JOURNAL
    path.write_bytes(path.read_bytes()[:-9])  # torn
    assert ("other", OUTSIDE) in names(run)
    path.write_bytes(b"{\n" + path.read_bytes())
    with pytest.raises(RecordError, match="line 1, is damaged"):
        recorded_trees(run)
    capture.close()
    assert not path.exists()


def test_a_forked_child_records_nothing(tree: Path) -> None:
    with capturing(tree / ".isobit", tree / "proj/train.py") as capture:
        child = os.fork()
        if child == 0:
            capture.add(str(tree / "other/capture_far.py"))
            os._exit(len(capture.code().trees))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def test_what_cannot_be_recorded_is_named(tree: Path) -> None:
    write(tree, {"other/big.so": b"\0" * (11 << 20)})
    with capturing(tree / ".isobit", tree / "proj/train.py") as capture:
        capture.add(str(tree / "proj/gone.py"))
        capture.add(str(tree / "other/big.so"))
        code, remarks = capture.code(), capture.remarks()
    run = Store(tree / ".isobit").create(lambda run_id: manifest(run_id, code=code))
    left_out = {name: left.reason for _, held in recorded_trees(run) for name, left in held.left_out.items()}
    assert left_out == {"gone.py": "No such file or directory", "big.so": "larger than 10 MiB"}
    assert any("gone.py (No such file or directory)" in line for line in remarks)


def test_names_that_are_no_text(tree: Path) -> None:
    folder = os.fsdecode(os.fsencode(tree) + b"/a \xff\xc3\xbc")
    os.mkdir(folder)
    Path(folder, "train \udce9.py").write_text("x = 1")
    run = recorded(tree / ".isobit", f"{folder}/train \udce9.py")
    again = Store(tree / ".isobit").open(run.manifest.id)
    assert recorded_code(again).script == f"{folder}/train \udce9.py"
    assert code_files(again)["train \udce9.py"].read() == b"x = 1"


def test_a_store_that_cannot_be_written_stops_a_run_before_it_starts(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: str, target: str) -> None:
        raise OSError(28, "No space left on device")

    Store(tree / ".isobit").prepare()
    monkeypatch.setattr(os, "replace", full)
    with (
        pytest.raises(RecordError, match=r"cannot write a record in .*objects: No space left"),
        capturing(tree / ".isobit", tree / "proj/train.py"),
    ):
        raise AssertionError("it must not come so far")
    left = [path for path in (tree / ".isobit").rglob("*") if path.is_file()]
    assert [path.name for path in left] == [".gitignore"]


def test_objects_are_shared(tree: Path) -> None:
    for _ in range(3):
        recorded(tree / ".isobit", tree / "proj/train.py", ("capture_pkg.inner",))
    found = [path for path in (tree / ".isobit/objects").rglob("*") if path.is_file()]
    assert len(found) == 4  # three files, one listing
    damaged = Store(tree / ".isobit").objects
    first = next(path for path in found if path.stat().st_size)
    first.write_bytes(b"")  # a power failure
    recorded(tree / ".isobit", tree / "proj/train.py", ("capture_pkg.inner",))
    assert damaged.read(first.name)
    first.write_bytes(b"x" * first.stat().st_size)
    with pytest.raises(RecordError, match="not what was recorded"):
        damaged.read(first.name)
    first.unlink()
    with pytest.raises(RecordError, match="has lost"):
        damaged.read(first.name)


def test_a_record_of_schema_1_is_read(tmp_path: Path) -> None:
    run = Store(tmp_path / ".isobit").create(manifest)
    data = json.loads((run.folder / "manifest.json").read_text())
    digest = "53c9a9b2d9a0a1ecd0e2a0b84a2bfe35b79e0e5f5f0f6c6e2d33ad3e4d9d5f1c"
    data |= {"schema": 1, "code": {
        "root": "/w/p", "script": "a.py", "paths": [".", "src"], "files": {"a.py": digest},
        "left_out": {"b.so": "not Python source"}, "git": {"commit": None, "branch": "main", "dirty": True},
    }}  # fmt: skip
    (run.folder / "manifest.json").write_text(json.dumps(data))
    old = Store(tmp_path / ".isobit").open(run.manifest.id)
    code = recorded_code(old)
    assert (code.script, code.paths) == ("/w/p/a.py", ("/w/p", "/w/p/src"))
    assert code.git is not None and code.git.branch == "main" and isinstance(code, Code)
    assert code.trees[0].left_out == 1 and names(old) == {("p", SCRIPT): ["a.py"]}
