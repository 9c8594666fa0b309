"""The native driver on AArch64: barriers, arena and FPCR, with pthreads in place of Python's threads."""

from __future__ import annotations

from pathlib import Path

from isobit.codegen.objects import compile_object
from isobit.codegen.target import level_target
from isobit.runtime import driver
from tests.runtime.emulated import needs_emulator, run_aarch64
from tests.runtime.hand_kernels import ROTATE, binary


@needs_emulator
def test_the_driver_on_aarch64(tmp_path: Path) -> None:
    target = level_target("aarch64")
    objects = {kernel.symbol: compile_object(kernel.text, target) for kernel in (ROTATE, binary("fdiv"))}
    objects["driver"] = compile_object(driver.driver_text(target), target, "driver", driver.IMPORTS)
    status, _ = run_aarch64(objects, Path(__file__).with_name("driver_harness.c"), tmp_path)
    assert status == 0, f"check {status} of driver_harness.c failed"
