"""Which CPU levels this machine runs, found without LLVM: an artifact must load with NumPy alone."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from functools import cache
from pathlib import Path

_V2 = frozenset({"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"})
_V3 = _V2 | {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_X86 = {"x86-64-v4": _V4, "x86-64-v3": _V3, "x86-64-v2": _V2}


@cache
def host_levels() -> tuple[str, ...]:
    """Levels by the names of codegen.target, best first."""
    machine = platform.machine().lower()
    if machine in ("aarch64", "arm64"):
        return ("aarch64",)
    if machine in ("x86_64", "amd64"):
        return levels_of(_flags())
    return ()


def levels_of(flags: Iterable[str]) -> tuple[str, ...]:
    """The x86-64 levels that a CPU with these /proc/cpuinfo flags runs."""
    present = set(flags)
    return tuple(level for level, needs in _X86.items() if needs <= present)


def _flags() -> list[str]:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return line.split(":", 1)[1].split()
    return []
