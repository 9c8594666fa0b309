"""Compiled programs: a list of kernel launches that one native call runs on all threads."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from isobit.codegen.kernel import KernelSource
from isobit.codegen.target import Target, host_target
from isobit.runtime import abi
from isobit.runtime.code import CodeStore
from isobit.runtime.pool import ThreadPool, available_cores


@dataclass(frozen=True)
class Launch:
    """One call of a kernel on every thread, or (not ``parallel``) on the first alone, which then sees nthreads = 1.

    ``args`` are i64 words, signed or unsigned, with the meaning that the kernel gives them.
    """

    kernel: KernelSource
    args: tuple[int, ...]
    parallel: bool = True


@dataclass(frozen=True)
class ProgramSpec:
    """Launches, one after another with a barrier between them, and the memory they need.

    The slots are ``n_inputs`` addresses, ``n_outputs`` addresses and the arena: 64-byte aligned, ``arena_bytes`` shared
    by all threads, then ``thread_bytes`` of scratch for each, those of thread t at ``arena + arena_bytes + t *
    thread_bytes``. The arena's content at the start of a call is undefined; it is 0 if there is none. A program that is
    not ``parallel`` runs on the calling thread alone. Input i and output o may be one tensor, which the program
    overwrites, if (i, o) is in ``in_place``; else no output may overlap with anything.
    """

    launches: tuple[Launch, ...]
    n_inputs: int
    n_outputs: int
    arena_bytes: int = 0
    thread_bytes: int = 0
    parallel: bool = True
    in_place: frozenset[tuple[int, int]] = frozenset()


@dataclass(frozen=True)
class RuntimeOptions:
    """``threads``: None for one per available core. ``level``: a CPU level's name, None for this machine's best.
    ``cache_dir``: where object code is kept between processes, None for nowhere."""

    threads: int | None = None
    level: str | None = None
    cache_dir: Path | None = None

    def __post_init__(self) -> None:
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads must be at least 1, not {self.threads}")


class Program:
    """A loaded program; any number of Python threads may run it at the same time.

    ``call(*addresses)`` takes the inputs' addresses, then the outputs', and is the cheapest way in: a built-in function
    that releases the GIL. It raises TypeError for a wrong number of addresses, and MemoryError. ``address`` is the
    native record, which lives as long as the program; ``start`` starts the workers.
    """

    def __init__(self, spec: ProgramSpec, runtime: Runtime) -> None:
        self.spec = spec
        self.in_place = spec.in_place
        functions = runtime.code.addresses(launch.kernel for launch in spec.launches)
        args = [abi.words(launch.args) for launch in spec.launches]
        addresses = [functions[launch.kernel] for launch in spec.launches]
        table = abi.launch_table(addresses, args, [launch.parallel for launch in spec.launches])
        slots, memory = spec.n_inputs + spec.n_outputs, (spec.arena_bytes, spec.thread_bytes)
        self._native = abi.program_words(runtime.pool.address, table, len(args), slots, *memory, spec.parallel)
        keep = (self._native, table, args, runtime.pool, runtime.code)
        self.address, self.start = ctypes.addressof(self._native), runtime.pool.start
        self.call = runtime.code.entries.make(self.address, self.start, keep)

    def run(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Run on the addresses of ``n_inputs`` inputs and ``n_outputs`` outputs."""
        self.call(*inputs, *outputs)


class Runtime:
    """Loads programs for one CPU level and number of threads.

    ``code`` is shared by the runtimes that ``with_threads`` makes, so that nothing is compiled twice.
    """

    def __init__(self, options: RuntimeOptions, code: CodeStore | None = None) -> None:
        self.options = options
        self.code = code or CodeStore(host_target(options.level), options.cache_dir)
        self.threads = options.threads or available_cores()
        self.pool = ThreadPool(self.code.driver, self.threads, self.code)

    @property
    def target(self) -> Target:
        """What kernels for this runtime must be written for."""
        return self.code.target

    def with_threads(self, threads: int) -> Runtime:
        """A runtime with another number of threads and the same code."""
        return Runtime(replace(self.options, threads=threads), self.code)

    def load(self, spec: ProgramSpec) -> Program:
        """Compile what is not compiled yet, and link. Raises KernelError naming the kernel at fault."""
        return Program(spec, self)
