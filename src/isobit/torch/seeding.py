"""The seeds of a run, set before the script's first line."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from numpy.random import bit_generator as _bit_generator

from isobit.seeds import ProcessSeeds

bit_generator: Any = _bit_generator


def seed_all(seed: int) -> None:
    """Seed PyTorch, Python's `random` and NumPy's legacy generator with one number, 0 <= seed < 2^63."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


class UnseededGenerators:
    """From `install` to `remove`: NumPy's generators that are made without a seed, and `random` after a fork."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._original = bit_generator.randbits

    def install(self) -> None:
        self._seeds = ProcessSeeds((self._seed,))
        self._seeds.after_forks(random)
        self._seeds.seed_bit_generators(bit_generator)

    def remove(self) -> None:
        self._seeds.close()
        bit_generator.randbits = self._original
