"""Options shared by every room's tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Kernels compile on first use, so the first example of a shape takes longer than any deadline. The examples
# are the same on every run: a failure seen in CI is the failure seen here.
settings.register_profile(
    "isobit", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("isobit")
