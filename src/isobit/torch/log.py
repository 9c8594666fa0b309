"""`isobit.log(name=value)`: values that a script wants in its record, to the last bit."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from isobit.arithmetic.dtypes import DType
from isobit.torch.events import EventSink, LogEvent
from isobit.torch.fingerprint import scalar_bits
from isobit.torch.untraced import untraced

_SINKS: list[EventSink] = []  # of the runs under way: a function of a script can reach no other place
_OF_NUMPY = {dtype.numpy: dtype for dtype in DType if dtype is not DType.BF16}
_LONGEST_NAME = 200


@untraced(nested=True)
def log(**values: object) -> None:
    """Record values under their names, each with the number of optimizer steps made so far.

    Numbers (Python's, NumPy's, tensors of one element) are recorded by dtype and bits, strings as they are. Without a
    run under way nothing is recorded. Raises TypeError for any other value and ValueError for a name that is empty,
    longer than 200 characters or not printable.
    """
    events = [LogEvent(_checked(name), *_read(name, value)) for name, value in values.items()]
    for sink in tuple(_SINKS):
        for event in events:
            sink(event)


@contextmanager
def logging_to(sink: EventSink) -> Iterator[None]:
    """While it is entered, `sink` gets a LogEvent for each value, from whichever thread."""
    _SINKS.append(sink)
    try:
        yield
    finally:
        _SINKS.remove(sink)


def _checked(name: str) -> str:
    if not name.isprintable() or not 0 < len(name) <= _LONGEST_NAME:
        raise ValueError(
            f"isobit.log: {name[:_LONGEST_NAME]!r} is no name of 1 to {_LONGEST_NAME} printable characters"
        )
    return name


def _read(name: str, value: object) -> tuple[str, str]:
    """Bits, or "" and a text."""
    if isinstance(value, str):
        return "", value
    try:
        found = _number(value)
    except (TypeError, RuntimeError) as error:
        raise TypeError(f"isobit.log: {name} cannot be recorded: {error}") from error
    return (found, "") if ":" in found else ("", found)


def _number(value: object) -> str:
    """Bits; an integer beyond 64 bits in decimal."""
    for kind, read in _READERS:
        if isinstance(value, kind):
            return read(value)
    kind_name = f"{type(value).__module__}.{type(value).__qualname__}"
    raise TypeError(f"{kind_name} is neither a number, a tensor of one element nor a string")


def _of_tensor(tensor: torch.Tensor) -> str:
    if tensor.numel() != 1:
        raise TypeError(f"a tensor of shape {list(tensor.shape)} has not one element")
    with torch._C.DisableTorchFunction():
        return scalar_bits(tensor)


def _of_array(array: NDArray[Any]) -> str:
    if array.size != 1:
        raise TypeError(f"an array of shape {list(array.shape)} has not one element")
    dtype = _OF_NUMPY.get(array.dtype.newbyteorder("="))
    if dtype is None and array.dtype.kind in "iu":
        return _of_int(int(array.reshape(-1)[0]))
    if dtype is None:
        raise TypeError(f"{array.dtype} is outside the arithmetic (f64, f32, f16, integers, bool)")
    return scalar_bits(torch.from_numpy(np.array(array, dtype.numpy).reshape(())))


def _of_int(value: int) -> str:
    if not -(2**63) <= value < 2**63:
        return str(value)
    return f"i64:{value % 2**64:016x}"


def _of_float(value: float) -> str:
    bits = 0x7FF8000000000000 if value != value else struct.unpack("<Q", struct.pack("<d", value))[0]
    return f"f64:{bits:016x}"


_READERS: tuple[tuple[type, Callable[..., str]], ...] = (
    (torch.Tensor, _of_tensor),
    (np.ndarray, _of_array),
    (np.generic, lambda value: _of_array(np.asarray(value))),
    (bool, lambda value: f"bool:{int(value):02x}"),
    (int, lambda value: _of_int(int(value))),
    (float, _of_float),
)
