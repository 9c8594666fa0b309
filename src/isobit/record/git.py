"""The state of a git work tree, as far as git is there to be asked."""

from __future__ import annotations

import subprocess
from pathlib import Path

from isobit.record.manifest import GitState

_PATIENCE = 20.0  # seconds that a slow file system may take before we go on without


def git_root(folder: Path) -> Path | None:
    """The nearest folder at or above `folder` that holds ``.git``."""
    return next((place for place in (folder, *folder.parents) if (place / ".git").exists()), None)


def git_state(root: Path) -> GitState | None:
    """Commit, branch and whether anything differs from the commit; None without git or outside a work tree."""
    status = _git(root, "status", "--porcelain=v2", "--branch")
    if status is None:
        return None
    heads = dict(line[2:].split(" ", 1) for line in status.splitlines() if line.startswith("# "))
    commit, branch = heads.get("branch.oid"), heads.get("branch.head")
    return GitState(
        commit=None if commit == "(initial)" else commit,
        branch=None if branch == "(detached)" else branch,
        dirty=any(not line.startswith("# ") for line in status.splitlines()),
    )


def _git(root: Path, *args: str) -> str | None:
    command = ["git", "--no-optional-locks", "-C", str(root), *args]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PATIENCE, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "surrogateescape") if done.returncode == 0 else None
