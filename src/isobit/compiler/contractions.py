"""A contraction group → one call of the contraction template, classified by index: batch, m, n, k."""

from __future__ import annotations

import math
from dataclasses import dataclass

from isobit.compiler.fuse import Group
from isobit.compiler.lower import Context, Launch, Lowered
from isobit.compiler.members import GroupBody
from isobit.compiler.operands import OperandTable, Reference, Run, extent, linear, merge, operand, place
from isobit.ir.expr import Affine, Axis, Expr, Load
from isobit.ir.graph import Contract
from isobit.ir.kernel import Contraction, ContractionCall, Store, Temp, Unit

SERIAL_FLOPS = 1 << 17
"""Multiply-adds below which a contraction is not worth a second thread."""


@dataclass(frozen=True)
class Classes:
    """The axes of a contraction by where they occur, in the order the template walks them."""

    batch: list[Axis]
    m: list[Axis]
    n: list[Axis]
    k: list[Axis]


def lower_contraction_group(group: Group, c: Context) -> Lowered:
    """One launch: the contraction with its members' pointwise work as epilogue; none if the result is empty."""
    if any(a.extent == 0 for a in group.axes):
        return Lowered(())
    head = next(iter(group.members.values()))
    stmt = head.node.stmt
    assert isinstance(stmt, Contract)
    body = _EpilogueBody(c.p, group, c.storage, c.stored)
    body.contraction = head.node.id
    stores = body.epilogue()
    factors = OperandTable()
    lhs, rhs = (_factor(factors, body, load) for load in (stmt.lhs, stmt.rhs))
    target = body.table.references[stores[0].target]
    classes = _classify(stmt, group, lhs, rhs)
    if _wants_swap(classes, target):
        lhs, rhs = rhs, lhs
        classes = Classes(classes.batch, classes.n, classes.m, classes.k)
    return Lowered((_launch(body, stores, factors, lhs, rhs, _ordered(classes, target)),))


@dataclass
class _EpilogueBody(GroupBody):
    """The contraction's own value is Temp(0)."""

    contraction: int = -1

    def value(self, i: int, level: int) -> Expr:
        if i == self.contraction:
            return Temp(self.p.nodes[i].dtype, 0)
        return super().value(i, level)

    def epilogue(self) -> tuple[Store, ...]:
        return tuple(Store(self.target(m), self.value(i, 0)) for i, m in self.group.members.items() if i in self.stored)


def _factor(table: OperandTable, body: GroupBody, load: Load) -> Reference:
    index = [i for i in load.index if isinstance(i, Affine)]
    return table.references[table.reference(body.storage[load.source], index)]


def _classify(stmt: Contract, group: Group, lhs: Reference, rhs: Reference) -> Classes:
    in_lhs, in_rhs = ({a for a, _ in r.strides} for r in (lhs, rhs))
    m = [a for a in group.axes if a in in_lhs and a not in in_rhs]
    n = [a for a in group.axes if a in in_rhs and a not in in_lhs]
    batch = [a for a in group.axes if a not in m and a not in n]
    return Classes(batch, m, n, [a for a in stmt.over if a.extent != 1])


def _wants_swap(c: Classes, target: Reference) -> bool:
    """n should hold the axis along which the result is contiguous."""

    def least(own: list[Axis]) -> int:
        return min((abs(target.stride(a)) for a in own), default=1 << 62)

    return least(c.m) < least(c.n)


def _ordered(c: Classes, target: Reference) -> Classes:
    def by_target(own: list[Axis]) -> list[Axis]:
        return sorted(own, key=lambda a: -abs(target.stride(a)))

    return Classes(c.batch, by_target(c.m), by_target(c.n), c.k)


def _launch(
    body: GroupBody,
    stores: tuple[Store, ...],
    factors: OperandTable,
    lhs: Reference,
    rhs: Reference,
    c: Classes,
) -> Launch:
    both = [merge(own, body.table, extra=(factors,)) for own in (c.batch, c.m, c.n)]
    batch, m, n = both
    k = merge(c.k, factors)
    out_runs = batch + m + n
    places = tuple(place(r, out_runs) for r in body.table.references)
    known = [True] * len(out_runs)
    linears = [linear(f, out_runs, known) for f in body.table.linears]
    lhs_place, rhs_place = place(lhs, batch + m + k), place(rhs, batch + k + n)
    size = lhs.dtype.itemsize
    contraction = Contraction(
        dtype=lhs.dtype,
        n_axes=(len(batch), len(m), len(n), len(k)),
        lhs_unit=_unit(lhs, size, ("m", m), ("k", k)),
        rhs_unit=_unit(rhs, size, ("n", n), ("k", k)),
        operands=tuple(operand(r, at, known) for r, at in zip(body.table.references, places, strict=True)),
        stores=stores,
        linears=tuple(f for f, _ in linears),
        guards=tuple(g for g, _ in body.table.guards),
        n_dynamic=len(body.table.dynamics),
    )
    call = ContractionCall(
        contraction,
        tuple(extent(run) for run in (*batch, *m, *n, *k)),
        lhs_place,
        rhs_place,
        places,
        tuple(numbers for _, numbers in linears),
        tuple(bound for _, bound in body.table.guards),
        tuple(body.table.dynamics),
    )
    return Launch(call, math.prod(call.sizes) > SERIAL_FLOPS)


def _unit(ref: Reference, size: int, *classes: tuple[Unit, list[Run]]) -> Unit:
    for name, runs in classes:
        if runs and ref.stride(runs[-1][-1]) == size:
            return name
    return ""
