"""The register tile of a contraction: one chunk of fused multiply-adds, then its place in the tree of chunks."""

from __future__ import annotations

from collections.abc import Callable

from isobit.codegen.contraction_plan import Tile
from isobit.codegen.contraction_text import Body, splat

MultiplyAdd = Callable[[Body, str, str, str], str]
"""(body, a, b, c) -> a·b + c on vectors, rounded once."""


def tile_function(name: str, rows: int, tile: Tile, scalar: str, size: int, multiply_add: MultiplyAdd) -> str:
    """`name(a, b, count, merge, levels, level_bytes, out)`: the first `rows` rows of a tile.

    acc = Σ over `count` k of a[k][row]·b[k][column], by fma from +0. Then, for each bit of `merge` from the lowest,
    acc = level[bit] + acc: bit t stands for a subtree of 2^t earlier chunks (ARITHMETIC.md §4, the tree as a binary
    counter). The result goes to `out`, row-major, as wide as the tile.
    """
    body = Body()
    cells = [[body.alloca(_kind(tile, scalar), size * tile.lanes) for _ in range(tile.vectors)] for _ in range(rows)]
    emit = _Emitter(body, cells, tile, scalar, size, multiply_add)
    emit.clear()
    whole = body.let(f"and i64 %count, {-tile.unroll}")
    with body.loop(whole, step=tile.unroll) as k:
        for step in range(tile.unroll):
            emit.accumulate(k, step)
    if tile.unroll > 1:
        with body.loop("%count", start=whole) as k:
            emit.accumulate(k, 0)
    emit.merge()
    emit.write()
    parameters = (
        "ptr noalias readonly %a", "ptr noalias readonly %b", "i64 %count", "i64 %merge",
        "ptr %levels", "i64 %level_bytes", "ptr %out",
    )  # fmt: skip
    return body.function(name, parameters, "noinline nounwind")


def _kind(tile: Tile, scalar: str) -> str:
    return f"<{tile.lanes} x {scalar}>"


class _Emitter:
    """Statements on the accumulators, which live in stack cells that LLVM turns into registers."""

    def __init__(
        self, body: Body, cells: list[list[str]], tile: Tile, scalar: str, size: int, multiply_add: MultiplyAdd
    ) -> None:
        self.body, self.cells, self.tile, self.scalar, self.size = body, cells, tile, scalar, size
        self.kind, self.multiply_add = _kind(tile, scalar), multiply_add
        self.align = size * tile.lanes

    def clear(self) -> None:
        for row in self.cells:
            for cell in row:
                self.body.store(self.kind, "zeroinitializer", cell, self.align)

    def accumulate(self, k: str, step: int) -> None:
        """One k for all accumulators."""
        body, tile = self.body, self.tile
        a = body.at("%a", body.mul(k, tile.rows * self.size))
        b = body.at("%b", body.mul(k, tile.columns * self.size))
        right = [body.load(self.kind, body.at(b, self._offset(step, v)), self.size) for v in range(tile.vectors)]
        for i, row in enumerate(self.cells):
            value = body.load(self.scalar, body.at(a, (step * tile.rows + i) * self.size), self.size)
            left = splat(self.scalar, value, tile.lanes, body)
            for cell, vector in zip(row, right):
                held = body.load(self.kind, cell, self.align)
                body.store(self.kind, self.multiply_add(body, left, vector, held), cell, self.align)

    def _offset(self, row: int, vector: int) -> int:
        return (row * self.tile.columns + vector * self.tile.lanes) * self.size

    def merge(self) -> None:
        """Add the earlier subtrees, the nearest (smallest) first."""
        body = self.body
        left = body.alloca("i64")
        body.store("i64", "%merge", left, 8)
        with body.repeat() as over:
            bits = body.load("i64", left, 8)
            body.leave(body.let(f"icmp eq i64 {bits}, 0"), over)
            level = body.let(f"call i64 @llvm.cttz.i64(i64 {bits}, i1 true)")
            held = body.at("%levels", body.mul(level, "%level_bytes"))
            for i, row in enumerate(self.cells):
                for v, cell in enumerate(row):
                    earlier = body.load(self.kind, body.at(held, self._offset(i, v)), self.size)
                    now = body.load(self.kind, cell, self.align)
                    body.store(self.kind, body.let(f"fadd {self.kind} {earlier}, {now}"), cell, self.align)
            body.store("i64", body.let(f"and i64 {bits}, {body.sub(bits, 1)}"), left, 8)

    def write(self) -> None:
        body = self.body
        for i, row in enumerate(self.cells):
            for v, cell in enumerate(row):
                body.store(self.kind, body.load(self.kind, cell, self.align), body.at("%out", self._offset(i, v)), self.size)
