"""The table, whole."""

from __future__ import annotations

from functools import cache

from isobit.torch import table_linear, table_pointwise, table_reductions
from isobit.torch.table import Table


@cache
def table() -> Table:
    """Every aten operator that Isobit knows."""
    return Table([table_pointwise.FAMILY, table_linear.FAMILY, table_reductions.FAMILY])
