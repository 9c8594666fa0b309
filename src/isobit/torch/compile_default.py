"""A script's own `torch.compile` while the exact arithmetic is on.

PyTorch's default backend, Inductor, writes kernels of its own, past every override. So isobit stands in for it, also
where it is asked for by name: Hugging Face's `torch_compile=True` and Accelerate pass the default on that way, and know
no other backend's name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

NOTE = "torch.compile: isobit in place of Inductor"


class CompileDefault:
    """The replacement of `torch.compile`, in place from `install` to `remove`. `note` takes a remark for the record."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._original: Any = None

    def install(self) -> None:
        self._original = torch.compile
        torch.compile = _with_isobit(self._original, self._note)

    def remove(self) -> None:
        torch.compile = self._original


def _with_isobit(original: Callable[..., Any], note: Callable[[str], None]) -> Callable[..., Any]:
    @functools.wraps(original)
    def compile(model: Any = None, *, backend: Any = None, **options: Any) -> Any:
        if backend not in (None, "inductor"):
            return original(model, backend=backend, **options)
        note(NOTE)
        return original(model, backend="isobit", **_without_inductors(options))

    return compile


def _without_inductors(options: dict[str, Any]) -> dict[str, Any]:
    """`mode` and `options` say how Inductor is to work."""
    return {k: v for k, v in options.items() if k not in ("mode", "options")}
