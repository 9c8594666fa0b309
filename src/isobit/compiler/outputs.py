"""Every output and every reshape gets memory of its own kind: copies are inserted where one buffer cannot serve."""

from __future__ import annotations

from dataclasses import replace

from isobit.compiler.simplify import Nodes, Program
from isobit.ir.expr import Affine, Load, axes
from isobit.ir.graph import Input, Map, Node, Reshape
from isobit.ir.layout import Layout


def settle(p: Program, inputs: tuple[Layout, ...], outputs: tuple[Layout, ...]) -> Program:
    """After this pass every reshape is a free view of its source's buffer, and every output is a node of its own."""
    return _Settler(p, inputs, outputs).run()


class _Settler:
    def __init__(self, p: Program, inputs: tuple[Layout, ...], outputs: tuple[Layout, ...]) -> None:
        self.p, self.inputs, self.layouts = p, inputs, outputs
        self.next = max(p.nodes, default=-1) + 1
        self.nodes: Nodes = {}

    def run(self) -> Program:
        for i, n in self.p.nodes.items():
            self.nodes[i] = self._viewable(n) if isinstance(n.stmt, Reshape) else n
        taken: set[int] = set()
        outs = []
        for i, layout in zip(self.p.outputs, self.layouts, strict=True):
            out = i if self._can_be_output(i, layout, taken) else self._copy(i).id
            taken |= {out, root(out, self.nodes)}
            outs.append(out)
        return Program(self.nodes, tuple(outs))

    def _viewable(self, n: Node) -> Node:
        """The reshape itself, or a reshape of a contiguous copy."""
        assert isinstance(n.stmt, Reshape)
        source = self.nodes[n.stmt.source]
        if isinstance(source.stmt, Input):
            layout = self.inputs[source.stmt.position]
            if view_strides(layout.shape, layout.strides, n.shape) is None:
                return replace(n, stmt=Reshape(self._copy(source.id).id))
        if source.id in self.p.outputs and not self.layouts[self.p.outputs.index(source.id)].is_contiguous:
            return replace(n, stmt=Reshape(self._copy(source.id).id))
        return n

    def _can_be_output(self, i: int, layout: Layout, taken: set[int]) -> bool:
        top = root(i, self.nodes)
        if i in taken or top in taken or isinstance(self.nodes[top].stmt, Input):
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
