"""Convolution and its gradients: values, order, and the identities with matrix products."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from isobit.arithmetic import orders
from isobit.arithmetic.dtypes import DType
from isobit.ir.graph import Contract, Graph
from isobit.operators import convolution as c
from isobit.operators import linear as l
from isobit.operators.windows import phases
from tests.operators.running import check, close64, run

RNG = np.random.default_rng(5)
ATEN = torch.ops.aten.convolution
GEOMETRIES = [
    (d, s, p, dil, k, g, t)
    for d, s, p, dil, k, g, t in itertools.product((1, 2), (1, 2, 3), (0, 1), (1, 2), (1, 2, 3), (1, 2), (False, True))
    if (s + p + dil + k + g + t + d) % 3 == 0
] + [(3, 2, 1, 1, 3, 1, False), (3, 1, 1, 2, 2, 2, False), (3, 2, 1, 1, 3, 2, True)]


def problem(dims, k, groups, transposed, dtype=np.float64):
    x = RNG.standard_normal((2, 4, *(8, 9, 6)[:dims])).astype(dtype)
    shape = (4, 6 // groups) if transposed else (6, 4 // groups)
    return x, RNG.standard_normal((*shape, *(k,) * dims)).astype(dtype), RNG.standard_normal(6).astype(dtype)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_against_pytorch(dims):
    for _, s, p, d, k, g, t in (x for x in GEOMETRIES if x[0] == dims):
        x, w, b = problem(dims, k, g, t)
        tx, tw, tb = (torch.tensor(v, requires_grad=True) for v in (x, w, b))
        extra = [1 if t and s > 1 else 0]
        y = ATEN(tx, tw, tb, [s] * dims, [p] * dims, [d] * dims, t, extra * dims, g)
        dy = RNG.standard_normal(y.shape)
        y.backward(torch.tensor(dy))
        ours = run(lambda u, v, h: c.convolution(u, v, h, [s], [p], [d], t, extra, g), x, w, b)  # noqa: B023
        close64(ours, y.detach())
        found = run(lambda g_, u, v: c.convolution_backward(g_, u, v, [s], [p], [d], t, g), dy, x, w)  # noqa: B023
        for a, e in zip(found, (tx, tw, tb), strict=True):
            close64(a, e.grad)


def test_is_unfold_then_mm():
    x, w, b = problem(2, 3, 1, False, np.float32)
    columns = F.unfold(torch.tensor(x), 3, dilation=(1, 2), padding=(1, 0), stride=(2, 1)).numpy()
    product = np.stack([run(l.mm, w.reshape(6, -1), one) for one in columns])
    ours = run(lambda u, v: c.convolution(u, v, None, [2, 1], [1, 0], [1, 2]), x, w)
    assert np.array_equal(ours, product.reshape(ours.shape))
    biased = run(lambda u, v, h: c.convolution(u, v, h, [2, 1], [1, 0], [1, 2]), x, w, b)
    assert np.array_equal(biased, ours + b[:, None, None])


def test_one_by_one_is_linear():
    x, w, b = problem(2, 1, 1, False, np.float32)
    last = np.ascontiguousarray(np.moveaxis(x, 1, -1))
    assert np.array_equal(run(c.convolution, x, w, b), np.moveaxis(run(l.linear, last, w.reshape(6, 4), b), -1, 1))


def test_input_gradient_sums_the_taps_that_exist():
    """Stride 2, kernel 3, padding 1: order (c_out, kh, kw) over the taps with the right parity, by hand."""
    dy, w = RNG.standard_normal((1, 5, 4, 4)).astype(np.float32), RNG.standard_normal((5, 2, 3, 3)).astype(np.float32)
    x = np.zeros((1, 2, 8, 8), np.float32)
    (dx, _, _) = run(
        lambda g, u, v: c.convolution_backward(g, u, v, [2], [1], output_mask=(True, False, False)), dy, x, w
    )
    for ci, h, v in itertools.product(range(2), range(8), range(8)):
        sent, taps = [], []
        for co, kh, kw in itertools.product(range(5), range(3), range(3)):
            oh, ow = h + 1 - kh, v + 1 - kw
            if oh % 2 == 0 and ow % 2 == 0:
                inside = 0 <= oh < 8 and 0 <= ow < 8
                sent.append(dy[0, co, oh // 2, ow // 2] if inside else np.float32(0))
                taps.append(w[co, ci, kh, kw])
        assert dx[0, ci, h, v] == orders.contract(np.array(sent), np.array(taps))


def test_holes_have_no_terms():
    """Stride 2 and dilation 2: odd inputs meet no tap; each of the others one contraction of its own."""
    assert [p.taps for p in phases(9, 3, 2, 0, 2)] == [3, 0]
    assert [(p.start, p.taps, p.kernel) for p in phases(9, 3, 2, 1, 1)] == [(0, 1, 1), (1, 2, 0)]
    graph = Graph()
    dy, x, w = (graph.input(DType.F32, s) for s in ((1, 3, 4, 4), (1, 2, 8, 8), (3, 2, 3, 3)))
    c.convolution_backward(dy, x, w, [2], [1], output_mask=(True, False, False))
    assert sum(isinstance(n.stmt, Contract) for n in graph.nodes) == 4


def test_weight_gradient_order():
    x, w, _ = problem(1, 3, 1, False, np.float32)
    dy = RNG.standard_normal((2, 6, 6)).astype(np.float32)
    (_, dw, db) = run(lambda g, u, v: c.convolution_backward(g, u, v), dy, x, w)
    windows = np.stack([x[:, :, k : k + 6] for k in range(3)], -1)  # n, ci, o, k
    sent = np.moveaxis(dy, 1, 0).reshape(6, -1)
    seen = np.transpose(windows, (1, 3, 0, 2)).reshape(12, -1)
    assert np.array_equal(dw, orders.matmul(sent, seen.T).reshape(6, 4, 3))
    assert np.array_equal(db, orders.sum_dims(dy, (0, 2)))


def test_accuracy():
    x = RNG.standard_normal((2, 16, 10, 10)).astype(np.float32)
    w = RNG.standard_normal((8, 16, 3, 3)).astype(np.float32)
    ours = run(lambda u, v: c.convolution(u, v, None, [1], [1]), x, w)
    peer, exact = (
        F.conv2d(torch.tensor(x).to(t), torch.tensor(w).to(t), padding=1) for t in (torch.float32, torch.float64)
    )
    check(ours, peer, exact, allowed=2)


def test_sample_alone_or_in_a_batch():
    x, w, b = problem(2, 3, 2, False, np.float32)
    both = run(lambda u, v, h: c.convolution(u, v, h, [2], [1], groups=2), x, w, b)
    alone = run(lambda u, v, h: c.convolution(u, v, h, [2], [1], groups=2), x[1:], w, b)
    assert np.array_equal(both[1:], alone)


def test_shapes_are_checked():
    x, w, _ = problem(2, 3, 1, False)
    with pytest.raises(ValueError, match=r"convolution of input \(2, 4, 8, 9\)"):
        run(lambda u, v: c.convolution(u, v, None, groups=2), x, w)
    with pytest.raises(ValueError, match="convolution"):
        run(lambda u, v: c.convolution(u, v, None, dilation=[9]), x, w)
