"""The orders of ARITHMETIC.md §3 in LLVM: the tree of lanes, and the neighbour tree of blocks as a binary counter."""

from __future__ import annotations

from collections.abc import Sequence

from isobit.arithmetic.dtypes import DType
from isobit.codegen.emit import Builder, Value, bits_of, const, i64, vector
from isobit.codegen.vector import operation

_LEVELS = 64


def identity(kind: str, dtype: DType) -> float | int | bool:
    """What a fold starts from: it changes no value of `dtype`."""
    if kind in ("sum", "m2", "tree_sum"):
        return 0
    if kind in ("prod", "tree_prod"):
        return 1
    if kind in ("any", "all"):
        return kind == "all"
    least, greatest = _ends(dtype)
    return least if kind in ("max", "argmax") else greatest


def _ends(dtype: DType) -> tuple[float | int | bool, float | int | bool]:
    if dtype.is_float:
        return -float("inf"), float("inf")
    if dtype in (DType.U8, DType.BOOL):
        return 0, (1 << (8 if dtype == DType.U8 else 1)) - 1
    half = 1 << (8 * dtype.itemsize - 1)
    return -half, half - 1


COMBINE = {
    "sum": "add", "m2": "add", "tree_sum": "add", "prod": "mul", "tree_prod": "mul", "max": "max", "min": "min",
    "any": "or", "all": "and",
}  # fmt: skip


class Monoid:
    """A fold's combination of two values, in the dtype it computes in."""

    def __init__(self, kind: str, dtype: DType, element: str) -> None:
        self.kind, self.dtype, self.element = kind, dtype, element
        self.start = identity(kind, dtype)

    def apply(self, b: Builder, x: Value, y: Value) -> Value:
        return operation(b, COMBINE[self.kind], self.dtype, [x, y], self.dtype)

    def nothing(self, lanes: int) -> Value:
        return const(self.start, self.element, lanes)


def lane_tree(b: Builder, parts: Sequence[Value], monoid: Monoid) -> Value:
    """Lanes l += l + 16, + 8, + 4, + 2, + 1 of vectors that hold 32 lanes (or any power of two) in order."""
    level = list(parts)
    while len(level) > 1:
        half = len(level) // 2
        level = [monoid.apply(b, level[i], level[i + half]) for i in range(half)]
    x = level[0]
    while x.lanes > 1:
        half = x.lanes // 2
        x = monoid.apply(b, b.part(x, 0, half), b.part(x, half, half))
    return x


class TreeCounter:
    """Values pushed one after another, combined as neighbours (2i, 2i + 1); an unpaired one passes up.

    Level t holds the sum of 2^t neighbours where bit t of the count is set.
    """

    def __init__(self, b: Builder, monoid: Monoid, lanes: int) -> None:
        self.b, self.monoid, self.lanes = b, monoid, lanes
        self._bytes = max(1, bits_of(monoid.element) // 8) * lanes
        self._levels = b.alloca(f"[{_LEVELS} x {vector(monoid.element, lanes)}]")
        self._count = b.variable(i64(0))

    def clear(self) -> None:
        self._count.set(i64(0))

    def push(self, x: Value) -> None:
        b = self.b
        count = self._count.get()
        carries = b.intrinsic("cttz", [b.binary("xor", count, i64(-1))], [const(False, "i1")])
        total = b.variable(x)
        with b.loop(0, carries) as level:
            total.set(self.monoid.apply(b, self._load(level), total.get()))
        b.store(total.get(), self._at(carries))
        self._count.set(b.add(count, 1))

    def total(self) -> Value:
        """The root; of nothing, the identity."""
        b = self.b
        count = self._count.get()
        return b.choose(b.compare("eq", count, 0), lambda: self.monoid.nothing(self.lanes), lambda: self._root(count))

    def _root(self, count: Value) -> Value:
        b = self.b
        first = b.intrinsic("cttz", [count], [const(True, "i1")])
        end = b.sub(i64(64), b.intrinsic("ctlz", [count], [const(True, "i1")]))
        total = b.variable(self._load(first))
        with b.loop(b.add(first, 1), end) as level:
            bit = b.binary("and", b.binary("lshr", count, level), i64(1))
            with b.when(b.compare("ne", bit, 0)):
                total.set(self.monoid.apply(b, self._load(level), total.get()))
        return total.get()

    def _at(self, level: Value) -> Value:
        return self.b.offset(self._levels, self.b.mul(level, self._bytes))

    def _load(self, level: Value) -> Value:
        return self.b.load(self._at(level), self.monoid.element, self.lanes)
