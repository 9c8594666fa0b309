"""What a step was computed from: a digest of all that data loaders gave to the script since the step before."""

from __future__ import annotations

import dataclasses
import functools
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import xxhash
from torch.utils.data.dataloader import _BaseDataLoaderIter

from isobit.torch.fingerprint import raw_digest, tensor_digest
from isobit.torch.untraced import untraced

_DEEPEST = 16  # levels of containers inside each other; a batch may hold itself
_MOST_KEPT = 1024  # digests; a script that reads data for ever without a step must not fill the memory
_Say = Callable[[str], None]


class Batches:
    """From `install` to `remove`, digests what `DataLoader`s yield while `reporting()`; `say` gets what is amiss."""

    def __init__(self, reporting: Callable[[], bool], say: _Say) -> None:
        self._reporting = reporting
        self._say = say
        self._digests: list[bytes] = []

    def install(self) -> None:
        self._original = _BaseDataLoaderIter.__next__
        self._wrapper = self._wrap(self._original)
        _BaseDataLoaderIter.__next__ = self._wrapper  # type: ignore[method-assign, assignment]

    def remove(self) -> None:
        if _BaseDataLoaderIter.__next__ is self._wrapper:
            _BaseDataLoaderIter.__next__ = self._original  # type: ignore[method-assign]

    def take(self) -> str:
        """The digest of what came since the last call, in hexadecimal; "" where nothing did."""
        digests, self._digests = self._digests, []
        return xxhash.xxh3_128_hexdigest(b"".join(digests)) if digests else ""

    def _wrap(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @untraced(nested=False)
        @functools.wraps(original)
        def __next__(iterator: Any) -> Any:
            batch = original(iterator)
            if self._reporting():
                self._add(batch)
            return batch

        return __next__

    @untraced(nested=True)
    def _add(self, batch: object) -> None:
        with torch._C.DisableTorchFunction():
            self._digests.append(batch_digest(batch, self._say))
        if len(self._digests) > _MOST_KEPT:
            self._digests[:] = [xxhash.xxh3_128_digest(b"".join(self._digests))]


def batch_digest(batch: object, say: _Say) -> bytes:
    """XXH3-128 of tensors, arrays, numbers and strings in containers and objects of any kind, in their order.

    Of an object without such contents, and of a tensor that cannot be read, which `say` is told, only the class counts.
    """
    walk = _Walk(say)
    walk.feed(batch, 0)
    return walk.state.digest()


class _Walk:
    """Each part is fed with a letter for its kind and its length, so that no two batches read alike."""

    def __init__(self, say: _Say) -> None:
        self.state = xxhash.xxh3_128()
        self._say = say

    def feed(self, value: object, depth: int) -> None:
        if isinstance(value, torch.Tensor):
            self._part(b"t", self._tensor(value))
        elif isinstance(value, np.ndarray | np.generic):
            self._array(np.asarray(value), depth)
        elif isinstance(value, str):
            self._part(b"s", value.encode("utf-8", "surrogatepass"))
        elif isinstance(value, bytes | bytearray):
            self._part(b"b", value)
        elif isinstance(value, float):
            self._part(b"f", struct.pack("<d", value))
        elif value is None or isinstance(value, bool | int | complex):
            self._part(b"n", repr(value).encode())
        elif depth == _DEEPEST:
            self._part(b"o", b"deeper")
        elif isinstance(value, Mapping):
            self._items(b"m", [part for item in value.items() for part in item], depth)
        elif isinstance(value, Sequence | set | frozenset):
            self._items(b"l", list(value), depth)
        else:
            self._object(value, depth)

    def _part(self, kind: bytes, data: bytes | bytearray) -> None:
        self.state.update(kind + struct.pack("<Q", len(data)))
        self.state.update(data)

    def _items(self, kind: bytes, items: list[Any], depth: int) -> None:
        self._part(kind, struct.pack("<Q", len(items)))
        for item in items:
            self.feed(item, depth + 1)

    def _object(self, value: object, depth: int) -> None:
        """A dataclass, or an object of the script's own that holds a batch in its attributes."""
        kind = type(value)
        self._part(b"o", f"{kind.__module__}.{kind.__qualname__}".encode())
        if isinstance(value, type | torch.nn.Module) or callable(value):
            return
        if dataclasses.is_dataclass(value):
            attributes = {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
        else:
            attributes = dict(getattr(value, "__dict__", {}))
        self._items(b"a", [part for item in attributes.items() for part in item], depth)

    def _array(self, array: Any, depth: int) -> None:
        if array.dtype.hasobject:
            self._part(b"A", repr(array.shape).encode())
            self._items(b"l", list(array.reshape(-1).tolist()), depth)
            return
        self._part(b"A", f"{array.dtype.str}{array.shape}".encode())
        self._part(b"d", array.tobytes())

    def _tensor(self, tensor: torch.Tensor) -> bytes:
        try:
            return tensor_digest(tensor)
        except (TypeError, RuntimeError):
            pass
        try:
            return raw_digest(tensor)
        except (TypeError, RuntimeError) as error:
            self._say(f"a tensor of a batch could not be read: {error}")
            return f"{tensor.dtype}{list(tensor.shape)}".encode()
