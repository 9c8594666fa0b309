"""Matrix products."""

from __future__ import annotations

from isobit.ir.graph import Value
from isobit.operators import linear
from isobit.torch.lowering import Call
from isobit.torch.table import Family

FAMILY = Family()


@FAMILY.statement("mm")
def mm(c: Call, a: Value, b: Value) -> Value:
    return linear.mm(a, b)
