"""A group's members as kernel expressions: which values live in registers, row buffers, temporaries or memory."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from isobit.arithmetic.dtypes import DType
from isobit.compiler.fuse import Group, Member, cost
from isobit.compiler.operands import OperandTable
from isobit.compiler.simplify import Program, expressions
from isobit.compiler.storage import Storage
from isobit.ir.expr import Affine, Axis, Coord, Expr, Load, Op, loads
from isobit.ir.graph import Map, Reduce
from isobit.ir.kernel import Fetch, Fold, Loop, Point, RowElement, Store, Temp

CHEAP = 4
"""Instructions up to which a value is computed again in a later pass rather than kept in a row buffer."""


@dataclass
class GroupBody:
    """Builds the stages of one group over its own axes."""

    p: Program
    group: Group
    storage: dict[int, Storage]
    stored: set[int]
    table: OperandTable = field(default_factory=OperandTable)
    rows: dict[int, int] = field(default_factory=dict)
    row_dtypes: list[DType] = field(default_factory=list)
    temps: dict[int, int] = field(default_factory=dict)
    _memo: dict[tuple[int, int], Expr] = field(default_factory=dict)
    _costs: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for i, m in self.group.members.items():
            if m.row:
                self.temps[i] = len(self.temps)

    def stages(self) -> tuple[Loop | Point, ...]:
        """All passes: per level one loop over the inner axes, then one point."""
        self._choose_rows()
        out: list[Loop | Point] = []
        for level in range(1 + max(m.level for m in self.group.members.values())):
            here = [m for m in self.group.members.values() if m.level == level]
            loop = Loop(self._loop_stores(here, level), self._folds(here, level))
            point = self._point(here)
            out += [s for s in (loop, point) if s != Loop() and s != Point()]
        return tuple(out)

    def value(self, i: int, level: int) -> Expr:
        """Member `i` as an expression usable in the pass `level`."""
        member = self.group.members[i]
        if member.row:
            return Temp(member.node.dtype, self.temps[i])
        if member.level < level:
            if i in self.rows:
                return RowElement(member.node.dtype, self.rows[i])
            if i in self.stored:
                return Fetch(member.node.dtype, self.target(member))
        key = (i, level)
        if key not in self._memo:
            assert isinstance(member.node.stmt, Map)
            self._memo[key] = self.lower(member.node.stmt.body, member, level)
        return self._memo[key]

    def lower(self, e: Expr, member: Member, level: int) -> Expr:
        """Expression `e` of a member over the group's axes."""
        bind = {a: Affine.of(b) for a, b in member.bind.items()}
        return self._lower(e, bind, level, {})

    def _lower(self, e: Expr, bind: dict[Axis, Affine], level: int, done: dict[int, Expr]) -> Expr:
        if id(e) not in done:
            done[id(e)] = self._lower_node(e, bind, level, done)
        return done[id(e)]

    def _lower_node(self, e: Expr, bind: dict[Axis, Affine], level: int, done: dict[int, Expr]) -> Expr:
        if isinstance(e, Op):
            return replace(e, args=tuple(self._lower(a, bind, level, done) for a in e.args))
        if isinstance(e, Coord):
            return self.table.position(e.index.substitute(bind))
        if not isinstance(e, Load):
            return e
        if e.source in self.group.members:
            return self.value(e.source, level)
        index = tuple(
            i.substitute(bind) if isinstance(i, Affine) else self._lower(i, bind, level, done) for i in e.index
        )
        return self.table.fetch(e, self.storage[e.source], self.p.nodes[e.source].shape, index)

    def target(self, member: Member) -> int:
        """The operand a stored member is written to: its own axes in order."""
        stmt = member.node.stmt
        assert not hasattr(stmt, "source")
        own: tuple[Axis, ...] = stmt.axes  # type: ignore[union-attr]
        index = [Affine.of(member.bind[a]) if a.extent != 1 else Affine() for a in own]
        return self.table.reference(self.storage[member.node.id], index)

    def _loop_stores(self, here: list[Member], level: int) -> tuple[Store, ...]:
        out = []
        for m in here:
            if m.row:
                continue
            i = m.node.id
            if i in self.rows:
                out.append(Store(self.rows[i], self.value(i, level), row=True))
            if i in self.stored:
                out.append(Store(self.target(m), self.value(i, level)))
        return tuple(out)

    def _folds(self, here: list[Member], level: int) -> tuple[Fold, ...]:
        out = []
        for m in here:
            stmt = m.node.stmt
            if isinstance(stmt, Reduce):
                aux = None if stmt.aux is None else self.lower(stmt.aux, m, level)
                out.append(Fold(self.temps[m.node.id], stmt.kind, self.lower(stmt.body, m, level), aux))
        return tuple(out)

    def _point(self, here: list[Member]) -> Point:
        lets, stores = [], []
        for m in here:
            if not m.row:
                continue
            i = m.node.id
            if isinstance(m.node.stmt, Map):
                lets.append((self.temps[i], self.lower(m.node.stmt.body, m, m.level)))
            if i in self.stored:
                stores.append(Store(self.target(m), Temp(m.node.dtype, self.temps[i])))
        return Point(tuple(lets), tuple(stores))

    def _choose_rows(self) -> None:
        """Walk back from what must be computed; a dear value wanted by a later pass gets a row buffer."""
        todo: list[tuple[int, int]] = []
        for m in self.group.members.values():
            if m.row or m.node.id in self.stored:
                todo += [(s, m.level) for s in self._full_sources(m)]
        seen: set[tuple[int, int]] = set()
        while todo:
            i, level = todo.pop()
            if (i, level) in seen:
                continue
            seen.add((i, level))
            m = self.group.members[i]
            if m.level < level and (i in self.stored or self._recompute_cost(i) > CHEAP):
                self._keep(i)
                todo += [(s, m.level) for s in self._full_sources(m)]
            else:
                todo += [(s, level) for s in self._full_sources(m)]

    def _keep(self, i: int) -> None:
        if i not in self.stored and i not in self.rows:
            self.rows[i] = len(self.row_dtypes)
            self.row_dtypes.append(self.p.nodes[i].dtype)

    def _full_sources(self, m: Member) -> list[int]:
        found = {x.source for e in expressions(m.node.stmt) for x in loads(e)}
        return [s for s in found if s in self.group.members and not self.group.members[s].row]

    def _recompute_cost(self, i: int) -> int:
        if i not in self._costs:
            m = self.group.members[i]
            own = sum(cost(e) for e in expressions(m.node.stmt))
            self._costs[i] = own + sum(self._recompute_cost(s) for s in self._full_sources(m) if s not in self.stored)
        return self._costs[i]
