"""Run, threads, isa and host: the laws that say how an operator is run never shows in its bits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import isobit
from isobit.codegen.target import host_levels
from tests.laws.cases import OPERATORS, Case, cases, differentiable, results
from tests.laws.rounding import DOWNWARD, UPWARD, rounding
from tests.laws.values import assert_same

# Together: entering another way costs more than most cases do.
SOME = st.lists(cases(), min_size=8, max_size=8)
# Enough work that every thread gets a share.
LARGE = [Case(name, n) for name, n in [("linear", 2053), ("sums", 60013), ("softmax_inner", 20011), ("gelu", 40009)]]


def computed(some: Sequence[Case], threads: int = 1, cpu: str | None = None) -> list[list[torch.Tensor]]:
    with isobit.exact(threads=threads, cpu=cpu, strict=True):
        return [results(case) for case in some]


def assert_one_result(some: Sequence[Case], found: Sequence[list[torch.Tensor]]) -> None:
    for case, mine, wanted in zip(some, found, computed(some), strict=True):
        assert_same(mine, wanted, case)


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_every_operator_has_no_hole(name: str, exact: None) -> None:
    results(Case(name, 33))


@settings(max_examples=4)
@given(SOME)
def test_run(some: list[Case]) -> None:
    assert_one_result(some, computed(some))


@settings(max_examples=4)
@given(st.integers(2, 3), SOME)
def test_threads(threads: int, some: list[Case]) -> None:
    assert_one_result(some, computed(some, threads))


def test_threads_with_work_for_all() -> None:
    for threads in (2, 3):
        assert_one_result(LARGE, computed(LARGE, threads))


@pytest.mark.parametrize("level", host_levels()[1:])
def test_isa(level: str) -> None:
    @settings(max_examples=5)
    @given(SOME)
    def holds(some: list[Case]) -> None:
        assert_one_result(some, computed(some, cpu=level))

    holds()
    assert_one_result(LARGE, computed(LARGE, cpu=level))


@contextmanager
def flushing() -> Iterator[None]:
    """The process flushes subnormals to zero, as inputs and as results."""
    assert torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def test_the_host_does_flush() -> None:
    tiny = torch.tensor([1e-40])
    with flushing():
        assert torch.mul(tiny, 1.0).view(torch.int32).item() == 0  # PyTorch's own kernel


@settings(max_examples=5)
@given(st.lists(cases(kinds=("tiny", "special", "spread")), min_size=8, max_size=8))
def test_host_flushes_subnormals(some: list[Case]) -> None:
    works = [case.work() for case in some]
    with isobit.exact(threads=1, strict=True), flushing():
        found = [results(case, work) for case, work in zip(some, works, strict=True)]
    assert_one_result(some, found)


def test_the_host_does_round_another_way() -> None:
    found = []
    for mode in (UPWARD, DOWNWARD):
        with rounding(mode):
            found.append(torch.div(torch.tensor(1.0), torch.tensor(3.0)))  # PyTorch's own kernel
    assert found[0] > found[1]


@settings(max_examples=5)
@given(st.sampled_from([UPWARD, DOWNWARD]), SOME)
def test_host_rounds_another_way(mode: int, some: list[Case]) -> None:
    works = [case.work() for case in some]
    with isobit.exact(threads=1, strict=True):
        pulls = [case.cotangents(differentiable(work)) for case, work in zip(some, works, strict=True)]
        with rounding(mode):
            found = [results(*each) for each in zip(some, works, pulls, strict=True)]
    assert_one_result(some, found)
