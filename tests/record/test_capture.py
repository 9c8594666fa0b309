"""The script's own modules are copied as they were when they were imported; nothing else is."""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from blake3 import blake3

from isobit.record.capture import CodeCapture, tree_of
from isobit.record.errors import RecordError
from isobit.record.manifest import Code
from isobit.record.store import Run, Store
from isobit.record.workcopy import working_copy
from tests.record.manifests import manifest


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Working copies go where pytest cleans up."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project with a script, a package under src, an installed package and data."""
    files = {
        "proj/train.py": "import capture_pkg.inner",
        "proj/src/capture_pkg/__init__.py": "",
        "proj/src/capture_pkg/inner.py": "VALUE = 1",
        "proj/src/capture_pkg/unused.py": "",
        "proj/venv/site-packages/capture_dep.py": "",
        "proj/data ü.txt": "data",
        "other/capture_far.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "proj/.git").mkdir()
    before = set(sys.modules)
    hooks = list(sys.path_hooks)
    for entry in ("proj/src", "proj/venv/site-packages", "other"):
        monkeypatch.syspath_prepend(tmp_path / entry)
    yield tmp_path
    sys.path_hooks[:] = hooks
    for name in set(sys.modules) - before:
        del sys.modules[name]


def capture(tree: Path) -> CodeCapture:
    (tree / "copy").mkdir()
    found = CodeCapture(tree_of(tree / "proj/train.py"), tree / "copy")
    found.install()
    return found


def test_the_tree_is_the_git_work_tree_or_the_folder(tree: Path) -> None:
    assert tree_of(tree / "proj/src/capture_pkg/inner.py") == tree / "proj"
    assert tree_of(tree / "other/capture_far.py") == tree / "other"


def test_imported_modules_of_the_tree_are_copied(tree: Path) -> None:
    found = capture(tree)
    for name in ("capture_pkg.inner", "capture_dep", "capture_far"):
        importlib.import_module(name)
    found.add_loaded()
    inner = "src/capture_pkg/inner.py"
    assert sorted(found.files) == ["src/capture_pkg/__init__.py", inner]
    assert (tree / "copy" / inner).read_text() == "VALUE = 1"
    assert found.files[inner] == blake3(b"VALUE = 1").hexdigest()
    assert found.paths() == ("src",)


def test_the_copy_is_of_the_time_of_the_import(tree: Path) -> None:
    found = capture(tree)
    source = tree / "proj/src/capture_pkg/inner.py"
    importlib.import_module("capture_pkg.inner")
    source.write_text("VALUE = 2")
    found.add_loaded()
    assert (tree / "copy/src/capture_pkg/inner.py").read_text() == "VALUE = 1"


def test_a_module_that_came_another_way_is_copied_at_the_end(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [p for p in sys.path if not p.endswith("src")])
    (tree / "copy").mkdir()
    found = CodeCapture(tree / "proj", tree / "copy")
    path = tree / "proj/src/capture_pkg/inner.py"
    spec = importlib.util.spec_from_file_location("capture_pkg.inner", path)
    assert spec is not None
    monkeypatch.setitem(sys.modules, "capture_pkg.inner", importlib.util.module_from_spec(spec))
    found.add_loaded()
    assert list(found.files) == ["src/capture_pkg/inner.py"]
    assert found.paths() == ("src",)


def test_what_cannot_be_copied_is_named(tree: Path) -> None:
    found = capture(tree)
    found.add(str(tree / "proj/gone.py"))
    assert found.left_out == {"gone.py": "No such file or directory"}


def record(tree: Path) -> Run:
    found = capture(tree)
    found.add_script(str(tree / "proj/train.py"))
    importlib.import_module("capture_pkg.inner")
    code = Code(str(tree / "proj"), "train.py", found.paths(), found.files)
    run = Store(tree / "store").create(lambda run_id: manifest(run_id, code=code))
    (tree / "copy").rename(run.code.with_name("copied"))
    run.code.rmdir()
    run.code.with_name("copied").rename(run.code)
    return run


def test_a_working_copy_has_the_recorded_code_and_links_to_the_rest(tree: Path) -> None:
    run = record(tree)
    (tree / "proj/src/capture_pkg/inner.py").write_text("VALUE = 2")
    copy = working_copy(run)
    assert (copy / "src/capture_pkg/inner.py").read_text() == "VALUE = 1"
    assert not (copy / "src/capture_pkg/inner.py").is_symlink()
    assert (copy / "data ü.txt").read_text() == "data"
    assert (copy / "src/capture_pkg/unused.py").is_symlink()


def test_a_working_copy_needs_no_original(tree: Path) -> None:
    run = record(tree)
    (tree / "proj").rename(tree / "moved")
    assert (working_copy(run) / "src/capture_pkg/inner.py").read_text() == "VALUE = 1"


def test_a_damaged_record_is_not_run(tree: Path) -> None:
    run = record(tree)
    (run.code / "src/capture_pkg/inner.py").write_text("VALUE = 3")
    with pytest.raises(RecordError, match="not what was recorded"):
        working_copy(run)
    (run.code / "src/capture_pkg/inner.py").unlink()
    with pytest.raises(RecordError, match="has lost"):
        working_copy(run)
