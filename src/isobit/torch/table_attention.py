"""Scaled dot-product attention, by ARITHMETIC.md §4: the division comes after the product with the values."""

from __future__ import annotations

import math

import torch

from isobit.torch.table import Family

FAMILY = Family()


@FAMILY.decomposition("scaled_dot_product_attention", composite=True)
def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> torch.Tensor:  # fmt: skip
    """o = (e·v) ÷ Σe with e = exp(s − max s), s = (q·k)·scale + mask; a row without any key gives 0."""
    if enable_gqa:
        key = key.repeat_interleave(query.size(-3) // key.size(-3), -3)
        value = value.repeat_interleave(query.size(-3) // value.size(-3), -3)
    factor = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    scores = _masked(torch.matmul(query, key.transpose(-2, -1)) * factor, attn_mask, is_causal)
    top = scores.detach().amax(-1, keepdim=True)
    e = (scores - torch.where(top == -math.inf, torch.zeros_like(top), top)).exp()
    total = e.sum(-1, keepdim=True)
    if dropout_p > 0:
        e = torch.dropout(e, dropout_p, True)
    out = torch.matmul(e, value)
    return torch.where(total == 0, torch.zeros_like(out), out / torch.where(total == 0, torch.ones_like(total), total))


def _masked(scores: torch.Tensor, mask: torch.Tensor | None, is_causal: bool) -> torch.Tensor:
    if is_causal:
        if mask is not None:
            raise RuntimeError("scaled_dot_product_attention: explicit attn_mask should not be set when is_causal=True")
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if mask is None:
        return scores
    return scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
