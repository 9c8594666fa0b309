"""One digest of the random generators that a script shares: PyTorch's, `random`'s and NumPy's legacy one.

They are read where they lie in memory: through their own getters, Python's and NumPy's states cost a tenth of a
millisecond, and a step may take less. Reading draws nothing and changes nothing.
"""

from __future__ import annotations

import ctypes
import random
import struct
import sys
from functools import cache
from typing import Any

import torch
import xxhash

_WORDS = 624  # of a Mersenne twister
_TORCH_STATE = 5056  # bytes of PyTorch's CPU generator; these two ranges leave out what its structure does not use
_TORCH_USED = ((0, 5044), (5048, 5053))
_PYTHON_STATE = 4 + 4 * _WORDS  # a position and the words
_PYTHON_OFFSET = object.__basicsize__  # they lie right behind an object's header
_NUMPY_STATE = 4 * _WORDS + 4


def random_digest() -> str:
    """XXH3-128 of the three states, in hexadecimal. NumPy's counts only where the script's process has loaded it."""
    return xxhash.xxh3_128_hexdigest(b"".join((_torch_state(), _python_state(), _numpy_state())))


def _torch_state() -> bytes:
    state = torch.default_generator.get_state()
    data = ctypes.string_at(state.data_ptr(), state.numel())
    return b"".join(data[a:b] for a, b in _TORCH_USED) if len(data) == _TORCH_STATE else data


def _python_state() -> bytes:
    generator: Any = random._inst  # whose methods the module's functions are
    if not _python_is_where_expected():
        return repr(generator.getstate()).encode()
    return ctypes.string_at(id(generator) + _PYTHON_OFFSET, _PYTHON_STATE) + repr(generator.gauss_next).encode()


@cache
def _python_is_where_expected() -> bool:
    """Whether the state lies where this interpreter's source says; other interpreters may have it elsewhere."""
    if sys.implementation.name != "cpython" or random.Random.__basicsize__ < _PYTHON_OFFSET + _PYTHON_STATE:
        return False
    other = random.Random(5)
    other.random()
    *words, position = other.getstate()[1]
    expected = struct.pack(f"=i{_WORDS}I", position, *words)
    return ctypes.string_at(id(other) + _PYTHON_OFFSET, _PYTHON_STATE) == expected


def _numpy_state() -> bytes:
    """Of NumPy's global generator, without the second number of a pair of normal ones that it may hold back."""
    module = sys.modules.get("numpy.random")
    if module is None:
        return b""
    generator = module.get_bit_generator()
    if type(generator).__name__ != "MT19937":
        return repr(generator.state).encode()
    return ctypes.string_at(generator.ctypes.state_address, _NUMPY_STATE)
