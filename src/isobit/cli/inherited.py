"""What Python processes that a script starts inherit: they have the exact arithmetic, too.

Their environment holds one variable that says how, and a folder that comes first in PYTHONPATH, whose `sitecustomize`
Python runs when it starts (isobit/hook, isobit/startup.py, cli/subprocesses.py).
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "ISOBIT_CHILD"
_HOOK = str(Path(__file__).resolve().parents[1] / "hook")


@dataclass(frozen=True)
class Child:
    """What such a process needs to know."""

    run: str  # the folder of the run's record
    seed: int
    threads: int | None
    cpu: str | None
    strict: bool
    plain: bool
    hidden_devices: tuple[str, ...] = ()

    @staticmethod
    def from_json(text: str) -> Child:
        """What `equip` wrote."""
        data = json.loads(text)
        return Child(**{**data, "hidden_devices": tuple(data["hidden_devices"])})


def equip(environment: MutableMapping[str, str], child: Child) -> None:
    """From now on, processes that are started in `environment` are children of the run."""
    environment[VARIABLE] = json.dumps(dataclasses.asdict(child))
    rest = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = os.pathsep.join([_HOOK, *([rest] if rest else [])])


def unequipped(environment: dict[str, str]) -> dict[str, str]:
    """`environment` for a run of its own, which a script has started."""
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    if VARIABLE not in environment or _HOOK not in paths:
        return environment
    kept = {name: value for name, value in environment.items() if name not in (VARIABLE, "PYTHONPATH")}
    rest = [path for path in paths if path != _HOOK]
    return {**kept, "PYTHONPATH": os.pathsep.join(rest)} if rest else kept
