"""The machine and the installed packages, for the manifest."""

from __future__ import annotations

import os
import platform
from importlib.metadata import distributions
from pathlib import Path

from isobit.record.manifest import Machine


def machine() -> Machine:
    """This machine."""
    return Machine(
        system=platform.platform(),
        processor=_processor(),
        cores=_cores(),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        python=f"{platform.python_implementation()} {platform.python_version()}",
    )


def packages() -> dict[str, str]:
    """Every installed distribution with its version, by name; of several copies the first on the path
    counts.
    """
    found: dict[str, str] = {}
    for distribution in distributions():
        name = distribution.metadata["Name"]
        if name:  # a package that was half removed has none
            found.setdefault(name, distribution.version or "unknown")
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def _cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()
