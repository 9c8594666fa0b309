"""Projects to be captured: files in a folder, in a git repository, and runs that were recorded of them."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from isobit.record.capture import CodeCapture
from isobit.record.store import Run, Store
from tests.record.manifests import manifest

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
LATER = "2100-01-01T00:00:00.000+00:00"  # whatever a test writes was there when the run began
_NAMED = (
    "-c",
    "user.name=a",
    "-c",
    "user.email=a@b",
    "-c",
    "init.defaultBranch=main",
    "-c",
    "protocol.file.allow=always",
)


def write(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files below `root`."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return root


def git(root: Path, *args: str) -> str:
    """Run git in `root`."""
    done = subprocess.run(["git", *_NAMED, *args], cwd=root, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def repository(root: Path, files: Mapping[str, str | bytes], commit: bool = True) -> Path:
    """A repository with `files`, committed or not."""
    write(root, files)
    git(root, "init", "-q")
    if commit:
        git(root, "add", "-A")
        git(root, "commit", "-qm", "one")
    return root


@contextmanager
def capturing(
    home: Path, script: Path | str, environment: Mapping[str, str] = ENVIRONMENT, **options: object
) -> Iterator[CodeCapture]:
    """A capture of `script` into the store `home`, from before its first line on."""
    store = Store(home)
    store.prepare()
    capture = CodeCapture(store.objects, home, environment, (ROOT,), **options)  # type: ignore[arg-type]
    before = set(sys.modules)
    capture.start(str(script))
    capture.install()
    try:
        yield capture
    finally:
        capture.uninstall()
        for name in set(sys.modules) - before:
            del sys.modules[name]
        importlib.invalidate_caches()


def recorded(home: Path, script: Path | str, imports: tuple[str, ...] = (), cwd: str = "/", **options: object) -> Run:
    """A run of `script` that imported `imports`."""
    with capturing(home, script, **options) as capture:  # type: ignore[arg-type]
        for name in imports:
            importlib.import_module(name)
        capture.add_loaded()
        code = capture.code()
    return Store(home).create(lambda run_id: manifest(run_id, code=code, script=str(script), cwd=cwd, started=LATER))
