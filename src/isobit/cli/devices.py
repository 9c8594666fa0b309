"""GPUs are no part of a run: they are hidden from the script, and the user is told."""

from __future__ import annotations

import sys
from collections.abc import Callable

from isobit.cli.environment import hide
from isobit.record.errors import RecordError
from isobit.torch.accelerators import VISIBLE, present

_NAMES = {"cuda": "a CUDA or ROCm GPU", "mps": "an Apple GPU (MPS)", "xpu": "an Intel GPU (XPU)"}


def hidden_devices(strict: bool, probe: Callable[[], tuple[str, ...]] = present) -> tuple[str, ...]:
    """Hide the devices that `probe` finds and return their kinds; with `strict` they are an error, a RecordError."""
    kinds = probe()
    if not kinds:
        return ()
    names = " and ".join(_NAMES[kind] for kind in kinds)
    variables = [name for kind in kinds for name in VISIBLE.get(kind, ())]
    if strict:
        how = " ".join(f"{name}=" for name in variables)
        raise RecordError(
            f"here is {names}, and Isobit runs on the CPU. Run without --strict to hide it"
            + (f", or hide it yourself: {how} isobit run --strict …" if how else "")
        )
    print(f"isobit: hidden from the script, since Isobit runs on the CPU: {names}", file=sys.stderr, flush=True)
    hide(variables)
    return kinds
