"""Lets a replay import the recorded modules where a script, a variable or an editable install names their old place.

A script that puts the absolute path of its own `lib` folder in `sys.path` would otherwise import today's files.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)

from isobit.record.packages import INSTALLED

_LOADERS = (
    (ExtensionFileLoader, EXTENSION_SUFFIXES),
    (SourceFileLoader, SOURCE_SUFFIXES),
    (SourcelessFileLoader, BYTECODE_SUFFIXES),
)


def redirect(mirror: str, roots: Sequence[str]) -> None:
    """From now on, folders in `sys.path` that lie in one of the recorded trees stand for those in the mirror."""
    inside = tuple(os.path.join(root, "") for root in roots)

    def finder(path: str) -> FileFinder:
        copy = _copy_of(path)
        if copy is None:
            raise ImportError("not in a recorded tree", path=path)
        return FileFinder(copy, *_LOADERS)

    def _copy_of(path: str) -> str | None:
        real = os.path.realpath(path)
        if not os.path.join(real, "").startswith(inside) or real.startswith(os.path.join(mirror, "")):
            return None
        if INSTALLED & set(real.split(os.sep)):
            return None
        copy = mirror + real
        return copy if os.path.isdir(copy) else None

    sys.path_hooks.insert(0, finder)
    for path in [path for path in sys.path_importer_cache if _copy_of(path) is not None]:
        del sys.path_importer_cache[path]
