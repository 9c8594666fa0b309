"""The seeds of a process: what would take its first numbers from the operating system gets some instead.

Every process of a run has a place: the run's seed; of a forked process the number of the fork; of one that was
started afresh its command; of one of `multiprocessing` its number there. Numbers are hashes of it, so processes differ
from each other and not from run to run. Only the standard library is needed.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
from typing import Any

_MULTIPROCESSING = "--multiprocessing-fork"
_OPEN: list[ProcessSeeds] = []  # the seeds of this process, as its generators are the process's


def move_process(*place: int) -> None:
    """This process, which multiprocessing has started afresh, is the one with these numbers."""
    for seeds in _OPEN:
        seeds.move_to("process", *place)
        seeds.seed_all_again()


class ProcessSeeds:
    """Gives `random` and NumPy their seeds, anew in every forked process, until `close`."""

    def __init__(self, place: tuple[Any, ...]) -> None:
        self.place = place
        self._after_fork_too: list[Any] = []
        self._seeded: list[tuple[Any, str, int]] = []
        self._count = self._forks = 0
        self._lock = threading.Lock()
        _OPEN.append(self)
        os.register_at_fork(before=self._before_fork, after_in_child=self._after_fork)

    def close(self) -> None:
        """Forked processes are left alone from now on."""
        _OPEN.remove(self)

    def number(self, what: str, bits: int) -> int:
        """So many bits, a hash of this process's place and of `what`."""
        size = -(-bits // 8)
        whole = int.from_bytes(hashlib.shake_256(f"{what} {self.place}".encode()).digest(size), "little")
        return whole & ((1 << bits) - 1)

    def draw(self, bits: int) -> int:
        """The next such number; stands in place of `secrets.randbits`."""
        with self._lock:
            self._count += 1
            count = self._count
        return self.number(f"entropy {count}", bits)

    def move_to(self, *place: Any) -> None:
        """This process is another one of the run."""
        self.place = (*self.place, *place)
        self._count = self._forks = 0
        self._lock = threading.Lock()  # another thread may have held it

    def after_forks(self, module: Any) -> None:
        """Seed the module `random` after a fork, when Python would seed it from the system."""
        self._after_fork_too.append(module)

    def seed_random(self, module: Any) -> None:
        """Seed the module `random`, here and after a fork."""
        self._seed(module, "random", 128)
        self.after_forks(module)

    def seed_legacy_numpy(self, module: Any) -> None:
        """Seed `numpy.random.mtrand`, NumPy's legacy generator."""
        self._seed(module, "numpy", 32)

    def seed_bit_generators(self, module: Any) -> None:
        """All of NumPy's generators that are made without a seed ask `numpy.random.bit_generator` for entropy."""
        module.randbits = self.draw

    def _seed(self, module: Any, what: str, bits: int) -> None:
        module.seed(self.number(what, bits))
        self._seeded.append((module, what, bits))

    def seed_all_again(self) -> None:
        """What has been seeded begins afresh."""
        for module, what, bits in self._seeded:
            module.seed(self.number(what, bits))

    def _before_fork(self) -> None:
        if self in _OPEN:
            self._forks += 1

    def _after_fork(self) -> None:
        if self in _OPEN:
            self.move_to("fork", self._forks)
            for module in self._after_fork_too:
                module.seed(self.number("random", 128))


def seeds_of_child(config: str) -> ProcessSeeds:
    """Those of a process that was started afresh. The command of one of multiprocessing's holds numbers of files."""
    command = sys.orig_argv[1:]
    place = ("multiprocessing",) if _MULTIPROCESSING in command else tuple(command)
    return ProcessSeeds((json.loads(config)["seed"], *place))
