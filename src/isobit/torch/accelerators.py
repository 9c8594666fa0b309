"""GPUs, which the exact arithmetic does not reach yet: hidden from the script, and refused by name where it asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch

VISIBLE = {"cuda": ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"), "xpu": ("ZE_AFFINITY_MASK",)}
"""The variables that hide devices of a kind; they are read when the first of them is used."""

_KEYS = {"cuda": "CUDA", "mps": "MPS", "xpu": "XPU"}
_ALLOCATORS = ("aten::empty.memory_format", "aten::empty_strided")
_COUNTERS = ("is_available", "device_count", "current_accelerator")


def present() -> tuple[str, ...]:
    """The kinds of devices that a script could use here, without waking any of them."""
    found = []
    if torch.version.cuda or torch.version.hip:
        found += ["cuda"] * (torch.cuda.device_count() > 0)
    found += ["mps"] * torch.backends.mps.is_available()
    found += ["xpu"] * (torch.xpu._is_compiled() and torch.xpu.device_count() > 0)
    return tuple(found)


class OnlyCpu:
    """No device but the CPU from `install` to `remove`: none is reported, and a request for one is an error."""

    def __init__(self, kinds: tuple[str, ...]) -> None:
        self._kinds = kinds
        self._originals: list[tuple[Any, str, Any]] = []
        self._libraries: list[torch.library.Library] = []

    def install(self) -> None:
        for kind, module in (("cuda", torch.cuda), ("xpu", torch.xpu)):
            self._replace(module, "_lazy_init", _refusal(kind))
        if self._kinds:
            for place in (*(getattr(torch, kind) for kind in self._kinds), torch.backends.mps, torch.accelerator):
                for name, answer in zip(_COUNTERS, (False, 0, None), strict=True):
                    if hasattr(place, name):
                        self._replace(place, name, _constant(answer))
        for kind, key in _KEYS.items():
            library = torch.library.Library("aten", "IMPL")
            for name in _ALLOCATORS:
                library.impl(name, _refusal(kind), key, allow_override=True)
            self._libraries.append(library)

    def remove(self) -> None:
        for place, name, original in reversed(self._originals):
            setattr(place, name, original)
        for library in self._libraries:
            library._destroy()
        self._originals.clear()
        self._libraries.clear()

    def _replace(self, place: Any, name: str, new: Any) -> None:
        self._originals.append((place, name, getattr(place, name)))
        setattr(place, name, new)


def _refusal(kind: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(
            f"the script asks for the device {kind!r}, but Isobit runs on the CPU: leave the device out, or choose it "
            f"by torch.{kind}.is_available(), which is False under Isobit"
        )

    return refuse


def _constant(answer: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: answer
