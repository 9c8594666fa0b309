"""Printed graphs, kept as text."""

from __future__ import annotations

from isobit.arithmetic.dtypes import DType
from isobit.ir.expr import axes, call, coord, where
from isobit.ir.graph import Graph
from isobit.ir.printer import to_text

EXPECTED = """\
%0: f32[4×6] = input 0  # ?
%1: f32[6×3] = input 1  # ?
%2: f32[4×3] = [i0, i1] = contract(k0 < 6) %0[i0, k0] * %1[k0, i1]  # mm
%3: f32[3] = [i0] = sum(k0 < 4) exp(%2[k0, i0])  # mm
%4: f32[3] = [i0] = m2(k0 < 4) %2[k0, i0] about %3[i0]  # mm
%5: f32[2×4] = [i0, i1] = ((%0[-i1 + 3, 2*i0 + 1] + 0.5:f32) / %3[-i0 + 1]?nan)  # mm
%6: i64[3] = [i0] = where((<i0 - 1> < 0:i64), i64(%3[i0]), <-3*i0 - 2>)  # mm
%7: f32[24] = reshape %0  # mm
%8: f32[8×3] = assemble %2 at [0::2, 0], %2 at [1::2, 0]  # mm
return %5, %8
"""


def a_graph():
    g = Graph()
    x, w = g.input(DType.F32, (4, 6)), g.input(DType.F32, (6, 3))
    g.origin = "mm"
    m, n, k = axes(4, 3, 6)
    y = g.contract((m, n), (k,), x[m, k], w[k, n])
    total = g.reduce("sum", (n,), (m,), call("exp", y[m, n]))
    g.reduce("m2", (n,), (m,), y[m, n], total[n])
    i, j = axes(2, 4)
    out = g.map((i, j), (x[3 - j, 2 * i + 1] + 0.5) / total.at(1 - i, fill=float("nan")))
    (c,) = axes(3)
    g.map((c,), where(coord(c - 1) < 0, total[c].cast(DType.I64), coord(c * -3 - 2)))
    g.reshape(x, (24,))
    whole = g.assemble((8, 3), [(y, (0, 0), (2, 1)), (y, (1, 0), (2, 1))])
    g.outputs = [out.id, whole.id]
    return g


def test_text():
    assert to_text(a_graph()) == EXPECTED


def test_equal_graphs_print_equally():
    assert to_text(a_graph()) == to_text(a_graph())
