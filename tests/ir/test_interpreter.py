"""The interpreter on small graphs written by hand: each statement, each kind of index."""

from __future__ import annotations

import numpy as np
import pytest

from isobit.arithmetic import orders
from isobit.arithmetic.dtypes import DType
from isobit.ir.expr import axes, call, coord, where
from isobit.ir.graph import Graph
from isobit.ir.interpreter import interpret

RNG = np.random.default_rng(0)


def evaluate(graph, *inputs):
    (out,) = interpret(graph, inputs)
    return out


def test_map_with_affine_indices():
    g = Graph()
    x = g.input(DType.F32, (6, 5))
    i, j = axes(2, 5)
    g.outputs = [g.map((j, i), x[2 * i + 1, 4 - j] + 1).id]
    data = RNG.standard_normal((6, 5)).astype(np.float32)
    assert np.array_equal(evaluate(g, data), data[1:5:2, ::-1].T + 1)


def test_fill_and_coordinates():
    g = Graph()
    x = g.input(DType.I64, (3,))
    (i,) = axes(6)
    inside = x.at(i - 1, fill=-7)
    g.outputs = [g.map((i,), where(coord(i).eq(5), inside.like(9), inside)).id]
    assert evaluate(g, np.array([1, 2, 3])).tolist() == [-7, 1, 2, 3, -7, 9]


def test_data_dependent_index():
    g = Graph()
    x, index = g.input(DType.F64, (4,)), g.input(DType.I64, (3, 2))
    i, j = axes(3, 2)
    g.outputs = [g.map((i, j), x.at(index[i, j], fill=0.5)).id]
    where_ = np.array([[0, 3], [-1, 4], [2, 2]])
    assert evaluate(g, np.arange(4.0), where_).tolist() == [[0, 3], [0.5, 0.5], [2, 2]]
    empty = Graph()
    x, index = empty.input(DType.F64, (0,)), empty.input(DType.I64, (2,))
    (i,) = axes(2)
    empty.outputs = [empty.map((i,), x.at(index[i], fill=3)).id]
    assert evaluate(empty, np.zeros(0), np.zeros(2, np.int64)).tolist() == [3, 3]


@pytest.mark.parametrize(
    ("kind", "reference"),
    [("sum", orders.sum_run), ("prod", orders.prod_run), ("max", orders.max_run), ("min", orders.min_run),
     ("argmax", orders.argmax), ("argmin", orders.argmin), ("tree_sum", orders.tree_sum)],
)  # fmt: skip
def test_reduce_flattens_its_run_in_the_order_of_its_axes(kind, reference):
    g = Graph()
    x = g.input(DType.F32, (40, 3, 50))
    a, b, c = axes(40, 3, 50)
    g.outputs = [g.reduce(kind, (b,), (c, a), x[a, b, c] * 2).id]
    data = RNG.standard_normal((40, 3, 50)).astype(np.float32)
    runs = np.ascontiguousarray(np.transpose(data, (1, 2, 0))).reshape(3, 2000) * 2
    assert np.array_equal(evaluate(g, data), reference(runs))


def test_second_moment_and_flags():
    g = Graph()
    x, flag = g.input(DType.F64, (2, 1500)), g.input(DType.BOOL, (2, 3))
    i, k = axes(2, 1500)
    m = g.map((i,), g.reduce("sum", (i,), (k,), x[i, k])[i] / 1500)
    j, f = axes(2, 3)
    g.outputs = [g.reduce("m2", (i,), (k,), x[i, k], m[i]).id] + [
        g.reduce(kind, (j,), (f,), flag[j, f]).id for kind in ("any", "all")
    ]
    data = RNG.standard_normal((2, 1500))
    m2, some, every = interpret(g, [data, np.array([[1, 0, 0], [0, 0, 0]], bool)])
    assert np.array_equal(m2 / 1499, orders.var(data)) and some.tolist() == [True, False] and not every.any()


def test_contract_reshape_assemble():
    g = Graph()
    a, b = g.input(DType.F32, (4, 300)), g.input(DType.F32, (300, 5))
    m, n, k = axes(4, 5, 300)
    y = g.contract((m, n), (k,), a[m, k], b[k, n])
    half = g.assemble((4, 10), [(y, (0, 0), (1, 2)), (y, (0, 1), (1, 2))])
    g.outputs = [g.reshape(half, (2, 20)).id]
    u, v = RNG.standard_normal((4, 300)).astype(np.float32), RNG.standard_normal((300, 5)).astype(np.float32)
    assert np.array_equal(evaluate(g, u, v), orders.matmul(u, v).repeat(2, 1).reshape(2, 20))


def test_narrow_operations_round_once():
    g = Graph()
    x = g.input(DType.BF16, (3,))
    (i,) = axes(3)
    g.outputs = [g.map((i,), x[i] * x[i]).id, g.reduce("sum", (), (i,), x[i]).id]
    patterns = np.array([0x3F81, 0x4049, 0xC000], np.uint16)
    wide = (patterns.astype(np.uint32) << 16).view(np.float32)
    square, total = interpret(g, [patterns])
    assert np.allclose((square.astype(np.uint32) << 16).view(np.float32), wide * wide, rtol=2**-8)
    assert square.dtype == total.dtype == np.uint16


def test_outputs_may_repeat_and_be_inputs():
    g = Graph()
    x = g.input(DType.F32, (2,))
    g.outputs = [x.id, x.id]
    data = np.ones(2, np.float32)
    first, second = interpret(g, [data])
    first[0] = 5
    assert data[0] == 1 and second[0] == 1


def test_inputs_are_checked():
    g = Graph()
    g.outputs = [g.input(DType.F32, (2,)).id]
    with pytest.raises(ValueError, match=r"input 0 is float64\(2,\)"):
        interpret(g, [np.zeros(2)])


def test_shared_subexpressions_are_computed_once():
    g = Graph()
    x = g.input(DType.F64, ())
    e = x[()]
    for _ in range(60):
        e = call("add", e, e)
    g.outputs = [g.map((), e).id]
    assert evaluate(g, np.array(1.0)) == 2.0**60
