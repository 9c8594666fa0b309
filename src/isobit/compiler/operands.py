"""Loads and stores of a group as operands with byte strides along the group's axes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from isobit.arithmetic.dtypes import DType
from isobit.compiler.storage import Storage
from isobit.ir.expr import Affine, Axis, Expr, Load
from isobit.ir.kernel import Fetch, Linear, Operand, Place, Position, Step

_T = TypeVar("_T")
Strides = tuple[tuple[Axis, int], ...]


@dataclass(frozen=True)
class Reference:
    """An operand before the axes are put in order: byte strides by axis, zeros left out."""

    dtype: DType
    slot: int
    offset: int
    strides: Strides

    def stride(self, axis: Axis) -> int:
        return next((s for a, s in self.strides if a == axis), 0)


@dataclass
class OperandTable:
    """The operands, linears, guards and dynamics of one kernel, each once."""

    references: list[Reference] = field(default_factory=list)
    linears: list[Affine] = field(default_factory=list)
    guards: list[tuple[int, int]] = field(default_factory=list)
    dynamics: list[tuple[int, int]] = field(default_factory=list)

    def reference(self, storage: Storage, index: Iterable[Affine]) -> int:
        """The operand that reads or writes `storage` at affine `index`."""
        size = storage.dtype.itemsize
        address = Affine()
        for position, stride in zip(index, storage.strides, strict=True):
            address = address + position * (stride * size)
        ref = Reference(storage.dtype, storage.slot, storage.offset + address.const, address.terms)
        return _intern(self.references, ref)

    def fetch(self, load: Load, storage: Storage, shape: tuple[int, ...], index: tuple[Affine | Expr, ...]) -> Fetch:
        """The load of `storage` at `index` (already over the group's axes; dynamic positions already lowered)."""
        fixed = tuple(i if isinstance(i, Affine) else Affine() for i in index)
        guards: list[int] = []
        dynamic: list[tuple[Expr, int]] = []
        for position, extent, stride in zip(index, shape, storage.strides, strict=True):
            if isinstance(position, Expr):
                self.dynamics.append((stride * storage.dtype.itemsize, extent))
                dynamic.append((position, len(self.dynamics) - 1))
            elif load.fill is not None:
                low, high = position.bounds()
                if low < 0 or high >= extent:
                    guards.append(_intern(self.guards, (self.linear(position), extent)))
        return Fetch(load.dtype, self.reference(storage, fixed), tuple(guards), tuple(dynamic), load.fill)

    def position(self, index: Affine) -> Position:
        return Position(DType.I64, self.linear(index))

    def linear(self, index: Affine) -> int:
        return _intern(self.linears, index)

    def mergeable(self, a: Axis, b: Axis) -> bool:
        """Whether axis `a` directly outside `b` can be one axis of extent a·b for every operand and linear."""
        moves = [(r.stride(a), r.stride(b)) for r in self.references]
        moves += [(f.coefficient(a), f.coefficient(b)) for f in self.linears]
        return all(x == y * b.extent for x, y in moves)


def _intern(table: list[_T], item: _T) -> int:
    if item not in table:
        table.append(item)
    return table.index(item)


Run = tuple[Axis, ...]
"""Axes that merged into one, outermost first: the last one's strides are the merged axis' strides."""


def merge(order: list[Axis], table: OperandTable, *, extra: Iterable[OperandTable] = ()) -> list[Run]:
    """Neighbouring axes that every operand sees as one become one."""
    tables = (table, *extra)
    out: list[Run] = []
    for axis in order:
        if out and all(t.mergeable(out[-1][-1], axis) for t in tables):
            out[-1] = (*out[-1], axis)
        else:
            out.append((axis,))
    return out


def extent(run: Run) -> int:
    total = 1
    for axis in run:
        total *= axis.extent
    return total


def place(ref: Reference, runs: Iterable[Run]) -> Place:
    """Byte strides along merged axes. An empty run (an axis of extent 1) counts as unit stride; so does an axis of
    extent 0, whatever its stride: a value that seemed not to depend on it would be read before the loop, from nowhere.
    """
    unit = ref.dtype.itemsize
    strides = (ref.stride(run[-1]) if run and extent(run) else unit for run in runs)
    return Place(ref.slot, ref.offset, tuple(strides))


def steps(strides: tuple[int, ...], unit: int, classified: Iterable[bool]) -> tuple[Step, ...]:
    """Static knowledge of strides: only axes marked in `classified` are told apart, the rest are run-time strides."""
    out: list[Step] = []
    for s, known in zip(strides, classified, strict=True):
        out.append("s" if not known else "0" if s == 0 else "1" if s == unit else "s")
    return tuple(out)


def operand(ref: Reference, at: Place, classified: Iterable[bool]) -> Operand:
    return Operand(ref.dtype, steps(at.strides, ref.dtype.itemsize, classified))


def linear(f: Affine, runs: Iterable[Run], classified: Iterable[bool]) -> tuple[Linear, tuple[int, tuple[int, ...]]]:
    coefficients = tuple(f.coefficient(run[-1]) if run else 0 for run in runs)
    return Linear(steps(coefficients, 1, classified)), (f.const, coefficients)
