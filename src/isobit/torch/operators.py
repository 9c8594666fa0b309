"""The table, whole."""

from __future__ import annotations

from functools import cache

from isobit.torch import (
    table_activations,
    table_attention,
    table_linear,
    table_moves,
    table_norms,
    table_optim,
    table_order,
    table_pointwise,
    table_pooling,
    table_random,
    table_reductions,
)
from isobit.torch.table import Table


@cache
def table() -> Table:
    """Every aten operator that Isobit knows."""
    return Table(
        [
            table_moves.FAMILY,
            table_pointwise.FAMILY,
            table_activations.FAMILY,
            table_reductions.FAMILY,
            table_linear.FAMILY,
            table_pooling.FAMILY,
            table_norms.FAMILY,
            table_random.FAMILY,
            table_optim.FAMILY,
            table_order.FAMILY,
            table_attention.FAMILY,
        ]
    )
