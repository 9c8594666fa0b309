"""From the differences between two runs, and the part of a step at which they part, to likely causes in plain words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from isobit.record.manifest import Hole
from isobit.record.parting import BATCH, GRADIENT, LENGTH, LOSS, OPTIMIZER, RANDOM, UPDATE, Parting

# Kinds of differences, as they are named in JSON.
CODE = "code"
FILE = "file"  # recorded beside the code, but neither code nor read by either run
DATA = "data"
ORDER = "order"  # of files
ARGUMENT = "argument"
SEED = "seed"
ENVIRONMENT = "environment"
PACKAGE = "package"
HYPER = "hyper-parameter"
SETTING = "setting"  # how it was run: mode, strictness, version of the arithmetic
MACHINE = "machine"
FOLDER = "folder"
INITIAL = "initial parameters"
ENTROPY = "entropy"  # the script asks for randomness that nobody can seed

# What explains a difference in each part, the likeliest first. What a step computes with it takes from all before it.
_LIKELY = {
    BATCH: (DATA, ORDER, CODE, ARGUMENT, SEED, ENVIRONMENT, PACKAGE, ENTROPY),
    LOSS: (INITIAL, DATA, CODE, ARGUMENT, SEED, ENVIRONMENT, PACKAGE, ENTROPY),
    GRADIENT: (CODE, ARGUMENT, ENVIRONMENT, PACKAGE),
    UPDATE: (HYPER, ARGUMENT, ENVIRONMENT, CODE, DATA, PACKAGE),
    RANDOM: (SEED, CODE, ARGUMENT, DATA, ENVIRONMENT, PACKAGE, ENTROPY),
    OPTIMIZER: (CODE, ARGUMENT, ENVIRONMENT, DATA, PACKAGE),
    LENGTH: (ARGUMENT, CODE, DATA, ENVIRONMENT, PACKAGE),
}
_SHOWN = 5


@dataclass(frozen=True)
class Difference:
    """One thing that is not the same in two runs. ``text`` is a sentence; ``detail`` more lines, such as a patch."""

    kind: str
    name: str
    text: str
    detail: str = ""


def causes(parting: Parting, differences: Sequence[Difference], holes: Sequence[Hole]) -> tuple[str, ...]:
    """Likely causes, the likeliest first; always at least one sentence. `holes`: of either run, before they parted."""
    likely = _LIKELY[parting.part]
    found = sorted((d for d in differences if d.kind in likely), key=lambda d: likely.index(d.kind))
    told = [d.text for d in found[:_SHOWN]]
    if len(found) > _SHOWN:
        told.append(f"and {len(found) - _SHOWN} more differences")
    if holes:
        names = ", ".join(sorted({hole.operator for hole in holes}))
        told.append(f"{names} ran outside the arithmetic (a hole): its bits may depend on the machine")
    if not told:
        told.append(_unknown(parting.part))
    return tuple(told)


def _unknown(part: str) -> str:
    same = "code, arguments, recorded data, seed and packages are the same"
    if part == BATCH:
        return (
            f"{same}: the batch holds something that is not recorded, such as random numbers of the script's own "
            "that have no seed, the time, or data read below Python (declare it: isobit.data(path))"
        )
    return (
        f"{same}: the script computes with something that is not recorded, such as the time, the network, or random "
        "numbers that have no seed"
    )
