"""Run an exported model: NumPy arrays in, NumPy arrays out, no PyTorch and no LLVM."""

from __future__ import annotations

import ctypes
import os
import platform
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from isobit.arithmetic.dtypes import DType
from isobit.artifact.cpu import host_levels
from isobit.artifact.format import (
    ALIGNMENT,
    WEIGHTS,
    ArtifactError,
    ArtifactFile,
    ProgramFile,
    TensorSpec,
    read_artifact,
)
from isobit.runtime import abi
from isobit.runtime.pool import POOL_FUNCTIONS, ThreadPool, available_cores

Array = np.ndarray[Any, Any]


def load(path: str | os.PathLike[str], *, threads: int | None = None) -> Model:
    """The model in the artifact at `path`, ready to be called with NumPy arrays.

    `threads` (None: one per core) changes no bit of any result. Raises ArtifactError if the file is damaged or holds
    no code for this machine, ValueError for fewer threads than one.
    """
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be at least 1, not {threads}")
    return Model(read_artifact(Path(path)), threads)


class Model:
    """A callable model; several Python threads may call it at once."""

    def __init__(self, file: ArtifactFile, threads: int | None = None) -> None:
        self.manifest = file.manifest
        self.level, folder = _choose(file)
        self._weights = _aligned(file.member(WEIGHTS))
        n_slots = len(self.manifest.inputs) + len(self.manifest.weights) + len(self.manifest.outputs)
        library = _library(file.member(f"{folder}/library"))
        self._native = _Native(library, file.program(folder), n_slots, threads or available_cores())

    def __call__(self, *inputs: Array) -> Any:
        """What the exported model returns (an array, or arrays in tuples, lists and dicts) for `inputs`, which must
        have the shapes and dtypes of the example inputs.

        Raises TypeError for a wrong number or dtype of inputs, ValueError for a wrong shape.
        """
        given = _checked(inputs, self.manifest.inputs)
        outputs = [np.empty(s.shape, DType(s.dtype).numpy) for s in self.manifest.outputs]
        base = self._weights.ctypes.data
        slots = [x.ctypes.data for x in given]
        slots += [base + w.offset for w in self.manifest.weights]
        slots += [x.ctypes.data for x in outputs]
        self._native.run(slots)
        return _arranged(self.manifest.result, outputs)


def _arranged(tree: Any, outputs: Sequence[Array]) -> Any:
    """`outputs` in the structure that format.Manifest.result describes."""
    if isinstance(tree, int):
        return outputs[tree]
    ((kind, parts),) = tree.items()
    if kind == "dict":
        return {name: _arranged(part, outputs) for name, part in parts.items()}
    many = [_arranged(part, outputs) for part in parts]
    return tuple(many) if kind == "tuple" else many


def _choose(file: ArtifactFile) -> tuple[str, str]:
    """The best level of this machine that the file has code for."""
    for level in host_levels():
        if level in file.manifest.targets:
            return level, file.manifest.targets[level]
    held = ", ".join(file.manifest.targets)
    raise ArtifactError(f"{file.path} holds code for {held}; this machine ({platform.machine()}) runs {host_levels()}")


def _checked(inputs: Sequence[Array], specs: Sequence[TensorSpec]) -> list[Array]:
    if len(inputs) != len(specs):
        raise TypeError(f"the model takes {len(specs)} inputs ({[s.name for s in specs]}), got {len(inputs)}")
    out = []
    for x, s in zip(inputs, specs, strict=True):
        a = np.asarray(x)
        if a.dtype != DType(s.dtype).numpy:
            raise TypeError(f"input {s.name!r} must have dtype {DType(s.dtype).numpy}, got {a.dtype}")
        if a.shape != s.shape:
            raise ValueError(f"input {s.name!r} must have shape {s.shape}, got {a.shape}")
        out.append(np.ascontiguousarray(a))
    return out


def _aligned(source: bytes | int) -> Array:
    """Memory that starts at a multiple of ALIGNMENT: a copy of `source`, or that many bytes."""
    size = source if isinstance(source, int) else len(source)
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    view = raw[start : start + size]
    if isinstance(source, bytes):
        view[:] = np.frombuffer(source, np.uint8)
    return view


def _library(code: bytes) -> ctypes.CDLL:
    """The shared library, loaded from a private file that is gone again afterwards."""
    handle, name = tempfile.mkstemp(prefix="isobit-", suffix=".so")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(code)
        return ctypes.CDLL(name)
    except OSError as e:
        raise ArtifactError(f"the artifact's native code cannot be loaded here: {e}") from e
    finally:
        Path(name).unlink(missing_ok=True)


class _Native:
    """The program and its threads, as runtime.abi lays them out for the native driver."""

    def __init__(self, library: ctypes.CDLL, program: ProgramFile, n_slots: int, threads: int) -> None:
        args = [abi.words(launch.args) for launch in program.launches]
        functions = [_address(library[launch.symbol]) for launch in program.launches]
        parallel = [launch.parallel for launch in program.launches]
        table = abi.launch_table(functions, args, parallel)
        self._pool = ThreadPool({name: _address(library[name]) for name in POOL_FUNCTIONS}, threads, library)
        memory = (program.arena_bytes, program.thread_bytes)
        self._wide = threads > 1 and any(parallel)
        self._program = abi.program_words(self._pool.address, table, len(args), n_slots, *memory, self._wide)
        self._keep = (library, args, table)
        self._execute = library.isobit_execute
        self._execute.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self._execute.restype = ctypes.c_int32

    def run(self, slots: Sequence[int]) -> None:
        """Raises MemoryError if there is no room for the intermediate values."""
        if self._wide:
            self._pool.start()
        memory = (ctypes.c_uint64 * (len(slots) + 1))(*slots)
        if self._execute(ctypes.addressof(self._program), ctypes.addressof(memory)):
            raise MemoryError("no memory for the model's intermediate values")


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0
