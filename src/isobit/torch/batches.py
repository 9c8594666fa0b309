"""What a step was computed from: a digest of all that data loaders gave to the script since the step before.

Where they gave nothing, of the tensors that a module was called with: the first call after a step or a backward pass,
which is the outermost one of the model, and of its arguments those that do not require a gradient.
"""

from __future__ import annotations

import dataclasses
import functools
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import xxhash
from torch.compiler import is_compiling
from torch.utils.data.dataloader import _BaseDataLoaderIter

from isobit.torch.dtypes import is_plain
from isobit.torch.fingerprint import raw_digest, tensor_digest
from isobit.torch.untraced import passed_through, untraced

_DEEPEST = 16  # levels of containers inside each other; a batch may hold itself
_MOST_KEPT = 1024  # digests; a script that reads data for ever without a step must not fill the memory
_Say = Callable[[str], None]


class Batches:
    """From `install` to `remove`, digests what `DataLoader`s yield while `reporting()`; `say` gets what is amiss.

    Calls of modules are seen only if torch.compile has not been used by then: it remembers `Module.__call__` as it is
    when it is first needed, and must find ours in its place.
    """

    def __init__(self, reporting: Callable[[], bool], say: _Say) -> None:
        self._reporting = reporting
        self._say = say
        self._digests: list[bytes] = []
        self._called: list[bytes] = []
        self._awaits_call = True

    def install(self) -> None:
        self._original = _BaseDataLoaderIter.__next__
        self._wrapper = self._wrap(self._original)
        _BaseDataLoaderIter.__next__ = self._wrapper  # type: ignore[method-assign, assignment]
        self._original_call = torch.nn.Module.__call__
        self._call = self._wrap_call(self._original_call)
        if "torch._dynamo" not in sys.modules:
            torch.nn.Module.__call__ = self._call  # type: ignore[method-assign]

    def remove(self) -> None:
        if _BaseDataLoaderIter.__next__ is self._wrapper:
            _BaseDataLoaderIter.__next__ = self._original  # type: ignore[method-assign]
        if torch.nn.Module.__call__ is self._call:
            torch.nn.Module.__call__ = self._original_call  # type: ignore[method-assign]

    def take(self) -> str:
        """The digest of what came since the last call, in hexadecimal; "" where nothing did."""
        digests = self._digests or self._called
        self._digests, self._called, self._awaits_call = [], [], True
        return xxhash.xxh3_128_hexdigest(b"".join(digests)) if digests else ""

    def passed(self) -> None:
        """A backward pass has ended: the next call of a module belongs to another batch, perhaps of the same step."""
        self._awaits_call = True

    def _wrap(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @untraced(nested=False)
        @functools.wraps(original)
        def __next__(iterator: Any) -> Any:
            batch = original(iterator)
            if self._reporting():
                self._add(batch)
            return batch

        return __next__

    def _wrap_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Torch.compile follows it by way of `is_compiling()` into the original; a module with hooks would break its
        graph otherwise.
        """

        @passed_through
        @functools.wraps(original)
        def __call__(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if not is_compiling() and self._awaits_call:
                self._note_call(args, kwargs)
            return original(module, *args, **kwargs)

        return __call__

    @untraced(nested=True)
    def _note_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._awaits_call = False
        if not self._digests and self._reporting():
            with torch._C.DisableTorchFunction():
                walk = _Arguments()
                walk.feed((args, kwargs), 0)
                _append(self._called, walk.state.digest())

    @untraced(nested=True)
    def _add(self, batch: object) -> None:
        with torch._C.DisableTorchFunction():
            _append(self._digests, batch_digest(batch, self._say))


def _append(digests: list[bytes], digest: bytes) -> None:
    digests.append(digest)
    if len(digests) > _MOST_KEPT:
        digests[:] = [xxhash.xxh3_128_digest(b"".join(digests))]


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


class _Arguments(_Walk):
    """The arguments of a call. Of objects only the class counts; nothing of tensors without memory of their own: they
    stand for others while a model is traced.
    """

    def __init__(self) -> None:
        super().__init__(lambda text: None)

    def _object(self, value: object, depth: int) -> None:
        self._part(b"o", f"{type(value).__module__}.{type(value).__qualname__}".encode())

    def _tensor(self, tensor: torch.Tensor) -> bytes:
        if type(tensor) is not torch.Tensor or tensor.requires_grad or not is_plain(tensor):
            return b""
        return super()._tensor(tensor)
