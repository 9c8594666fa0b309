"""The rounding mode of the calling thread, set as C's fesetround does."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator
from contextlib import contextmanager

_X86 = platform.machine() == "x86_64"
UPWARD, DOWNWARD = (0x800, 0x400) if _X86 else (0x400000, 0x800000)
_LIBM = ctypes.CDLL("libm.so.6")


@contextmanager
def rounding(mode: int) -> Iterator[None]:
    """Inside, the host's arithmetic rounds by `mode`."""
    before = _LIBM.fegetround()
    assert _LIBM.fesetround(mode) == 0
    try:
        yield
    finally:
        _LIBM.fesetround(before)
