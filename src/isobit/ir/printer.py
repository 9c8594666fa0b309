"""A graph as text in index notation, one line a node, for people and golden files.

Axes are named by their place in the statement (i0, i1, … kept ones; k0, k1, … those summed over), so equal graphs
print equally.
"""

from __future__ import annotations

from collections.abc import Mapping

from isobit.ir.expr import Affine, Axis, Const, Coord, Expr, Load, Op
from isobit.ir.graph import Assemble, Contract, Graph, Input, Map, Node, Part, Reduce, Reshape

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==",
    "ne": "!=", "and": "&", "or": "|", "xor": "^", "shl": "<<", "shr": ">>",
}  # fmt: skip

Names = Mapping[Axis, str]


def to_text(graph: Graph) -> str:
    """The whole graph, outputs last."""
    lines = [node_text(n) for n in graph.nodes]
    return "\n".join([*lines, "return " + ", ".join(f"%{i}" for i in graph.outputs)]) + "\n"


def node_text(node: Node) -> str:
    """`%id: dtype[shape] = statement  # origin`."""
    shape = "×".join(map(str, node.shape))
    return f"%{node.id}: {node.dtype}[{shape}] = {_statement(node)}  # {node.origin}"


def _statement(node: Node) -> str:
    match node.stmt:
        case Input(position):
            return f"input {position}"
        case Map(axes, body):
            names = _names(axes)
            return f"{_target(axes, names)} {expr_text(body, names)}"
        case Reduce(axes, run, kind, body, aux):
            names = _names(axes, run)
            about = "" if aux is None else f" about {expr_text(aux, names)}"
            return f"{_target(axes, names)} {kind}{_span(run, names)} {expr_text(body, names)}{about}"
        case Contract(axes, over, lhs, rhs):
            names = _names(axes, over)
            factors = f"{expr_text(lhs, names)} * {expr_text(rhs, names)}"
            return f"{_target(axes, names)} contract{_span(over, names)} {factors}"
        case Reshape(source):
            return f"reshape %{source}"
        case Assemble(parts):
            return "assemble " + ", ".join(map(_part, parts))


def _part(part: Part) -> str:
    places = (str(o) if s == 1 else f"{o}::{s}" for o, s in zip(part.offset, part.step, strict=True))
    return f"%{part.source} at [{', '.join(places)}]"


def _names(kept: tuple[Axis, ...], over: tuple[Axis, ...] = ()) -> Names:
    return {a: f"i{d}" for d, a in enumerate(kept)} | {a: f"k{d}" for d, a in enumerate(over)}


def _target(axes: tuple[Axis, ...], names: Names) -> str:
    return f"[{', '.join(names[a] for a in axes)}] ="


def _span(over: tuple[Axis, ...], names: Names) -> str:
    return "(" + ", ".join(f"{names[a]} < {a.extent}" for a in over) + ")"


def expr_text(e: Expr, names: Names) -> str:
    """One expression; every operation but calls in parentheses, so that the order of rounding is plain."""
    match e:
        case Const(dtype, value):
            return f"{value!r}:{dtype}"
        case Coord(_, index):
            return f"<{affine_text(index, names)}>"
        case Load(_, source, index, fill):
            places = ", ".join(_index(i, names) for i in index)
            return f"%{source}[{places}]" + ("" if fill is None else f"?{fill.value!r}")
        case Op(dtype, "cast", (x,)):
            return f"{dtype}({expr_text(x, names)})"
        case Op(_, name, (a, b)) if name in _INFIX:
            return f"({expr_text(a, names)} {_INFIX[name]} {expr_text(b, names)})"
        case Op(_, name, args):
            return f"{name}({', '.join(expr_text(a, names) for a in args)})"
    raise TypeError(f"not an expression: {e!r}")


def _index(i: Affine | Expr, names: Names) -> str:
    return affine_text(i, names) if isinstance(i, Affine) else expr_text(i, names)


def affine_text(index: Affine, names: Names) -> str:
    """For example `2*i0 - k1 + 3`; an axis that is no axis of the statement prints as `?name`."""
    terms = sorted((names.get(a, f"?{a.name}"), c) for a, c in index.terms)
    text = ""
    for name, c in terms:
        size = name if abs(c) == 1 else f"{abs(c)}*{name}"
        text += (f" - {size}" if c < 0 else f" + {size}") if text else (f"-{size}" if c < 0 else size)
    if index.const or not text:
        sign = "-" if index.const < 0 else "+"
        text = f"{text} {sign} {abs(index.const)}" if text else str(index.const)
    return text
