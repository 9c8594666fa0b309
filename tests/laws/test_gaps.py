"""Where a law does not hold yet. Each fails when it is mended, and then moves to its law."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F


@pytest.mark.xfail(strict=True, reason="PyTorch's shape function divides by the number of elements; the call is a hole")
def test_the_gradient_of_smooth_l1_over_nothing(exact: None) -> None:
    x = torch.empty(0, requires_grad=True)
    F.smooth_l1_loss(x, torch.empty(0)).backward()
    assert x.grad is not None and x.grad.shape == (0,)
