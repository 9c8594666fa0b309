"""Where each tensor lies: inputs and outputs as the caller says, everything between in one arena, planned once."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from isobit.arithmetic.dtypes import DType
from isobit.compiler.fuse import Group
from isobit.compiler.outputs import providers, root, view_strides
from isobit.compiler.simplify import Program, sources
from isobit.ir.graph import Assemble, Input, Node, Part, Reshape
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
    """Computed nodes that need memory: outputs, parts, and whatever is read from outside their own group."""
    out = {s for i in p.outputs for s in providers(i, p.nodes)}
    for group in groups:
        for member in group.members.values():
            for s in sources(member.node.stmt):
                if s not in group.members:
                    out.update(providers(s, p.nodes))
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
        self.host = {
            part.source: (n, part) for n in p.nodes.values() if isinstance(n.stmt, Assemble) for part in n.stmt.parts
        }

    def run(self) -> tuple[dict[int, Storage], int]:
        self._callers_memory()
        stored = stored_members(self.p, self.groups)
        owners = {self._owner(i) for g in self.groups for i in g.members if i in stored}
        offsets, total = pack(self._lifetimes({i for i in owners if i not in self.storage}))
        for i, offset in offsets.items():
            n = self.p.nodes[i]
            self.storage[i] = Storage(self.arena, offset, contiguous_strides(n.shape), n.dtype)
        for n in self.p.nodes.values():
            if isinstance(n.stmt, Reshape):
                self._view(n, n.stmt)
            elif n.id in self.host and self._owner(n.id) in self.storage:
                self._resolve(n.id)
        return self.storage, total

    def _owner(self, i: int) -> int:
        """The node whose buffer holds node `i`."""
        while i in self.host:
            i = self.host[i][0].id
        return i

    def _resolve(self, i: int) -> Storage:
        if i not in self.storage:
            whole, part = self.host[i]
            self.storage[i] = _inside(self._resolve(whole.id), part)
        return self.storage[i]

    def _callers_memory(self) -> None:
        for n in self.p.nodes.values():
            if isinstance(n.stmt, Input):
                self.storage[n.id] = Storage(n.stmt.position, 0, self.inputs[n.stmt.position].strides, n.dtype)
        for k, (i, layout) in enumerate(zip(self.p.outputs, self.outputs, strict=True)):
            self.storage[i] = Storage(len(self.inputs) + k, 0, layout.strides, layout.dtype)
            top = root(i, self.p.nodes)
            if top != i:  # the reshape's buffer, seen with the source's shape
                self.storage[top] = replace(self.storage[i], strides=contiguous_strides(self.p.nodes[top].shape))

    def _view(self, n: Node, stmt: Reshape) -> None:
        if n.id in self.storage or stmt.source not in self.storage:
            return  # an output that has its buffer, or nothing that runs reads it
        source = self.storage[stmt.source]
        strides = view_strides(self.p.nodes[stmt.source].shape, source.strides, n.shape)
        if strides is None:
            raise AssertionError(f"reshape {n.id} of {n.origin} is no view; the pass `settle` must have missed it")
        self.storage[n.id] = replace(source, strides=strides)

    def _lifetimes(self, wanted: set[int]) -> dict[int, Interval]:
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for k, group in enumerate(self.groups):
            for member in group.members.values():
                touched = [member.node.id, *(root(s, self.p.nodes) for s in sources(member.node.stmt))]
                for i in map(self._owner, touched):
                    if i in wanted:
                        first.setdefault(i, k)
                        last[i] = k
        return {i: Interval(_bytes(self.p.nodes[i]), first[i], last[i]) for i in wanted}


def _inside(whole: Storage, part: Part) -> Storage:
    shift = sum(o * s for o, s in zip(part.offset, whole.strides, strict=True))
    strides = tuple(s * t for s, t in zip(whole.strides, part.step, strict=True))
    return replace(whole, offset=whole.offset + shift * whole.dtype.itemsize, strides=strides)


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
