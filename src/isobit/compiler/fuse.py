"""Which statements share a kernel.

A group is one kernel to be. Its axes are those of the tensor it was founded on; every member's axes are bound to them.
In a nest, members are "full" (one value per point of all axes) or "row" (one per point of the outer axes); a reduction
among them splits the axes into outer and inner. In a contraction group the members after the first are its epilogue.
A member belongs to a pass over the inner axes, its level: reading a row value of level l takes a pass at level l + 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from isobit.compiler.outputs import providers
from isobit.compiler.simplify import Program, expressions, sources
from isobit.ir.expr import Affine, Axis, Const, Expr, Load, Op, children, loads, walk
from isobit.ir.graph import Assemble, Contract, Input, Map, Node, Reduce, Reshape
from isobit.ir.ops import ELEMENTARY

BIG_RUN = 32768
"""A run at least this long with few rows is cut into segments so that threads can share it."""
FEW_ROWS = 8
MAX_ROW = 1 << 20
"""Elements of the longest inner run whose intermediate values are kept per thread."""
MAX_DEPTH = 100
"""Operations one after another in one kernel; the passes and LLVM walk expressions recursively."""
SEGMENTABLE = frozenset({"sum", "prod", "max", "min", "any", "all", "m2"})


@dataclass
class Member:
    """A node in a group: `bind` maps its axes to the group's, `row` whether it lives on the outer axes only."""

    node: Node
    bind: dict[Axis, Axis]
    row: bool
    level: int


@dataclass
class Group:
    id: int
    axes: list[Axis]
    contract: bool = False
    inner: list[Axis] | None = None
    big: bool = False
    members: dict[int, Member] = field(default_factory=dict)

    @property
    def outer(self) -> list[Axis]:
        inner = self.inner or []
        return [a for a in self.axes if a not in inner]


def significant(own: Iterable[Axis]) -> list[Axis]:
    return [a for a in own if a.extent != 1]


def is_view(node: Node) -> bool:
    """A Map that only reads elsewhere: its readers have been led past it, so that only an output needs it."""
    if not isinstance(node.stmt, Map):
        return False
    body = node.stmt.body
    return isinstance(body, Const) or (isinstance(body, Load) and body.fill is None)


def fuse(p: Program) -> list[Group]:
    """Groups in an order in which they can run."""
    return _Fuser(p).run()


class _Fuser:
    def __init__(self, p: Program) -> None:
        self.p = p
        self.groups: list[Group] = []
        self.home: dict[int, Group] = {}
        self.needs: dict[int, set[int]] = {}
        self.depths: dict[int, int] = {}

    def run(self) -> list[Group]:
        for node in self.p.nodes.values():
            if isinstance(node.stmt, Input | Reshape | Assemble):
                continue
            self._place(node)
        return self._ordered()

    def _place(self, node: Node) -> None:
        if not isinstance(node.stmt, Contract):
            for group in self._candidates(node):
                member = try_join(group, node)
                if member is not None and self._acyclic(group, node) and self._depth(node, group) <= MAX_DEPTH:
                    self._add(group, member)
                    return
        self._found(node)

    def _candidates(self, node: Node) -> list[Group]:
        seen: dict[int, Group] = {}
        for s in sources(node.stmt):
            if s in self.home:
                seen[self.home[s].id] = self.home[s]
        return sorted(seen.values(), key=lambda g: -g.id)

    def _found(self, node: Node) -> None:
        stmt = node.stmt
        assert isinstance(stmt, Map | Reduce | Contract)
        own = significant(stmt.axes + (stmt.run if isinstance(stmt, Reduce) else ()))
        group = Group(len(self.groups), own, contract=isinstance(stmt, Contract))
        self.groups.append(group)
        self.needs[group.id] = set()
        bind = {a: a for a in own}
        if isinstance(stmt, Reduce):
            group.inner = significant(stmt.run)
            group.big = _is_big(group.outer, group.inner, stmt.kind)
        self._add(group, Member(node, bind, isinstance(stmt, Reduce), 0))

    def _depth(self, node: Node, group: Group) -> int:
        """Operations one after another from what the group reads to `node`'s value."""
        stmt = node.stmt
        below = max((self.depths[s] for s in sources(stmt) if s in group.members), default=0)
        return below + max((depth(e) for e in expressions(stmt)), default=0)

    def _add(self, group: Group, member: Member) -> None:
        self.depths[member.node.id] = self._depth(member.node, group)
        group.members[member.node.id] = member
        self.home[member.node.id] = group
        for h in self._needed(member.node):
            if h != group.id:
                self.needs[group.id].add(h)

    def _needed(self, node: Node) -> set[int]:
        """The groups that compute what `node` reads."""
        behind = (i for s in sources(node.stmt) for i in providers(s, self.p.nodes))
        return {self.home[i].id for i in behind if i in self.home}

    def _acyclic(self, group: Group, node: Node) -> bool:
        """Nothing that `node` reads from memory is made by `group`, nor by a group that itself needs `group`."""
        for s in sources(node.stmt):
            if s not in group.members and any(i in group.members for i in providers(s, self.p.nodes)):
                return False
        todo, seen = [h for h in self._needed(node) if h != group.id], set()
        while todo:
            h = todo.pop()
            if h == group.id:
                return False
            if h not in seen:
                seen.add(h)
                todo.extend(self.needs[h])
        return True

    def _ordered(self) -> list[Group]:
        done: dict[int, Group] = {}

        todo = list(reversed(self.groups))
        while todo:
            g = todo[-1]
            missing = [self.groups[h] for h in sorted(self.needs[g.id], reverse=True) if h not in done]
            if g.id in done or not missing:
                done[todo.pop().id] = g
            else:
                todo += missing
        return list(done.values())


