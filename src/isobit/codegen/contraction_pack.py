"""Packing of a contraction's operands: offset tables over flattened axes, and copies into panels [k][width].

An operand's address is base + column_offset[c] + k_offset[k]. Three ways to copy a sub-panel, chosen at run time from
the offsets: columns that are neighbours in memory (vector copies), k that are neighbours (transposition in registers),
anything else (one by one). Positions past the end repeat the last offset, so that no load leaves the operand; what such
lanes compute is never stored.
"""

from __future__ import annotations

from collections.abc import Sequence

from isobit.codegen.contraction_plan import MAX_AXES
from isobit.codegen.emit import FUNCTION_ATTRIBUTES, Builder, Module, Value, i64, zero

_WORD = 8


def finish(f: Builder, small: bool = True) -> str:
    """The text of a function that returns nothing and is called, not inlined; `small` where speed does not matter."""
    f.ret()
    attributes = f"noinline {'minsize optsize ' if small else ''}{FUNCTION_ATTRIBUTES}"
    return f.finish().replace(FUNCTION_ATTRIBUTES, attributes, 1)


def word(f: Builder, table: Value, index: Value | int = 0) -> Value:
    """Address of the i64 at `index`."""
    return f.offset(table, f.mul(index, _WORD) if isinstance(index, Value) else index * _WORD)


def read(f: Builder, table: Value, index: Value | int = 0) -> Value:
    return f.load(word(f, table, index), "i64")


def define_offsets(module: Module) -> None:
    """`offsets(out, start, count, padded, sizes, strides, axes)`: out[c] = Σ index·stride at flat position start + c.

    Positions are row-major over the axes. Entries count..padded repeat the last one. Nothing happens if count is 0.
    """
    words = [("i64", n) for n in ("start", "count", "padded")]
    parameters = [("ptr", "out"), *words, ("ptr", "sizes"), ("ptr", "strides"), ("i64", "axes")]
    f = Builder(module, "offsets", "void", parameters)
    out, _, count, padded, *_ = f.params
    with f.when(f.compare("sgt", count, 0)):
        table = _OffsetTable(f)
        table.seek()
        with f.repeat_while(lambda: f.compare("slt", table.done.get(), count)):
            table.write_row()
            table.next_row()
        last = read(f, out, f.sub(count, 1))
        with f.loop(count, padded) as c:
            f.store(last, word(f, out, c))
    module.define("offsets", finish(f))


class _OffsetTable:
    """State of `offsets`: the multi-index, its offset, and how many entries are written."""

    def __init__(self, f: Builder) -> None:
        self.f = f
        self.out, self.start, self.count, _, self.sizes, self.strides, self.axes = f.params
        self.index = f.alloca(f"[{MAX_AXES} x i64]")
        self.current, self.done = f.variable(i64(0)), f.variable(i64(0))

    def seek(self) -> None:
        """The multi-index of the flat position `start`."""
        f, rest = self.f, self.f.variable(self.start)
        with f.loop(0, self.axes) as i:
            axis = f.sub(f.sub(self.axes, 1), i)
            size, flat = read(f, self.sizes, axis), rest.get()
            quotient = f.binary("udiv", flat, size)
            here = f.sub(flat, f.mul(quotient, size))
            f.store(here, word(f, self.index, axis))
            rest.set(quotient)
            self._move(f.mul(here, read(f, self.strides, axis)))

    def _move(self, by: Value) -> None:
        self.current.set(self.f.add(self.current.get(), by))

    def write_row(self) -> None:
        """What is left of the last axis' row, or of it what is still wanted; back to the row's start."""
        f, last = self.f, self.f.sub(self.axes, 1)
        here, stride, at = read(f, self.index, last), read(f, self.strides, last), self.done.get()
        run = f.minimum(f.sub(read(f, self.sizes, last), here), f.sub(self.count, at))
        value, out = f.variable(self.current.get()), word(f, self.out, at)
        self._move(f.mul(f.mul(here, stride), -1))
        with f.loop(0, run) as j:
            f.store(value.get(), word(f, out, j))
            value.set(f.add(value.get(), stride))
        self.done.set(f.add(at, run))
        f.store(i64(0), word(f, self.index, last))

    def next_row(self) -> None:
        """Advance the second-last axis, carrying into those before it."""
        f, axis = self.f, self.f.variable(self.f.sub(self.axes, 2))
        with f.repeat_while(lambda: f.compare("sge", axis.get(), 0)):
            a = axis.get()
            stride, size = read(f, self.strides, a), read(f, self.sizes, a)
            after = f.add(read(f, self.index, a), 1)
            wraps = f.compare("sge", after, size)
            f.store(f.select(wraps, i64(0), after), word(f, self.index, a))
            back = f.mul(stride, f.sub(i64(1), size))
            self._move(f.select(wraps, back, stride))
            axis.set(f.select(wraps, f.sub(a, 1), i64(-1)))


