"""The seeds of a run: what would take its first numbers from the operating system gets one instead."""

from __future__ import annotations

import os
import random
import threading
from typing import Any

import numpy as np
import torch
from blake3 import blake3
from numpy.random import bit_generator as _bit_generator

bit_generator: Any = _bit_generator


def seed_all(seed: int) -> None:
    """Seed PyTorch, Python's `random` and NumPy's legacy generator with one number, 0 <= seed < 2^63."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


class NumpyEntropy:
    """NumPy's generators that are made without a seed, from `install` to `remove`: `default_rng()` and all others.

    All of them ask one function of NumPy's for entropy. The n-th answer of a process is a hash of `seed`, of the place
    of the process among forked ones, and of n; so the workers of a loader have streams of their own.
    """

    def __init__(self, seed: int) -> None:
        self._place: tuple[int, ...] = (seed,)
        self._count = 0
        self._forks = 0
        self._lock = threading.Lock()
        self._active = False
        self._original = bit_generator.randbits

    def install(self) -> None:
        self._active = True
        os.register_at_fork(before=self._before_fork, after_in_child=self._in_child)
        bit_generator.randbits = self.draw

    def remove(self) -> None:
        self._active = False
        bit_generator.randbits = self._original

    def draw(self, bits: int) -> int:
        """The next number of so many bits."""
        with self._lock:
            name = f"numpy {self._place} {self._count}"
            self._count += 1
        whole = int.from_bytes(blake3(name.encode()).digest(length=-(-bits // 8)), "little")
        return whole & ((1 << bits) - 1)

    def _before_fork(self) -> None:
        if self._active:
            self._forks += 1

    def _in_child(self) -> None:
        self._place = (*self._place, self._forks)
        self._count = self._forks = 0
        self._lock = threading.Lock()  # another thread may have held it
