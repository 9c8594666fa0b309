"""Matrix products and what is added to them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from isobit.arithmetic import orders
from isobit.operators import linear as l
from tests.operators.running import check, close64, reference, run

RNG = np.random.default_rng(4)


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("k", [0, 1, 255, 256, 257, 600])
def test_order_is_the_references(k):
    a, b = f32(3, k), f32(k, 4)
    assert run(l.mm, a, b).tobytes() == orders.matmul(a, b).tobytes()


def test_values():
    a, b, c = RNG.standard_normal((3, 4, 6)), RNG.standard_normal((3, 6, 5)), RNG.standard_normal((3, 4, 5))
    close64(run(l.bmm, a, b), a @ b)
    close64(run(lambda u, v, w: l.baddbmm(u, v, w, 0.5, 2), c, a, b), 0.5 * c + 2 * (a @ b))
    close64(run(l.mv, a[0], b[0, :, 0]), a[0] @ b[0, :, 0])
    close64(run(l.dot, b[0, :, 0], b[1, :, 0]), b[0, :, 0] @ b[1, :, 0])
    close64(run(l.outer, a[0, 0], b[0, 0]), np.outer(a[0, 0], b[0, 0]))
    close64(
        run(lambda u, v, w: l.addmv(u, v, w, 2, 3), c[0, :, 0], a[0], b[0, :, 0]),
        2 * c[0, :, 0] + 3 * (a[0] @ b[0, :, 0]),
    )


def test_addmm_rounds_each_step():
    a, b, c = f32(3, 300), f32(300, 5), f32(5)
    product = run(l.mm, a, b)
    assert np.array_equal(run(l.addmm, c, a, b), c + product)
    scaled = np.float32(0.3) * c + np.float32(0.7) * product
    assert np.array_equal(run(lambda u, v, w: l.addmm(u, v, w, 0.3, 0.7), c, a, b), scaled)
    nan = np.full(5, np.nan, np.float32)
    assert np.array_equal(run(lambda u, v, w: l.addmm(u, v, w, 0), nan, a, b), product)


def test_linear_is_addmm_on_any_number_of_dims():
    x, w, b = f32(2, 3, 40), f32(7, 40), f32(7)
    expected = run(l.addmm, b, x.reshape(6, 40), np.ascontiguousarray(w.T)).reshape(2, 3, 7)
    assert np.array_equal(run(l.linear, x, w, b), expected)
    assert np.array_equal(run(l.linear, x[0, 0], w), run(l.linear, x, w)[0, 0])


def test_accuracy():
    a, b = f32(20, 700), f32(700, 20)
    peer = (torch.tensor(a) @ torch.tensor(b)).numpy()
    check(run(l.mm, a, b), peer, reference(torch.mm, a, b), allowed=2)


def test_narrow_accumulates_in_f32():
    a, b, c = (x.astype(np.float16) for x in (f32(3, 300), f32(300, 4), f32(4)))
    wide = run(l.addmm, *(x.astype(np.float32) for x in (c, a, b)))
    assert np.array_equal(run(l.addmm, c, a, b), wide.astype(np.float16))


def test_shapes_are_checked():
    with pytest.raises(ValueError, match=r"mm of shapes \(2, 3\), \(2, 3\)"):
        run(l.mm, f32(2, 3), f32(2, 3))
    with pytest.raises(ValueError, match="linear"):
        run(l.linear, f32(2, 3), f32(2, 4))
