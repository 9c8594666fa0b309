"""Reports every optimizer step: what it was computed from, the losses that led to it, and digests of what it left.

Works with plain PyTorch as well as under the exact arithmetic, and never changes a run: it only reads.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from isobit.torch.batches import Batches
from isobit.torch.events import DEFAULT, DigestEvent, EventSink, NoteEvent, Sampling, StepEvent
from isobit.torch.fingerprint import digest, scalar_bits
from isobit.torch.hyper_parameters import Change, HyperParameters, state_digest
from isobit.torch.parameters import LastDigests, parameters
from isobit.torch.random_state import random_digest
from isobit.torch.untraced import untraced

T = TypeVar("T")
_UNREAD: tuple[str, tuple[Change, ...]] = ("", ())
_MOST_LOSSES = 1024  # a script that calls backward() for ever without a step must not fill the memory


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
    """While it is entered, `sink` gets a StepEvent after every step of every `torch.optim.Optimizer`, and now and then
    a DigestEvent, both as `sampling` says.

    What `sink` raises goes through the script's own `step()` call. A forked child reports that there were steps, once.
    """

    def __init__(self, sink: EventSink, sampling: Sampling = DEFAULT) -> None:
        self._sink = sink
        self._sampling = sampling
        self._losses: list[str] = []
        self._gradients = ""
        self._numbers: WeakKeyDictionary[Optimizer, int] = WeakKeyDictionary()
        self._settings = HyperParameters()
        self._batches = Batches(self._reporting, self._note)
        self._last = LastDigests(sampling.blake3_every, self._reporting, self._digested)
        self._steps = 0
        self._inside = threading.local()
        self._active = False
        self._owner = os.getpid()

    def __enter__(self) -> StepHooks:
        self._active = True
        self._handles = (
            register_optimizer_step_pre_hook(self._hook(self._before_step)),
            register_optimizer_step_post_hook(self._hook(self._after_step)),
            register_optimizer_step_post_hook(self._foreign_hook()),
        )
        self._original = torch.autograd.backward
        self._wrapper = self._wrap(self._original)
        torch.autograd.backward = self._wrapper
        self._batches.install()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._last.close()
        self._active = False  # somebody may keep the wrapper, or have wrapped it in turn
        self._batches.remove()
        for handle in self._handles:
            handle.remove()
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
                self._batches.passed()

        return backward

    def _foreign_hook(self) -> Callable[..., None]:
        foreign = ForeignSteps(self._sink)

        @untraced(nested=True)
        def hook(*args: Any) -> None:
            if self._active and os.getpid() != self._owner:
                foreign()

        return hook

    def _hook(self, report: Callable[[Optimizer], None]) -> Callable[..., None]:
        @untraced(nested=True)
        def hook(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            if self._reporting():
                with torch._C.DisableTorchFunction():
                    report(optimizer)

        return hook

    @untraced(nested=True)
    def _note_losses(self, roots: object) -> None:
        if not self._reporting():
            return
        tensors = (roots,) if isinstance(roots, torch.Tensor) else roots
        if not isinstance(tensors, list | tuple):
            return
        with torch._C.DisableTorchFunction():
            self._losses += [self._read(scalar_bits, t, "a loss", "") for t in tensors if isinstance(t, torch.Tensor)]
        del self._losses[:-_MOST_LOSSES]

    def _before_step(self, optimizer: Optimizer) -> None:
        if not self._last.steps(optimizer):
            self._last.first(optimizer, self._numbers.setdefault(optimizer, len(self._numbers)))
        if self._sampling.takes(self._last.steps(optimizer)):
            gradients = [p.grad for p in parameters(optimizer) if p.grad is not None]
            self._gradients = self._read(digest, gradients, "the gradients", "")

    def _after_step(self, optimizer: Optimizer) -> None:
        after = self._read(digest, parameters(optimizer), "the parameters", "")
        settings, changes = self._read(self._settings.read, optimizer, "the hyper-parameters", _UNREAD)
        event = StepEvent(
            index=self._steps,
            optimizer=self._numbers.setdefault(optimizer, len(self._numbers)),
            losses=tuple(self._losses),
            parameters=after,
            batch=self._batches.take(),
            gradients=self._gradients,
            settings=settings,
            state=self._state(optimizer),
            random=random_digest(),
            changes=changes,
        )
        self._losses.clear()
        self._gradients = ""
        self._steps += 1
        try:
            self._sink(event)
        finally:  # the sink may end the run
            self._last.stepped(optimizer, event.optimizer)

    def _state(self, optimizer: Optimizer) -> str:
        if not self._sampling.takes(self._last.steps(optimizer)):
            return ""
        return self._read(state_digest, optimizer, "the optimizer's state", "")

    def _digested(self, optimizer: int, digest: str) -> None:
        self._sink(DigestEvent(optimizer, digest))

    def _note(self, text: str) -> None:
        self._sink(NoteEvent(text))

    def _reporting(self) -> bool:
        return self._active and os.getpid() == self._owner

    def _read(self, how: Callable[[Any], T], what: Any, name: str, missing: T) -> T:
        """Bits or a digest; `missing` and a note where there are none to read, since a run goes on without a record
        of them.
        """
        try:
            return how(what)
        except (TypeError, RuntimeError) as error:
            self._note(f"{name} could not be read: {error}")
            return missing
