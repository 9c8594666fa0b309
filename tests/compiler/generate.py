"""Random graphs and inputs: what the compiler must turn into kernels without changing a bit."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from isobit.arithmetic.dtypes import DType
from isobit.ir.expr import axes, call, const, where
from isobit.ir.graph import Graph, Value
from isobit.ir.layout import Layout

SIZES = st.sampled_from([1, 1, 2, 3, 5, 7, 8, 17, 31, 32, 33, 40])
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-42, -1e-42, 1e-38, 3e38, -3e38, 1.0, -1.0], np.float32)


@st.composite
def graphs(draw: Any) -> Graph:
    """One to nine statements over tensors of one or two base shapes, one to three outputs."""
    g = Graph()
    dtype = draw(st.sampled_from([DType.F32, DType.F32, DType.F64]))
    shape = tuple(draw(st.lists(SIZES, min_size=0, max_size=3)))
    if draw(st.integers(0, 9)) == 0 and shape:
        shape = (0, *shape[1:])
    values = [g.input(dtype, shape)]
    if draw(st.booleans()):
        values.append(g.input(dtype, shape))
    if shape and draw(st.booleans()):
        values.append(g.input(dtype, shape[-1:]))
    for _ in range(draw(st.integers(1, 9))):
        step = draw(st.sampled_from(STEPS))
        made = step(draw, g, draw(st.sampled_from(values[-4:])), values)
        if made is not None:
            values.append(made)
    made_here = [v for v in values if v.id >= g.n_inputs] or values[:1]
    wanted = draw(st.lists(st.sampled_from(made_here), min_size=1, max_size=3))
    g.outputs = [v.id for v in [*wanted, values[-1]]]
    return g


def _pointwise(draw: Any, g: Graph, x: Value, values: list[Value]) -> Value | None:
    partners = [v for v in values if v.shape == x.shape or v.shape == x.shape[-1:]]
    y = draw(st.sampled_from(partners))
    own = x.axes()
    a, b = x[own], y[own[len(own) - y.ndim :]]
    op = draw(
        st.sampled_from(["add", "sub", "mul", "div", "max", "min", "fma", "relu", "where", "sqrt", "exp", "tanh"])
    )
    if op == "relu":
        return g.map(own, call("max", a, const(0.0, x.dtype)))
    if op == "fma":
        return g.map(own, call("fma", a, b, a))
    if op == "where":
        return g.map(own, where(a < b, b, a * 2.0))
    if op in ("sqrt", "exp", "tanh"):
        return g.map(own, call(op, a))
    return g.map(own, call(op, a, b))


def _reduce(draw: Any, g: Graph, x: Value, values: list[Value]) -> Value | None:
    if not x.ndim:
        return None
    own = x.axes()
    first = draw(st.integers(0, x.ndim - 1))
    last = draw(st.integers(first + 1, x.ndim))
    run, keep = own[first:last], own[:first] + own[last:]
    kinds = ["sum", "sum", "prod"] + (["max", "min"] if all(a.extent for a in run) else [])
    return g.reduce(draw(st.sampled_from(kinds)), keep, run, x[own])


def _spread(draw: Any, g: Graph, x: Value, values: list[Value]) -> Value | None:
    """x minus a reduction of it along its last dim: needs a second pass over the row."""
    if not x.ndim or not x.shape[-1]:
        return None
    own = x.axes()
    kind = draw(st.sampled_from(["max", "sum"]))
    r = g.reduce(kind, own[:-1], own[-1:], x[own])
    own = x.axes()
    return g.map(own, x[own] - r[own[:-1]])


def _variance(draw: Any, g: Graph, x: Value, values: list[Value]) -> Value | None:
    if not x.ndim or not x.shape[-1]:
        return None
    own = x.axes()
    s = g.reduce("sum", own[:-1], own[-1:], x[own])
    kept = s.axes()
    m = g.map(kept, s[kept] / float(x.shape[-1]))
    own = x.axes()
    return g.reduce("m2", own[:-1], own[-1:], x[own], aux=m[own[:-1]])


def _permute(draw: Any, g: Graph, x: Value, values: list[Value]) -> Value | None:
    order = draw(st.permutations(range(x.ndim)))
    own = axes(*(x.shape[d] for d in order))
    at = dict(zip(order, own, strict=True))
    return g.map(own, x[tuple(at[d] for d in range(x.ndim))])


def _reshape(draw: Any, g: Graph, x: Value, values: list[Value]) -> Value | None:
    if x.ndim < 1:
        return g.reshape(x, (1,))
    if draw(st.booleans()):
        return g.reshape(x, (-(-int(np.prod(x.shape)) // 1),))
    return g.reshape(x, (x.shape[0], int(np.prod(x.shape[1:]))))


def _pad(draw: Any, g: Graph, x: Value, values: list[Value]) -> Value | None:
    if not x.ndim:
        return None
    shift = draw(st.integers(-2, 2))
    own = axes(*x.shape[:-1], x.shape[-1] + 2)
    return g.map(own, x.at(*own[:-1], own[-1] + shift, fill=draw(st.sampled_from([0.0, -1.5]))))


def _join(draw: Any, g: Graph, x: Value, values: list[Value]) -> Value | None:
    if not x.ndim:
        return None
    y = draw(st.sampled_from([v for v in values if v.shape == x.shape]))
    n = x.shape[0]
    zero, one = [0] * x.ndim, [1] * x.ndim
    if draw(st.booleans()):
        return g.assemble((2 * n, *x.shape[1:]), [(x, zero, one), (y, [n, *zero[1:]], one)])
    return g.assemble((2 * n, *x.shape[1:]), [(x, zero, [2, *one[1:]]), (y, [1, *zero[1:]], [2, *one[1:]])])


def _contract(draw: Any, g: Graph, x: Value, values: list[Value]) -> Value | None:
    if x.ndim != 2:
        return None
    m, k = x.shape
    if draw(st.booleans()):
        i, j, r = axes(m, m, k)
        return g.contract((i, j), (r,), x[i, r], x[j, r])
    i, j, r = axes(k, k, m)
    return g.contract((i, j), (r,), x[r, i], x[r, j])


STEPS = [_pointwise, _pointwise, _pointwise, _reduce, _spread, _variance, _permute, _reshape, _pad, _join, _contract]


def tensor(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Random values of mixed magnitude with a sprinkle of special ones."""
    x = rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 3)
    special = rng.choice(SPECIAL, shape)
    return np.asarray(np.where(rng.random(shape) < 0.03, special, x), dtype.numpy)


def laid_out(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> tuple[np.ndarray[Any, Any], Layout]:
    """Memory for a tensor with random strides (permuted, gapped, offset) and its layout; the array is a view."""
    order = list(rng.permutation(len(shape)))
    gap = int(rng.integers(1, 3)) if rng.random() < 0.3 else 1
    memory = np.zeros([shape[d] * (gap if d == (order[-1] if order else 0) else 1) for d in order], dtype.numpy)
    if order:
        memory = memory[..., ::gap][..., : shape[order[-1]]]
    view = memory.transpose(list(np.argsort(order))) if order else memory
    return view, Layout(dtype, shape, tuple(s // dtype.itemsize for s in view.strides))
