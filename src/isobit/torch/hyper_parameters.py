"""What an optimizer is set to and what it remembers: digests, and hyper-parameters in words."""

from __future__ import annotations

import json
import operator
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
import xxhash
from torch.optim.optimizer import Optimizer

from isobit.torch.fingerprint import digest, scalar_bits

Change = tuple[int, str, str]  # number of the parameter group, name, value
_NOT_SETTINGS = frozenset({"params", "param_names"})
_CONSTANT = (bool, int, float, complex, str, type(None))


@dataclass
class _Known:
    """What was read last. ``values`` are all objects in the groups; where ``constant`` none can change in itself."""

    values: list[Any]
    constant: bool
    texts: dict[tuple[int, str], str]
    digest: str


class HyperParameters:
    """Reads the hyper-parameters of optimizers, and says which have changed since an optimizer was asked before."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Optimizer, _Known] = WeakKeyDictionary()

    def read(self, optimizer: Optimizer) -> tuple[str, tuple[Change, ...]]:
        """The digest of all hyper-parameters, and those that are new or have another value than before."""
        groups = optimizer.param_groups
        values = [value for group in groups for value in group.values()]
        known = self._known.get(optimizer)
        if known is not None and known.constant and _same(values, known.values):
            return known.digest, ()
        named = {(i, name): v for i, g in enumerate(groups) for name, v in g.items() if name not in _NOT_SETTINGS}
        texts = {key: _text(value) for key, value in named.items()}
        before = known.texts if known is not None else {}
        changes = tuple((*key, text) for key, text in texts.items() if before.get(key) != text)
        told = json.dumps([(*key, text) for key, text in texts.items()]).encode()
        found = _Known(values, all(map(_is_constant, named.values())), texts, xxhash.xxh3_128_hexdigest(told))
        self._known[optimizer] = found
        return found.digest, changes


def state_digest(optimizer: Optimizer) -> str:
    """XXH3-128 of what the optimizer remembers of each parameter, in their order, its entries sorted by name."""
    tensors: list[torch.Tensor] = []
    words: list[list[str]] = []
    for parameter in (p for group in optimizer.param_groups for p in group["params"]):
        entries = optimizer.state.get(parameter, {})  # a defaultdict, which must not get an entry by being asked
        for name in sorted(entries, key=str):
            value = entries[name]
            if isinstance(value, torch.Tensor):
                tensors.append(value)
            words.append([str(name), "" if isinstance(value, torch.Tensor) else _text(value)])
        words.append([])
    return xxhash.xxh3_128_hexdigest(f"{json.dumps(words)}{digest(tensors)}".encode())


def _same(values: list[Any], others: list[Any]) -> bool:
    return len(values) == len(others) and all(map(operator.is_, values, others))


def _is_constant(value: object) -> bool:
    return type(value) in _CONSTANT or (type(value) is tuple and all(map(_is_constant, value)))


def _text(value: object) -> str:
    """The value to the last bit where it is a number or made of numbers; of other objects only the class."""
    if isinstance(value, torch.Tensor):
        return scalar_bits(value)
    if isinstance(value, list | tuple):
        return f"({', '.join(map(_text, value))})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_text(k)}: {_text(v)}' for k, v in value.items())}}}"
    if isinstance(value, (*_CONSTANT, np.generic)):
        return repr(value)
    return f"<{type(value).__module__}.{type(value).__qualname__}>"
