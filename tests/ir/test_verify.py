"""The verifier names what is wrong with a graph, where, and who made it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from isobit.arithmetic.dtypes import DType
from isobit.ir.expr import Const, Load, Op, axes, const, coord
from isobit.ir.graph import Assemble, Contract, Graph, Map, Node, Part, Reduce, Reshape
from isobit.ir.verify import VerifyError, verify


def a_graph():
    g = Graph(origin="maker")
    x = g.input(DType.F32, (4, 6))
    i, j = axes(4, 6)
    total = g.reduce("sum", (i,), (j,), x[i, j])
    y = g.map((i,), total[i] / 6)
    m2 = g.reduce("m2", (i,), (j,), x[i, j], y[i])
    g.outputs = [m2.id]
    return g, x, (i, j)


def test_good_graphs_pass():
    g, x, (i, j) = a_graph()
    k = axes(6)[0]
    g.contract((i, j), (k,), x[i, k], x[i, j])
    g.assemble((8, 6), [(x, (0, 0), (2, 1)), (x, (1, 0), (2, 1))])
    (e,) = axes(0)
    g.map((e,), x[9 * e + 0, 0])
    verify(g)


def broken(stmt_of, shape=(4,), dtype=DType.F32):
    g, x, (i, j) = a_graph()
    g.nodes.append(Node(len(g.nodes), stmt_of(g, x, i, j), dtype, shape, "maker"))
    return g


F32, I64 = DType.F32, DType.I64
CASES = {
    "reads node 9": lambda g, x, i, j: Map((i,), Load(F32, 9, (i + 0,))),
    "reads node 4": lambda g, x, i, j: Map((i,), Load(F32, 4, (i + 0,))),
    "loads 1..4 of extent 4": lambda g, x, i, j: Map((i,), x[i + 1, 0]),
    "loads with 1 indices": lambda g, x, i, j: Map((i,), Load(F32, 0, (i + 0,))),
    "loads i64 from": lambda g, x, i, j: Map((i,), Load(I64, 0, (i + 0, 0 * i + 0)).cast(F32)),
    "outside its statement": lambda g, x, i, j: Map((i,), x[i, j]),
    "axes (6,)": lambda g, x, i, j: Map((j,), x[0, j]),
    "computes i64": lambda g, x, i, j: Map((i,), coord(i)),
    "same axis twice": lambda g, x, i, j: Reduce((i,), (i,), "sum", x[i, 0]),
    "reduces by 'median'": lambda g, x, i, j: Reduce((i,), (j,), "median", x[i, j]),
    "to a kind other than m2": lambda g, x, i, j: Reduce((i,), (j,), "sum", x[i, j], x[i, 0]),
    "any of f32": lambda g, x, i, j: Reduce((i,), (j,), "any", x[i, j]),
    "plain loads": lambda g, x, i, j: Contract((i,), (j,), x.at(i, j, fill=0), x[i, j]),
    "data-dependent index": lambda g, x, i, j: Map((i,), Load(F32, 0, (coord(i), 0 * i + 0))),
    "add needs arguments of one dtype": lambda g, x, i, j: Map((i,), Op(F32, "add", (x[i, 0], const(1, I64)))),
    "no operation 'gamma'": lambda g, x, i, j: Map((i,), Op(F32, "gamma", (x[i, 0],))),
    "floordiv of f32": lambda g, x, i, j: Map((i,), Op(F32, "floordiv", (x[i, 0], x[i, 1]))),
    "xor of f32": lambda g, x, i, j: Map((i,), Op(F32, "xor", (x[i, 0], x[i, 1]))),
    "which is no f32": lambda g, x, i, j: Map((i,), Const(F32, 0.1, "")),
    "reshapes (4, 6) to (4,)": lambda g, x, i, j: Reshape(0),
    "exactly once": lambda g, x, i, j: Assemble((Part(2, (0,), (1,)), Part(2, (0,), (1,)))),
    "sticks out": lambda g, x, i, j: Assemble((Part(2, (1,), (1,)),)),
    "another rank": lambda g, x, i, j: Assemble((Part(0, (0, 0), (1, 1)),)),
}


@pytest.mark.parametrize("message", CASES)
def test_broken_graphs_are_named(message):
    g = broken(CASES[message])
    with pytest.raises(VerifyError, match="node 4 of operator maker") as caught:
        verify(g)
    assert message in str(caught.value)


def test_positions_of_an_empty_run():
    g = Graph()
    x = g.input(DType.F32, (3, 0))
    i, k = axes(3, 0)
    g.reduce("argmax", (i,), (k,), x[i, k])
    with pytest.raises(VerifyError, match="empty run"):
        verify(g)


def test_outputs_and_places():
    g, _, _ = a_graph()
    g.outputs = [17]
    with pytest.raises(VerifyError, match="output 17"):
        verify(g)
    g, _, _ = a_graph()
    g.nodes[2] = replace(g.nodes[2], id=1)
    with pytest.raises(VerifyError, match="stands at place 2"):
        verify(g)
