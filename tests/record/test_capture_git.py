"""In a git work tree all that lies there is recorded before the first line: as it is on the disk, whatever git holds."""

from __future__ import annotations

import importlib
import os
import re
import time
from pathlib import Path

import pytest

from isobit.record import hashes, snapshot
from isobit.record.code_files import code_files, recorded_trees
from isobit.record.git import without_credentials
from isobit.record.listing import EXECUTABLE, LINK, Listing
from isobit.record.manifest import EDITABLE, SCRIPT, SUBMODULE, GitState
from isobit.record.objects import Objects
from isobit.record.snapshot import Caps
from isobit.record.store import Run, Store
from tests.record.manifests import manifest
from tests.record.projects import ENVIRONMENT, capturing, git, needs_git, recorded, repository, write

pytestmark = needs_git
FILES = {
    "train.py": "x = 1\n", "gone.py": "", "pkg/mod ü.py": "", ".gitignore": "out/\n*.pt\n", "run.sh": "#!/bin/sh\n",
    "out/old.txt": "ignored", "w.pt": "ignored",
}  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return repository(tmp_path / "p", FILES)


def script_tree(run: Run) -> tuple[GitState | None, Listing]:
    return next((tree.git, listing) for tree, listing in recorded_trees(run) if tree.kind == SCRIPT)


def test_staged_unstaged_untracked_and_deleted_files(root: Path, tmp_path: Path) -> None:
    git(root, "remote", "add", "origin", "https://me:secret@host/x.git")
    write(root, {"train.py": "x = 2\n", "new.py": "fresh"})
    git(root, "add", "train.py")
    write(root, {"train.py": "x = 3\n"})
    (root / "gone.py").unlink()
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("pkg/mod ü.py")
    run = recorded(tmp_path / "s", root / "train.py")
    state, listing = script_tree(run)
    assert sorted(listing.files) == [".gitignore", "link", "new.py", "pkg/mod ü.py", "run.sh", "train.py"]
    assert (listing.files["run.sh"].mode, listing.files["link"].mode) == (EXECUTABLE, LINK)
    files = code_files(run)
    assert files["train.py"].read() == b"x = 3\n" and files["link"].read().decode() == "pkg/mod ü.py"
    assert (sorted(listing.ignored), listing.complete) == (["out/", "w.pt"], True)
    assert state is not None and state.patch is not None
    assert (state.commit, state.branch, state.dirty) == (git(root, "rev-parse", "HEAD"), "main", True)
    assert state.remotes == {"origin": "https://host/x.git"}
    assert run.objects.read(state.staged["train.py"]) == b"x = 2\n"  # neither HEAD nor the work tree has it
    patch = run.objects.read(state.patch).decode()
    assert "-x = 1\n+x = 3\n" in patch and "deleted file" in patch


def test_tracked_files_that_are_made_for_secrets_are_in_no_patch(root: Path, tmp_path: Path) -> None:
    write(root, {"conf/.env": "DB=plainword", "é:x/.env": "DB=plainword"})
    git(root, "add", "-f", ".")
    git(root, "commit", "-qm", "both")
    write(root, {"conf/.env": "DB=otherword", "train.py": "x = 2\n"})
    git(root, "add", ".")
    write(root, {"conf/.env": "DB=thirdword", "é:x/.env": "DB=thirdword"})
    run = recorded(tmp_path / "s", root / "train.py")
    state, listing = script_tree(run)
    assert state is not None and state.patch is not None and "conf/.env" in listing.left_out
    assert set(state.left_out) == {"conf/.env", "é:x/.env"} and state.staged == {}
    assert b"+x = 2" in run.objects.read(state.patch)
    assert not [
        p for p in (tmp_path / "s").rglob("*") if p.is_file() and re.search(rb"(plain|other|third)word", p.read_bytes())
    ]


def test_a_clean_tree_has_no_patch_and_one_without_commits_has_no_commit(root: Path, tmp_path: Path) -> None:
    state, _ = script_tree(recorded(tmp_path / "s", root / "train.py"))
    assert state == GitState(git(root, "rev-parse", "HEAD"), "main", False)
    fresh = repository(tmp_path / "q", {"a.py": "", "b.py": ""}, commit=False)
    git(fresh, "add", "a.py")
    state, listing = script_tree(recorded(tmp_path / "s", fresh / "a.py"))
    assert state == GitState(None, state.branch if state else None, True)
    assert sorted(listing.files) == ["a.py", "b.py"]


def test_submodules_and_other_repositories_are_trees_of_their_own(root: Path, tmp_path: Path) -> None:
    library = repository(tmp_path / "lib", {"capture_sub.py": "V = 1"})
    git(root, "submodule", "add", "-q", str(library), "third/lib")
    repository(root / "nested", {"n.py": ""})
    write(root, {"third/lib/capture_sub.py": "V = 2"})
    run = recorded(tmp_path / "s", root / "train.py")
    trees = {Path(tree.root).name: (tree, listing) for tree, listing in recorded_trees(run)}
    tree, listing = trees["lib"]
    assert tree.kind == SUBMODULE and tree.git is not None and tree.git.dirty
    assert tree.git.commit == git(library, "rev-parse", "HEAD") and sorted(listing.files) == ["capture_sub.py"]
    assert list(trees["nested"][1].files) == ["n.py"]
    assert code_files(run)["third/lib/capture_sub.py"].read() == b"V = 2"


