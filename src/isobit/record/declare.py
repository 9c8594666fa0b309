"""`isobit.data`: names what a script reads below Python, where no hook sees it being opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

Path = TypeVar("Path", str, bytes, os.PathLike[Any])
_TOLD: list[Callable[[str], None]] = []


def data(path: Path) -> Path:
    """Record `path`, a file or a folder with all that is below it, as read by the run; returns it as it is.

    For what libraries open without Python (HDF5, LMDB, Arrow, safetensors, OpenCV): ``h5py.File(isobit.data("x.h5"))``.
    Outside of a recorded run it does nothing. Raises FileNotFoundError if there is no such file or folder.
    """
    os.stat(path)
    for tell in tuple(_TOLD):
        for file in _files(os.fsdecode(path)):
            tell(file)
    return path


def tell_declared(listener: Callable[[str], None]) -> None:
    """From now on `listener` is told of every declared file: the one registered run of this process."""
    _TOLD[:] = [listener]


def _files(path: str) -> Iterator[str]:
    """The file itself, or the files below the folder, sorted, so that their order says nothing of the disk."""
    if not os.path.isdir(path):
        yield path
        return
    for folder, folders, files in os.walk(path, followlinks=False):
        folders.sort()
        yield from (os.path.join(folder, name) for name in sorted(files))
