"""How the environment variables of two runs differ: by value where values are recorded, else by digest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from isobit.record.causes import ENVIRONMENT, Difference
from isobit.record.manifest import Environment


def environment_differences(first: Environment | None, second: Environment | None) -> Iterator[Difference]:
    """A difference for each variable; none where a record says nothing of them. Digests made with different keys, those
    of two stores, are not compared: only whether the variable is there.
    """
    if first is None or second is None:
        return
    same_key = first.key == second.key
    one, two = _known(first), _known(second)
    for name in sorted(one.keys() | two.keys()):
        a, b = one.get(name), two.get(name)
        if a is None or b is None:
            text = f"environment variable {name} is set in the {'first' if b is None else 'second'} run alone"
            yield Difference(ENVIRONMENT, name, text)
        elif a != b and (name in first.values and name in second.values):
            yield Difference(ENVIRONMENT, name, f"environment variable {name} differs: {a} → {b}")
        elif a != b and same_key:
            yield Difference(ENVIRONMENT, name, f"environment variable {name} differs (its values are not recorded)")


def _known(environment: Environment) -> Mapping[str, str]:
    """All variables: with their value, digest, or for secrets nothing."""
    return {**dict.fromkeys(environment.names, ""), **environment.digests, **environment.values}
