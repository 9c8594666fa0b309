"""A manifest for tests."""

from __future__ import annotations

import dataclasses

from isobit.record.manifest import Manifest, Settings
from isobit.record.process import current_process


def manifest(run_id: str = "20261130-184207-k3f9", **fields: object) -> Manifest:
    """A run under way in this process, with some fields replaced."""
    settings = Settings(mode="plain", seed=7, hash_seed="7", threads=1)
    base = Manifest(
        run_id, "running", ("isobit", "run", "é x.py"), "é x.py", ("--a", ""), "/tmp", settings,
        current_process(), "2026-11-30T18:42:07.120+00:00",
    )  # fmt: skip
    return dataclasses.replace(base, **fields)  # type: ignore[arg-type]
