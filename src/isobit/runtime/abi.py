"""Memory that Python sets up for the native driver. No LLVM here: exported models use it where there is none.

Every field is 8 bytes unless said otherwise:

    program  0 pool   8 launches   16 number of launches   24 number of slots without the arena
             32 arena bytes, shared part   40 arena bytes per thread   48 parallel (0 or 1)
    launch   0 function   8 args   16 flags: PARALLEL, BARRIER          (24 bytes each, one after another)
    pool     0 busy (i32)   4 threads (i32)   8 state (i32)   12 spin (i32)   the rest is the driver's own
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

POOL_BYTES = 1024
PROGRAM_BYTES = 56
LAUNCH_BYTES = 24
PARALLEL, BARRIER = 1, 2
IDLE, READY, CLOSED, STOPPED = 0, 1, 2, 3

Words = ctypes.Array[ctypes.c_uint64]


def words(values: Sequence[int]) -> Words:
    """Integers, signed or unsigned, as an array of 64-bit words (at least one)."""
    mask = (1 << 64) - 1
    return (ctypes.c_uint64 * max(len(values), 1))(*[value & mask for value in values])


def launch_table(functions: Sequence[int], args: Sequence[Words], parallel: Sequence[bool]) -> Words:
    """The driver's launch records. Between two serial launches nobody has to wait."""
    table: list[int] = []
    for k, (function, own) in enumerate(zip(functions, args, strict=True)):
        meet = parallel[k] or k + 1 == len(functions) or parallel[k + 1]
        table += [function, ctypes.addressof(own), PARALLEL * parallel[k] + BARRIER * meet]
    return words(table)


def program_words(
    pool: int, table: Words, n_launches: int, n_slots: int, arena_bytes: int, thread_bytes: int, parallel: bool
) -> Words:
    """The program record over a launch table and the address of a pool."""
    return words([pool, ctypes.addressof(table), n_launches, n_slots, arena_bytes, thread_bytes, int(parallel)])
