"""Compiled programs return the interpreter's bits: any graph, layout, thread count and CPU level."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isobit.codegen.target import host_levels
from isobit.ir.graph import Graph, Input
from isobit.ir.interpreter import interpret
from isobit.ir.layout import Layout
from isobit.runtime.engine import Engine, EngineOptions
from tests.compiler.generate import graphs, laid_out, tensor


@pytest.fixture(scope="module", params=[(level, n) for level in host_levels() for n in (1, 3)], ids=str)
def engine(request: pytest.FixtureRequest) -> Engine:
    level, threads = request.param
    return Engine(EngineOptions(threads=threads, cpu=level))


@given(graphs(), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_compiled_equals_reference(engine: Engine, graph: Graph, seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays, layouts = [], []
    for node in graph.nodes:
        if isinstance(node.stmt, Input):
            view, layout = laid_out(rng, node.dtype, node.shape)
            view[...] = tensor(rng, node.dtype, node.shape)
            arrays.append(view)
            layouts.append(layout)
    want = interpret(graph, arrays)
    got = run(engine, graph, arrays, layouts, rng)
    for w, g in zip(want, got, strict=True):
        assert_same_bits(w, g)


def run(
    engine: Engine, graph: Graph, arrays: list[Any], layouts: list[Layout], rng: np.random.Generator
) -> list[np.ndarray[Any, Any]]:
    outs = [laid_out(rng, graph.nodes[i].dtype, graph.nodes[i].shape) for i in graph.outputs]
    program = engine.compile(graph, tuple(layouts), tuple(layout for _, layout in outs))
    program.run([a.ctypes.data for a in arrays], [view.ctypes.data for view, _ in outs])
    return [view for view, _ in outs]


def assert_same_bits(want: np.ndarray[Any, Any], got: np.ndarray[Any, Any]) -> None:
    assert want.shape == got.shape and want.dtype == got.dtype
    if want.dtype.kind != "f":
        assert np.array_equal(want, got)
        return
    both_nan = np.isnan(want) & np.isnan(got)
    unsigned = f"u{want.dtype.itemsize}"
    same = np.ascontiguousarray(want).view(unsigned) == np.ascontiguousarray(got).view(unsigned)
    assert (same | both_nan).all(), f"want {want[~(same | both_nan)][:4]}, got {got[~(same | both_nan)][:4]}"
