"""The numbers of a contraction's launch: register tile, blocking, scratch layout, argument array. No code generation.

Blocks, from the outside: a task is one batch position, `m_block` rows and `n_block` columns of the result. For each
chunk of 256 k it packs its columns of rhs, then, `m_cache` rows at a time, its rows of lhs, and runs the register tile
over them. Packed rhs panels (256 × tile columns) are meant for L1, packed lhs (256 × m_cache) for L2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from isobit.arithmetic.dtypes import DType
from isobit.codegen.target import Target
from isobit.ir.kernel import Contraction, ContractionCall, Place, Step

CHUNK = 256
MAX_AXES = 16
_ALIGN = 64
_L2_LHS_BYTES = 192 * 1024
_RESIDENT_BYTES = 512 * 1024
_RESIDENT_CHUNKS = 64
_MAX_ROWS = 768
_MAX_COLUMNS = 768
_WORD = 8
WIDE_PANELS = 4
"""Panels of columns that a single wide row covers: enough independent sums to hide the latency of fma."""


@dataclass(frozen=True)
class Tile:
    """The register tile: `rows` × (`vectors` · `lanes`) accumulators; `variants` are the heights that have code."""

    rows: int
    vectors: int
    lanes: int
    variants: tuple[int, ...]
    unroll: int

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes


_TILES = {
    "x86-64-v4": (14, 2, (14, 8, 4), 1),
    "x86-64-v3": (6, 2, (6, 4), 2),
    "x86-64-v2": (2, 1, (2, 1), 1),
    "aarch64": (8, 2, (8, 4), 2),
}


def tile_for(dtype: DType, target: Target) -> Tile:
    """The register tile of a level: as many accumulators as registers allow beside the operands."""
    rows, vectors, variants, unroll = _TILES[target.level]
    return Tile(rows, vectors, target.lanes(dtype.itemsize), variants, unroll)


@dataclass(frozen=True)
class Extents:
    """Products of the sizes of each index class."""

    b: int
    m: int
    n: int
    k: int

    @staticmethod
    def of(n_axes: tuple[int, int, int, int], sizes: Sequence[int]) -> Extents:
        if len(sizes) != sum(n_axes):
            raise ValueError(f"a contraction over {n_axes} axes needs {sum(n_axes)} sizes, got {tuple(sizes)}")
        return Extents(*(math.prod(part) for part in split_axes(n_axes, sizes)))

    @property
    def chunks(self) -> int:
        """Chunks of k; an empty sum has one, empty, whose result is +0."""
        return max(1, -(-self.k // CHUNK))

    @property
    def k_resident(self) -> bool:
        """Whether a thread keeps the offset tables of all chunks, not just the current one's."""
        return self.chunks <= _RESIDENT_CHUNKS

    @property
    def levels(self) -> int:
        """Level buffers that the binary counter of chunk results needs."""
        return (self.chunks - 1).bit_length()


def split_axes(counts: Sequence[int], values: Sequence[int]) -> list[tuple[int, ...]]:
    """Cut `values` into consecutive parts of the given lengths."""
    parts, at = [], 0
    for count in counts:
        parts.append(tuple(values[at : at + count]))
        at += count
    return parts


@dataclass(frozen=True)
class Blocking:
    """Rows and columns of a task, rows packed at a time, and the number of tasks along m and n."""

    m_block: int
    n_block: int
    m_cache: int
    m_tasks: int
    n_tasks: int

    def resident(self, extents: Extents, size: int) -> bool:
        """Whether all chunks of a task's packed lhs are kept, for the next task that has the same."""
        packed = extents.chunks * CHUNK * self.m_block * size
        return self.m_cache >= self.m_block and packed <= _RESIDENT_BYTES


@lru_cache(maxsize=4096)
def choose_blocking(extents: Extents, dtype: DType, tile: Tile, threads: int) -> Blocking:
    """The blocking with the least estimated time of the busiest thread."""
    candidates = [
        _blocking(extents, dtype, tile, m_parts, n_parts)
        for m_parts in _part_counts(extents.m, tile.rows, _MAX_ROWS, threads)
        for n_parts in _part_counts(extents.n, tile.columns, _MAX_COLUMNS, threads)
    ]
    return min(candidates, key=lambda blocking: _cost(blocking, extents, tile, threads))


