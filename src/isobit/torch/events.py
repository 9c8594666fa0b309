"""What the PyTorch side of a run tells whoever records it. Needs no PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class StepEvent:
    """An optimizer has made a step.

    ``optimizer`` numbers the optimizers by their first step. ``losses`` are the bits of the tensors that
    ``backward()`` started from since the step before (of any optimizer), such as ``f32:3f317218``;
    ``parameters`` is the digest of all parameters of this optimizer after the step, or "" where they could
    not be read.
    """

    index: int
    optimizer: int
    losses: tuple[str, ...]
    parameters: str


@dataclass(frozen=True)
class HoleEvent:
    """`operator` ran outside the exact arithmetic, `count` more times than was said before."""

    operator: str
    reason: str
    count: int


@dataclass(frozen=True)
class NoteEvent:
    """A remark for the record, such as that the default backend of torch.compile was set."""

    text: str


@dataclass(frozen=True)
class OperatorEvent:
    """One operator of a step that is looked at closely: number `number` of the step.

    ``phase`` is "forward" (everything outside autograd's backward pass, so the update, too) or "backward"; ``module``
    the path of the module and ``line`` the script's line (file:line) that it belongs to, "" where there is none;
    ``inputs`` and ``outputs`` the digests of its tensors.
    """

    number: int
    operator: str
    phase: str
    module: str
    line: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


Event = OperatorEvent | StepEvent | HoleEvent | NoteEvent
EventSink = Callable[[Event], None]


def every_file(file: str) -> bool:
    """True: no source file is told apart."""
    return True


@dataclass(frozen=True)
class SessionOptions:
    """How a script is to be run. None: as this machine has it."""

    threads: int | None = None
    cpu: str | None = None
    strict: bool = False
    plain: bool = False  # PyTorch's own kernels
    seed: int = 0
    operators_at: int | None = None  # the step, counted from 0, whose operators are traced
    ours: Callable[[str], bool] = every_file  # whether a source file is the script's own; for the lines of operators
    hidden_devices: tuple[str, ...] = ()  # the kinds that are here, and which the script is not to see


@dataclass(frozen=True)
class SessionInfo:
    """How it is run: the threads and the CPU level that are used; plain PyTorch has no level."""

    threads: int
    cpu: str | None
