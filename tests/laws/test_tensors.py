"""Batch, slice, place and identity: the laws that say how a tensor is cut, stored or written never shows."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import isobit
from tests.laws.cases import ACTIVATIONS, DTYPES, OPERATORS, Case, Work, cases, differentiable, results
from tests.laws.values import KINDS, PLACES, SIZES, assert_same, contiguous, draw, place

SAMPLED = [name for name in OPERATORS if Case(name, 3).work().batch]
FEW = settings(max_examples=16)
MANY = settings(max_examples=32)
lengths = st.sampled_from((0, *SIZES))
dtypes = st.sampled_from(sorted(DTYPES.values(), key=str))
kinds = st.sampled_from(KINDS)


def numbers(seed: int, dtype: torch.dtype, kind: str, *shape: int) -> torch.Tensor:
    return draw(np.random.default_rng(seed), shape, dtype, kind)


# place -----------------------------------------------------------------------------------------------------------


@MANY
@given(cases(), st.lists(st.sampled_from(PLACES), min_size=5, max_size=5))
def test_place(case: Case, where: list[str]) -> None:
    work = case.work()
    moved = tuple(place(x, w) for x, w in zip(work.inputs, where))
    plain = tuple(contiguous(x) for x in moved)
    with isobit.exact(threads=1, strict=True):
        found = results(case, Work(work.function, moved))
        assert_same(found, results(case, Work(work.function, plain)), case)


@FEW
@given(cases(), st.sampled_from(PLACES[:-1]))
def test_place_of_what_flows_back(case: Case, where: str) -> None:
    work = case.work()
    with isobit.exact(threads=1, strict=True):
        pulls = case.cotangents(differentiable(work))
        found = results(case, work, [place(p, where) for p in pulls])
        assert_same(found, results(case, work, pulls), case)


# batch -----------------------------------------------------------------------------------------------------------


def of_samples(work: Work, rows: list[int]) -> Work:
    inputs = [
        x.detach()[rows].requires_grad_(x.requires_grad) if k in work.batch else x for k, x in enumerate(work.inputs)
    ]
    return Work(work.function, tuple(inputs), work.batch)


def per_sample(case: Case, work: Work, pulls: list[torch.Tensor]) -> list[torch.Tensor]:
    """Outputs and gradients that belong to one sample each."""
    alone = [x if k in work.batch else x.detach() for k, x in enumerate(work.inputs)]
    return results(case, Work(work.function, tuple(alone)), pulls)


@MANY
@given(cases(names=SAMPLED), st.lists(st.integers(0, 99), min_size=1, max_size=4))
def test_batch(case: Case, chosen: list[int]) -> None:
    work = case.work()
    size = work.inputs[work.batch[0]].shape[0]
    rows = [i % size for i in chosen] if size else []
    with isobit.exact(threads=1, strict=True):
        pulls = case.cotangents(differentiable(work))
        whole = per_sample(case, work, pulls)
        found = per_sample(case, of_samples(work, rows), [p[rows] for p in pulls])
        assert_same(found, [r[rows] for r in whole], (case, rows))


# slice -----------------------------------------------------------------------------------------------------------


@FEW
@given(lengths, dtypes, kinds, st.integers(0, 6))
def test_slice_of_a_sequence(n: int, dtype: torch.dtype, kind: str, t: int) -> None:
    """One time step is what it is in the whole sequence, by index, by slice and by range."""
    x, w, b = (numbers(k, dtype, kind, *s) for k, s in enumerate([(3, 7, n), (5, n), (5,)]))
    with isobit.exact(threads=1, strict=True):
        whole = F.linear(x, w, b)
        assert_same([F.linear(x[:, t], w, b)], [whole[:, t]])
        assert_same([F.linear(x[:, t : t + 1], w, b)], [whole[:, t : t + 1]])
        assert_same([F.linear(x[:, t:], w, b)], [whole[:, t:]])
        assert_same([x[:, t].softmax(-1)], [x.softmax(-1)[:, t]])
        if n:
            assert_same([F.layer_norm(x[:, t], (n,))], [F.layer_norm(x, (n,))[:, t]])


@FEW
@given(lengths, dtypes, kinds, st.integers(0, 3), st.integers(0, 8))
def test_slice_of_a_product(k: int, dtype: torch.dtype, kind: str, i: int, j: int) -> None:
    a, b = numbers(0, dtype, kind, 4, k), numbers(1, dtype, kind, k, 9)
    with isobit.exact(threads=1, strict=True):
        whole = a @ b
        assert_same([a[i] @ b, a[i : i + 1] @ b], [whole[i], whole[i : i + 1]])
        assert_same([a @ b[:, j], a @ b[:, j:], a[i] @ b[:, j]], [whole[:, j], whole[:, j:], whole[i, j]])


@FEW
@given(st.sampled_from((1, 3, 8, 33)), dtypes, kinds, st.integers(0, 3))
def test_slice_of_channels(c: int, dtype: torch.dtype, kind: str, start: int) -> None:
    """A convolution with some of the filters gives some of the channels."""
    x, w, b = (numbers(k, dtype, kind, *s) for k, s in enumerate([(2, c, 6, 5), (5, c, 3, 3), (5,)]))
    with isobit.exact(threads=1, strict=True):
        whole = F.conv2d(x, w, b, padding=1)
        assert_same([F.conv2d(x, w[start:], b[start:], padding=1)], [whole[:, start:]])
        assert_same([F.conv2d(x[:, :, 1:5], w, b)], [whole[:, :, 2:4, 1:-1]])


@MANY
@given(st.sampled_from(sorted(ACTIVATIONS)), lengths, dtypes, kinds, st.integers(0, 99))
def test_slice_of_elements(name: str, n: int, dtype: torch.dtype, kind: str, start: int) -> None:
    """Vector body and remainder compute one function."""
    x = numbers(0, dtype, kind, n)
    with isobit.exact(threads=1, strict=True):
        whole = ACTIVATIONS[name](x)
        assert_same([ACTIVATIONS[name](x[start:]), ACTIVATIONS[name](x[::3])], [whole[start:], whole[::3]], name)


# identity --------------------------------------------------------------------------------------------------------


@FEW
@given(st.sampled_from((1, 2, 31, 257)), dtypes, kinds)
def test_a_convolution_of_one_pixel_is_linear(c: int, dtype: torch.dtype, kind: str) -> None:
    x, w, b = (numbers(k, dtype, kind, *s) for k, s in enumerate([(2, c, 3, 4), (6, c), (6,)]))
    with isobit.exact(threads=1, strict=True):
        y = F.conv2d(x, w[:, :, None, None], b)
        assert_same([y.permute(0, 2, 3, 1)], [F.linear(x.permute(0, 2, 3, 1), w, b)])


@FEW
@given(
    st.sampled_from((1, 3, 31, 64)), dtypes, kinds,
    st.sampled_from([(1, 0, 1), (2, 1, 1), (1, 2, 2), (3, 0, 1)]),
)  # fmt: skip
def test_a_convolution_is_unfold_and_a_product(
    c: int, dtype: torch.dtype, kind: str, shape: tuple[int, int, int]
) -> None:
    stride, padding, dilation = shape
    x, w, b = (numbers(k, dtype, kind, *s) for k, s in enumerate([(2, c, 7, 6), (5, c, 3, 2), (5,)]))
    with isobit.exact(threads=1, strict=True):
        y = F.conv2d(x, w, b, stride, padding, dilation)
        columns = F.unfold(x, (3, 2), dilation, padding, stride)
        product = w.reshape(5, -1) @ columns + b[:, None]
        assert_same([y.flatten(2)], [product])


@FEW
@given(lengths, dtypes, kinds)
def test_one_product_by_any_name(k: int, dtype: torch.dtype, kind: str) -> None:
    x, w, b = (numbers(i, dtype, kind, *s) for i, s in enumerate([(4, k), (3, k), (3,)]))
    with isobit.exact(threads=1, strict=True):
        y = F.linear(x, w)
        assert_same([x @ w.t(), torch.mm(x, w.t()), torch.einsum("ik,jk->ij", x, w)], [y] * 3)
        assert_same([torch.bmm(x[None], w.t()[None])[0], torch.stack([x @ v for v in w], 1)], [y] * 2)
        biased = F.linear(x, w, b)
        assert_same([torch.addmm(b, x, w.t()), y + b, torch.baddbmm(b, x[None], w.t()[None])[0]], [biased] * 3)


@FEW
@given(st.sampled_from((0, 1, 2, 31, 33, 257, 1025)), dtypes, kinds)
def test_sums_of_sums(n: int, dtype: torch.dtype, kind: str) -> None:
    x = numbers(0, dtype, kind, 3, n, 2, 5)
    with isobit.exact(threads=1, strict=True):
        assert_same([x.sum((0, 2, 3))], [x.sum((2, 3)).sum(0)])
        assert_same([x.sum((0, 2))], [x.sum(2).sum(0)])
        assert_same([x.sum((1, 3))], [x.sum(3).sum(1)])
        assert_same([x.sum(), x.sum((0, 1, 2, 3))], [x.flatten().sum()] * 2)
        assert_same([x.sum((1, 2))], [x.flatten(1, 2).sum(1)])
        assert_same([x.sum(1, keepdim=True)], [x.sum(1).unsqueeze(1)])
        count = torch.tensor(n * 2, dtype=dtype)
        assert_same([x.mean((1, 2))], [x.sum((1, 2)) / count])


@FEW
@given(lengths, dtypes, kinds)
def test_one_function_by_any_name(n: int, dtype: torch.dtype, kind: str) -> None:
    """Functional, method, module and in-place forms, and `out=`, are one operator each."""
    x, y = numbers(0, dtype, kind, 3, n), numbers(1, dtype, kind, 3, n)
    with isobit.exact(threads=1, strict=True):
        out = torch.empty_like(x)
        assert_same([x.clone().add_(y), torch.add(x, y, out=out), x + y], [torch.add(x, y)] * 3)
        assert_same([x.clone().sigmoid_(), torch.nn.Sigmoid()(x)], [torch.sigmoid(x)] * 2)
        assert_same([F.relu(x, inplace=False), x.clone().relu_(), x.clamp(min=0)], [torch.relu(x)] * 3)
        assert_same([F.log_softmax(x, 1)], [torch.log_softmax(x, 1)])
        assert_same([F.logsigmoid(x)], [-F.softplus(-x, threshold=float("inf"))])


EMPTY = """
import isobit, torch
with isobit.exact(threads=1):
    print(torch.empty(0).as_strided((3, 0), (0, 0)).sum(1).tolist())
"""


def test_an_empty_tensor_without_strides() -> None:
    """It has no memory, so nothing may be read; torch.from_numpy gives such tensors. In a process of its own, as it
    once died of this."""
    done = subprocess.run([sys.executable, "-c", EMPTY], capture_output=True, text=True)
    assert done.stdout == "[0.0, 0.0, 0.0]\n", done.returncode
