"""Records the code that a script consists of: its work tree before its first line, and modules as they are imported.

Copying at the end would be too late: people go on editing while a run is under way. Where git names the tree's files,
all of them are read at the start. Modules from elsewhere, and those of a folder without git, are read when they are
imported; of one that was edited between the start and its import, the imported version counts. For this Python's own
loader of source files is told to say what it loads: a finder in `sys.path_hooks` would miss modules that are loaded by
their file's name, and an audit hook makes every `id()` in the process seven times slower.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
import sysconfig
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from blake3 import blake3

from isobit.record.errors import RecordError
from isobit.record.filecache import FileCache
from isobit.record.git import GitError, GitTree, git_root, read_git
from isobit.record.hashes import FileState
from isobit.record.links import links_along
from isobit.record.listing import Listing
from isobit.record.manifest import EDITABLE, OUTSIDE, SCRIPT, SUBMODULE, Code, GitState, Tree
from isobit.record.objects import Objects
from isobit.record.packages import INSTALLED
from isobit.record.secrets import redact
from isobit.record.snapshot import Reader, snapshot

JOURNAL = "code.jsonl"  # what was imported since the manifest was written: read where a run was killed
_MOST_BINARY = 10 << 20  # bytes of an extension module that is kept
_NAMED = 3  # files in a line that says what was left out
_MAIN = frozenset({"__main__", "__mp_main__"})


def tree_of(script: Path) -> Path:
    """The folder whose files count as the script's own: its git work tree, or else the folder it lies in."""
    folder = script.parent
    return git_root(folder) or folder


@dataclass
class _Tree:
    """A tree while it is recorded. ``stamps``: of the files that the snapshot read."""

    root: str
    kind: str
    listing: Listing = field(default_factory=Listing)
    git: GitState | None = None
    package: str | None = None
    stamps: dict[str, FileState] = field(default_factory=dict)

    def name_of(self, real: str) -> str | None:
        """`real` as seen from the root; None if it lies outside."""
        name = below(real, self.root)
        return None if name is None else name.replace(os.sep, "/")


