"""Functions of ours that torch.compile must leave alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy

P = ParamSpec("P")
T = TypeVar("T")


def untraced(nested: bool) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Keeps torch.compile out of a function of ours, and with `nested` out of all that it calls.

    Like torch.compiler.disable, which would import all of torch._dynamo for scripts that never compile.
    """

    def mark(function: Callable[P, T]) -> Callable[P, T]:
        _skip(function, _FrameAction.SKIP if nested else _FrameAction.DEFAULT)
        function._torchdynamo_disable = True  # type: ignore[attr-defined]
        return function

    return mark


def passed_through(function: Callable[P, T]) -> Callable[P, T]:
    """Lets torch.compile follow calls of a function of ours, but never begin with it: what it compiles begins and ends
    where it does without the function.
    """
    _skip(function, _FrameAction.DEFAULT)
    return function


def _skip(function: Callable[..., object], inside: _FrameAction) -> None:
    set_code_exec_strategy(function.__code__, _FrameExecStrategy(_FrameAction.SKIP, inside))
