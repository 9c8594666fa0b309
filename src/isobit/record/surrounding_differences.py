"""How the surroundings of two runs differ: environment variables, and packages whose files do though their version does
not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from isobit.record.causes import ENVIRONMENT, PACKAGE, Difference
from isobit.record.manifest import Environment, Manifest


def surrounding_differences(first: Manifest, second: Manifest) -> Iterator[Difference]:
    """Packages, the Python that runs them, and environment variables."""
    yield from package_differences(first.packages, second.packages)
    yield from file_differences(first, second)
    if first.machine is not None and second.machine is not None and first.machine.python != second.machine.python:
        change = f"{first.machine.python} → {second.machine.python}"
        yield Difference(PACKAGE, "python", f"Python differs: {change}")
    yield from variable_differences(first.environment, second.environment)


def package_differences(first: Mapping[str, str], second: Mapping[str, str]) -> Iterator[Difference]:
    """Packages of another version, only here or only there."""
    for name in sorted(first.keys() | second.keys()):
        a, b = first.get(name), second.get(name)
        if a != b:
            yield Difference(PACKAGE, name, f"package {name} differs: {a or 'not installed'} → {b or 'not installed'}")


def variable_differences(first: Environment | None, second: Environment | None) -> Iterator[Difference]:
    """One for each variable. Values are told where they are recorded; of others, that they differ, if both runs are of
    one store; of those that look like secrets, that they are only here or there.
    """
    if first is None or second is None:
        return
    same_key = first.key == second.key
    for name in sorted(_names(first) | _names(second)):
        if (name in _names(first)) != (name in _names(second)):
            side = "first" if name in _names(first) else "second"
            value = _value(name, first, second)
            yield Difference(ENVIRONMENT, name, f"environment variable {name} is set in the {side} run only{value}")
        elif name in first.values and name in second.values:
            a, b = first.values[name], second.values[name]
            if a != b:
                yield Difference(ENVIRONMENT, name, f"environment variable {name} differs: {a} → {b}")
        elif same_key and name in first.digests and first.digests[name] != second.digests.get(name):
            yield Difference(ENVIRONMENT, name, f"environment variable {name} differs (values are not recorded)")


def _names(environment: Environment) -> set[str]:
    return {*environment.values, *environment.digests, *environment.names}


def _value(name: str, *sides: Environment) -> str:
    """The value of a variable that only one side has, if it is recorded."""
    return next((f": {side.values[name]}" for side in sides if name in side.values), "")


def file_differences(first: Manifest, second: Manifest) -> Iterator[Difference]:
    """Packages of one version with different files, such as two builds of PyTorch."""
    for name in sorted(first.package_digests.keys() & second.package_digests.keys()):
        same = first.packages.get(name) == second.packages.get(name)
        if same and first.package_digests[name] != second.package_digests[name]:
            text = f"package {name} has the same version, {first.packages.get(name)}, and other files"
            yield Difference(PACKAGE, name, text)
