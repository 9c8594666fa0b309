"""The values are right: against float64, Isobit's f32 errs at most 1.5 times as much as PyTorch's own f32, with two
exceptions that the arithmetic itself makes (WIDER)."""

from __future__ import annotations

import pytest
import torch

import isobit
from tests.laws.cases import ACTIVATIONS, FUNCTIONS, OPERATORS, Case, Work, differentiable, results

ULP = 2.0**-23
POINTWISE = {*ACTIVATIONS, *FUNCTIONS}  # outputs: every element by itself; all else relative to the greatest element
WITHOUT_ROUNDING = {"comparisons", "extrema", "amax_argmax"}
SEEDS = range(3)  # the greatest error of few elements is a matter of luck
# Products add 256 terms one after another (docs/arithmetic.md §4), where PyTorch's kernels for small products add in
# vector lanes. var_mean is f32 throughout; PyTorch computes it in f64.
WIDER = dict.fromkeys(("addmm", "bmm", "conv1d", "conv2d", "conv_transpose2d", "linear", "linear_3d", "mm", "mv"), 3.0)
WIDER |= {"matmul_4d": 3.0, "variance": 8.0}


def wide(work: Work) -> Work:
    inputs = [x.detach().double() if x.is_floating_point() else x for x in work.inputs]
    inputs = [x.requires_grad_(y.requires_grad) for x, y in zip(inputs, work.inputs, strict=True)]
    return Work(work.function, tuple(inputs))


def error(found: torch.Tensor, exact: torch.Tensor, each: bool) -> float:
    """Greatest relative error in ulps; where one is not finite, neither may the other be."""
    if not exact.is_floating_point() or not exact.numel():
        return 0.0
    y, exact = found.detach().double(), exact.detach()
    finite = exact.isfinite()
    assert torch.equal(y.isfinite(), finite)
    size = exact.abs() if each else exact[finite].abs().max().expand(exact.shape)
    off = (y - exact).abs()[finite] / size[finite].clamp(min=torch.finfo(torch.float32).tiny)
    return float(off.max()) / ULP if off.numel() else 0.0


def errors(case: Case) -> list[tuple[float, float]]:
    """Isobit's and PyTorch's error for each output and gradient."""
    work = case.work()
    outputs = differentiable(work)
    pulls = case.cotangents(outputs)
    right = results(case, wide(work), [p.double() for p in pulls])
    peer = results(case, work, pulls)
    with isobit.exact(threads=1, strict=True):
        ours = results(case, work, pulls)
    each = [case.operator in POINTWISE and k < len(outputs) for k in range(len(right))]
    return [(error(a, r, e), error(b, r, e)) for a, b, r, e in zip(ours, peer, right, each, strict=True)]


@pytest.mark.parametrize("name", sorted(OPERATORS.keys() - WITHOUT_ROUNDING))
def test_values(name: str) -> None:
    """Outputs and gradients; where PyTorch is nearly exact one ulp is allowed."""
    runs = [errors(Case(name, 1025, seed=seed)) for seed in SEEDS]
    for k, pairs in enumerate(zip(*runs, strict=True)):
        mine, theirs = (max(column) for column in zip(*pairs, strict=True))
        assert mine <= max(WIDER.get(name, 1.5) * theirs, 1.0), (
            f"{name}, result {k}: {mine:.2f} ulps, PyTorch {theirs:.2f}"
        )
