"""What other trackers are told of a run besides its metrics."""

from __future__ import annotations

import shlex

from isobit.cli.arguments import named
from isobit.record.manifest import Manifest


def parameters(manifest: Manifest) -> dict[str, str]:
    """The script's arguments by name, and what the run was asked for."""
    settings = manifest.settings
    asked = {"seed": settings.seed, "mode": settings.mode, "strict": settings.strict, "arithmetic": settings.arithmetic}
    return {**named(manifest.args), **{f"isobit.{name}": str(value) for name, value in asked.items()}}


def used(manifest: Manifest) -> dict[str, str]:
    """What it got, known once it runs."""
    found = {"isobit.threads": manifest.settings.threads, "isobit.cpu": manifest.settings.cpu}
    return {name: str(value) for name, value in found.items() if value is not None}


def tags(manifest: Manifest) -> dict[str, str]:
    """Where the record is."""
    return {
        "isobit.run": manifest.id,
        "isobit.version": manifest.isobit,
        "isobit.command": shlex.join(manifest.command),
        "isobit.folder": manifest.cwd,
    }


def ending(manifest: Manifest, status: str) -> dict[str, str]:
    """How it ended."""
    found = {"isobit.status": status}
    if manifest.holes:
        found["isobit.holes"] = ", ".join(hole.operator for hole in manifest.holes)
    if manifest.exit_code is not None:
        found["isobit.exit_code"] = str(manifest.exit_code)
    if manifest.error is not None:
        found["isobit.error"] = manifest.error
    return found
