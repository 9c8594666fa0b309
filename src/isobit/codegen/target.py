"""The CPUs that code is generated for, by level, and which of them this machine is.

A level is an instruction set that many machines share, tuned for none of them: two machines of one level get the same
object code for one source, so a compiled kernel can be cached and shipped under its level's name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import llvmlite.binding as llvm


class UnsupportedLevelError(ValueError):
    """The CPU level is unknown, or this machine cannot run it."""


@dataclass(frozen=True)
class Target:
    """What the vector emitter and LLVM must know of a CPU.

    ``features`` is LLVM's feature string on top of ``cpu``. ``has_fma`` says whether ``llvm.fma`` is one instruction
    (else use ``codegen.softfma``); ``has_f16`` whether f16 <-> f32 conversion is (else LLVM would call a library).
    """

    triple: str
    level: str
    cpu: str
    features: str
    vector_bytes: int
    vector_registers: int
    has_fma: bool
    has_f16: bool

    @property
    def arch(self) -> str:
        """The architecture: the first part of the triple."""
        return self.triple.split("-", 1)[0]

    def lanes(self, itemsize: int) -> int:
        """Elements of ``itemsize`` bytes in one vector register."""
        return self.vector_bytes // itemsize

    def with_triple(self, triple: str) -> Target:
        """The same level for another operating system, such as ``x86_64-w64-windows-gnu``."""
        if _arch_of(triple) != self.arch:
            raise UnsupportedLevelError(f"level {self.level} is for {self.arch}, not for the triple {triple}")
        return replace(self, triple=triple)


_X86 = "x86_64-unknown-linux-gnu"
_ARM = "aarch64-unknown-linux-gnu"
# LLVM's x86-64-v4 prefers 256-bit vectors because early Skylakes lost clock speed on wider ones; we want zmm.
_LEVELS = {
    "x86-64-v4": Target(_X86, "x86-64-v4", "x86-64-v4", "-prefer-256-bit", 64, 32, True, True),
    "x86-64-v3": Target(_X86, "x86-64-v3", "x86-64-v3", "", 32, 16, True, True),
    "x86-64-v2": Target(_X86, "x86-64-v2", "x86-64-v2", "", 16, 16, False, False),
    "aarch64": Target(_ARM, "aarch64", "generic", "+neon", 16, 32, True, True),
}
_LADDERS = {"x86_64": ("x86-64-v4", "x86-64-v3", "x86-64-v2"), "aarch64": ("aarch64",)}
# The psABI's levels, by the names LLVM gives the features (SSE and SSE2 are part of every x86-64).
_V2 = frozenset({"sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16", "sahf"})
_V3 = _V2 | {"avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_NEEDS = {"x86-64-v4": _V4, "x86-64-v3": _V3, "x86-64-v2": _V2, "aarch64": frozenset[str]()}


def level_target(level: str, triple: str | None = None) -> Target:
    """The target of a level, whether or not this machine can run it; ``triple`` replaces the Linux default.

    Raises UnsupportedLevelError for a level that is not in the table or does not fit the triple.
    """
    if level not in _LEVELS:
        raise UnsupportedLevelError(f"unknown CPU level {level!r}; known levels: {', '.join(_LEVELS)}")
    return _LEVELS[level] if triple is None else _LEVELS[level].with_triple(triple)


@cache
def host_levels() -> tuple[str, ...]:
    """The levels this machine can run, best first; empty on an architecture without a level."""
    present = {name for name, on in llvm.get_host_cpu_features().items() if on}
    return tuple(level for level in _LADDERS.get(_host_arch(), ()) if _NEEDS[level] <= present)


def host_target(level: str | None = None) -> Target:
    """The target for this machine: its best level, or the named one.

    Raises UnsupportedLevelError if the level is unknown or this machine lacks it.
    """
    levels = host_levels()
    if not levels:
        raise UnsupportedLevelError(f"this machine ({llvm.get_process_triple()}) has no level that Isobit knows")
    chosen = levels[0] if level is None else level
    target = level_target(chosen)
    if chosen not in levels:
        raise UnsupportedLevelError(
            f"this machine cannot run CPU level {chosen}{_reason(chosen)}; it can run: {', '.join(levels)}"
        )
    return target.with_triple(llvm.get_process_triple())


def next_lower(level: str) -> str | None:
    """The level below on the same architecture, or None below the last."""
    ladder = next(ladder for ladder in _LADDERS.values() if level_target(level).level in ladder)
    below = ladder.index(level) + 1
    return ladder[below] if below < len(ladder) else None


def _reason(level: str) -> str:
    if level not in _LADDERS.get(_host_arch(), ()):
        return f" (it is {_host_arch()})"
    missing = _NEEDS[level] - {name for name, on in llvm.get_host_cpu_features().items() if on}
    return f" (no {', '.join(sorted(missing))})"


def _host_arch() -> str:
    return _arch_of(llvm.get_process_triple())


def _arch_of(triple: str) -> str:
    """The architecture of a triple in LLVM's spelling (Apple's ``arm64`` is ``aarch64``)."""
    arch = triple.split("-", 1)[0]
    return {"arm64": "aarch64", "amd64": "x86_64"}.get(arch, arch)
