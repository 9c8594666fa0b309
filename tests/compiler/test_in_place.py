"""Pairs (input, output) that a program declares to share memory may all do so at once, without a changed bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isobit.arithmetic.dtypes import DType
from isobit.ir.expr import axes
from isobit.ir.graph import Graph, Input
from isobit.ir.interpreter import interpret
from isobit.ir.layout import Layout, contiguous_strides
from isobit.runtime.engine import Engine, EngineOptions
from tests.compiler.generate import graphs, laid_out, tensor
from tests.compiler.test_reference import assert_same_bits

ENGINES = {n: Engine(EngineOptions(threads=n)) for n in (1, 3)}


def check(engine: Engine, graph: Graph, seed: int) -> int:
    """Runs with as many outputs as may be laid over inputs; gives how many those were."""
    rng = np.random.default_rng(seed)
    arrays, layouts = [], []
    for node in graph.nodes:
        if isinstance(node.stmt, Input):
            view, layout = laid_out(rng, node.dtype, node.shape)
            view[...] = tensor(rng, node.dtype, node.shape)
            arrays.append(view)
            layouts.append(layout)
    want = [np.array(x) for x in interpret(graph, arrays)]
    places = [_place(rng, graph.nodes[i], arrays, layouts) for i in graph.outputs]
    program: Any = engine.compile(graph, tuple(layouts), tuple(layout for _, layout in places))
    outs: list[Any] = [view for view, _ in places]
    taken: set[int] = set()
    used: set[int] = set()
    for i, o in sorted(program.in_place, key=lambda pair: rng.random()):
        if i not in taken and o not in used:
            outs[o] = arrays[i]
            taken.add(i)
            used.add(o)
    program.run([a.ctypes.data for a in arrays], [o.ctypes.data for o in outs])
    for w, g in zip(want, outs, strict=True):
        assert_same_bits(w, g)
    return len(taken)


def _place(rng: np.random.Generator, node: Any, arrays: list[Any], layouts: list[Layout]) -> tuple[Any, Layout]:
    """Memory for an output: like one of the inputs, if there is one of its shape."""
    alike = [k for k, x in enumerate(layouts) if (x.dtype, x.shape) == (node.dtype, node.shape)]
    if not alike:
        return laid_out(rng, node.dtype, node.shape)
    k = rng.choice(alike)
    memory = np.zeros(sum(arrays[k].strides[d] * (n - 1) for d, n in enumerate(arrays[k].shape)) + 64, np.uint8)
    return np.ndarray(arrays[k].shape, arrays[k].dtype, memory, 0, arrays[k].strides), layouts[k]


@pytest.mark.parametrize("threads", ENGINES)
@given(graphs(), st.integers(0, 2**32 - 1))
@settings(max_examples=120, deadline=None)
def test_declared_pairs(threads: int, graph: Graph, seed: int) -> None:
    check(ENGINES[threads], graph, seed)


def vectors(n: int) -> tuple[Graph, list[Any]]:
    g = Graph()
    return g, [g.input(DType.F32, (1000,)) for _ in range(n)]


def pairs(g: Graph, *outputs: Any) -> frozenset[tuple[int, int]]:
    g.outputs = [o.id for o in outputs]
    layouts = [Layout(x.dtype, x.shape, contiguous_strides(x.shape)) for x in outputs]
    inputs = [Layout(n.dtype, n.shape, contiguous_strides(n.shape)) for n in g.nodes if isinstance(n.stmt, Input)]
    found: frozenset[tuple[int, int]] = ENGINES[1].compile(g, tuple(inputs), tuple(layouts)).in_place
    return found


def test_an_optimizers_parameter_and_moment() -> None:
    """Both outputs read both inputs, element by element, in one kernel: every pair may share."""
    g, (p, m, d) = vectors(3)
    (i,) = axes(1000)
    moment = g.map((i,), m[i] * 0.9 + d[i])
    (i,) = axes(1000)
    param = g.map((i,), p[i] - moment[i])
    assert {(0, 0), (1, 1), (2, 1)} <= pairs(g, param, moment)


def test_a_reversed_copy_may_not_share() -> None:
    g, (x,) = vectors(1)
    (i,) = axes(1000)
    assert not pairs(g, g.map((i,), x.at(999 - i)))


def test_what_a_later_kernel_reads_may_not_be_overwritten() -> None:
    """The sum over x is one kernel, x + that sum another; what lies over x before then would spoil it."""
    g, (x, y) = vectors(2)
    (i,) = axes(1000)
    doubled = g.map((i,), y[i] * 2.0)
    (r,) = axes(1000)
    total = g.reduce("sum", (), (r,), doubled[r])
    (i,) = axes(1000)
    spread = g.map((i,), x.at(999 - i) + total[()])
    found = pairs(g, doubled, spread)
    assert (1, 0) in found and (0, 0) not in found and (0, 1) not in found
