"""All f32 arguments whose results lie next to a rounding boundary: with the error bound, the proof in small.

The lists come from `tools/prove_functions.py --all --list tests/arithmetic/boundaries`; docs/functions.md says why
they suffice.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from isobit.arithmetic.functions import FUNCTIONS, evaluate
from tests.arithmetic import oracle

LISTS = sorted((Path(__file__).parent / "boundaries").glob("*.txt"))
BOUND = 16  # ulp of binary64


@pytest.mark.parametrize("path", LISTS, ids=lambda p: p.stem)
def test_results_next_to_a_boundary(path: Path) -> None:
    name = path.stem
    bits = np.array([int(line, 16) for line in path.read_text(encoding="ascii").split()], np.uint32)
    x = bits.view(np.float32)
    values = evaluate(FUNCTIONS[name].f32, x)
    wrong = [f"{b:08x}" for b, a, v in zip(bits, x.tolist(), values, strict=True)
             if not oracle.same(np.float32(v), oracle.f32(name, a))]  # fmt: skip
    assert not wrong
    assert max(oracle.ulps(name, v, a) for a, v in zip(x.tolist(), values.tolist(), strict=True)) < BOUND


def test_every_function_of_one_argument_has_its_list() -> None:
    assert {path.stem for path in LISTS} == {name for name, f in FUNCTIONS.items() if f.arity == 1}
