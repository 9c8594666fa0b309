"""A run in a work tree end to end: replayed and checked out from its bundle alone; another store; gc."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from isobit.record.code_files import code_files
from isobit.record.store import Store
from tests.cli.programs import DESCENT, isobit
from tests.record.projects import git, needs_git, repository, write

PLAIN = ("--plain", "--threads", "1")
TOKEN = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dF3hJ5"
SCRIPT = f"""\
import os, sys
from pathlib import Path
here = Path(__file__).parent
sys.path.insert(0, os.path.abspath(here.parent / "lib"))
import torch
from descent import Descent
import helper
TOKEN = "{TOKEN}"
w = torch.nn.Parameter(torch.ones(3))
update = Descent([w], lr=float((here.parent / "rate.txt").read_text()) * helper.FACTOR)
for i in range(3):
    (w * w).sum().backward()
    update.step()
Path("made.txt").write_text(open("data/x.txt").read())
"""
FILES = {
    "p/scripts/train.py": SCRIPT, "p/lib/descent.py": DESCENT, "p/lib/helper.py": "FACTOR = 1.0\n", "p/rate.txt": "0.1",
    "p/data/x.txt": "x", "p/.gitignore": "data/\n",
}  # fmt: skip


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one run of its script, and the run's bundle beside it."""
    root = write(tmp_path_factory.mktemp("store"), FILES) / "p"
    repository(root, {})
    done = isobit("run", *PLAIN, "scripts/train.py", "--token", TOKEN, cwd=root)
    assert done.returncode == 0 and "secrets are asterisks in the record" in done.stderr, done.stderr
    (root / "made.txt").unlink()
    assert isobit("bundle", "latest", "-o", root.parent / "run.iso", cwd=root).returncode == 0
    return root


@needs_git
def test_code_and_data_of_a_work_tree_come_from_the_record(project: Path) -> None:
    write(project, {"lib/helper.py": "FACTOR = 2.0\n", "rate.txt": "0.5"})
    done = isobit("replay", Store(project / ".isobit").ids()[0], cwd=project)
    git(project, "checkout", "-q", "lib", "rate.txt")
    assert (done.returncode, done.stdout.splitlines()[-1][:18]) == (0, "identical: 3 steps"), done.stderr
    assert "asterisks stand for secrets in" in done.stderr and "in the arguments (1)" in done.stderr
    assert "rate.txt" not in done.stderr  # it is another one today, but that is not what was read
    assert not (project / "made.txt").exists()
    again = isobit("replay", "latest", cwd=project)  # a replay's record has the code, too
    assert (again.returncode, again.stdout.splitlines()[-1][:18]) == (0, "identical: 3 steps"), again.stderr


@needs_git
def test_a_bundle_alone_is_enough(project: Path, tmp_path: Path) -> None:
    bundle, away = project.parent / "run.iso", project.with_name("away")
    assert TOKEN[5:].encode() not in bundle.read_bytes()
    project.rename(away)
    try:
        done = isobit("checkout", bundle, tmp_path / "out", cwd=tmp_path)
        assert done.returncode == 0 and done.stdout == f"{tmp_path}/out/scripts/train.py\n", done.stderr
        assert (tmp_path / "out/rate.txt").read_text() == "0.1" and not (tmp_path / "out/data").exists()
        write(tmp_path, {"data/x.txt": "x"})
        done = isobit("--store", tmp_path / "elsewhere", "replay", bundle, cwd=tmp_path)
        assert done.returncode == 2 and "after 3 steps, all equal: FileNotFoundError" in done.stdout  # ignored data
    finally:
        away.rename(project)
    assert isobit("checkout", bundle, tmp_path / "out", cwd=tmp_path).returncode == 2
    assert len(Store(tmp_path / "elsewhere").ids()) == 1 and not (tmp_path / ".isobit").exists()


@needs_git
def test_gc_frees_what_no_run_needs(project: Path, tmp_path: Path) -> None:
    shutil.copytree(project / ".isobit", tmp_path / "s")
    home = Store(tmp_path / "s")
    for path in (tmp_path / "s/objects").rglob("*"):
        os.utime(path, (0, 0))
    dry = isobit("--store", "s", "gc", "--keep", "0", "--dry-run", cwd=tmp_path)
    assert dry.stdout.startswith(f"would delete {len(home.ids())} run") and home.ids()
    kept = isobit("--store", "s", "gc", "--failed", "--older-than", "0d", cwd=tmp_path)
    assert kept.stdout.startswith("deleted 0 runs and 0 objects"), kept.stderr
    assert code_files(home.open(home.ids()[0]))
    assert isobit("--store", "s", "rm", "latest", cwd=tmp_path).stdout.startswith("deleted ")
    assert isobit("--store", "s", "gc", "--keep", "0", cwd=tmp_path).returncode == 0
    assert home.ids() == [] and not any(path.is_file() for path in (tmp_path / "s/objects").rglob("*"))


def test_a_store_that_cannot_be_written_says_what_to_do(tmp_path: Path) -> None:
    write(tmp_path, {"x.py": "print('ran')", ".isobit": "a file"})
    done = isobit("run", *PLAIN, "x.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "") and "--store DIR" in done.stderr
    done = isobit("--store", "other", "run", *PLAIN, "x.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "ran\n") and len(Store(tmp_path / "other").ids()) == 1
