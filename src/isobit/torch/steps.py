"""Reports every optimizer step, with the losses that led to it and the digest of the parameters after it.

Works with plain PyTorch as well as under the exact arithmetic, and never changes a run: it only reads.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from isobit.torch.events import EventSink, NoteEvent, StepEvent
from isobit.torch.fingerprint import digest, scalar_bits

P = ParamSpec("P")
T = TypeVar("T")
_MOST_LOSSES = 1024  # a script that calls backward() for ever without a step must not fill the memory


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


class ForeignSteps:
    """Notes, once, that an optimizer made a step in another process than the one that the run is recorded of."""

    def __init__(self, sink: EventSink) -> None:
        self._sink = sink
        self._told = False

    def __call__(self, *args: Any) -> None:
        if not self._told:
            self._told = True
            self._sink(NoteEvent("a process that the script started made optimizer steps, which are not in the trace"))


class StepHooks:
    """While it is entered, `sink` gets a StepEvent after every step of every `torch.optim.Optimizer`.

    What `sink` raises goes through the script's own `step()` call. A forked child reports nothing.
    """

    def __init__(self, sink: EventSink) -> None:
        self._sink = sink
        self._losses: list[str] = []
        self._numbers: WeakKeyDictionary[Optimizer, int] = WeakKeyDictionary()
        self._steps = 0
        self._inside = threading.local()
        self._active = False
        self._foreign = ForeignSteps(sink)
        self._owner = os.getpid()

    def __enter__(self) -> StepHooks:
        self._active = True
        self._handle = register_optimizer_step_post_hook(self._step_hook())
        self._original = torch.autograd.backward
        self._wrapper = self._wrap(self._original)
        torch.autograd.backward = self._wrapper
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._active = False  # somebody may keep the wrapper, or have wrapped it in turn
        self._handle.remove()
        if torch.autograd.backward is self._wrapper:
            torch.autograd.backward = self._original

    def _wrap(self, original: Callable[..., None]) -> Callable[..., None]:
        """`backward`, noting what it starts from; `Tensor.backward` calls it by this name, too."""

        @untraced(nested=False)
        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> None:
            if getattr(self._inside, "backward", False):  # a checkpoint that is recomputed, not a loss
                return original(*args, **kwargs)
            self._inside.backward = True
            try:
                self._note_losses(args[0] if args else kwargs.get("tensors"))
                return original(*args, **kwargs)
            finally:
                self._inside.backward = False

        return backward

    def _step_hook(self) -> Callable[..., None]:
        @untraced(nested=True)
        def after_step(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            self._after_step(optimizer)

        return after_step

    @untraced(nested=True)
    def _note_losses(self, roots: object) -> None:
        if not self._reporting():
            return
        tensors = (roots,) if isinstance(roots, torch.Tensor) else roots
        if not isinstance(tensors, list | tuple):
            return
        with torch._C.DisableTorchFunction():
            self._losses += [self._read(scalar_bits, t, "a loss") for t in tensors if isinstance(t, torch.Tensor)]
        del self._losses[:-_MOST_LOSSES]

    def _after_step(self, optimizer: Optimizer) -> None:
        if not self._reporting():
            if self._active:
                self._foreign()
            return
        with torch._C.DisableTorchFunction():
            parameters = self._read(digest, _parameters(optimizer), "the parameters")
        number = self._numbers.setdefault(optimizer, len(self._numbers))
        event = StepEvent(self._steps, number, tuple(self._losses), parameters)
        self._losses.clear()
        self._steps += 1
        self._sink(event)

    def _reporting(self) -> bool:
        return self._active and os.getpid() == self._owner

    def _read(self, how: Callable[[Any], str], what: Any, name: str) -> str:
        """Bits or a digest; "" and a note where there are none to read, since a run goes on without a record
        of them.
        """
        try:
            return how(what)
        except (TypeError, RuntimeError) as error:
            self._sink(NoteEvent(f"{name} could not be read: {error}"))
            return ""


def _parameters(optimizer: Optimizer) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]