def test_what_is_too_large_is_left_out_by_name(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(root / "huge.bin", "wb") as file:
        file.truncate(2 << 30)  # 2 GiB that nobody may read
    write(root, {"a.dat": b"a" * 600, "b.dat": b"b" * 700, ".env": "X=1", "env/pyvenv.cfg": "", "env/lib/x.py": ""})
    monkeypatch.setattr(snapshot, "CAPS", Caps(tree=1300))
    begin = time.perf_counter()
    with capturing(tmp_path / "s", root / "train.py") as capture:
        code, remarks = capture.code(), capture.remarks()
    assert time.perf_counter() - begin < 5
    run = Store(tmp_path / "s").create(lambda run_id: manifest(run_id, code=code))
    _, listing = script_tree(run)
    assert {name: (out.size, out.reason) for name, out in listing.left_out.items()} == {
        "huge.bin": (2 << 30, "larger than 10 MiB"),
        "b.dat": (700, "the tree holds more than 0 MiB"),
        ".env": (3, "its name says that it holds secrets"),
        "env/": (None, "a virtual environment"),
    }
    assert "a.dat" in listing.files and any("huge.bin (larger than 10 MiB)" in line for line in remarks)


def test_many_files_are_left_out_by_folder(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root, {f"data/{n}.txt": "x" for n in range(12)})
    monkeypatch.setattr(snapshot, "CAPS", Caps(files=8))
    monkeypatch.setattr(snapshot, "_MOST_NAMED", 3)
    _, listing = script_tree(recorded(tmp_path / "s", root / "train.py"))
    assert len(listing.files) == 8
    ((folder, out),) = listing.left_out.items()
    assert folder == "data/" and out.reason.endswith("files: the tree holds more than 8 files") and out.size


def test_a_second_run_reads_no_file_again(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashes, "_SETTLED_NS", 0)
    first = script_tree(recorded(tmp_path / "s", root / "train.py"))
    put: list[bytes] = []
    before = Objects.put

    def count(self: Objects, data: bytes) -> str:
        put.append(data)
        return before(self, data)

    monkeypatch.setattr(Objects, "put", count)
    assert script_tree(recorded(tmp_path / "s", root / "train.py")) == first
    assert put == [first[1].to_bytes()]  # the listing alone
    found = os.stat(root / "train.py")
    (root / "train.py").write_text("x = 9\n")  # as long, and as old as before
    os.utime(root / "train.py", ns=(found.st_atime_ns, found.st_mtime_ns))
    run = recorded(tmp_path / "s", root / "train.py")
    assert code_files(run)["train.py"].read() == b"x = 9\n"


def test_an_edited_module_counts_as_it_was_imported(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root, {"capture_late.py": "V = 1"})
    monkeypatch.syspath_prepend(root)
    with capturing(tmp_path / "s", root / "train.py") as capture:
        write(root, {"capture_late.py": "V = 22"})
        importlib.import_module("capture_late")
        code = capture.code()
    run = Store(tmp_path / "s").create(lambda run_id: manifest(run_id, code=code))
    assert code_files(run)["capture_late.py"].read() == b"V = 22"
    assert ["edited between the start and its import" in note for note in capture.notes] == [True]


def test_an_editable_package_is_recorded_with_its_tree(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = repository(tmp_path / "other", {"src/capture_edit/__init__.py": "", "src/capture_edit/conf.yaml": "a: 1"})
    monkeypatch.syspath_prepend(other / "src")
    run = recorded(tmp_path / "s", root / "train.py", editable={"edit": str(other)})
    assert len(recorded_trees(run)) == 1  # not imported
    run = recorded(tmp_path / "s", root / "train.py", ("capture_edit",), editable={"edit": str(other)})
    tree, listing = recorded_trees(run)[1]
    assert (tree.kind, tree.package, sorted(listing.files)) == (
        EDITABLE, "edit", ["src/capture_edit/__init__.py", "src/capture_edit/conf.yaml"],
    )  # fmt: skip
    assert tree.git is not None and tree.git.commit == git(other, "rev-parse", "HEAD")


@pytest.mark.parametrize("how", ["no git", "refused", "no repository"])
def test_without_git_to_be_asked_there_are_the_imported_files_and_a_note(
    root: Path, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = dict(ENVIRONMENT)
    if how == "no git":
        monkeypatch.setenv("PATH", str(tmp_path))
        environment["PATH"] = str(tmp_path)
    elif how == "refused":
        (root / ".git/HEAD").write_text("nonsense")
    else:
        (root / ".git").rename(root / "elsewhere")
        (root / ".git").mkdir()
    run = recorded(tmp_path / "s", root / "train.py", environment=environment)
    state, listing = script_tree(run)
    assert state is None and list(listing.files) == ["train.py"] and not listing.complete


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://tok@host/x", "https://host/x"), ("https://u:p@host:8/x?t=1", "https://host:8/x"),
        ("git@host:a/b", "git@host:a/b"), ("ssh://git@host/x", "ssh://git@host/x"), ("ssh://u:p@host/x", "ssh://host/x"),
        ("/local/ä", "/local/ä"), ("https://host/x?token=t#f", "https://host/x"), ("file:///a/b", "file:///a/b"), ("http://[", "(not an address)"),
    ],
)  # fmt: skip
def test_remotes_lose_their_credentials(url: str, kept: str) -> None:
    assert without_credentials(url) == kept
