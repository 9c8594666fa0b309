"""Every output, reshape and assembled part gets memory of its own kind: copies go in where one buffer cannot serve."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from isobit.compiler.simplify import Nodes, Program
from isobit.ir.expr import Affine, Load, axes
from isobit.ir.graph import Assemble, Input, Map, Node, Part, Reshape
from isobit.ir.layout import Layout


def settle(p: Program, inputs: tuple[Layout, ...], outputs: tuple[Layout, ...]) -> Program:
    """After this pass every reshape is a free view of its source's buffer, every output is a node of its own, and every
    part of an assembled tensor can be computed right where it belongs."""
    return _Settler(p, inputs, outputs).run()


class _Settler:
    def __init__(self, p: Program, inputs: tuple[Layout, ...], outputs: tuple[Layout, ...]) -> None:
        self.p, self.inputs, self.layouts = p, inputs, outputs
        self.next = max(p.nodes, default=-1) + 1
        self.nodes: Nodes = {}
        self.taken: set[int] = set()
        self.viewed = {n.stmt.source for n in p.nodes.values() if isinstance(n.stmt, Reshape)}

    def run(self) -> Program:
        for i, n in self.p.nodes.items():
            self.nodes[i] = self._settled(n)
        outs = []
        for i, layout in zip(self.p.outputs, self.layouts, strict=True):
            out = i if self._can_be_output(i, layout) else self._copy(i).id
            self.taken |= {out, root(out, self.nodes)}
            outs.append(out)
        return Program(self.nodes, tuple(outs))

    def _settled(self, n: Node) -> Node:
        if isinstance(n.stmt, Reshape):
            return self._viewable(n, n.stmt)
        if isinstance(n.stmt, Assemble):
            return replace(n, stmt=Assemble(tuple(self._in_place(part) for part in n.stmt.parts)))
        return n

    def _viewable(self, n: Node, stmt: Reshape) -> Node:
        """The reshape itself, or a reshape of a contiguous copy."""
        source = self.nodes[stmt.source]
        if isinstance(source.stmt, Input):
            layout = self.inputs[source.stmt.position]
            if view_strides(layout.shape, layout.strides, n.shape) is None:
                return replace(n, stmt=Reshape(self._copy(source.id).id))
        if source.id in self.p.outputs and not self.layouts[self.p.outputs.index(source.id)].is_contiguous:
            return replace(n, stmt=Reshape(self._copy(source.id).id))
        return n

    def _in_place(self, part: Part) -> Part:
        """The part itself if it may live inside the assembled tensor, else a copy of it."""
        i = part.source
        fixed = isinstance(self.nodes[i].stmt, Input | Reshape)
        if fixed or i in self.taken or i in self.viewed or i in self.p.outputs:
            part = replace(part, source=self._copy(i).id)
        self.taken.add(part.source)
        return part

    def _can_be_output(self, i: int, layout: Layout) -> bool:
        top = root(i, self.nodes)
        if i in self.taken or top in self.taken or isinstance(self.nodes[top].stmt, Input):
            return False
        return top == i or (layout.is_contiguous and top not in self.p.outputs)

    def _copy(self, i: int) -> Node:
        source = self.nodes[i]
        own = axes(*source.shape)
        index = tuple(Affine.of(a) if a.extent != 1 else Affine() for a in own)
        node = Node(self.next, Map(own, Load(source.dtype, i, index)), source.dtype, source.shape, source.origin)
        self.next += 1
        self.nodes[node.id] = node
        return node


def root(i: int, nodes: Nodes) -> int:
    """The node whose buffer a chain of reshapes looks at."""
    stmt = nodes[i].stmt
    while isinstance(stmt, Reshape):
        i = stmt.source
        stmt = nodes[i].stmt
    return i


def providers(i: int, nodes: Nodes) -> Iterable[int]:
    """The computed nodes (or inputs) behind node `i`: reshapes and assembled tensors are looked through."""
    stmt = nodes[i].stmt
    if isinstance(stmt, Reshape):
        yield from providers(stmt.source, nodes)
    elif isinstance(stmt, Assemble):
        for part in stmt.parts:
            yield from providers(part.source, nodes)
    else:
        yield i


def view_strides(shape: tuple[int, ...], strides: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...] | None:
    """Strides that show a tensor of (shape, strides) as `new` without a copy, or None if none do."""
    if 0 in shape:
        return tuple(1 for _ in new)
    old = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    out: list[int] = [0] * len(new)
    k = len(new) - 1
    while old:
        size, step = old.pop()
        run = step * size
        while old and old[-1][1] == run:
            size, run = size * old[-1][0], run * old[-1][0]
            old.pop()
        here = 1
        while k >= 0 and here < size:
            out[k] = step * here
            here *= new[k]
            k -= 1
        if here != size:
            return None
    return tuple(out)
