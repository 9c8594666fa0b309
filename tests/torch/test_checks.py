"""Arguments whose values PyTorch refuses are refused, in eager code and in compiled graphs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from isobit.torch.layer import ExactLayer

LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross_entropy": F.cross_entropy,
    "nll_loss": F.nll_loss,
    "compiled": lambda x, t: torch.compile(F.cross_entropy, backend="isobit")(x, t),
    "target computed in the graph": lambda x, t: torch.compile(
        lambda x, t: F.cross_entropy(x, t + 0), backend="isobit"
    )(x, t),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("wrong", [5, -1, 2**40])
def test_a_class_that_does_not_exist(compiled: ExactLayer, loss: str, wrong: int) -> None:
    x = torch.randn(3, 5, requires_grad=True)
    LOSSES[loss](x, torch.tensor([0, 4, -100])).backward()
    with pytest.raises(IndexError, match=f"Target {wrong} is out of bounds"):
        LOSSES[loss](x, torch.tensor([0, wrong, 4]))


def test_in_images_and_single_samples(compiled: ExactLayer) -> None:
    for shape, target in (((2, 5, 3), torch.full((2, 3), 5)), ((5,), torch.tensor(5))):
        with pytest.raises(IndexError, match="Target 5 is out of bounds"):
            F.nll_loss(torch.randn(shape), target)
    assert F.nll_loss(torch.randn(0, 5), torch.empty(0, dtype=torch.long), reduction="sum") == 0
