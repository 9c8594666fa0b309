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
        inside = _FrameAction.SKIP if nested else _FrameAction.DEFAULT
        set_code_exec_strategy(function.__code__, _FrameExecStrategy(_FrameAction.SKIP, inside))
        function._torchdynamo_disable = True  # type: ignore[attr-defined]
        return function

    return mark
