"""The register tiles of a contraction: one chunk of fused multiply-adds, then its place in the tree of chunks.

The plain tile reads both operands packed. The direct ones read columns of rhs that are neighbours in memory where they
lie: one packs them on the way (the first of many rows gets packing for nothing), one is a single wide row.
"""

from __future__ import annotations

from collections.abc import Sequence

from isobit.codegen.contraction_pack import finish, group_of, read, transpose
from isobit.codegen.contraction_plan import Tile
from isobit.codegen.emit import Builder, Module, Value, Variable, i64, zero
from isobit.codegen.multiply_add import fma

_AHEAD = 16  # k that the packing tile prefetches ahead: rows of rhs often lie a page apart, where nothing else does
_LAG = 16  # k by which a vector of columns lags the one before: columns 4 KiB apart compete for 8 lines of L1
_TREE = [("i64", "merge"), ("ptr", "levels"), ("i64", "level_bytes"), ("ptr", "out")]


def define_tile(module: Module, name: str, rows: int, tile: Tile, element: str, size: int) -> None:
    """`name(a, b, count, merge, levels, level_bytes, out)`: the first `rows` rows of a tile.

    acc = Σ over `count` k of a[k][row]·b[k][column], by fma from +0. Then, for each bit of `merge` from the lowest,
    acc = level[bit] + acc: bit t stands for a subtree of 2^t earlier chunks (ARITHMETIC.md §4, the tree as a binary
    counter). The result goes to `out`, row-major, as wide as the tile.
    """
    operands = [("ptr noalias readonly", "a"), ("ptr noalias readonly", "b"), ("i64", "count")]
    f = Builder(module, name, "void", [*operands, *_TREE])
    sums = _Sums(f, rows, tile.vectors, tile, element, size)
    count, columns_bytes = Value("%count", "i64"), tile.columns * size

    def step(k: Value, ahead: int) -> None:
        b = f.offset(f.offset(Value("%b", "ptr"), f.mul(k, columns_bytes)), ahead * columns_bytes)
        places = [f.offset(b, v * tile.lanes * size) for v in range(tile.vectors)]
        sums.accumulate(k, ahead, [f.load(place, element, tile.lanes) for place in places])

    unroll = tile.unroll if rows == tile.rows else 1
    whole = f.binary("and", count, i64(-unroll))
    with f.loop(0, whole, unroll) as k:
        for ahead in range(unroll):
            step(k, ahead)
    if unroll > 1:
        with f.loop(whole, count) as k:
            step(k, 0)
    sums.finish()
    module.define(name, finish(f, small=False))


def define_direct(
    module: Module, name: str, rows: int, panels: int, tile: Tile, element: str, size: int, packs: bool
) -> None:
    """`name(a, base, columns, ks, count, panel_bytes, out_bytes, packed, merge, levels, level_bytes, out)`.

    As a tile over `panels` panels, whose columns lie at base + columns[c] + ks[k], neighbours within each vector. The
    panels' tiles are `panel_bytes` apart in `levels`, `out_bytes` in `out`. If `packs`, rhs goes to `packed` too.
    """
    pointers = [("ptr", n) for n in ("base", "columns", "ks")]
    numbers = [("i64", "count"), ("i64", "panel_bytes"), ("i64", "out_bytes"), ("ptr noalias", "packed")]
    f = Builder(module, name, "void", [("ptr noalias readonly", "a"), *pointers, *numbers, *_TREE])
    vectors = panels * tile.vectors
    sums = _Sums(f, rows, vectors, tile, element, size)
    ks, count = Value("%ks", "ptr"), Value("%count", "i64")
    columns = [read(f, Value("%columns", "ptr"), v * tile.lanes) for v in range(vectors)]
    sources = [f.offset(Value("%base", "ptr"), column) for column in columns]
    with f.loop(0, count) as k:
        offset = read(f, ks, k)
        right = [f.load(f.offset(s, offset), element, tile.lanes) for s in sources]
        if packs:
            _prefetch(f, sources, read(f, ks, f.minimum(f.add(k, _AHEAD), f.sub(count, 1))))
            to = f.offset(Value("%packed", "ptr"), f.mul(k, tile.columns * size))
            for v, vector in enumerate(right):
                f.store(vector, f.offset(to, v * tile.lanes * size), size)
        sums.accumulate(k, 0, right)
    sums.finish(Value("%panel_bytes", "i64"), Value("%out_bytes", "i64"))
    module.define(name, finish(f, small=False))


