"""The threads that run programs together with the caller: Python daemon threads parked in the native abi."""

from __future__ import annotations

import ctypes
import os
import threading
import time
import weakref
from typing import Any

from isobit.runtime import abi

_ALIGN = 128  # two cache lines: neighbours are prefetched in pairs
# How long a waiter looks again and again before it offers its core to others, and then sleeps: about as long as it
# takes to wake a sleeper. With more threads than cores the one waited for may need this very core.
_SPIN_SECONDS = 50e-6
_SPIN_SECONDS_CROWDED = 1e-6
POOL_FUNCTIONS = ("isobit_pool_init", "isobit_pool_stop", "isobit_worker", "isobit_relax")
"""The driver's functions that a pool needs the addresses of."""
_pools: weakref.WeakSet[ThreadPool] = weakref.WeakSet()


class ThreadPool:
    """``threads`` threads, the caller being one; the others start with the first call that wants them.

    A forked child has none of its parent's threads: its pool is made new in place and starts its own when needed.
    """

    def __init__(self, functions: dict[str, int], threads: int, keep: Any) -> None:
        self._keep = keep
        self._functions = functions
        self._threads = threads
        self._memory = ctypes.create_string_buffer(abi.POOL_BYTES + _ALIGN)
        self.address = -(-ctypes.addressof(self._memory) // _ALIGN) * _ALIGN
        self._start_lock = threading.Lock()
        crowded = threads > available_cores()
        self._spin = int((_SPIN_SECONDS_CROWDED if crowded else _SPIN_SECONDS) / _spin_turn(functions))
        self._reset()
        _pools.add(self)

    def start(self) -> None:
        """Start the workers unless that has been done; a machine that has no threads left gives fewer of them."""
        with self._start_lock:
            if self._state.value == abi.IDLE:
                started = self._start_workers()
                self._field(4).value = 1 + started
                self._state.value = abi.READY if started else abi.STOPPED

    def _start_workers(self) -> int:
        """How many workers could be started; they wait for the first job."""
        self._finalizer = weakref.finalize(self, _stop, self._functions, self.address, self._memory, self._keep)
        for tid in range(1, self._threads):
            args = (self._functions["isobit_worker"], self.address, tid, self._memory, self._keep)
            try:
                threading.Thread(target=_work, args=args, name=f"isobit-{tid}", daemon=True).start()
            except RuntimeError:
                return tid - 1
        return self._threads - 1

    def _reset(self) -> None:
        ctypes.memset(self.address, 0, abi.POOL_BYTES)
        self._state = self._field(8)
        self._field(4).value = self._threads
        self._field(12).value = self._spin
        self._state.value = abi.STOPPED if self._threads == 1 else abi.IDLE
        _native(self._functions["isobit_pool_init"], ctypes.c_void_p)(self.address)

    def _field(self, offset: int) -> ctypes.c_int32:
        return ctypes.c_int32.from_address(self.address + offset)

    def after_fork(self) -> None:
        """In the child: forget the parent's workers and whatever calls its other threads were in."""
        self._start_lock = threading.Lock()
        if self._state.value == abi.READY:
            self._finalizer.detach()
        self._reset()


def available_cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _native(address: int, *argtypes: Any) -> Any:
    return ctypes.CFUNCTYPE(None, *argtypes)(address)


def _spin_turn(functions: dict[str, int]) -> float:
    """Seconds that one turn of the spin loop takes: from 2 to 50 ns, depending on the CPU's pause instruction."""
    relax, turns = _native(functions["isobit_relax"], ctypes.c_int64), 500
    times = []
    for _ in range(4):
        start = time.perf_counter()
        relax(turns)
        times.append(time.perf_counter() - start)
    return max(min(times) / turns, 1e-9)


def _work(function: int, pool: int, tid: int, *keep: Any) -> None:
    _native(function, ctypes.c_void_p, ctypes.c_int64)(pool, tid)


def _stop(functions: dict[str, int], pool: int, *keep: Any) -> None:
    _native(functions["isobit_pool_stop"], ctypes.c_void_p)(pool)


def _after_fork() -> None:
    for pool in list(_pools):
        pool.after_fork()


os.register_at_fork(after_in_child=_after_fork)
