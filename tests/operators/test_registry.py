"""One entry per operator; names in the graph; narrow floats widen once and round once."""

from __future__ import annotations

import numpy as np
import pytest

from isobit.arithmetic.dtypes import DType
from isobit.ir.graph import Graph
from isobit.operators import (  # noqa: F401  (importing them registers them)
    activations,
    convolution,
    linear,
    losses,
    norms,
    optimizers,
    pointwise,
    pooling,
    random,
    reductions,
    softmax,
    views,
)  # fmt: skip
from isobit.operators.registry import REGISTRY, operator
from tests.operators.running import run


def test_entries():
    assert len(REGISTRY) > 150
    for name, entry in REGISTRY.items():
        assert entry.name == name and callable(entry.fn) and not name.endswith("_")
    assert REGISTRY["softmax"].fn is softmax.softmax and REGISTRY["softmax"].doc.startswith("e ÷ Σe")


def test_a_name_is_taken_once():
    def softmax(x):
        return x

    with pytest.raises(ValueError, match="two operators"):
        operator(softmax)


def test_nodes_name_the_outermost_operator():
    graph = Graph()
    x = graph.input(DType.F32, (2, 3))
    reductions.std(x, 1)
    assert {n.origin for n in graph.nodes[1:]} == {"std"} and graph.origin == "?"
    graph.origin = "layer1.std, model.py:12"
    reductions.std(x, 1)
    assert graph.nodes[-1].origin == "layer1.std, model.py:12"


def test_narrow_results_are_rounded_once():
    x = np.random.default_rng(0).standard_normal((4, 300)).astype(np.float16)
    wide = run(lambda v: softmax.softmax(v, 1), x.astype(np.float32))
    assert np.array_equal(run(lambda v: softmax.softmax(v, 1), x), wide.astype(np.float16))
    total = run(lambda v: reductions.sum_(v, 1), x)
    assert np.array_equal(total, run(lambda v: reductions.sum_(v, 1), x.astype(np.float32)).astype(np.float16))


def test_an_operator_needs_a_graph():
    with pytest.raises(TypeError, match="graph"):
        views.cat([])