def define_dot_row(module: Module, name: str, tile: Tile, element: str, size: int) -> None:
    """`name(a, base, columns, ks, count, merge, levels, level_bytes, out)`: one row of one panel, rhs where it lies.

    Each group of k (see `group_of`) is neighbours in memory; columns lie anywhere. Transposed in registers, not packed.
    """
    pointers = [("ptr", n) for n in ("base", "columns", "ks")]
    f = Builder(module, name, "void", [("ptr noalias readonly", "a"), *pointers, ("i64", "count"), *_TREE])
    row = _DotRow(f, tile, element, size)
    count, lead = Value("%count", "i64"), i64(_LAG * (tile.vectors - 1))
    whole = f.binary("and", count, i64(-row.group))
    lead = f.minimum(whole, lead)
    with f.loop(0, lead, row.group) as k:
        row.block(0, k)
    with f.loop(lead, whole, row.group) as k:
        for v in range(tile.vectors):
            row.block(v, f.sub(k, lead) if v else k)
    with f.loop(f.sub(whole, lead), whole, row.group) as k:
        for v in range(1, tile.vectors):
            row.block(v, k)
    with f.loop(whole, count) as k:
        for v in range(tile.vectors):
            row.single(v, k)
    row.sums.finish()
    module.define(name, finish(f, small=False))


class _DotRow:
    """Sums of one row over columns that lie anywhere, k being neighbours in groups."""

    def __init__(self, f: Builder, tile: Tile, element: str, size: int) -> None:
        self.f, self.tile, self.element, self.group = f, tile, element, group_of(size)
        self.sums = _Sums(f, 1, tile.vectors, tile, element, size)
        columns = [read(f, Value("%columns", "ptr"), j) for j in range(tile.columns)]
        self.sources = [f.offset(Value("%base", "ptr"), column) for column in columns]

    def _loads(self, v: int, k: Value, lanes: int) -> list[Value]:
        f, first = self.f, v * self.tile.lanes
        offset = read(f, Value("%ks", "ptr"), k)
        sources = self.sources[first : first + self.tile.lanes]
        return [f.load(f.offset(source, offset), self.element, lanes) for source in sources]

    def block(self, v: int, k: Value) -> None:
        """A group of k for the columns of vector v."""
        pieces, group = self._loads(v, k, self.group), self.group
        columns = transpose(self.f, [self.f.concat(pieces[j::group]) for j in range(group)])
        for ahead, column in enumerate(columns):
            self.sums.accumulate(k, ahead, [column], v)

    def single(self, v: int, k: Value) -> None:
        self.sums.accumulate(k, 0, [self.f.gather(self._loads(v, k, 1))], v)


def _prefetch(f: Builder, sources: Sequence[Value], offset: Value) -> None:
    """The first and the last column's line into L1."""
    f.module.declare("llvm.prefetch.p0", "void", ["ptr", "i32", "i32", "i32"])
    for source in dict.fromkeys((sources[0], sources[-1])):
        f.raw(f"  call void @llvm.prefetch.p0({f.offset(source, offset).typed}, i32 0, i32 3, i32 1)")


class _Sums:
    """The accumulators of a tile: variables that LLVM keeps in registers."""

    def __init__(self, f: Builder, rows: int, vectors: int, tile: Tile, element: str, size: int) -> None:
        self.f, self.tile, self.element, self.size = f, tile, element, size
        start = zero(element, tile.lanes)
        self.sums = [[f.variable(start) for _ in range(vectors)] for _ in range(rows)]

    def accumulate(self, k: Value, ahead: int, right: Sequence[Value], start: int = 0) -> None:
        """One k, `ahead` of `k`, for the accumulators of vectors start, start + 1, … of each row."""
        f, size = self.f, self.size
        a = f.offset(Value("%a", "ptr"), f.mul(k, self.tile.rows * size))
        for i, row in enumerate(self.sums):
            value = f.load(f.offset(a, (ahead * self.tile.rows + i) * size), self.element)
            left = f.splat(value, self.tile.lanes)
            for total, vector in zip(row[start:], right):
                total.set(fma(f, left, vector, total.get()))

    def finish(self, panel_bytes: Value | None = None, out_bytes: Value | None = None) -> None:
        """Add the earlier subtrees, the nearest (smallest) first; write the result."""
        f, left = self.f, self.f.variable(Value("%merge", "i64"))
        with f.repeat_while(lambda: f.compare("ne", left.get(), 0)):
            bits = left.get()
            level = f.intrinsic("cttz", [bits], [Value("true", "i1")])
            held = f.offset(Value("%levels", "ptr"), f.mul(level, Value("%level_bytes", "i64")))
            for total, place in self._places(held, panel_bytes):
                total.set(f.binary("fadd", f.load(place, self.element, self.tile.lanes), total.get()))
            left.set(f.binary("and", bits, f.sub(bits, 1)))
        for total, place in self._places(Value("%out", "ptr"), out_bytes):
            f.store(total.get(), place, self.size)

    def _places(self, base: Value, panel_bytes: Value | None) -> list[tuple[Variable, Value]]:
        """Each accumulator with its address in tiles that start at `base`, one for every panel."""
        f, tile = self.f, self.tile
        places = []
        for v in range(len(self.sums[0])):
            panel, inside = divmod(v, tile.vectors)
            start = f.offset(base, f.mul(panel_bytes, panel)) if panel and panel_bytes else base
            for i, row in enumerate(self.sums):
                at = (i * tile.columns + inside * tile.lanes) * self.size
                places.append((row[v], f.offset(start, at)))
        return places