def define_runs(module: Module) -> None:
    """`runs(table, groups, width, step, flags)`: flags[g] = 1 where a group of `width` offsets ascends by `step`.

    flags[groups] = 1 where all groups do.
    """
    numbers = [("i64", n) for n in ("groups", "width", "step")]
    f = Builder(module, "runs", "void", [("ptr", "table"), *numbers, ("ptr", "flags")])
    table, groups, width, step, flags = f.params
    every = f.variable(Value("1", "i8"))
    with f.loop(0, groups) as g:
        first = word(f, table, f.mul(g, width))
        flag = f.variable(Value("1", "i8"))
        with f.loop(1, width) as j:
            follows = f.compare("eq", f.sub(read(f, first, j), read(f, first, f.sub(j, 1))), step)
            flag.set(f.binary("and", flag.get(), f.convert("zext", follows, "i8")))
        every.set(f.binary("and", every.get(), flag.get()))
        f.store(flag.get(), f.offset(flags, g))
    f.store(every.get(), f.offset(flags, groups))
    module.define("runs", finish(f))


def _ascending(f: Builder, table: Value, count: int, step: int) -> Value:
    """i1: do `count` entries of a table ascend by `step`?"""
    if count == 1:
        return Value("true", "i1")
    first, second = (f.load(word(f, table, j), "i64", count - 1) for j in (0, 1))
    return f.all_lanes(f.compare("eq", f.sub(second, first), step))


def define_pack(module: Module, name: str, width: int, lanes: int, element: str, size: int) -> None:
    """`name(out, base, columns, ks, k_runs, count)`: out[k][c] for k < count, c < width, of type `element`."""
    pointers = [("ptr", n) for n in ("base", "columns", "ks", "k_runs")]
    f = Builder(module, name, "void", [("ptr noalias", "out"), *pointers, ("i64", "count")])
    out, columns = Value("%out", "ptr"), Value("%columns", "ptr")
    whole = width // lanes * lanes
    if whole:
        with f.loop(0, whole, lanes) as at:
            _Part(f, word(f, columns, at), f.offset(out, f.mul(at, size)), lanes, width, lanes, element, size).pack()
    if width > whole:
        part = width - whole
        _Part(f, word(f, columns, whole), f.offset(out, whole * size), part, width, lanes, element, size).pack()
    module.define(name, finish(f))


def powers(width: int) -> list[tuple[int, int]]:
    """(position, length) of the powers of two that make up a width, largest first."""
    out, at = [], 0
    for bit in reversed(range(width.bit_length())):
        if width >> bit & 1:
            out.append((at, 1 << bit))
            at += 1 << bit
    return out


