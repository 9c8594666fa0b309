"""A script's own `torch.compile` while the exact arithmetic is on.

PyTorch's default backend, Inductor, writes kernels of its own, past every override. So the default becomes isobit;
Inductor asked for by name is a hole.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

Report = Callable[[str, str], None]

NAME = "torch.compile(backend='inductor')"
REASON = "Inductor generates kernels of its own; leave the backend out, or ask for 'isobit'"


class CompileDefault:
    """The replacement of `torch.compile`, in place from `install` to `remove`. `report` takes holes (name, reason)."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._original: Any = None

    def install(self) -> None:
        self._original = torch.compile
        torch.compile = _with_default(self._original, self._report)

    def remove(self) -> None:
        torch.compile = self._original


def _with_default(original: Callable[..., Any], report: Report) -> Callable[..., Any]:
    @functools.wraps(original)
    def compile(model: Any = None, *, backend: Any = None, **options: Any) -> Any:
        if backend is None:
            return original(model, backend="isobit", **_without_inductors(options))
        if backend == "inductor":
            report(NAME, REASON)
        return original(model, backend=backend, **options)

    return compile


def _without_inductors(options: dict[str, Any]) -> dict[str, Any]:
    """`mode` and `options` say how Inductor is to work."""
    return {k: v for k, v in options.items() if k not in ("mode", "options")}
