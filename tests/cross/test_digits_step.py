"""Every program of one training step of the digits CNN, run again as AArch64 and x86-64-v2 code: the same bits."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from isobit.torch.layer import ExactLayer, ExactOptions
from tests.cross.cross import Cross, Recorded, elements, qemu, recording

ROOT = Path(__file__).resolve().parents[2]
THREADS = 5  # an engine of its own, so that no plan was made before the recording


@pytest.fixture(scope="module")
def calls() -> list[Recorded]:
    """The calls of two eager steps: the second reads what batch norm and Adam carry over."""
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        from digits_cnn import DigitsNet, digits
    finally:
        sys.path.pop(0)
    with recording() as made, ExactLayer(ExactOptions(threads=THREADS, strict=True)):
        torch.manual_seed(3)
        images, labels = (t[:32] for t in digits()[0].tensors)
        model = DigitsNet()
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        for _ in range(2):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
    return made


TARGETS = [
    pytest.param("aarch64", "aarch64-linux-musl", "aarch64", id="aarch64"),
    pytest.param("x86-64-v2", "x86_64-linux-musl", "x86_64", id="x86-64-v2"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("level", "triple", "arch"), TARGETS)
def test_a_digits_step_on_another_cpu(
    calls: list[Recorded], level: str, triple: str, arch: str, tmp_path: Path
) -> None:
    emulator = qemu(arch)
    if emulator is None:
        pytest.skip(f"no qemu-{arch}-static on this machine (.ci/run installs Debian's qemu-user-static)")
    assert len(calls) > 50
    runner = [emulator] if arch == "aarch64" else [emulator, "-cpu", "Nehalem"]
    found = Cross(level, triple, runner, tmp_path).outputs(calls)
    for call, outputs in zip(calls, found, strict=True):
        for want, got, layout in zip(call.after, outputs, call.outputs, strict=True):
            same = elements(want, layout) == elements(got, layout)
            assert same.all(), f"{call.graph.nodes[-1].origin}: {(~same).sum()} of {same.size} elements differ"