class _Part:
    """The copies of one sub-panel of `part` columns, at most a vector wide."""

    def __init__(
        self, f: Builder, columns: Value, out: Value, part: int, width: int, lanes: int, element: str, size: int
    ) -> None:
        self.f, self.columns, self.out, self.part = f, columns, out, part
        self.lanes, self.element, self.size, self.row_bytes = lanes, element, size, width * size
        self.ks, self.k_runs, self.count = Value("%ks", "ptr"), Value("%k_runs", "ptr"), Value("%count", "i64")
        self.sources = [f.offset(Value("%base", "ptr"), read(f, columns, j)) for j in range(part)]

    def pack(self) -> None:
        neighbours = _ascending(self.f, self.columns, self.part, self.size)
        self.f.either(neighbours, self._neighbours, self._transposed)

    def _neighbours(self) -> None:
        f = self.f
        with f.loop(0, self.count) as k:
            source = f.offset(self.sources[0], read(f, self.ks, k))
            row = f.offset(self.out, f.mul(k, self.row_bytes))
            for at, length in powers(self.part):
                value = f.load(f.offset(source, at * self.size), self.element, length)
                f.store(value, f.offset(row, at * self.size), self.size)

    def _transposed(self) -> None:
        """Groups of k: through registers where they are neighbours; the rest, and the last few k, singly."""
        f, group = self.f, group_of(self.size)
        whole = f.binary("and", self.count, i64(-group))
        if self.part == 1:
            self._singly(i64(0), self.count)
            return
        with f.loop(0, whole, group) as k:
            flag = f.load(f.offset(self.k_runs, f.binary("udiv", k, i64(group))), "i8")
            stop = f.add(k, group)
            f.either(f.compare("ne", flag, 0), lambda: self._block(k), lambda: self._singly(k, stop))
        self._singly(whole, self.count)

    def _block(self, k: Value) -> None:
        """128 bits of each column; columns j, j + group, … share a register, so that no lane crosses its 128 bits."""
        f, group = self.f, group_of(self.size)
        offset = read(f, self.ks, k)
        pieces = [f.load(f.offset(s, offset), self.element, group) for s in self.sources]
        pieces += [zero(self.element, group)] * (self.lanes - self.part)
        rows = [f.concat(pieces[j::group]) for j in range(group)]
        out = f.offset(self.out, f.mul(k, self.row_bytes))
        for j, value in enumerate(transpose(f, rows)):
            for at, length in powers(self.part):
                where = f.offset(out, j * self.row_bytes + at * self.size)
                f.store(f.part(value, at, length), where, self.size)

    def _singly(self, start: Value, stop: Value) -> None:
        f = self.f
        with f.loop(start, stop) as k:
            offset = read(f, self.ks, k)
            row = f.offset(self.out, f.mul(k, self.row_bytes))
            for j, source in enumerate(self.sources):
                f.store(f.load(f.offset(source, offset), self.element), f.offset(row, j * self.size))


def group_of(size: int) -> int:
    """How many k a block transposes at a time: the elements of 128 bits."""
    return 16 // size


def transpose(f: Builder, rows: Sequence[Value]) -> list[Value]:
    """n vectors (n is 2 or 4) as matrices n × n side by side, transposed by one shuffle within 128 bits a step."""
    n, lanes = len(rows), rows[0].lanes

    def unpack(a: Value, b: Value, unit: int, start: int) -> Value:
        """Units of `unit` lanes of a and b by turns, from lane `start` of each part of n lanes."""
        places = [(lane - lane % n, lane % n // unit, lane % unit) for lane in range(lanes)]
        picks = [part + turn // 2 * unit + inside + start + lanes * (turn % 2) for part, turn, inside in places]
        return f.shuffle(a, b, picks)

    if n == 2:
        return [unpack(rows[0], rows[1], 1, start) for start in (0, 1)]
    a, b, c, d = rows
    ab, cd = ([unpack(x, y, 1, start) for start in (0, 2)] for x, y in ((a, b), (c, d)))
    return [unpack(x, y, 2, start) for x, y in zip(ab, cd) for start in (0, 2)]
