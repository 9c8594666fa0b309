"""What is to be run: a file, a folder with a `__main__.py`, or with -m a module, found as `python` would find it."""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from isobit.record.errors import RecordError

_MAIN = "__main__"


@dataclass(frozen=True)
class Target:
    """The file to run, what ``sys.argv[0]`` starts from, and the module's name where it is one."""

    script: str
    argv0: str
    module: str | None = None


def target_of(name: str, is_module: bool) -> Target:
    """What `name` on the command line means; raises RecordError if that is not there."""
    if is_module:
        return Target(_file_of_module(name), name, name)
    path = os.path.abspath(name)  # symbolic links kept, as Python's __file__ has it
    if os.path.isdir(path) and os.path.isfile(os.path.join(path, f"{_MAIN}.py")):
        return Target(os.path.join(path, f"{_MAIN}.py"), name)
    if not os.path.isfile(path):
        raise RecordError(f"there is no script {name!r}")
    return Target(path, name)


def import_root(script: str, module: str | None) -> Path:
    """The folder that the first name in `module` was found in, or of a script its own."""
    path = Path(script)
    if module is None:
        return path.parent
    parts = module.split(".")
    below = len(parts) + (path.stem == _MAIN and parts[-1] != _MAIN)
    return path.parents[below - 1]


def _file_of_module(name: str) -> str:
    """The source file of a module; imports nothing, since that is for the run to do."""
    spec = _find(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = _find(f"{name}.{_MAIN}")
        if spec is None:
            raise RecordError(f"{name} is a package without a {_MAIN}: it cannot be run")
    if spec is None:
        raise RecordError(f"there is no module {name!r}")
    if spec.origin is None or not spec.origin.endswith(".py") or not os.path.isfile(spec.origin):
        raise RecordError(f"the module {name!r} has no Python file: it cannot be run")
    return os.path.abspath(spec.origin)


def _find(name: str) -> ModuleSpec | None:
    first, *rest = name.split(".")
    if not all(part.isidentifier() for part in (first, *rest)):
        return None
    spec = PathFinder.find_spec(first, [os.getcwd(), *sys.path]) or importlib.util.find_spec(first)
    full = first
    for part in rest:
        if spec is None or spec.submodule_search_locations is None:
            return None
        full = f"{full}.{part}"
        spec = PathFinder.find_spec(full, list(spec.submodule_search_locations))
    return spec
