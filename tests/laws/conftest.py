"""Ways to run: option sets of isobit.exact(), few, so that their engines are built once for all laws."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import isobit


@pytest.fixture
def exact() -> Iterator[None]:
    """The exact arithmetic on one thread; an operator outside it is an error."""
    with isobit.exact(threads=1, strict=True):
        yield
