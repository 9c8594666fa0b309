"""The environment of the process that runs a script: what can only be set before a process starts.

NumPy, BLAS and the C library choose among implementations by the CPU's features, and their results differ in the last
bits. Where a variable can hold them to one choice on every machine, it is set: a pin. What the user has set stays.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from isobit.record.files import write_atomic

_NUMPY = "NPY_DISABLE_CPU_FEATURES"
_GLIBC = "GLIBC_TUNABLES"
_HWCAPS = "glibc.cpu.hwcaps"
_WITHOUT_FMA = f"{_HWCAPS}=-FMA,-FMA4"
NAMES = (_NUMPY, _GLIBC, "OPENBLAS_CORETYPE", "OPENBLAS_NUM_THREADS", "MKL_CBWR")

# Kernels that run on every CPU that Isobit has a level for.
_OPENBLAS = {"x86_64": "Nehalem", "amd64": "Nehalem", "aarch64": "ARMV8"}
_DISPATCH = "from numpy._core._multiarray_umath import __cpu_dispatch__ as names; print(*names)"


def pinned(environment: Mapping[str, str], recorded: Mapping[str, str]) -> dict[str, str]:
    """`environment` with the pins in it. What a run that is replayed had comes after what the user has set now."""
    return {**_pins(recorded), **environment, **_c_library(environment, recorded)}


def pins_of(environment: Mapping[str, str]) -> dict[str, str]:
    """The pins of a process with this environment."""
    return {name: environment[name] for name in NAMES if name in environment}


def _pins(recorded: Mapping[str, str]) -> dict[str, str]:
    machine = platform.machine().lower()
    pins = {"OPENBLAS_NUM_THREADS": "1"}
    if machine in _OPENBLAS:
        pins["OPENBLAS_CORETYPE"] = _OPENBLAS[machine]
    if machine in {"x86_64", "amd64"}:
        pins["MKL_CBWR"] = "COMPATIBLE"
    features = _numpy_features()
    # the list is of this build of NumPy: to disable what another one takes for granted is an error
    return {**pins, **recorded, **({_NUMPY: features} if features else {})}


def _c_library(environment: Mapping[str, str], recorded: Mapping[str, str]) -> dict[str, str]:
    """glibc's functions have variants with fused multiply-add. Its tunables stand in one variable, colons between."""
    if sys.platform != "linux" or platform.machine() != "x86_64" or platform.libc_ver()[0] != "glibc":
        return {}
    parts = [part for part in environment.get(_GLIBC, recorded.get(_GLIBC, "")).split(":") if part]
    if not any(part.startswith(f"{_HWCAPS}=") for part in parts):
        parts.append(_WITHOUT_FMA)
    return {_GLIBC: ":".join(parts)}


def _numpy_features() -> str:
    """What NumPy's build can use beyond its baseline. It tells that only when it is imported, so a file keeps it."""
    spec = find_spec("numpy")
    if spec is None or spec.origin is None:
        return ""
    known = Path.home() / ".cache" / "isobit" / "numpy.json"
    key = f"{spec.origin} {os.stat(spec.origin).st_mtime_ns}"
    found = _read(known)
    if key not in found:
        done = subprocess.run([sys.executable, "-c", _DISPATCH], capture_output=True, text=True)
        if done.returncode != 0:
            return ""
        found = {key: done.stdout.strip()}
        _write(known, found)
    return found[key]


def _read(path: Path) -> dict[str, str]:
    try:
        found: Any = json.loads(path.read_text("utf-8"))
        return found if isinstance(found, dict) else {}
    except (OSError, ValueError):
        return {}


def _write(path: Path, data: dict[str, str]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps(data).encode())
    except OSError:
        return  # asked again the next time


def hide(variables: Sequence[str]) -> None:
    """Hide devices from this process and its children, before any is used."""
    os.environ.update(dict.fromkeys(variables, ""))
