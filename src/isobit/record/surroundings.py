"""The machine, for the manifest: what it is, and what the process may use of it."""

from __future__ import annotations

import functools
import os
import platform
import resource
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
        flags=_cpuinfo("flags", "Features"),
        limits={**_process_limits(), **_group_limits()},
    )


def _cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> str:
    return _cpuinfo("model name") or platform.processor() or platform.machine()


@functools.cache
def _cpu_lines() -> dict[str, str]:
    """What the kernel says of the first core."""
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _cpuinfo(*names: str) -> str:
    return next((found for name in names if (found := _cpu_lines().get(name))), "")


def _process_limits() -> dict[str, str]:
    """Of those that change what a program can do; "unlimited" ones are not named."""
    found = {}
    for name in ("AS", "DATA", "STACK", "NOFILE", "NPROC", "CPU", "FSIZE", "MEMLOCK"):
        number = getattr(resource, f"RLIMIT_{name}", None)
        soft = resource.RLIM_INFINITY if number is None else resource.getrlimit(number)[0]
        if soft != resource.RLIM_INFINITY:
            found[name.lower()] = str(soft)
    return found


def _group_limits() -> dict[str, str]:
    """What the control group (a container's, usually) allows of memory and processors."""
    found = {}
    for name, *places in _GROUP_FILES:
        texts = (_read(place) for place in (*(str(folder / places[0]) for folder in _group_folders()), *places[1:]))
        text = next((text for text in texts if text), "")
        if text and not text.startswith(("max", "-1")) and len(text) < 19:  # version 1 has a huge number for no limit
            found[name] = text
    return found


_GROUP_FILES = (
    ("cgroup memory", "memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"),
    ("cgroup cpu", "cpu.max", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us"),
    ("cgroup cpus", "cpuset.cpus.effective", "/sys/fs/cgroup/cpuset/cpuset.cpus"),
)


def _group_folders() -> list[Path]:
    """This process's control group and those around it: the nearest limit counts."""
    line = next((line for line in _read("/proc/self/cgroup").splitlines() if line.startswith("0::")), "")
    folder = Path("/sys/fs/cgroup") / line[3:].lstrip("/")
    return [place for place in (folder, *folder.parents) if place.is_relative_to("/sys/fs/cgroup")]


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8", "replace").strip()
    except OSError:
        return ""