def _is_big(outer: list[Axis], inner: list[Axis], kind: str) -> bool:
    rows = math.prod(a.extent for a in outer)
    return kind in SEGMENTABLE and rows < FEW_ROWS and math.prod(a.extent for a in inner) >= BIG_RUN


def try_join(group: Group, node: Node) -> Member | None:
    """`node` as a member of `group`, or None if they do not fit. Splits the group's axes if a reduction joins it."""
    stmt = node.stmt
    if isinstance(stmt, Map):
        return _join_map(group, node, stmt)
    if isinstance(stmt, Reduce) and not group.contract:
        return _join_reduce(group, node, stmt)
    return None


def _bindings(group: Group, exprs: Iterable[Expr]) -> tuple[dict[Axis, Axis], bool, int] | None:
    """How loads of members bind axes, whether they read a full member, the level it takes; None: they do not fit."""
    bind: dict[Axis, Axis] = {}
    reads_full, level = False, 0
    for e in exprs:
        for load in loads(e):
            member = group.members.get(load.source)
            if member is None:
                continue
            if load.fill is not None or not _bind_load(bind, load, member):
                return None
            reads_full |= not member.row
            level = max(level, member.level + member.row)
    return bind, reads_full, level


def _bind_load(bind: dict[Axis, Axis], load: Load, member: Member) -> bool:
    own = member.node.stmt.axes  # type: ignore[union-attr]
    for axis, index in zip(own, load.index, strict=True):
        if axis.extent == 1:
            continue
        if not isinstance(index, Affine) or index.const or len(index.terms) != 1 or index.terms[0][1] != 1:
            return False
        mine, theirs = index.terms[0][0], member.bind[axis]
        if mine.extent != theirs.extent or bind.setdefault(mine, theirs) != theirs:
            return False
    return len(set(bind.values())) == len(bind)


def _complete(bind: dict[Axis, Axis], own: list[Axis], target: list[Axis]) -> bool:
    """Bind the axes that no load bound, in order, to the target's free axes; True if this makes a bijection."""
    free = [a for a in target if a not in bind.values()]
    loose = [a for a in own if a not in bind]
    if len(free) != len(loose) or any(a.extent != b.extent for a, b in zip(loose, free, strict=True)):
        return False
    bind.update(zip(loose, free, strict=True))
    return all(a in bind and bind[a] in target for a in own)


def _join_map(group: Group, node: Node, stmt: Map) -> Member | None:
    found = _bindings(group, (stmt.body,))
    if found is None:
        return None
    bind, reads_full, level = found
    own = significant(stmt.axes)
    row = (
        group.inner is not None
        and not reads_full
        and len(own) == len(group.outer)
        and bool(set(bind.values()) <= set(group.outer))
    )
    if row and _complete(bind, own, group.outer):
        return None if group.big else Member(node, bind, True, max(level - 1, 0))
    found = _bindings(group, (stmt.body,))
    assert found is not None
    bind = found[0]
    if not _complete(bind, own, group.axes) or (level and (group.big or _inner_size(group) > MAX_ROW)):
        return None
    return Member(node, bind, False, level)


def _inner_size(group: Group) -> int:
    return math.prod(a.extent for a in group.inner or ())


def _join_reduce(group: Group, node: Node, stmt: Reduce) -> Member | None:
    found = _bindings(group, expressions(stmt))
    if found is None:
        return None
    bind, reads_full, level = found
    kept, run = significant(stmt.axes), significant(stmt.run)
    if not reads_full and group.inner is None:
        return None
    if group.inner is None:
        return _split(group, node, stmt, bind, level)
    if not _complete(bind, run, group.inner) or [bind[a] for a in run] != group.inner:
        return None
    if not all(bind.get(a) in (None, *group.outer) for a in kept) or not _complete_kept(bind, kept, group.outer):
        return None
    if level and (group.big or _inner_size(group) > MAX_ROW):
        return None
    if group.big and stmt.kind not in SEGMENTABLE:
        return None
    return Member(node, bind, True, level)


def _complete_kept(bind: dict[Axis, Axis], kept: list[Axis], outer: list[Axis]) -> bool:
    mine = {a: bind[a] for a in kept if a in bind}
    if not _complete(mine, kept, outer):
        return False
    bind.update(mine)
    return True


def _split(group: Group, node: Node, stmt: Reduce, bind: dict[Axis, Axis], level: int) -> Member | None:
    """A reduction enters a purely pointwise group."""
    kept, run = significant(stmt.axes), significant(stmt.run)
    if not _complete(bind, kept + run, group.axes):
        return None
    inner = [bind[a] for a in run]
    outer = [a for a in group.axes if a not in inner]
    big = _is_big(outer, inner, stmt.kind)
    if not big and math.prod(a.extent for a in inner) > MAX_ROW:
        return None
    group.inner, group.big = inner, big
    return Member(node, bind, True, level)


_COSTS = {"div": 4, "sqrt": 6, "floordiv": 20, "mod": 20, "philox": 60} | dict.fromkeys(ELEMENTARY, 20)


def depth(e: Expr) -> int:
    """The longest chain of operations in `e`."""
    found: dict[int, int] = {}
    todo = [e]
    while todo:
        x = todo[-1]
        missing = [c for c in children(x) if id(c) not in found]
        if missing:
            todo += missing
        else:
            found[id(x)] = isinstance(x, Op) + max((found[id(c)] for c in children(x)), default=0)
            todo.pop()
    return found[id(e)]


def cost(e: Expr) -> int:
    """A rough number of instructions an element of `e` costs."""
    return sum(_COSTS.get(x.name, 1) for x in walk(e) if isinstance(x, Op))
