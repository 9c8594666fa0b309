"""The register tile of a contraction: one chunk of fused multiply-adds, then its place in the tree of chunks."""

from __future__ import annotations

from isobit.codegen.contraction_pack import finish
from isobit.codegen.contraction_plan import Tile
from isobit.codegen.emit import Builder, Module, Value, i64, zero
from isobit.codegen.multiply_add import fma


def define_tile(module: Module, name: str, rows: int, tile: Tile, element: str, size: int) -> None:
    """`name(a, b, count, merge, levels, level_bytes, out)`: the first `rows` rows of a tile.

    acc = Σ over `count` k of a[k][row]·b[k][column], by fma from +0. Then, for each bit of `merge` from the lowest,
    acc = level[bit] + acc: bit t stands for a subtree of 2^t earlier chunks (ARITHMETIC.md §4, the tree as a binary
    counter). The result goes to `out`, row-major, as wide as the tile.
    """
    operands = [("ptr noalias readonly", "a"), ("ptr noalias readonly", "b"), ("i64", "count")]
    tree = [("i64", "merge"), ("ptr", "levels"), ("i64", "level_bytes"), ("ptr", "out")]
    f = Builder(module, name, "void", [*operands, *tree])
    emit = _Tile(f, rows, tile, element, size)
    count = Value("%count", "i64")
    unroll = tile.unroll if rows == tile.rows else 1
    whole = f.binary("and", count, i64(-unroll))
    with f.loop(0, whole, unroll) as k:
        for step in range(unroll):
            emit.accumulate(k, step)
    if unroll > 1:
        with f.loop(whole, count) as k:
            emit.accumulate(k, 0)
    emit.merge()
    emit.write()
    module.define(name, finish(f, small=False))


class _Tile:
    """Statements on the accumulators, which are variables that LLVM keeps in registers."""

    def __init__(self, f: Builder, rows: int, tile: Tile, element: str, size: int) -> None:
        self.f, self.tile, self.element, self.size = f, tile, element, size
        start = zero(element, tile.lanes)
        self.sums = [[f.variable(start) for _ in range(tile.vectors)] for _ in range(rows)]

    def accumulate(self, k: Value, step: int) -> None:
        """One k for all accumulators."""
        f, tile, size = self.f, self.tile, self.size
        a = f.offset(Value("%a", "ptr"), f.mul(k, tile.rows * size))
        b = f.offset(Value("%b", "ptr"), f.mul(k, tile.columns * size))
        right = [f.load(f.offset(b, self._offset(step, v)), self.element, tile.lanes) for v in range(tile.vectors)]
        for i, row in enumerate(self.sums):
            value = f.load(f.offset(a, (step * tile.rows + i) * size), self.element)
            left = f.splat(value, tile.lanes)
            for total, vector in zip(row, right):
                total.set(fma(f, left, vector, total.get()))

    def _offset(self, row: int, vector: int) -> int:
        return (row * self.tile.columns + vector * self.tile.lanes) * self.size

    def merge(self) -> None:
        """Add the earlier subtrees, the nearest (smallest) first."""
        f, left = self.f, self.f.variable(Value("%merge", "i64"))
        with f.repeat_while(lambda: f.compare("ne", left.get(), 0)):
            bits = left.get()
            level = f.intrinsic("cttz", [bits], [Value("true", "i1")])
            held = f.offset(Value("%levels", "ptr"), f.mul(level, Value("%level_bytes", "i64")))
            for i, row in enumerate(self.sums):
                for v, total in enumerate(row):
                    earlier = f.load(f.offset(held, self._offset(i, v)), self.element, self.tile.lanes)
                    total.set(f.binary("fadd", earlier, total.get()))
            left.set(f.binary("and", bits, f.sub(bits, 1)))

    def write(self) -> None:
        for i, row in enumerate(self.sums):
            for v, total in enumerate(row):
                self.f.store(total.get(), self.f.offset(Value("%out", "ptr"), self._offset(i, v)))
