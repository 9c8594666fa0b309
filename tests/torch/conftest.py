"""The exact arithmetic switched on: with the interpreter (no compilation), or with compiled code."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from isobit.torch.layer import ExactLayer, ExactOptions


@pytest.fixture
def reference() -> Iterator[ExactLayer]:
    """The layer on the interpreter. Holes are not errors; look at `monitor.counts`."""
    with ExactLayer(ExactOptions(reference=True)) as layer:
        yield layer


@pytest.fixture
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExactLayer]:
    """The layer on compiled code; the object code is kept for the session."""
    cache = tmp_path_factory.getbasetemp() / "objects"
    with ExactLayer(ExactOptions(threads=2, cache_dir=cache)) as layer:
        yield layer


@pytest.fixture(autouse=True)
def same_seed() -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
