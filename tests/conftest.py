"""Options shared by every room's tests."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

# Kernels compile on first use, so the first example of a shape takes longer than any deadline. The
# examples are the same on every run: a failure seen in CI is the failure seen here.
settings.register_profile("isobit", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("isobit")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files from what is computed")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be rewritten."""
    return bool(request.config.getoption("--update-golden"))
