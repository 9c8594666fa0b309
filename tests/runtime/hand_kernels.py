"""Small kernels written by hand, and what they compute."""

from __future__ import annotations

from typing import Any

import numpy as np

from isobit.codegen.kernel import KernelSource
from isobit.runtime.program import Launch, ProgramSpec

Array = np.ndarray[Any, Any]

# The thread's share [lo, hi) of args[0] elements.
_SHARE = """
entry:
  %len = load i64, ptr %args
  %t0 = mul i64 %tid, %len
  %lo = udiv i64 %t0, %nthreads
  %tid1 = add i64 %tid, 1
  %t1 = mul i64 %tid1, %len
  %hi = udiv i64 %t1, %nthreads
  %any = icmp ult i64 %lo, %hi
  br i1 %any, label %loop, label %done
"""


def binary(op: str, type_: str = "float") -> KernelSource:
    """slots[2] = slots[0] op slots[1] over args[0] elements, each thread a share of them."""
    text = f"""
define void @{op}(ptr %slots, ptr %args, i64 %tid, i64 %nthreads) nounwind {{{_SHARE}
loop:
  %i = phi i64 [ %lo, %entry ], [ %i2, %loop ]
  %a = load ptr, ptr %slots
  %bs = getelementptr ptr, ptr %slots, i64 1
  %b = load ptr, ptr %bs
  %cs = getelementptr ptr, ptr %slots, i64 2
  %c = load ptr, ptr %cs
  %ap = getelementptr {type_}, ptr %a, i64 %i
  %bp = getelementptr {type_}, ptr %b, i64 %i
  %cp = getelementptr {type_}, ptr %c, i64 %i
  %x = load {type_}, ptr %ap
  %y = load {type_}, ptr %bp
  %z = {op} {type_} %x, %y
  store {type_} %z, ptr %cp
  %i2 = add i64 %i, 1
  %more = icmp ult i64 %i2, %hi
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""
    return KernelSource(op, text)


# slots[to][i] = slots[from][(i + 1) mod n] + 1 over i64; args: n, from, to. Right only if a barrier stands between two.
ROTATE = KernelSource(
    "rotate",
    f"""
define void @rotate(ptr %slots, ptr %args, i64 %tid, i64 %nthreads) nounwind {{{_SHARE}
loop:
  %i = phi i64 [ %lo, %entry ], [ %i2, %loop ]
  %fromp = getelementptr i64, ptr %args, i64 1
  %from = load i64, ptr %fromp
  %top = getelementptr i64, ptr %args, i64 2
  %to = load i64, ptr %top
  %as = getelementptr ptr, ptr %slots, i64 %from
  %a = load ptr, ptr %as
  %bs = getelementptr ptr, ptr %slots, i64 %to
  %b = load ptr, ptr %bs
  %i2 = add i64 %i, 1
  %j = urem i64 %i2, %len
  %ap = getelementptr i64, ptr %a, i64 %j
  %bp = getelementptr i64, ptr %b, i64 %i
  %x = load i64, ptr %ap
  %y = add i64 %x, 1
  store i64 %y, ptr %bp
  %more = icmp ult i64 %i2, %hi
  br i1 %more, label %loop, label %done
done:
  ret void
}}
""",
)

# slots[0][tid] = nthreads + 100 * tid + args[0], and slots[1][tid] += 1: who came, and how often.
REPORT = KernelSource(
    "report",
    """
define void @report(ptr %slots, ptr %args, i64 %tid, i64 %nthreads) nounwind {
  %a = load ptr, ptr %slots
  %bs = getelementptr ptr, ptr %slots, i64 1
  %b = load ptr, ptr %bs
  %arg = load i64, ptr %args
  %h = mul i64 %tid, 100
  %s = add i64 %h, %nthreads
  %t = add i64 %s, %arg
  %ap = getelementptr i64, ptr %a, i64 %tid
  store i64 %t, ptr %ap
  %bp = getelementptr i64, ptr %b, i64 %tid
  %n = load i64, ptr %bp
  %n2 = add i64 %n, 1
  store i64 %n2, ptr %bp
  ret void
}
""",
)

# slots[0][0] = the arena's address; writes args[0] bytes of the arena so that a short one would be noticed.
ARENA = KernelSource(
    "arena",
    """
define void @arena(ptr %slots, ptr %args, i64 %tid, i64 %nthreads) nounwind {
  %a = load ptr, ptr %slots
  %ms = getelementptr ptr, ptr %slots, i64 1
  %m = load ptr, ptr %ms
  store ptr %m, ptr %a
  %bytes = load i64, ptr %args
  call void @llvm.memset.p0.i64(ptr %m, i8 17, i64 %bytes, i1 false)
  ret void
}
""",
)


def addresses(*arrays: Array) -> list[int]:
    return [array.ctypes.data for array in arrays]


def rotations(size: int, launches: int) -> ProgramSpec:
    """Rotates slot 0 (input) by ``launches``, an even number, adding as many; slots 1 and 2 are outputs."""
    hops = [(0, 1), *([(1, 2), (2, 1)] * launches)][:launches]
    return ProgramSpec(tuple(Launch(ROTATE, (size, *hop)) for hop in hops), 1, 2)


def rotated(x: Array, launches: int) -> Array:
    return np.roll(x, -launches) + launches
