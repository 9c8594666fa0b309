"""What has changed since a run was recorded, found before a replay spends any time."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path

from blake3 import blake3

from isobit.record.code_files import recorded_trees
from isobit.record.environment import environment
from isobit.record.listing import LINK, SOURCE
from isobit.record.manifest import SCRIPT
from isobit.record.packages import packages
from isobit.record.store import Run, Store
from isobit.record.surrounding_differences import surrounding_differences
from isobit.record.surroundings import machine


def changed_surroundings(run: Run, store: Store, variables: Mapping[str, str]) -> list[str]:
    """Sentences on packages, Python and environment variables that are not what they were. `variables`: those that the
    replay will have.
    """
    installed = packages(store.home)
    today = dataclasses.replace(
        run.manifest,
        packages={package.name: package.version for package in installed},
        package_digests={package.name: package.digest for package in installed if package.digest},
        environment=environment(variables, store.home),
        machine=machine(),
    )
    return [difference.text for difference in surrounding_differences(run.manifest, today)]


def changed_code(run: Run, root: Path) -> Iterator[str]:
    """Sentences on source files of the script's tree that are other, or not there, below `root`."""
    for tree, listing in recorded_trees(run):
        if tree.kind != SCRIPT:
            continue
        for name, entry in listing.files.items():
            if entry.mode == LINK or not name.endswith(SOURCE) or name in listing.redacted:
                continue
            try:
                same = blake3((root / name).read_bytes()).hexdigest() == entry.digest
            except OSError:
                yield f"{name} is not there"
            else:
                if not same:
                    yield f"{name} is not what was recorded"
