"""Copies the code that a script consists of, each file at the moment it is imported.

Copying at the end would be too late: people go on editing while a run is under way. A hook in
`sys.path_hooks` hands the folders of the script's own tree to a loader that copies before it loads;
everything outside is imported as ever. An audit hook would see more and cost more: it makes every `id()` in
the process seven times slower.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from functools import partial
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from blake3 import blake3

from isobit.record.files import write_atomic
from isobit.record.git import git_root

_INSTALLED = frozenset({"site-packages", "dist-packages"})


def tree_of(script: Path) -> Path:
    """The folder whose modules count as the script's own: its git work tree, or else the folder it lies in."""
    folder = script.parent
    return git_root(folder) or folder


class CodeCapture:
    """Copies modules that lie under `root` to `destination`; ``files`` and ``left_out`` say what was copied."""

    def __init__(self, root: Path, destination: Path, not_ours: tuple[Path, ...] = ()) -> None:
        self.files: dict[str, str] = {}
        self.left_out: dict[str, str] = {}
        self._root = os.path.abspath(root)
        self._real_root = os.path.realpath(root)
        self._destination = destination
        self._not_ours = tuple(os.path.realpath(p) for p in (*not_ours, *_standard_library()))
        self._owner = os.getpid()

    def install(self) -> None:
        """From now on, modules imported from the tree are copied first."""
        sys.path_hooks.insert(0, self._finder)
        for path in [p for p in sys.path_importer_cache if self.relative(p) is not None]:
            del sys.path_importer_cache[path]

    def relative(self, path: str) -> str | None:
        """`path` as seen from the root; None if it lies outside or belongs to an installed package."""
        real = os.path.realpath(path)
        if any(_below(real, place) is not None for place in self._not_ours):
            return None
        inside = _below(os.path.abspath(path), self._root)
        inside = _below(real, self._real_root) if inside is None else inside
        return None if inside is None or _INSTALLED & set(inside.split(os.sep)) else inside

    def add_script(self, path: str) -> str:
        """Copy the script itself, wherever it lies; returns its path relative to the root."""
        name = self.relative(path) or os.path.basename(path)
        self._copy(path, name)
        return name

    def add(self, path: str) -> None:
        """Copy the file `path` unless it is outside the tree or was copied before. Never raises."""
        name = self.relative(path)
        if name is not None:
            self._copy(path, name)

    def _copy(self, path: str, name: str) -> None:
        if name in self.files or os.getpid() != self._owner:
            return
        try:
            data = Path(path).read_bytes()
            target = self._destination / name
            target.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(target, data)
        except OSError as error:
            self.left_out[name] = error.strerror or str(error)
        else:
            self.left_out.pop(name, None)
            self.files[name] = blake3(data).hexdigest()

    def add_loaded(self) -> None:
        """Copy modules that came by another way than `sys.path`, such as an editable install's own finder."""
        for module in list(sys.modules.values()):
            path = _file_of(module)
            if path is not None and path.endswith(tuple(SOURCE_SUFFIXES)):
                self.add(path)
            elif path is not None and self.relative(path) is not None:
                self.left_out[path] = "not Python source"

    def paths(self) -> tuple[str, ...]:
        """The folders in the tree that modules come from: those in `sys.path`, then what copied modules
        imply.
        """
        found = [self.relative(os.path.abspath(entry)) for entry in sys.path]
        found += [self._import_root(name, module) for name, module in list(sys.modules.items())]
        return tuple(dict.fromkeys(entry for entry in found if entry is not None))

    def _import_root(self, name: str, module: ModuleType) -> str | None:
        """Where `name` must have been looked for: src for the module a.b in src/a/b.py."""
        path = self.relative(_file_of(module) or "")
        if path not in self.files or name in {"__main__", "__mp_main__"}:
            return None
        parts = Path(path).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        names = tuple(name.split("."))
        return str(Path(*parts[: -len(names)])) if parts[-len(names) :] == names else None

    def _finder(self, path: str) -> FileFinder:
        if self.relative(path) is None or not os.path.isdir(path):
            raise ImportError("not in the script's tree", path=path)
        copying: Any = partial(_CopyingLoader, self)
        return FileFinder(
            path,
            (ExtensionFileLoader, EXTENSION_SUFFIXES),
            (copying, SOURCE_SUFFIXES),
            (SourcelessFileLoader, BYTECODE_SUFFIXES),
        )


class _CopyingLoader(SourceFileLoader):
    """Loads a module as Python does, after copying its source."""

    def __init__(self, capture: CodeCapture, fullname: str, path: str) -> None:
        super().__init__(fullname, path)
        self._capture = capture

    def get_code(self, fullname: str) -> CodeType | None:
        self._capture.add(self.path)
        return super().get_code(fullname)


def _standard_library() -> tuple[Path, ...]:
    return tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib"))


def _file_of(module: ModuleType) -> str | None:
    path = getattr(module, "__file__", None)
    return path if isinstance(path, str) and os.path.isabs(path) else None  # PyTorch has some that are made up


def _below(path: str, folder: str) -> str | None:
    """`path` relative to `folder`, or None if it is not in it."""
    if path == folder:
        return "."
    prefix = folder if folder.endswith(os.sep) else folder + os.sep
    return path[len(prefix) :] if path.startswith(prefix) else None
