"""What the PyTorch side of a run tells whoever records it. Needs no PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StepEvent:
    """An optimizer has made a step. "" stands for a digest that was not taken.

    ``optimizer`` numbers the optimizers by their first step. ``losses`` are the bits of the tensors that
    ``backward()`` started from since the step before (of any optimizer), such as ``f32:3f317218``;
    ``parameters`` is the digest of all parameters of this optimizer after the step, or "" where they could
    not be read. ``batch``: of what data loaders yielded since the step before; ``gradients``: of the parameters before
    the step; ``settings``: of the hyper-parameters, whose ``changes`` since the optimizer's step before are given as
    (group, name, value); ``state``: of the optimizer's state after the step; ``random``: of the generators after it.
    """

    index: int
    optimizer: int
    losses: tuple[str, ...]
    parameters: str
    batch: str = ""
    gradients: str = ""
    settings: str = ""
    state: str = ""
    random: str = ""
    changes: tuple[tuple[int, str, str], ...] = ()

    def parts(self) -> dict[str, Any]:
        """All fields but the index, by name."""
        return {name: value for name, value in vars(self).items() if name != "index"}


@dataclass(frozen=True)
class LogEvent:
    """The script said `isobit.log(name=value)`: ``bits`` of a number, such as ``f64:3fe0000000000000``, or a text."""

    name: str
    bits: str
    text: str


@dataclass(frozen=True)
class DigestEvent:
    """The BLAKE3 digest of the parameters of an optimizer, as they are now."""

    optimizer: int
    digest: str


@dataclass(frozen=True)
class CheckpointEvent:
    """A checkpoint was written to ``path`` (absolute); ``digest`` is the BLAKE3 digest that stands for all of it."""

    path: str
    digest: str


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


Event = OperatorEvent | StepEvent | HoleEvent | NoteEvent | LogEvent | DigestEvent | CheckpointEvent
EventSink = Callable[[Event], None]


def every_file(file: str) -> bool:
    """True: no source file is told apart."""
    return True


@dataclass(frozen=True)
class Sampling:
    """Of which of its steps an optimizer's gradients and state are digested, the first `first` and every `every`th, and
    after how many BLAKE3 of its parameters is taken, as it is at the optimizer's end. Steps count from 0.
    """

    first: int = 4
    every: int = 32
    blake3_every: int = 1000

    def takes(self, step: int) -> bool:
        """Whether gradients and state are digested at this step of an optimizer."""
        return step < self.first or step % self.every == 0

    def told(self) -> dict[str, dict[str, int | bool]]:
        """The same in the words of a record."""
        some: dict[str, int | bool] = {"first": self.first, "every": self.every}
        return {"gradients": some, "state": some, "blake3": {"every": self.blake3_every, "end": True}}


DEFAULT = Sampling()


@dataclass(frozen=True)
class SessionOptions:
    """How a script is to be run. None: as this machine has it."""

    threads: int | None = None
    cpu: str | None = None
    strict: bool = False
    plain: bool = False  # PyTorch's own kernels
    seed: int = 0
    operators_at: int | None = None  # the step, counted from 0, whose operators are traced
    resume_from: str | None = None  # the checkpoint that the script's first Checkpoint.load reads
    anew: bool = False  # it finds no checkpoint
    ours: Callable[[str], bool] = every_file  # whether a source file is the script's own; for the lines of operators
    sampling: Sampling = DEFAULT
    hidden_devices: tuple[str, ...] = ()  # the kinds that are here, and which the script is not to see


@dataclass(frozen=True)
class SessionInfo:
    """How it is run: the threads and the CPU level that are used; plain PyTorch has no level."""

    threads: int
    cpu: str | None