def _part_counts(size: int, unit: int, largest: int, threads: int) -> list[int]:
    """Into how many parts a side may be cut: enough for its limit, up to some more for balance."""
    least = max(1, -(-size // largest))
    most = max(least, -(-size // unit))
    return sorted({min(most, least + extra) for extra in (*range(8), *(threads * j for j in (1, 2, 3, 4)))})


def _blocking(extents: Extents, dtype: DType, tile: Tile, m_parts: int, n_parts: int) -> Blocking:
    m_block = _round_up(max(1, -(-extents.m // m_parts)), tile.rows)
    n_block = _round_up(max(1, -(-extents.n // n_parts)), tile.columns)
    rows = max(tile.rows, _L2_LHS_BYTES // (CHUNK * dtype.itemsize))
    passes = -(-m_block // rows)
    m_cache = _round_up(-(-m_block // passes), tile.rows)
    return Blocking(m_block, n_block, m_cache, -(-extents.m // m_block), -(-extents.n // n_block))


def _cost(blocking: Blocking, extents: Extents, tile: Tile, threads: int) -> float:
    """Estimated cycles of the busiest thread: multiply-adds, packing at about a cycle an element, a task's overhead."""
    rows, columns = min(blocking.m_block, extents.m), min(blocking.n_block, _round_up(extents.n, tile.columns))
    depth = extents.k + 8 * extents.chunks
    task = depth * (rows * columns / tile.lanes + rows + columns) + 4 * (rows + columns) + 1000
    tasks = extents.b * blocking.m_tasks * blocking.n_tasks
    return task * -(-tasks // threads)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


class Arguments:
    """Names of the argument array's entries, in order: the one description of it for host and generated code."""

    def __init__(self, contraction: Contraction) -> None:
        self.counts = tuple(max(1, n) for n in contraction.n_axes)
        b, m, n, k = self.counts
        names = ["tasks", "m", "n", "k", "m_block", "n_block", "m_cache", "m_tasks", "n_tasks", "chunks"]
        names += ["lhs_resident", "lhs_bytes", "k_resident"]
        names += ["scratch.slot", "scratch.offset", "scratch.stride", "level_bytes"]
        names += [f"at.{region}" for region in regions(contraction)]
        names += _axis_names("size", b=b, m=m, n=n, k=k)
        names += ["lhs.slot", "lhs.offset", *_axis_names("lhs", b=b, m=m, k=k)]
        names += ["rhs.slot", "rhs.offset", *_axis_names("rhs", b=b, k=k, n=n)]
        for i in range(len(contraction.operands)):
            names += [f"op{i}.slot", f"op{i}.offset", *_axis_names(f"op{i}", b=b, m=m, n=n)]
        for i in range(len(contraction.linears)):
            names += [f"linear{i}.offset", *_axis_names(f"linear{i}", b=b, m=m, n=n)]
        names += [f"bound{i}" for i in range(len(contraction.guards))]
        for i in range(contraction.n_dynamic):
            names += [f"dynamic{i}.stride", f"dynamic{i}.extent"]
        self.names = tuple(names)
        self.index = {name: i for i, name in enumerate(names)}


def _axis_names(prefix: str, **counts: int) -> list[str]:
    return [f"{prefix}.{kind}{i}" for kind, count in counts.items() for i in range(count)]


def regions(contraction: Contraction) -> tuple[str, ...]:
    """The parts of a thread's scratch: offset tables (i64) with their run flags, packed operands, levels, a tile."""
    names = ["lk", "rk", "lk.runs", "rk.runs", "lm", "rn", "rn.runs"]
    for kind, items in (("op", contraction.operands), ("linear", contraction.linears)):
        for i in range(len(items)):
            names += [f"{kind}{i}.m", f"{kind}{i}.n", f"{kind}{i}.runs"]
    return (*names, "lhs", "rhs", "tile", "levels")


def _region_bytes(c: Contraction, tile: Tile, blocking: Blocking, extents: Extents) -> dict[str, int]:
    size = c.dtype.itemsize
    depth = CHUNK * (extents.chunks if extents.k_resident else 1)
    k_table, m_table, n_table = (_WORD * n for n in (depth, blocking.m_block, blocking.n_block))
    out = {"lk": k_table, "rk": k_table, "lk.runs": depth, "rk.runs": depth, "lm": m_table, "rn": n_table}
    out["rn.runs"] = blocking.n_block
    for name in regions(c):
        if name.startswith(("op", "linear")):
            out[name] = {"m": m_table, "n": n_table, "runs": blocking.n_block}[name.split(".")[1]]
    kept = extents.chunks if blocking.resident(extents, size) else 1
    out["lhs"] = kept * CHUNK * blocking.m_cache * size
    out["rhs"] = CHUNK * blocking.n_block * size
    out["tile"] = WIDE_PANELS * tile.rows * tile.columns * size
    out["levels"] = extents.levels * _level_bytes(c, blocking)
    return out


def _level_bytes(c: Contraction, blocking: Blocking) -> int:
    return blocking.m_block * blocking.n_block * c.dtype.itemsize


def _region_offsets(c: Contraction, tile: Tile, blocking: Blocking, extents: Extents) -> tuple[dict[str, int], int]:
    sizes, offsets, at = _region_bytes(c, tile, blocking, extents), {}, 0
    for name in regions(c):
        offsets[name] = at
        at += _round_up(sizes[name], _ALIGN)
    return offsets, at


def contraction_needs(c: Contraction, sizes: Sequence[int], target: Target, threads: int = 1) -> tuple[int, int]:
    """(bytes of shared workspace, bytes of scratch per thread) that a call with these sizes needs."""
    extents, tile = Extents.of(c.n_axes, sizes), tile_for(c.dtype, target)
    blocking = choose_blocking(extents, c.dtype, tile, threads)
    return 0, _region_offsets(c, tile, blocking, extents)[1]


def contraction_args(call: ContractionCall, target: Target, threads: int = 1) -> tuple[tuple[int, ...], ...]:
    """One argument array per kernel of `lower_contraction`; `threads` must be what `contraction_needs` was given."""
    c = call.contraction
    extents, tile = Extents.of(c.n_axes, call.sizes), tile_for(c.dtype, target)
    blocking = choose_blocking(extents, c.dtype, tile, threads)
    values = _block_values(extents, blocking, c.dtype.itemsize)
    values |= _scratch_values(call, tile, blocking, extents) | _address_values(call)
    arguments = Arguments(c)
    return (tuple(values[name] for name in arguments.names),)


def _block_values(extents: Extents, blocking: Blocking, size: int) -> dict[str, int]:
    tasks = extents.b * blocking.m_tasks * blocking.n_tasks
    return {
        "tasks": tasks, "m": extents.m, "n": extents.n, "k": extents.k, "chunks": extents.chunks,
        "m_block": blocking.m_block, "n_block": blocking.n_block, "m_cache": blocking.m_cache,
        "m_tasks": blocking.m_tasks, "n_tasks": blocking.n_tasks,
        "lhs_resident": int(blocking.resident(extents, size)), "lhs_bytes": CHUNK * blocking.m_cache * size,
        "k_resident": int(extents.k_resident),
    }  # fmt: skip


def _scratch_values(call: ContractionCall, tile: Tile, blocking: Blocking, extents: Extents) -> dict[str, int]:
    offsets, _ = _region_offsets(call.contraction, tile, blocking, extents)
    slot, offset, stride = call.scratch
    return {
        "scratch.slot": slot, "scratch.offset": offset, "scratch.stride": stride,
        "level_bytes": _level_bytes(call.contraction, blocking),
        **{f"at.{name}": value for name, value in offsets.items()},
    }  # fmt: skip


def _address_values(call: ContractionCall) -> dict[str, int]:
    c = call.contraction
    b, m, n, k = c.n_axes
    values = _axis_values("size", "bmnk", c.n_axes, call.sizes, 1)
    values |= _place_values("lhs", "bmk", (b, m, k), call.lhs) | _place_values("rhs", "bkn", (b, k, n), call.rhs)
    for i, (operand, place) in enumerate(zip(c.operands, call.places, strict=True)):
        strides = _strides(operand.steps, place.strides, operand.dtype.itemsize)
        values |= _place_values(f"op{i}", "bmn", (b, m, n), Place(place.slot, place.offset, strides))
    for i, (linear, (constant, factors)) in enumerate(zip(c.linears, call.linears, strict=True)):
        values |= {f"linear{i}.offset": constant}
        values |= _axis_values(f"linear{i}", "bmn", (b, m, n), _strides(linear.steps, factors, 1), 0)
    values |= {f"bound{i}": bound for i, bound in enumerate(call.bounds)}
    for i, (stride, extent) in enumerate(call.dynamics):
        values |= {f"dynamic{i}.stride": stride, f"dynamic{i}.extent": extent}
    return values


def _place_values(name: str, kinds: str, counts: Sequence[int], place: Place) -> dict[str, int]:
    strides = _axis_values(name, kinds, counts, place.strides, 0)
    return {f"{name}.slot": place.slot, f"{name}.offset": place.offset} | strides


def _axis_values(name: str, kinds: str, counts: Sequence[int], values: Sequence[int], none: int) -> dict[str, int]:
    """One entry per axis; a class without axes counts as one axis with the value `none`."""
    if len(values) != sum(counts):
        raise ValueError(f"{name}: {sum(counts)} axes ({', '.join(kinds)}: {tuple(counts)}), but {len(values)} values")
    parts = split_axes(counts, values)
    return {f"{name}.{kind}{i}": v for kind, part in zip(kinds, parts) for i, v in enumerate(part or (none,))}


def _strides(steps: Sequence[Step], values: Sequence[int], unit: int) -> tuple[int, ...]:
    return tuple({"0": 0, "1": unit, "s": v}[step] for step, v in zip(steps, values, strict=True))
