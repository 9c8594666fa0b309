"""Graph → graph: dead nodes go, unit axes go, views and literals are read through."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from isobit.ir.expr import Affine, Axis, Const, Expr, Load, axes, loads, rewrite, substitute
from isobit.ir.graph import Assemble, Contract, Graph, Input, Map, Node, Reduce, Reshape, Stmt

Nodes = dict[int, Node]


@dataclass(frozen=True)
class Program:
    """A graph in the compiler's hands: live nodes in topological order, and the outputs' node ids."""

    nodes: Nodes
    outputs: tuple[int, ...]


def start(graph: Graph) -> Program:
    return Program({n.id: n for n in graph.nodes}, tuple(graph.outputs))


def sources(stmt: Stmt) -> list[int]:
    """The nodes a statement reads."""
    if isinstance(stmt, Reshape):
        return [stmt.source]
    if isinstance(stmt, Assemble):
        return [part.source for part in stmt.parts]
    return [load.source for e in expressions(stmt) for load in loads(e)]


def expressions(stmt: Stmt) -> tuple[Expr, ...]:
    if isinstance(stmt, Map):
        return (stmt.body,)
    if isinstance(stmt, Reduce):
        return (stmt.body,) if stmt.aux is None else (stmt.body, stmt.aux)
    if isinstance(stmt, Contract):
        return (stmt.lhs, stmt.rhs)
    return ()


def map_expressions(stmt: Stmt, f: Callable[[Expr], Expr]) -> Stmt:
    """The statement with `f` applied to each of its expressions."""
    if isinstance(stmt, Map):
        return replace(stmt, body=f(stmt.body))
    if isinstance(stmt, Reduce):
        return replace(stmt, body=f(stmt.body), aux=None if stmt.aux is None else f(stmt.aux))
    if isinstance(stmt, Contract):
        lhs, rhs = f(stmt.lhs), f(stmt.rhs)
        if not isinstance(lhs, Load) or not isinstance(rhs, Load):
            raise TypeError("a pass turned a contraction's operand into something else than a load")
        return replace(stmt, lhs=lhs, rhs=rhs)
    return stmt


def drop_dead(p: Program) -> Program:
    """Keep inputs and what the outputs need."""
    live = set(p.outputs)
    for node in reversed(p.nodes.values()):
        if node.id in live:
            live.update(sources(node.stmt))
    return replace(p, nodes={i: n for i, n in p.nodes.items() if i in live or isinstance(n.stmt, Input)})


def drop_unit_axes(p: Program) -> Program:
    """Index expressions no longer mention axes of extent 1 (they are 0)."""
    return replace(p, nodes={i: replace(n, stmt=_without_unit_axes(n.stmt)) for i, n in p.nodes.items()})


def _without_unit_axes(stmt: Stmt) -> Stmt:
    if isinstance(stmt, Map):
        own: tuple[Axis, ...] = stmt.axes
    elif isinstance(stmt, Reduce):
        own = stmt.axes + stmt.run
    elif isinstance(stmt, Contract):
        own = stmt.axes + stmt.over
    else:
        return stmt
    unit = {a: Affine() for a in own if a.extent == 1}
    return map_expressions(stmt, lambda e: substitute(e, unit)) if unit else stmt


def reshapes_to_views(p: Program) -> Program:
    """A reshape that only splits dims or moves unit dims is an affine view, hence a Map."""
    nodes = {}
    for i, n in p.nodes.items():
        if isinstance(n.stmt, Reshape):
            src = p.nodes[n.stmt.source]
            view = _split_view(src, n.shape)
            nodes[i] = n if view is None else replace(n, stmt=view)
        else:
            nodes[i] = n
    return replace(p, nodes=nodes)


def _split_view(src: Node, shape: tuple[int, ...]) -> Map | None:
    if 0 in shape:
        return None
    own = axes(*shape)
    todo = [a for a in own if a.extent != 1]
    index: list[Affine] = []
    for extent in src.shape:
        here: list[Axis] = []
        size = 1
        while size < extent and todo:
            here.append(todo.pop(0))
            size *= here[-1].extent
        if size != extent:
            return None
        position = Affine()
        for a in here:
            position = position * a.extent + a
        index.append(position)
    return Map(own, Load(src.dtype, src.id, tuple(index)))


def read_through_views(p: Program) -> Program:
    """Loads of views and of literals become what stands behind them; a contraction reads literals from memory."""
    nodes: Nodes = {}
    for i, n in p.nodes.items():
        literals = not isinstance(n.stmt, Contract)

        def behind(e: Expr, nodes: Nodes = nodes, literals: bool = literals) -> Expr:
            found = _through(e, nodes) if isinstance(e, Load) else e
            return found if literals or isinstance(found, Load) else e

        stmt = map_expressions(n.stmt, lambda e, b=behind: rewrite(e, b))  # type: ignore[misc]
        if isinstance(stmt, Reshape):
            stmt = Reshape(_behind_reshape(stmt.source, nodes))
        nodes[i] = replace(n, stmt=stmt)
    return replace(p, nodes=nodes)


def _behind_reshape(source: int, nodes: Nodes) -> int:
    stmt = nodes[source].stmt
    if isinstance(stmt, Reshape):
        return stmt.source
    return source


def _through(load: Load, nodes: Nodes) -> Expr:
    stmt = nodes[load.source].stmt
    if not isinstance(stmt, Map):
        return load
    body = stmt.body
    if isinstance(body, Const) and load.fill is None:
        return body
    if not isinstance(body, Load) or body.fill is not None or body.dtype != load.dtype:
        return load
    if any(isinstance(i, Expr) for i in body.index):
        return load
    if load.fill is not None:
        return _permuted(load, body, stmt.axes, nodes)
    binding = {a: i for a, i in zip(stmt.axes, load.index, strict=True) if isinstance(i, Affine)}
    return substitute(body, binding)


def _permuted(load: Load, body: Load, own: tuple[Axis, ...], nodes: Nodes) -> Load:
    """A guarded load may pass through a view only if the view's bounds are the source's: it permutes whole dims."""
    at: Mapping[Axis, Affine | Expr] = dict(zip(own, load.index, strict=True))
    index: list[Affine | Expr] = []
    used: set[Axis] = set()
    for position, extent in zip(body.index, nodes[body.source].shape, strict=True):
        assert isinstance(position, Affine)
        if not position.terms and position.const == 0 and extent == 1:
            index.append(position)
            continue
        if position.const or len(position.terms) != 1 or position.terms[0][1] != 1:
            return load
        axis = position.terms[0][0]
        if axis.extent != extent or axis in used:
            return load
        used.add(axis)
        index.append(at[axis])
    unguarded = [a for a in own if a not in used]
    if any(at[a] != Affine() for a in unguarded):
        return load
    return replace(body, index=tuple(index), fill=load.fill)
