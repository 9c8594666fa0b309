from __future__ import annotations

from pathlib import Path

import pytest

from isobit.runtime.program import Runtime, RuntimeOptions


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(scope="session")
def runtime(cache_dir: Path) -> Runtime:
    """One code store for all tests; two threads."""
    return Runtime(RuntimeOptions(threads=2, cache_dir=cache_dir))
