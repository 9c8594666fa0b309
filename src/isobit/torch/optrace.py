"""The operators of one training step, with digests of what goes in and comes out, and where in the script each stands.

Between the ends of two optimizer steps a dispatch mode sees every operator that PyTorch runs on the script's thread:
forward, backward and update. It changes no bit: the mode calls the operator as it was called. Backward operators are
placed where their forward operator stands, which autograd's sequence numbers tell.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from isobit.torch.events import Event, EventSink, OperatorEvent, StepEvent
from isobit.torch.fingerprint import tensor_digest

_SILENT = ("profiler::", "prim::")  # no arithmetic
_Place = tuple[str, str]  # module path, file:line


class StepTracer:
    """Stands between the step hooks and `sink`: hands on every event, and traces the operators of step `step`.

    `ours(file)` says whether a source file is the script's own code, whose lines are named.
    """

    def __init__(self, sink: EventSink, step: int, ours: Callable[[str], bool]) -> None:
        self._sink = sink
        self._step = step
        self._mode = _Recording(sink, ours)
        if step == 0:
            self._mode.begin()

    def __call__(self, event: Event) -> None:
        if isinstance(event, StepEvent):
            if event.index == self._step:
                self._mode.end()
            elif event.index == self._step - 1:
                self._mode.begin()
        self._sink(event)

    def close(self) -> None:
        """Stop tracing, wherever it stands."""
        self._mode.end()


class _Recording(TorchDispatchMode):
    """Emits an OperatorEvent for each operator from `begin` to `end`."""

    def __init__(self, sink: EventSink, ours: Callable[[str], bool]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._sink = sink
        self._ours = ours
        self._modules = _ModulePath()
        self._forward: dict[int, _Place] = {}
        self._count = 0
        self._on = False

    def begin(self) -> None:
        self._on = True
        self._modules.install()
        self.__enter__()  # type: ignore[no-untyped-call]

    def end(self) -> None:
        if self._on:
            self._on = False
            self.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            self._modules.remove()

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = str(func.name())
        if name.startswith(_SILENT):
            return func(*args, **kwargs)
        phase, place = self._place()
        before = tuple(_digests((args, kwargs)))
        out = func(*args, **kwargs)
        after = tuple(_digests((out, _written(func, args, kwargs))))
        event = OperatorEvent(self._count, name, phase, *place, before, after)
        self._count += 1
        self._sink(event)
        return out

    def _place(self) -> tuple[str, _Place]:
        node = torch._C._current_autograd_node()
        if node is None:
            place = (self._modules.current, self._line(sys._getframe(2)))
            # autograd makes its node before it calls the operator; what comes after, up to the next, is not its own
            self._forward.setdefault(torch._C._autograd._get_sequence_nr() - 1, place)
            return "forward", place
        # the accumulation of a gradient has no forward operator; it stands where backward() was called
        known = self._forward.get(node._sequence_nr())
        return "backward", known or ("", self._line(sys._getframe(2)))

    def _line(self, frame: FrameType | None) -> str:
        """The innermost line of the script's own code."""
        while frame is not None:
            if self._ours(frame.f_code.co_filename):
                return f"{frame.f_code.co_filename}:{frame.f_lineno}"
            frame = frame.f_back
        return ""


class _ModulePath:
    """The qualified name of the innermost module whose forward() is running, such as ``encoder.layers.3.linear1``."""

    def __init__(self) -> None:
        self._stack: list[str] = []
        self._names: dict[int, str] = {}
        self._handles: list[Any] = []

    @property
    def current(self) -> str:
        return self._stack[-1] if self._stack else ""

    def install(self) -> None:
        self._handles = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        ]

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._stack.clear()

    def _enter(self, module: torch.nn.Module, args: Any) -> None:
        if not self._stack:
            kind = type(module).__name__
            self._names = {id(m): f"{kind}.{name}" if name else kind for name, m in module.named_modules()}
        self._stack.append(self._names.get(id(module), type(module).__name__))

    def _leave(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        if self._stack:
            self._stack.pop()


def _written(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The arguments that the operator writes to."""
    found = []
    for number, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            found.append(args[number] if number < len(args) else kwargs.get(argument.name))
    return found


def _digests(tree: Any) -> Iterator[str]:
    """A digest of each tensor in nested arguments, and numbers as they are; of what cannot be read dtype and shape."""
    for leaf in tree_leaves(tree):
        if isinstance(leaf, int | float | str):
            yield repr(leaf)
        if isinstance(leaf, torch.Tensor):
            try:
                yield tensor_digest(leaf).hex()
            except (TypeError, RuntimeError):
                yield f"{leaf.dtype}{tuple(leaf.shape)}"
