"""What the process that runs a script is told, and how it is started."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isobit.cli.environment import pinned
from isobit.cli.inherited import unequipped
from isobit.record.errors import RecordError

# The folder that isobit lies in goes to the end of the path: the script must find what it would find
# without us.
_BOOT = (
    "import os, signal, sys\n"
    "sys.path[:1] = [] if sys.path[:1] == [''] else sys.path[:1]\n"
    "sys.path += [] if {home!r} in sys.path else [{home!r}]\n"
    "try:\n"
    "    from isobit.cli.launch import main\n"
    "except KeyboardInterrupt:\n"  # PyTorch takes seconds to import
    "    signal.signal(signal.SIGINT, signal.SIG_DFL)\n"
    "    os.kill(os.getpid(), signal.SIGINT)\n"
    "main()\n"
)

RECORD = "record"  # a replay's code is the recorded one
_LONGEST = 100_000  # bytes of one argument; Linux takes 128 KiB


@dataclass(frozen=True)
class Plan:
    """One run of a script. ``script`` is the file to run, ``argv0`` how the user named it."""

    script: str
    argv0: str
    args: tuple[str, ...]
    command: tuple[str, ...]
    home: str  # the .isobit folder that gets the record
    seed: int = 0
    threads: int | None = None
    cpu: str | None = None
    strict: bool = False
    plain: bool = False
    steps: int | None = None  # stop after so many
    quiet: bool = False
    run_id: str | None = None  # None: choose one
    shown: tuple[str, ...] = ()  # environment variables whose values the user wants recorded
    mirror: str | None = None  # the folder that recorded code runs in, a mirror of where it lay
    mirrored: tuple[str, ...] = ()  # the roots of the trees in it
    paths: tuple[str, ...] = ()  # goes into sys.path after the script's folder
    replay_folder: str | None = None  # the record to compare with
    replay_of: str | None = None
    replay_code: str = RECORD
    keep_going: bool = False  # past the first difference
    operators_at: int | None = None  # the step whose operators are traced
    module: str | None = None  # run as `python -m` would
    stdin: str | None = None  # the file that the script's standard input comes from
    pins: dict[str, str] = field(default_factory=dict)  # of the run that is replayed
    keep_checkpoints: bool = False  # a copy of each checkpoint in the record
    resume_from: str | None = None  # the checkpoint that the script's first Checkpoint.load reads
    segment: tuple[int, int] | None = None  # the steps of the record that are compared
    gradients_every: int | None = None  # of which steps gradients and optimizer state are digested; None: the default
    live: bool = False  # a live line, where there is a terminal
    mlflow: str | None = None  # tracking URI
    tensorboard: str | None = None  # folder

    @property
    def hash_seed(self) -> str:
        """The seed as PYTHONHASHSEED takes it."""
        return str(self.seed % 2**32)

    @property
    def import_root(self) -> Path:
        """The folder that comes first in the script's ``sys.path``."""
        if self.module is None:
            return Path(self.script).resolve().parent
        return Path(self.paths[0]) if self.paths else Path.cwd()

    def to_arguments(self) -> list[str]:
        """What from_arguments() reads: a script may have more arguments than fit into one."""
        text = json.dumps(dataclasses.asdict(self))
        return [text[start : start + _LONGEST] for start in range(0, len(text), _LONGEST)]

    @staticmethod
    def from_arguments(pieces: Sequence[str]) -> Plan:
        """The plan that to_arguments() wrote."""
        data: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in json.loads("".join(pieces)).items()}
        return Plan(**data)


def process_command(plan: Plan) -> list[str]:
    """The command that runs `plan` in a fresh interpreter with this one's flags."""
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    boot = _BOOT.format(home=str(Path(__file__).resolve().parents[2]))
    return [sys.executable, *flags, "-c", boot, *plan.to_arguments()]


def process_environment(plan: Plan) -> dict[str, str]:
    """This environment with what a process can only be given at its start: the hash seed, and pins. Plain PyTorch is
    left as it is.
    """
    environment = unequipped(dict(os.environ))
    if not plan.plain:
        environment = pinned(environment, plan.pins)
    return {**environment, "PYTHONHASHSEED": plan.hash_seed}


def become(plan: Plan) -> None:
    """Replace this process by one that runs `plan`; never returns. Raises RecordError where the system refuses."""
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(sys.executable, process_command(plan), process_environment(plan))
    except OSError as error:  # arguments and environment together are too long
        raise RecordError(f"cannot start {sys.executable}: {error.strerror}") from error
