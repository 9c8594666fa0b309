"""Operators that only move elements keep every bit, NaN payloads and all."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from isobit.arithmetic.dtypes import DType
from isobit.ir.graph import Graph
from isobit.ir.interpreter import interpret
from isobit.operators import views as v
from tests.operators.running import run

X = np.random.default_rng(10).standard_normal((3, 4, 5)).astype(np.float32)
X[0, 0, 0] = np.array(0x7FC12345, np.uint32).view(np.float32)
T = torch.tensor(X)

MOVES = [
    (lambda x: v.view(x, (4, -1)), T.reshape(4, -1)),
    (lambda x: v.expand(x, (2, 3, -1, 5)), T.expand(2, 3, 4, 5)),
    (lambda x: v.permute(x, (2, 0, 1)), T.permute(2, 0, 1)),
    (lambda x: v.slice_(x, 1, 1, 99, 2), T[:, 1:99:2]),
    (lambda x: v.slice_(x, -1, -3), T[:, :, -3:]),
    (lambda x: v.select_(x, 1, -1), T[:, -1]),
    (lambda x: v.flip(x, (0, 2)), T.flip(0, 2)),
    (lambda x: v.cat([x, x, x], 1), torch.cat([T, T, T], 1)),
    (lambda x: v.stack([x, x], -1), torch.stack([T, T], -1)),
    (lambda x: v.pad(x, (1, 2, 0, -1), 7), F.pad(T, (1, 2, 0, -1), value=7)),
    (lambda x: v.roll(x, (2, -1), (0, 2)), T.roll((2, -1), (0, 2))),
    (lambda x: v.tril(x, 1), T.tril(1)),
    (lambda x: v.triu(x, -1), T.triu(-1)),
]


@pytest.mark.parametrize("case", range(len(MOVES)))
def test_moves(case):
    ours, theirs = MOVES[case]
    assert run(ours, X).tobytes() == theirs.contiguous().numpy().tobytes()


def test_moves_of_bf16_and_integers():
    patterns = np.arange(12, dtype=np.uint16).reshape(3, 4)
    assert np.array_equal(run(lambda x: v.flip(x, (1,)), patterns), patterns[:, ::-1])
    assert np.array_equal(run(lambda x: v.pad(x, (1, 1), 1.0), patterns)[:, 0], [0x3F80] * 3)


def test_gathers():
    index = np.array([2, 0, 0, 1])
    assert np.array_equal(run(lambda x, i: v.index_select(x, 0, i), X, index), X[index], equal_nan=True)
    places = np.random.default_rng(1).integers(0, 5, (3, 4, 2))
    theirs = torch.gather(T, 2, torch.tensor(places)).numpy()
    assert np.array_equal(run(lambda x, i: v.gather(x, 2, i), X, places), theirs, equal_nan=True)
    weight = X.reshape(12, 5)
    tokens = np.array([[1, 11], [3, 12]])
    found = run(v.embedding, weight, tokens)
    assert np.array_equal(found[0], weight[[1, 11]]) and np.isnan(found[1, 1]).all()


def test_made_from_nothing():
    graph = Graph()
    graph.outputs = [v.arange(graph, 4, 3, -2, DType.F32).id]
    assert interpret(graph, [])[0].tolist() == [3, 1, -1, -3]
    hot = run(lambda i: v.one_hot(i, 3), np.array([[0, 2], [1, 1]]))
    assert np.array_equal(hot, F.one_hot(torch.tensor([[0, 2], [1, 1]]), 3).numpy())


def test_errors_name_the_shapes():
    for bad in (lambda x: v.permute(x, (0, 0, 1)), lambda x: v.expand(x, (2, 3)), lambda x: v.select_(x, 0, 3)):
        with pytest.raises(ValueError, match="3"):
            run(bad, X)
