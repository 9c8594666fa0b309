"""Every operator has a row, is a valid graph, and its compiled program returns the interpreter's bits."""

from __future__ import annotations

import zlib
from functools import cache
from typing import Any

import numpy as np
import pytest

from isobit.arithmetic.dtypes import DType
from isobit.arithmetic.functions import FUNCTIONS
from isobit.codegen.target import host_levels
from isobit.ir.interpreter import interpret
from isobit.ir.layout import contiguous
from isobit.ir.numeric import widen
from isobit.ir.ops import ELEMENTARY
from isobit.ir.verify import verify
from isobit.operators.registry import REGISTRY
from isobit.runtime.engine import Engine, EngineOptions
from tests.operators.cases import ROWS, Case

BEST, LEAST = host_levels()[0], host_levels()[-1]
FIRST = list({c.name: c for c in reversed(ROWS)}.values())
Array = np.ndarray[Any, Any]


@cache
def engine(level: str) -> Engine:
    return Engine(EngineOptions(threads=2, cpu=level))


def test_every_operator_has_a_row():
    assert {c.name for c in ROWS} == set(REGISTRY) - (ELEMENTARY - set(FUNCTIONS) - {"pow"})


def seeded(case: Case) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(str(case).encode()))


def same_bits(want: Array, got: Array, dtype: DType) -> bool:
    want, got = widen(want, dtype), widen(got, dtype)
    if want.dtype.kind != "f":
        return np.array_equal(want, got)
    unsigned = f"u{want.dtype.itemsize}"
    return bool(((want.view(unsigned) == got.view(unsigned)) | (np.isnan(want) & np.isnan(got))).all())


@pytest.mark.parametrize("case", ROWS, ids=str)
def test_compiled_f32_returns_the_interpreters_bits(case):
    check(case, DType.F32, BEST)


@pytest.mark.parametrize("case", FIRST, ids=str)
def test_compiled_f64_returns_the_interpreters_bits(case):
    check(case, DType.F64, LEAST)


NARROW = {
    "add",
    "mul",
    "gelu",
    "softmax",
    "sum",
    "mean",
    "addmm",
    "layer_norm",
    "relu",
    "eq",
    "permute",
    "clamp",
    "cast",
}


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
@pytest.mark.parametrize("case", [c for c in FIRST if c.name in NARROW], ids=str)
def test_compiled_narrow_returns_the_interpreters_bits(case, dtype):
    check(case, dtype, BEST)


def check(case: Case, dtype: DType, level: str) -> None:
    graph = case.graph(dtype)
    verify(graph)
    arrays = case.arrays(seeded(case), dtype)
    outs = [np.empty(graph.nodes[i].shape, graph.nodes[i].dtype.numpy) for i in graph.outputs]
    layouts = [
        tuple(contiguous(n.dtype, n.shape) for n in (graph.nodes[i] for i in ids))
        for ids in (range(len(arrays)), graph.outputs)
    ]
    engine(level).compile(graph, *layouts).run([a.ctypes.data for a in arrays], [o.ctypes.data for o in outs])
    for i, want, got in zip(graph.outputs, interpret(graph, arrays), outs, strict=True):
        wrong = ~((want == got) | (want != want))
        assert same_bits(want, got, graph.nodes[i].dtype), f"want {want[wrong][:4]}, got {got[wrong][:4]}"
