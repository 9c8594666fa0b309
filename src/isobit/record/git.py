"""The state of a git work tree, as far as git is there to be asked."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from isobit.record.secrets import SECRET_FILE, is_secret_file

_PATIENCE = 60.0  # seconds that a slow file system may take before we go on without
_MOST_PATCH = 1 << 20  # bytes of a patch, or of a staged file, that are kept: as much as is searched for secrets
_ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR")
_SUBMODULE = "160000"


@dataclass
class GitTree:
    """What git knows of a work tree. Paths are relative to its root; a folder's end with ``/``."""

    commit: str | None = None
    branch: str | None = None
    dirty: bool = False
    tracked: list[str] = field(default_factory=list)
    untracked: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    nested: list[str] = field(default_factory=list)  # submodules and other repositories
    remotes: dict[str, str] = field(default_factory=dict)
    patch: bytes = b""
    staged: dict[str, bytes] = field(default_factory=dict)  # contents that neither commit nor work tree holds
    left_out: dict[str, str] = field(default_factory=dict)


class GitError(Exception):
    """Git cannot be asked about a folder; the message says why."""


def git_root(folder: Path) -> Path | None:
    """The nearest folder at or above `folder` that holds ``.git``."""
    return next((place for place in (folder, *folder.parents) if (place / ".git").exists()), None)


def read_git(root: Path, environment: Mapping[str, str], files: bool = True) -> GitTree:
    """What git says of the work tree at `root`; without `files`, only of its commit. Raises GitError."""
    ask = _Git(root, environment)
    untracked = ("--untracked-files=all", "--ignored=matching") if files else ("--untracked-files=no",)
    waiting = [  # all at once: each takes a few milliseconds to start
        ask.begin("status", "--porcelain=v2", "--branch", "-z", "--no-renames", *untracked),
        ask.begin("ls-files", "-z", "--stage"),
        ask.begin("config", "--null", "--get-regexp", r"^remote\..*\.url$"),
    ]
    status, listed, remotes = [ask.end(one) for one in waiting]
    if status is None or listed is None:
        raise GitError(ask.why)
    tree = GitTree(remotes=_remotes(remotes or ""))
    changes = _read_status(tree, status)
    _read_index(tree, listed)
    if files and tree.dirty:
        _read_contents(tree, ask, changes)
    return tree


def _read_status(tree: GitTree, text: str) -> dict[str, str | None]:
    """Fill in what `git status` says; returns the tracked files that have changed, with git's name of what lies in the
    index alone.
    """
    changed: dict[str, str | None] = {}
    for line in text.split("\0"):
        kind, _, rest = line.partition(" ")
        match kind:
            case "#":
                name, _, value = rest.partition(" ")
                if name == "branch.oid" and value != "(initial)":
                    tree.commit = value
                elif name == "branch.head" and value != "(detached)":
                    tree.branch = value
            case "1":
                changes, _, _, in_index, _, _, name, path = rest.split(" ", 7)
                tree.dirty = True
                only = "." not in changes and set(in_index) != {"0"} and in_index != _SUBMODULE
                changed[path] = name if only else None
            case "u":
                tree.dirty = True
                changed[rest.split(" ", 9)[9]] = None
            case "?":
                tree.dirty = True
                (tree.nested if rest.endswith("/") else tree.untracked).append(rest)
            case "!":
                tree.ignored.append(rest)
    return changed


def _read_index(tree: GitTree, text: str) -> None:
    for line in dict.fromkeys(text.split("\0")):
        head, _, path = line.partition("\t")
        if path and head.startswith(_SUBMODULE):
            tree.nested.append(f"{path}/")
        elif path:
            tree.tracked.append(path)
    tree.tracked = list(dict.fromkeys(tree.tracked))  # an unmerged file has three entries


def _read_contents(tree: GitTree, ask: _Git, changed: dict[str, str | None]) -> None:
    """The patch against the commit, and the staged contents that are nowhere else. Neither shows a file that is made to
    hold secrets.
    """
    hidden = [path for path in changed if is_secret_file(path.rpartition("/")[2])]
    tree.left_out |= dict.fromkeys(hidden, SECRET_FILE)
    if tree.commit is not None:
        but = [f":(exclude,top,literal){path}" for path in hidden]
        found = ask.content("diff", "--no-ext-diff", "--no-textconv", "--no-color", "HEAD", "--", *but)
        tree.patch = _kept(tree, "patch", found)
    for path, name in changed.items():
        if name is None or path in tree.left_out:
            continue
        content = _kept(tree, path, ask.content("cat-file", "blob", name))
        if path not in tree.left_out:
            tree.staged[path] = content


def _kept(tree: GitTree, what: str, content: bytes | None) -> bytes:
    if content is None:
        tree.left_out[what] = "git did not give it"
    elif len(content) > _MOST_PATCH:
        tree.left_out[what] = f"more than {_MOST_PATCH >> 20} MiB"
    else:
        return content
    return b""


def _remotes(text: str) -> dict[str, str]:
    pairs = (line.partition("\n") for line in text.split("\0") if line)
    return {name[len("remote.") : -len(".url")]: without_credentials(url) for name, _, url in pairs}


def without_credentials(url: str) -> str:
    """A remote's address without name, password and query; the name alone stays where ssh needs it."""
    try:
        parts = urlsplit(url)
        if not parts.scheme or not parts.netloc:
            return url
        user, at, host = parts.netloc.rpartition("@")
        keep = f"{user}@" if at and parts.scheme == "ssh" and ":" not in user else ""
        return urlunsplit((parts.scheme, keep + host, parts.path, "", ""))
    except ValueError:
        return "(not an address)"


class _Git:
    """Asks git about one work tree. Nothing it is asked changes a file there."""

    def __init__(self, root: Path, environment: Mapping[str, str]) -> None:
        self.why = "git is not installed"
        self._command = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-C", str(root)]
        kept = {name: value for name, value in environment.items() if name not in _ELSEWHERE}
        # a .git that git does not take for one must not make it look further up
        self._environment = {**kept, "GIT_CEILING_DIRECTORIES": str(root.parent), "LC_ALL": "C"}

    def begin(self, *args: str) -> subprocess.Popen[bytes] | None:
        """Start a question; end() waits for its answer."""
        pipe = subprocess.PIPE
        try:
            return subprocess.Popen(
                [*self._command, *args], stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=self._environment
            )
        except OSError as error:
            self.why = f"git cannot be started: {error.strerror}"
            return None

    def end(self, process: subprocess.Popen[bytes] | None) -> str | None:
        """The answer as text; None where git fails, and ``why`` says how."""
        answer = self._wait(process)
        return None if answer is None else os.fsdecode(answer)

    def content(self, *args: str) -> bytes | None:
        """The answer, or as much of it as shows that it is too long to be kept."""
        process = self.begin(*args)
        if process is None or process.stdout is None:
            return None
        found = process.stdout.read(_MOST_PATCH + 1)
        if len(found) > _MOST_PATCH:
            process.kill()
        return found if self._wait(process) is not None or len(found) > _MOST_PATCH else None

    def _wait(self, process: subprocess.Popen[bytes] | None) -> bytes | None:
        if process is None:
            return None
        try:
            out, err = process.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            self.why = f"git took more than {_PATIENCE:.0f} s"
            return None
        if process.returncode == 0:
            return out
        if err:  # `git config` ends with 1 and says nothing where there is no remote
            self.why = f"git says: {err.decode('utf-8', 'replace').splitlines()[0]}"
        return None