class CodeCapture:
    """Records code into `objects`. ``notes``: what a reader of the record should know.

    `home`: the store's folder, where what files held is remembered. `not_ours`: folders that are never recorded.
    `editable`: folders of packages that are installed but lie elsewhere. Safe to call from several threads; a forked
    child records nothing.
    """

    def __init__(
        self,
        objects: Objects,
        home: Path,
        environment: Mapping[str, str],
        not_ours: tuple[Path, ...] = (),
        editable: Mapping[str, str] | None = None,
    ) -> None:
        self.notes: list[str] = []
        self._objects = objects
        self._home = home
        self._environment = environment
        self._not_ours = tuple(os.path.realpath(p) for p in (*not_ours, *_standard_library()))
        self._not_paths = frozenset(os.path.realpath(p.parent) for p in not_ours)
        self._editable = {os.path.realpath(folder): name for name, folder in (editable or {}).items()}
        self._trees: list[_Tree] = []
        self._script = ""
        self._module: str | None = None
        self._owner = os.getpid()
        self._lock = threading.RLock()
        self._seen: set[str] = set()
        self._journal: tuple[int, Path] | None = None
        self._uninstall: Callable[[], None] | None = None

    def start(self, script: str, module: str | None = None, folder: Path | None = None) -> None:
        """Record the script `script` (absolute, as it was named) and its tree: that of `folder`, by default the
        script's own. Raises RecordError where the store cannot be written or the script cannot be read.
        """
        self._script, self._module = script, module
        real = os.path.realpath(script)
        inside = Path(real) if folder is None else folder.resolve() / Path(real).name
        self._open_tree(os.path.realpath(tree_of(inside)), SCRIPT, files=True)
        name = self._trees[0].name_of(real)
        self._add(real)
        if not any(real == os.path.join(t.root, n) for t in self._trees for n in t.listing.files):
            why = self._trees[0].listing.left_out.get(name or "")
            raise RecordError(f"cannot record the script {script}: {why.reason if why else 'it is not there'}")

    def install(self, journal: Path | None = None) -> None:
        """From now on, modules are recorded as they are imported; those since the start are named in `journal`."""
        if journal is not None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            with contextlib.suppress(OSError):  # a full disk: the end of the run says it all
                self._journal = os.open(journal / JOURNAL, flags, 0o666), journal / JOURNAL
        load = SourceFileLoader.get_code

        def get_code(loader: Any, fullname: str) -> CodeType | None:
            self.add(loader.path)
            return load(loader, fullname)

        setattr(SourceFileLoader, "get_code", get_code)  # noqa: B010 — for mypy a method
        self._uninstall = lambda: setattr(SourceFileLoader, "get_code", load)

    def uninstall(self) -> None:
        """Record no further imports."""
        if self._uninstall is not None:
            self._uninstall()
            self._uninstall = None

    def close(self) -> None:
        """The manifest says all by now: the journal can go."""
        if self._journal is not None:
            os.close(self._journal[0])
            self._journal[1].unlink(missing_ok=True)
            self._journal = None

    def is_own(self, path: str) -> bool:
        """Whether the file `path` is the user's own code: not Python's, not an installed package's, not Isobit's."""
        if not os.path.isabs(path):  # PyTorch has some that are made up
            return False
        return self._is_own(os.path.realpath(path))

    def _is_own(self, real: str) -> bool:
        if any(below(real, place) is not None for place in self._not_ours):
            return False
        root = self._trees[0].root if self._trees else None
        inside = None if root is None else below(real, root)
        return not INSTALLED & set((real if inside is None else inside).split(os.sep))

    def add(self, path: str) -> None:
        """Record the file `path` unless it is not the user's own or was recorded before. Never raises."""
        if path in self._seen or os.getpid() != self._owner:
            return
        self._seen.add(path)
        if self.is_own(path):
            with self._lock:
                self._add(os.path.realpath(path))

    def add_loaded(self) -> None:
        """Record modules that came by another way than a source file's loader, such as extension modules."""
        for module in list(sys.modules.values()):
            path = _file_of(module)
            if path is not None:
                self.add(path)

    def remarks(self) -> list[str]:
        """A line for each tree of which something was left out, or made unreadable."""
        lines = []
        for tree in self._trees:
            out, hidden = tree.listing.left_out, tree.listing.redacted
            if out:
                largest = sorted(out.items(), key=lambda item: -(item[1].size or 0))[:_NAMED]
                some = "; ".join(f"{name} ({left.reason})" for name, left in largest)
                more = f"; and {len(out) - _NAMED} more" if len(out) > _NAMED else ""
                lines.append(f"not in the record, of {tree.root}: {some}{more}")
            if hidden:
                lines.append(f"secrets are asterisks in the record, of {tree.root}: {', '.join([*hidden][:_NAMED])}")
        return lines

    def code(self) -> Code:
        """What has been recorded so far. Raises RecordError where the store cannot be written."""
        with self._lock:
            trees = tuple(self._closed(tree) for tree in self._trees)
            paths = self.paths()
        links: dict[str, str] = {}
        for path in (self._script, *paths):
            links |= links_along(path)
        return Code(self._script, trees, paths, links, self._module)

    def paths(self) -> tuple[str, ...]:
        """The folders that modules come from: those in `sys.path`, then what recorded modules imply."""
        found = [entry for entry in map(os.path.abspath, sys.path) if self._is_recorded(entry)]
        found += [root for root in map(self._import_root, sys.modules.copy().items()) if root is not None]
        return tuple(dict.fromkeys(found))

    def _is_recorded(self, folder: str) -> bool:
        real = os.path.realpath(folder)
        known = any(tree.name_of(real) is not None for tree in self._trees)
        return known and real not in self._not_paths and os.path.isdir(real) and self._is_own(real)

    def _import_root(self, item: tuple[str, ModuleType]) -> str | None:
        """Where a module must have been looked for: /x/src for the module a.b in /x/src/a/b.py."""
        name, module = item
        path = _file_of(module)
        if path is None or path not in self._seen or name in _MAIN or not self.is_own(path):
            return None
        parts = Path(path).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        names = tuple(name.split("."))
        return str(Path(*parts[: -len(names)])) if parts[-len(names) :] == names else None

    def _closed(self, tree: _Tree) -> Tree:
        listing = tree.listing
        return Tree(
            root=tree.root,
            kind=tree.kind,
            listing=self._objects.put(listing.to_bytes()),
            files=len(listing.files),
            bytes=sum(entry.size for entry in listing.files.values()),
            left_out=len(listing.left_out),
            redacted=len(listing.redacted),
            git=tree.git,
            package=tree.package,
        )

    def _add(self, real: str) -> None:
        tree = self._tree_for(real)
        name = tree.name_of(real) or os.path.basename(real)
        try:
            found = os.stat(real)
            known = name in tree.listing.files and tree.stamps.get(name) == FileState.of(found)
            if known or not stat.S_ISREG(found.st_mode):
                return
            if not real.endswith(".py") and found.st_size > _MOST_BINARY:
                raise OSError(0, f"larger than {_MOST_BINARY >> 20} MiB")
            entry, redacted = Reader(self._objects).read(real, name, found)
        except (OSError, RecordError) as error:
            tree.listing.leave_out(name, getattr(error, "strerror", None) or str(error))
            return
        before = tree.listing.files.get(name)
        if before is not None and before.digest != entry.digest:
            self.notes.append(f"{real} was edited between the start and its import; what was imported is recorded")
        tree.stamps[name] = FileState.of(found)
        tree.listing.keep(name, entry, redacted)
        self._write_down(tree, name)

    def _write_down(self, tree: _Tree, name: str) -> None:
        if self._journal is None:
            return
        entry = tree.listing.files[name]
        line: dict[str, Any] = {"root": tree.root, "kind": tree.kind, "package": tree.package, "name": name}
        line |= {"mode": entry.mode, "size": entry.size, "digest": entry.digest}
        line["redacted"] = tree.listing.redacted.get(name, {})
        try:
            os.write(self._journal[0], json.dumps(line, separators=(",", ":")).encode("ascii") + b"\n")
        except OSError:  # the end of the run says it again
            return

    def _tree_for(self, real: str) -> _Tree:
        """The deepest tree that `real` lies in; a new one where there is none."""
        around = [tree for tree in self._trees if tree.name_of(real) is not None]
        if around:
            return max(around, key=lambda tree: len(tree.root))
        for folder, package in self._editable.items():
            if below(real, folder) is not None:
                return self._open_tree(folder, EDITABLE, files=True, package=package)
        return self._open_tree(_outside_root(real), OUTSIDE, files=False)

    def _open_tree(self, root: str, kind: str, files: bool, package: str | None = None) -> _Tree:
        """A new tree, with all that git names in it if `files`; repositories inside are trees of their own."""
        tree = _Tree(root, kind, package=package)
        self._trees.append(tree)
        git = self._ask_git(root, files)
        if git is None:
            return tree
        tree.git = self._state(git)
        if files:
            name = blake3(os.fsencode(root)).hexdigest()[:16]
            cache = FileCache(self._home / "cache" / f"files-{name}.json")
            tree.listing, tree.stamps = snapshot(Path(root), git, self._objects, cache)
            for nested in git.nested:
                inside = os.path.join(root, nested.rstrip("/"))
                if os.path.exists(os.path.join(inside, ".git")):
                    self._open_tree(os.path.realpath(inside), SUBMODULE, files=True)
        return tree

    def _ask_git(self, root: str, files: bool) -> GitTree | None:
        if not os.path.exists(os.path.join(root, ".git")):
            return None
        try:
            return read_git(Path(root), self._environment, files)
        except GitError as error:
            self.notes.append(f"the state of {root} is not recorded, nor files that are not imported: {error}")
            return None

    def _state(self, git: GitTree) -> GitState:
        patch = redact(git.patch)[0]
        staged = {name: self._objects.put(redact(data, name)[0]) for name, data in git.staged.items()}
        return GitState(
            commit=git.commit,
            branch=git.branch,
            dirty=git.dirty,
            remotes=git.remotes,
            patch=self._objects.put(patch) if patch else None,
            staged=staged,
            left_out=git.left_out,
        )


def below(path: str, folder: str) -> str | None:
    """`path` relative to `folder`, or None if it is not in it."""
    if path == folder:
        return "."
    prefix = folder if folder.endswith(os.sep) else folder + os.sep
    return path[len(prefix) :] if path.startswith(prefix) else None


def _outside_root(real: str) -> str:
    """The root of the tree around a module: its repository, or the folder in `sys.path`, or its own."""
    folder = os.path.dirname(real)
    root = git_root(Path(folder))
    if root is not None:
        return str(root)
    entries = [entry for entry in map(os.path.realpath, sys.path) if below(real, entry) is not None]
    return max(entries, key=len, default=folder)


def _standard_library() -> tuple[Path, ...]:
    return tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib"))


def _file_of(module: ModuleType) -> str | None:
    path = getattr(module, "__file__", None)
    return path if isinstance(path, str) and os.path.isabs(path) else None
