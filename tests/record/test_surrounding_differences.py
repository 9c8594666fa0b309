"""Variables and builds of packages that differ are named; no value is told that is not recorded."""

from __future__ import annotations

from isobit.record.manifest import Environment
from isobit.record.surrounding_differences import file_differences, variable_differences
from tests.record.manifests import manifest


def test_variables_and_builds_of_packages_that_differ() -> None:
    one = manifest(
        environment=Environment({"OMP_NUM_THREADS": "1", "TZ": "UTC"}, {"LR": "a", "HOME": "h", "ONLY": "o"}, ("HF_TOKEN",), "k"),
        packages={"torch": "2.13.0", "a": "1"}, package_digests={"torch": "x", "a": "y"},
    )  # fmt: skip
    two = manifest(
        environment=Environment({"OMP_NUM_THREADS": "2", "MKL_X": "3", "TZ": "UTC"}, {"LR": "b", "HOME": "h"}, (), "k"),
        packages={"torch": "2.13.0", "a": "2"}, package_digests={"torch": "z", "a": "w"},
    )  # fmt: skip
    assert [d.text for d in variable_differences(one.environment, two.environment)] == [
        "environment variable HF_TOKEN is set in the first run only",
        "environment variable LR differs (values are not recorded)",
        "environment variable MKL_X is set in the second run only: 3",
        "environment variable OMP_NUM_THREADS differs: 1 → 2",
        "environment variable ONLY is set in the first run only",
    ]
    elsewhere = Environment({}, {"LR": "b", "HOME": "x"}, (), "another key")
    assert [d.name for d in variable_differences(two.environment, elsewhere)] == ["MKL_X", "OMP_NUM_THREADS", "TZ"]
    assert list(variable_differences(None, elsewhere)) == []
    assert [d.text for d in file_differences(one, two)] == [
        "package torch has the same version, 2.13.0, and other files"
    ]
