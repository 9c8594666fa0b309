"""GPUs while a script runs: none is reported, and a request for one says why there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from isobit.torch.accelerators import OnlyCpu, present

REQUESTS: dict[str, Callable[[], Any]] = {
    "to": lambda: torch.zeros(3).to("cuda"),
    "factory": lambda: torch.zeros(3, device="cuda:0"),
    "module": lambda: torch.nn.Linear(3, 3).cuda(),
    "mps": lambda: torch.zeros(3, device="mps"),
    "xpu": lambda: torch.nn.Linear(3, 3, device="xpu"),
}


@pytest.fixture
def only_cpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As on a machine with GPUs."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    assert present() == ("cuda", "mps")
    patch = OnlyCpu(("cuda", "mps"))
    patch.install()
    yield
    patch.remove()
    assert torch.cuda.is_available() and torch.cuda.device_count() == 2 and torch.backends.mps.is_available()


def test_no_device_is_reported(only_cpu: None) -> None:
    assert not torch.cuda.is_available() and torch.cuda.device_count() == 0
    assert not torch.backends.mps.is_available() and not torch.accelerator.is_available()
    assert torch.zeros(2, device="meta").shape == (2,) and torch.ones(2).to("cpu").sum() == 2


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_a_request_is_a_clear_error(only_cpu: None, request_: Callable[[], Any]) -> None:
    with pytest.raises(RuntimeError, match=r"asks for the device '(cuda|mps|xpu)', but Isobit runs on the CPU"):
        request_()


def test_a_default_device(only_cpu: None) -> None:
    torch.set_default_device("cuda")
    try:
        with pytest.raises(RuntimeError, match="asks for the device 'cuda', but Isobit runs on the CPU"):
            torch.zeros(3)
    finally:
        torch.set_default_device(None)
