"""The unit of code generation: the LLVM IR text of one kernel."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KernelSource:
    """LLVM IR text that defines ``void @symbol(ptr %slots, ptr %args, i64 %tid, i64 %nthreads)``.

    ``slots`` is an i64 array of base addresses, filled anew for each call of a program: inputs, outputs, one arena
    address. ``args`` is a constant i64 array of the launch whose meaning is the kernel's own affair. Every thread
    calls the kernel with its own ``0 <= tid < nthreads``; the result must not depend on ``nthreads``.
    """

    symbol: str
    text: str
