"""Where each tensor lies: inputs and outputs as the caller says, everything between in one arena, planned once."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from isobit.arithmetic.dtypes import DType
from isobit.compiler.fuse import Group
from isobit.compiler.outputs import root, view_strides
from isobit.compiler.simplify import Program, sources
from isobit.ir.graph import Input, Node, Reshape
from isobit.ir.layout import Layout, contiguous_strides

ALIGNMENT = 64


@dataclass(frozen=True)
class Storage:
    """Slot, byte offset and element strides of a node's tensor."""

    slot: int
    offset: int
    strides: tuple[int, ...]
    dtype: DType


@dataclass(frozen=True)
class Interval:
    """A temporary's size and the first and last kernel that touch it."""

    size: int
    first: int
    last: int


def stored_members(p: Program, groups: list[Group]) -> set[int]:
    """Nodes that need memory: outputs, and whatever is read from outside their own group."""
    out = set(p.outputs) | {root(i, p.nodes) for i in p.outputs}
    for group in groups:
        for member in group.members.values():
            for s in sources(member.node.stmt):
                top = root(s, p.nodes)
                if top not in group.members or top != s:
                    out.add(top)
    return out


def plan(
    p: Program, groups: list[Group], inputs: tuple[Layout, ...], outputs: tuple[Layout, ...]
) -> tuple[dict[int, Storage], int]:
    """The storage of every node that has memory, and the arena's size in bytes."""
    return _Planner(p, groups, inputs, outputs).run()


class _Planner:
    def __init__(
        self, p: Program, groups: list[Group], inputs: tuple[Layout, ...], outputs: tuple[Layout, ...]
    ) -> None:
        self.p, self.groups, self.inputs, self.outputs = p, groups, inputs, outputs
        self.arena = len(inputs) + len(outputs)
        self.storage: dict[int, Storage] = {}

    def run(self) -> tuple[dict[int, Storage], int]:
        self._callers_memory()
        stored = stored_members(self.p, self.groups)
        temporaries = [i for g in self.groups for i in g.members if i in stored and i not in self.storage]
        spans = self._lifetimes(temporaries)
        offsets, total = pack(spans)
        for i, offset in offsets.items():
            n = self.p.nodes[i]
            self.storage[i] = Storage(self.arena, offset, contiguous_strides(n.shape), n.dtype)
        for n in self.p.nodes.values():
            if isinstance(n.stmt, Reshape) and n.id not in self.storage:
                self._view(n)
        return self.storage, total

    def _callers_memory(self) -> None:
        for n in self.p.nodes.values():
            if isinstance(n.stmt, Input):
                self.storage[n.id] = Storage(n.stmt.position, 0, self.inputs[n.stmt.position].strides, n.dtype)
        for k, (i, layout) in enumerate(zip(self.p.outputs, self.outputs, strict=True)):
            slot = len(self.inputs) + k
            self.storage[i] = Storage(slot, 0, layout.strides, layout.dtype)
            top = root(i, self.p.nodes)
            if top != i:  # the reshape's buffer, seen with the source's shape
                self.storage[top] = replace(self.storage[i], strides=contiguous_strides(self.p.nodes[top].shape))

    def _view(self, n: Node) -> None:
        assert isinstance(n.stmt, Reshape)
        source = self.storage.get(n.stmt.source)
        if source is None:
            return  # nothing that runs reads it
        strides = view_strides(self.p.nodes[n.stmt.source].shape, source.strides, n.shape)
        if strides is None:
            raise AssertionError(f"reshape {n.id} of {n.origin} is no view; the pass `settle` must have missed it")
        self.storage[n.id] = replace(source, strides=strides)

    def _lifetimes(self, temporaries: Iterable[int]) -> dict[int, Interval]:
        wanted = set(temporaries)
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for k, group in enumerate(self.groups):
            for member in group.members.values():
                for i in (member.node.id, *(root(s, self.p.nodes) for s in sources(member.node.stmt))):
                    if i in wanted:
                        first.setdefault(i, k)
                        last[i] = k
        return {i: Interval(_bytes(self.p.nodes[i]), first[i], last[i]) for i in wanted}


def _bytes(n: Node) -> int:
    return max(math.prod(n.shape) * n.dtype.itemsize, 1)


def pack(spans: dict[int, Interval]) -> tuple[dict[int, int], int]:
    """Offsets such that intervals that live at the same time do not overlap; largest first, lowest gap that fits."""
    placed: list[tuple[int, int, Interval]] = []
    offsets: dict[int, int] = {}
    total = 0
    for key, span in sorted(spans.items(), key=lambda kv: (-kv[1].size, kv[0])):
        size = -(-span.size // ALIGNMENT) * ALIGNMENT
        at = 0
        for start, end, other in sorted(placed, key=lambda t: t[0]):
            if other.last < span.first or span.last < other.first:
                continue
            if at + size <= start:
                break
            at = max(at, end)
        placed.append((at, at + size, span))
        offsets[key] = at
        total = max(total, at + size)
    return offsets, total
