"""Compiled programs return the interpreter's bits: any graph, layout, thread count and CPU level."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isobit.arithmetic.dtypes import DType
from isobit.codegen.target import host_levels
from isobit.ir.expr import axes
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


@pytest.mark.parametrize("length", [40, 700])
def test_a_long_chain_of_shared_values(length: int) -> None:
    """Each value is used twice: as many paths as 2^length lead through it, and no stack is as deep as the chain."""
    g = Graph()
    x = g.input(DType.F32, (50,))
    y = x
    for _ in range(length):
        (i,) = axes(50)
        y = g.map((i,), y[i] * y[i] * 0.25 + y[i] * 0.5)
    g.outputs = [y.id]
    start = np.linspace(-1, 1, 50, dtype=np.float32)
    flat = Layout(DType.F32, (50,), (1,))
    program = Engine(EngineOptions(threads=1)).compile(g, (flat,), (flat,))
    got = np.empty(50, np.float32)
    program.run([start.ctypes.data], [got.ctypes.data])
    assert_same_bits(np.asarray(interpret(g, [start])[0]), got)


def test_a_long_chain_of_kernels() -> None:
    """A thousand kernels, each reading the one before."""
    g = Graph()
    y = g.input(DType.F32, (8,))
    for _ in range(1100):
        (i,) = axes(8)
        y = g.map((i,), y.at(7 - i) + 1.0)
    g.outputs = [y.id]
    start = np.arange(8, dtype=np.float32)
    flat = Layout(DType.F32, (8,), (1,))
    program = Engine(EngineOptions(threads=1)).compile(g, (flat,), (flat,))
    got = np.empty(8, np.float32)
    program.run([start.ctypes.data], [got.ctypes.data])
    assert got.tolist() == [x + 1100.0 for x in start]
