"""TorchScript while the exact arithmetic is on.

Its executor fuses operators into kernels of its own and differentiates by formulas of its own, past every override; so
that is switched off (layer.py, Flags), and what was optimized before is compiled anew here. Freezing folds weights,
which is other arithmetic: the functions that freeze give a copy.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

import torch


class ScriptModules:
    """Replacements in `torch.jit`, in place from `install` to `remove`."""

    def __init__(self) -> None:
        self._originals: list[tuple[Any, str, Any]] = []

    def install(self) -> None:
        fresh: WeakSet[Any] = WeakSet()
        for kind in (torch._C.ScriptMethod, torch._C.ScriptFunction):
            self._replace(kind, "__call__", functools.partial(_compiled_anew, fresh))
        self._replace(torch.jit, "freeze", _unfrozen)
        self._replace(torch.jit, "optimize_for_inference", _unfrozen)

    def remove(self) -> None:
        for place, name, original in reversed(self._originals):
            setattr(place, name, original)
        self._originals.clear()

    def _replace(self, place: Any, name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        original = getattr(place, name)
        self._originals.append((place, name, original))
        setattr(place, name, wrap(original))


def _compiled_anew(fresh: WeakSet[Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """The first call of a function drops what its executor keeps: it may be of a time when fusers were on."""

    @functools.wraps(original)
    def call(function: Any, *args: Any, **kwargs: Any) -> Any:
        if function not in fresh:
            function._debug_flush_compilation_cache()
            fresh.add(function)
        return original(function, *args, **kwargs)

    return call


def _unfrozen(original: Callable[..., Any]) -> Callable[..., Any]:
    """A copy in evaluation mode, after PyTorch's own checks of the argument."""

    @functools.wraps(original)
    def freeze(mod: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(mod, torch.jit.ScriptModule) or mod.training:
            return original(mod, *args, **kwargs)  # an error
        return copy.deepcopy(mod)

    return freeze
