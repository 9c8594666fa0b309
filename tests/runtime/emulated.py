"""Static AArch64 executables from our objects and C text, run under qemu-user."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

QEMU = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
needs_emulator = pytest.mark.skipif(
    QEMU is None or importlib.util.find_spec("ziglang") is None,
    reason="AArch64 NOT TESTED: needs qemu-aarch64-static (package qemu-user-static) and ziglang",
)


def run_aarch64(objects: dict[str, bytes], main: Path, folder: Path, data: bytes = b"") -> tuple[int, bytes]:
    """Link ``objects`` with the C file ``main``; the exit status and standard output of running it on ``data``."""
    paths = []
    for name, code in objects.items():
        paths.append(str(folder / f"{name}.o"))
        Path(paths[-1]).write_bytes(code)
    program = str(folder / "program")
    linker = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-musl", "-O1", "-static", "-pthread"]
    subprocess.run([*linker, "-o", program, str(main), *paths], check=True, capture_output=True)
    assert QEMU is not None
    done = subprocess.run([QEMU, program], input=data, capture_output=True, timeout=120)
    return done.returncode, done.stdout
