"""State dicts as JSON trees and tensors, and back; what comes back is equal, types included.

None, bools, strings, whole numbers and floats are themselves, lists are lists; anything else is an object with one key
that says what it is, such as {"tuple": […]} or {"dict": [[key, value], …]}. A tensor or array is {"tensor": name}
or {"array": name}, once per memory: tied weights are stored once.
"""

from __future__ import annotations

import base64
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from isobit.torch.checkpoint_file import CheckpointError

_PLAIN = (type(None), bool, int, float, str)
_MAPPINGS: dict[type, str] = {dict: "dict", OrderedDict: "ordered", Counter: "counter", defaultdict: "dict"}
_SEQUENCES: dict[type, str] = {tuple: "tuple", torch.Size: "size", set: "set", frozenset: "frozenset"}
_TEXTS: dict[type, tuple[str, Callable[[Any], str]]] = {
    torch.dtype: ("dtype", lambda value: str(value).removeprefix("torch.")),
    torch.device: ("device", str),
    bytes: ("bytes", lambda value: base64.b64encode(value).decode()),
    complex: ("complex", str),
}
_BUILD: dict[str, Callable[[Any], Any]] = {
    "dict": dict,
    "ordered": OrderedDict,
    "counter": lambda pairs: Counter(dict(pairs)),
    "tuple": tuple,
    "size": torch.Size,
    "set": set,
    "frozenset": frozenset,
    "dtype": lambda name: getattr(torch, name),
    "device": torch.device,
    "bytes": base64.b64decode,
    "complex": complex,
}


class Encoder:
    """Gathers in `tensors` what the trees that it makes refer to."""

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self._names: dict[Any, str] = {}
        self._kept: list[torch.Tensor] = []  # a freed tensor's memory could be taken for another's

    def encode(self, value: Any, path: str) -> Any:
        """The tree of a value; `path` names its tensors. Raises CheckpointError for what no tree can hold."""
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is list:
            return [self.encode(v, f"{path}.{i}") for i, v in enumerate(value)]
        if kind in _MAPPINGS:
            return self._mapping(value, path)
        if kind in _SEQUENCES:
            members = sorted(value, key=repr) if isinstance(value, set | frozenset) else value
            return {_SEQUENCES[kind]: [self.encode(v, f"{path}.{i}") for i, v in enumerate(members)]}
        if kind in _TEXTS:
            word, write = _TEXTS[kind]
            return {word: write(value)}
        if isinstance(value, torch.Tensor):
            return {"tensor": self._tensor(value, path)}
        if isinstance(value, np.ndarray | np.generic):
            return {"array": self._array(np.asarray(value), path), "scalar": isinstance(value, np.generic)}
        raise CheckpointError(f"{path} is a {kind.__module__}.{kind.__qualname__}, which a checkpoint cannot hold")

    def _mapping(self, value: Mapping[Any, Any], path: str) -> Any:
        pairs = [[self.encode(k, path), self.encode(v, f"{path}.{k}")] for k, v in value.items()]
        tree = {_MAPPINGS[type(value)]: pairs}
        versions = getattr(value, "_metadata", None)  # a module's state dict has those of its modules
        if versions is not None:
            tree["metadata"] = self.encode(versions, f"{path}._metadata")
        return tree

    def _tensor(self, tensor: torch.Tensor, path: str) -> str:
        if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_quantized:
            raise CheckpointError(f"{path} is a tensor without plain memory ({tensor.layout}, {tensor.device})")
        place = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), tensor.device)
        if tensor.numel() and place in self._names:
            return self._names[place]
        name = path
        while name in self.tensors:
            name += "'"
        self._names[place] = name
        self._kept.append(tensor)
        self.tensors[name] = _packed(tensor)
        return name

    def _array(self, array: np.ndarray[Any, Any], path: str) -> str:
        try:
            return self._tensor(torch.from_numpy(array.copy()), path)
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"{path} is an array of {array.dtype}, which a checkpoint cannot hold") from error


def _packed(tensor: torch.Tensor) -> torch.Tensor:
    """The values alone in memory of their own size, in row-major order."""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    if plain.is_contiguous() and plain.untyped_storage().nbytes() == plain.numel() * plain.element_size():
        return plain
    return plain.clone(memory_format=torch.contiguous_format)


def decode(tree: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """The inverse of `Encoder.encode`; every tensor is a new one."""
    if isinstance(tree, list):
        return [decode(t, tensors) for t in tree]
    if not isinstance(tree, dict):
        return tree
    word, held = next(iter(tree.items()))
    if word == "tensor":
        return tensors[held].clone()
    if word == "array":
        array = tensors[held].clone().numpy()
        return array[()] if tree["scalar"] else array
    value = _BUILD[word](decode(held, tensors))
    if "metadata" in tree:
        value._metadata = decode(tree["metadata"], tensors)
    return value
