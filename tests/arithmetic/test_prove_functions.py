"""The prover finds what is wrong, and passes what is right, on small ranges."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import numpy.typing as npt
import pytest

from isobit.arithmetic.functions import FUNCTIONS, evaluate

F64 = npt.NDArray[np.float64]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    path = Path(__file__).parents[2] / "tools" / "prove_functions.py"
    spec = importlib.util.spec_from_file_location("prove_functions", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


def patterns(*words: int) -> npt.NDArray[np.uint32]:
    return np.array(words, np.uint32)


def test_a_range_around_a_hard_case_is_right(tool: ModuleType) -> None:
    blocks = tool.consecutive(0x65D890D3 - 500, 0x65D890D3 + 500)
    report = tool.prove("log", tool.reference("log"), blocks, patterns())
    assert (report.tried, report.flagged, report.wrong, report.beyond) == (1000, [0x65D890D3], [], [])


def test_a_value_on_the_wrong_side_of_a_boundary_is_found(tool: ModuleType) -> None:
    def without_cases(x: F64) -> F64:
        value = evaluate(FUNCTIONS["log"].f64, x)
        return np.where(x == np.float32(9.472636222839355), np.nextafter(value, np.inf), value)

    report = tool.prove("log", without_cases, tool.consecutive(0x41178FE0, 0x41178FF0), patterns())
    assert report.wrong == [0x41178FEB] and report.beyond == []


def test_an_evaluation_that_breaks_the_bound_is_found(tool: ModuleType) -> None:
    def crude(x: F64) -> F64:
        return np.exp(x) * (1 + 2.0**-40)

    report = tool.prove("exp", crude, iter(()), patterns(0x3F800000))
    assert report.beyond == [0x3F800000]


def test_special_arguments_are_judged(tool: ModuleType) -> None:
    spots = patterns(0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00000)
    report = tool.prove("exp", lambda x: np.zeros_like(x), iter(()), spots)
    assert report.wrong == [0, 1 << 31, 0x7F800000, 0x7FC00000]


def test_flags_follow_the_spacing_of_f32(tool: ModuleType) -> None:
    ulp = 2.0**-52
    normal = np.array([1 + 2.0**-24, 1 + 2.0**-24 + 31 * ulp, 1 + 2.0**-24 - 33 * ulp, 1.0, np.inf, np.nan])
    assert tool.flagged(normal).tolist() == tool.flagged(-normal).tolist() == [True, True, False, False, False, False]
    small = np.array([2.0**-150, 3 * 2.0**-150, 2.0**-149, 1 + 2.0**-24 + 31 * ulp, 1 + 2.0**-24 + 65 * ulp])
    assert tool.flagged(small).tolist() == [True, True, False, True, False]


def test_the_ranges_cover_every_argument_once(tool: ModuleType) -> None:
    first = 2**32 - tool.BLOCK - 7
    parts = np.concatenate(list(tool.consecutive(first, 2**32)))
    assert np.array_equal(parts, np.arange(first, 2**32, dtype=np.uint64).astype(np.uint32))
    starts = [int(b[0]) for b in tool.binades(range(255, 256))]
    assert starts == [sign + (255 << 23) + k for sign in (0, 2**31) for k in range(0, 2**23, tool.BLOCK)]
    assert set(tool.ends_of_binades().tolist()) >= {0, 1, 2**31, 0x7F7FFFFF, 0x7F800000, 0xFFFFFFFF}


def test_the_command_succeeds(tool: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main(["tanh", "rsqrt", "--random", "2000", "--spot", "10"]) == 0
    assert "tanh: tried 2000, flagged 0, wrong 0" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        tool.main(["gamma"])
