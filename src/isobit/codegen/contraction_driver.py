"""The entry point of a contraction kernel: this thread's tasks, and a task's loops over chunks, panels and tiles."""

from __future__ import annotations

from dataclasses import dataclass

from isobit.codegen.contraction_epilogue import TABLE_WORDS, described_words
from isobit.codegen.contraction_pack import group_of, word
from isobit.codegen.contraction_plan import CHUNK, WIDE_PANELS, Arguments, Tile
from isobit.codegen.emit import Builder, Module, Value, Variable, i64
from isobit.ir.kernel import Contraction


def define_driver(module: Module, c: Contraction, tile: Tile, symbol: str) -> None:
    """The kernel itself; see KernelSource for its signature."""
    parameters = [("ptr", "slots"), ("ptr", "args"), ("i64", "tid"), ("i64", "nthreads")]
    f = Builder(module, symbol, "void", parameters, attributes="")
    driver = _Driver(f, c, tile)
    _, _, tid, threads = f.params
    first, last = (f.binary("udiv", f.mul(driver.arg("tasks"), t), threads) for t in (tid, f.add(tid, 1)))
    with f.when(f.compare("slt", first, last)):
        driver.start()
        with f.loop(first, last) as task:
            driver.is_first = f.compare("eq", task, first)
            driver.task(task)
    f.ret()
    module.define(symbol, f.finish())


class _Driver:
    """Emits the loops. What several tasks share (tables, packed lhs) is made anew only when it changes."""

    def __init__(self, f: Builder, c: Contraction, tile: Tile) -> None:
        self.f, self.c, self.tile, self.size = f, c, tile, c.dtype.itemsize
        self.arguments = Arguments(c)
        named = [(f"op{i}", operand.dtype.itemsize) for i, operand in enumerate(c.operands)]
        self.is_first = Value("false", "i1")
        self.tables = named + [(f"linear{i}", 0) for i in range(len(c.linears))]

    # -- arguments and scratch -----------------------------------------------------------------------------------

    def arg(self, name: str) -> Value:
        return self.f.load(self.pointer(name), "i64")

    def pointer(self, name: str) -> Value:
        """Address of the argument `name`."""
        return word(self.f, self.f.params[1], self.arguments.index[name])

    def region(self, name: str) -> Value:
        """Address of a part of this thread's scratch."""
        return self.f.offset(self.scratch, self.arg(f"at.{name}"))

    def _slot(self, name: str) -> Value:
        """Address where the operand `name` starts, as i64."""
        base = self.f.load(word(self.f, self.f.params[0], self.arg(f"{name}.slot")), "i64")
        return self.f.add(base, self.arg(f"{name}.offset"))

    def _as_pointer(self, address: Value) -> Value:
        return self.f.emit(f"inttoptr i64 {address.ref} to ptr", "ptr")

    # -- a thread ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """What a thread does once: find its scratch, describe the epilogue's tables, forget what is packed."""
        f = self.f
        mine = f.mul(f.params[2], self.arg("scratch.stride"))
        self.scratch = self._as_pointer(f.add(self._slot("scratch"), mine))
        self.described = f.alloca(f"[{described_words(self.c)} x i64]")
        for i, (name, _) in enumerate(self.tables):
            for j, part in enumerate(("m", "n", "runs"), 1):
                address = f.emit(f"ptrtoint ptr {self.region(f'{name}.{part}').ref} to i64", "i64")
                f.store(address, word(f, self.described, TABLE_WORDS * i + j))
        numbers = [f"bound{i}" for i in range(len(self.c.guards))]
        numbers += [f"dynamic{i}.{part}" for i in range(self.c.n_dynamic) for part in ("stride", "extent")]
        for i, name in enumerate(numbers, TABLE_WORDS * len(self.tables)):
            f.store(self.arg(name), word(f, self.described, i))
        self.known = {what: f.variable(i64(-1)) for what in ("m", "n", "k", "lhs", "rows")}

    def _changed(self, what: str, value: Value) -> Value:
        """i1: is `value` another one than last time?"""
        cell: Variable = self.known[what]
        different = self.f.compare("ne", cell.get(), value)
        cell.set(value)
        return different

    # -- a task --------------------------------------------------------------------------------------------------

    def task(self, task: Value) -> None:
        f, n_tasks, m_tasks = self.f, self.arg("n_tasks"), self.arg("m_tasks")
        column, rest = f.binary("urem", task, n_tasks), f.binary("udiv", task, n_tasks)
        row, batch = f.binary("urem", rest, m_tasks), f.binary("udiv", rest, m_tasks)
        m0, rows = self._range("m", row)
        n0, columns = self._range("n", column)
        self.rows, self.columns = rows, columns
        with f.when(self._changed("m", m0)):
            self._side_tables("m", m0, rows, self.tile.rows)
        with f.when(self._changed("n", n0)):
            self._side_tables("n", n0, columns, self.tile.columns)
        self._bases(batch, m0)
        with f.loop(0, self.arg("chunks")) as chunk:
            self._chunk(chunk)

    def _range(self, axis: str, part: Value) -> tuple[Value, Value]:
        """Start and length of a task's part of m or n."""
        block = self.arg(f"{axis}_block")
        start = self.f.mul(part, block)
        return start, self.f.minimum(self.f.sub(self.arg(axis), start), block)

    def _offsets(self, out: Value, start: Value, count: Value, padded: Value, axis: str, strides: str) -> None:
        axes = i64(self.arguments.counts["bmnk".index(axis)])
        places = [self.pointer(f"size.{axis}0"), self.pointer(f"{strides}.{axis}0")]
        self.f.call_void("offsets", [out, start, count, padded, *places, axes])

    def _runs(self, table: Value, count: Value, width: int, step: int, flags: Value) -> None:
        groups = self.f.binary("udiv", count, i64(width))
        self.f.call_void("runs", [table, groups, i64(width), i64(step), flags])

    def _side_tables(self, axis: str, start: Value, count: Value, unit: int) -> None:
        """Offsets of a task's rows or columns, of the operand and of all that the epilogue reads and writes."""
        padded = self._panels(count, unit)
        padded = self.f.mul(padded, unit)
        operand = {"m": "lhs", "n": "rhs"}[axis]
        self._offsets(self.region(f"{operand[0]}{axis}"), start, count, padded, axis, operand)
        if axis == "n":
            self._runs(self.region("rn"), padded, self.tile.lanes, self.size, self.region("rn.runs"))
        for name, step in self.tables:
            table = self.region(f"{name}.{axis}")
            self._offsets(table, start, count, padded, axis, name)
            if axis == "n" and step:
                self._runs(table, padded, self.tile.lanes, step, self.region(f"{name}.runs"))

    def _panels(self, count: Value, unit: int) -> Value:
        return self.f.binary("udiv", self.f.add(count, unit - 1), i64(unit))

    def _bases(self, batch: Value, m0: Value) -> None:
        """Where this batch position's operands start, and whether the packed lhs is another one than before."""
        f = self.f
        lhs = f.add(self._slot("lhs"), self._batch_offset(batch, "lhs"))
        self.lhs = self._as_pointer(lhs)
        self.rhs = self._as_pointer(f.add(self._slot("rhs"), self._batch_offset(batch, "rhs")))
        other = f.binary("or", self._changed("lhs", lhs), self._changed("rows", m0))
        self.repack = f.binary("or", other, f.compare("eq", self.arg("lhs_resident"), 0))
        for i, (name, step) in enumerate(self.tables):
            start = self._slot(name) if step else self.arg(f"{name}.offset")
            f.store(f.add(start, self._batch_offset(batch, name)), word(f, self.described, TABLE_WORDS * i))

    def _batch_offset(self, batch: Value, strides: str) -> Value:
        cell = self.f.alloca("i64", 8)
        self._offsets(cell, batch, i64(1), i64(1), "b", strides)
        return self.f.load(cell, "i64")

    # -- a chunk -------------------------------------------------------------------------------------------------

    def _chunk(self, chunk: Value) -> None:
        f = self.f
        k0 = f.mul(chunk, CHUNK)
        depth = f.minimum(f.sub(self.arg("k"), k0), CHUNK)
        self.k_at = f.mul(k0, self.arg("k_resident"))
        stale = f.select(f.compare("ne", self.arg("k_resident"), 0), self.is_first, self._changed("k", chunk))
        with f.when(stale):
            for side in ("lhs", "rhs"):
                table, runs = self._k_table(side), self._k_runs(side)
                self._offsets(table, k0, depth, depth, "k", side)
                self._runs(table, depth, group_of(self.size), self.size, runs)
        groups = f.binary("udiv", depth, i64(group_of(self.size)))
        every = f.load(f.offset(self._k_runs("rhs"), groups), "i8")
        self.k_in_a_row = f.binary("and", f.compare("sgt", groups, 0), f.compare("ne", every, 0))
        resident = f.mul(f.mul(chunk, self.arg("lhs_resident")), self.arg("lhs_bytes"))
        packed = f.offset(self.region("lhs"), resident)
        self._place_in_tree(chunk)
        with f.loop(0, self.rows, self.arg("m_cache")) as m:
            rows = f.minimum(f.sub(self.rows, m), self.arg("m_cache"))
            with f.when(self.repack):
                self._pack_lhs(packed, word(f, self.region("lm"), m), rows, depth)
            self._columns(_Rows(packed, m, rows, depth))

    def _k_table(self, side: str) -> Value:
        """The current chunk's part of the offsets along k."""
        return word(self.f, self.region(f"{side[0]}k"), self.k_at)

    def _k_runs(self, side: str) -> Value:
        return self.f.offset(self.region(f"{side[0]}k.runs"), self.k_at)

    def _pack_lhs(self, out: Value, offsets: Value, count: Value, depth: Value) -> None:
        f, width = self.f, self.tile.rows
        ks, runs = self._k_table("lhs"), self._k_runs("lhs")
        with f.loop(0, self._panels(count, width)) as panel:
            to = f.offset(out, f.mul(panel, CHUNK * width * self.size))
            f.call_void("pack_lhs", [to, self.lhs, word(f, offsets, f.mul(panel, width)), ks, runs, depth])

    def _place_in_tree(self, chunk: Value) -> None:
        """Which levels to merge, offset of the level to write, and whether this is the last chunk.

        An inner chunk i closes the subtrees of its trailing ones; the last one also takes what is left over, from
        small to large, which is every set bit of i.
        """
        f, following = self.f, self.f.add(chunk, 1)
        self.is_last = f.compare("eq", following, self.arg("chunks"))
        closed = f.binary("and", chunk, f.binary("xor", following, i64(-1)))
        level = f.intrinsic("cttz", [following], [Value("false", "i1")])
        self.merge = f.select(self.is_last, chunk, closed)
        self.level = f.mul(level, self.arg("level_bytes"))

    def _columns(self, rows: _Rows) -> None:
        """All panels of columns against these rows, some panels at a time where they can be one wide row."""
        f, panels = self.f, self._panels(self.columns, self.tile.columns)
        with f.loop(0, panels, WIDE_PANELS) as j:
            stop = f.minimum(f.add(j, WIDE_PANELS), panels)

            def singly(j: Value = j, stop: Value = stop) -> None:
                with f.loop(j, stop) as panel:
                    dot = f.binary("and", f.compare("eq", self.rows, 1), self.k_in_a_row)
                    f.either(dot, lambda: self._dot_row(rows, panel), lambda: self._panel(rows, panel))

            enough = f.compare("eq", f.sub(stop, j), WIDE_PANELS)
            single = f.binary("and", enough, f.compare("eq", self.rows, 1))
            wide = f.binary("and", single, self._neighbours(j, WIDE_PANELS))
            f.either(wide, lambda: self._wide_row(rows, j), singly)

    def _neighbours(self, panel: Value, panels: int) -> Value:
        """i1: are the columns of each vector of these panels neighbours? May read flags past the last panel."""
        f, count = self.f, panels * self.tile.vectors
        flags = f.load(f.offset(self.region("rn.runs"), f.mul(panel, self.tile.vectors)), "i8", count)
        return f.all_lanes(f.compare("ne", flags, 0))

    def _tile_bytes(self) -> int:
        return self.tile.rows * self.tile.columns * self.size

    def _column_bytes(self) -> Value:
        """Bytes of a level's tiles below each other in one panel of columns."""
        panels = self.f.binary("udiv", self.arg("m_block"), i64(self.tile.rows))
        return self.f.mul(panels, self._tile_bytes())

    def _levels(self, rows: _Rows, panel: Value) -> Value:
        """Level 0 of the panel's topmost tile of these rows."""
        f = self.f
        first = f.mul(f.binary("udiv", rows.start, i64(self.tile.rows)), self._tile_bytes())
        return f.offset(self.region("levels"), f.add(f.mul(panel, self._column_bytes()), first))

    def _wide_row(self, rows: _Rows, panel: Value) -> None:
        f, mine = self.f, self._levels(rows, panel)
        out, apart = self._target(mine), f.select(self.is_last, i64(self._tile_bytes()), self._column_bytes())
        unused = out
        places = [rows.packed, *self._direct(rows, panel), self._column_bytes(), apart, unused]
        f.call_void("wide_row", [*places, *self._tree(mine, out)])
        with f.when(self.is_last), f.loop(0, WIDE_PANELS) as j:
            finished = f.offset(out, f.mul(j, self._tile_bytes()))
            self._epilogue(finished, rows.start, f.mul(f.add(panel, j), self.tile.columns), i64(1))

    def _dot_row(self, rows: _Rows, panel: Value) -> None:
        f, mine = self.f, self._levels(rows, panel)
        out = self._target(mine)
        f.call_void("dot_row", [rows.packed, *self._direct(rows, panel), *self._tree(mine, out)])
        with f.when(self.is_last):
            self._epilogue(out, rows.start, f.mul(panel, self.tile.columns), i64(1))

    def _direct(self, rows: _Rows, panel: Value) -> list[Value]:
        """Where a direct tile finds rhs: base, columns, ks, count."""
        columns = word(self.f, self.region("rn"), self.f.mul(panel, self.tile.columns))
        return [self.rhs, columns, self._k_table("rhs"), rows.depth]

    def _target(self, mine: Value) -> Value:
        """Where a tile goes: to the epilogue, or to the level it closes."""
        return self.f.select(self.is_last, self.region("tile"), self.f.offset(mine, self.level))

    def _tree(self, mine: Value, out: Value) -> list[Value]:
        return [self.merge, mine, self.arg("level_bytes"), out]

    def _panel(self, rows: _Rows, panel: Value) -> None:
        """One panel of columns: packed when first met, by itself or by the topmost tile, then all other tiles."""
        f, tile = self.f, self.tile
        n = f.mul(panel, tile.columns)
        right = f.offset(self.region("rhs"), f.mul(n, CHUNK * self.size))
        new, direct = f.compare("eq", rows.start, 0), self._neighbours(panel, 1)
        with f.when(f.binary("and", new, f.binary("xor", direct, Value("true", "i1")))):
            columns, ks = word(f, self.region("rn"), n), self._k_table("rhs")
            f.call_void("pack_rhs", [right, self.rhs, columns, ks, self._k_runs("rhs"), rows.depth])
        packs, levels = f.binary("and", new, direct), self._levels(rows, panel)
        with f.loop(0, self._panels(rows.count, tile.rows)) as i:
            left = f.offset(rows.packed, f.mul(i, CHUNK * tile.rows * self.size))
            mine, below = f.offset(levels, f.mul(i, self._tile_bytes())), f.mul(i, tile.rows)
            out, height = self._target(mine), f.minimum(f.sub(rows.count, below), tile.rows)
            tree = self._tree(mine, out)
            fresh = f.binary("and", packs, f.compare("eq", i, 0))
            direct_args = [left, *self._direct(rows, panel), i64(0), i64(0), right, *tree]
            packed_args = [left, right, rows.depth, *tree]
            self._tile(fresh, height, direct_args, packed_args)
            with f.when(self.is_last):
                self._epilogue(out, f.add(rows.start, below), n, height)

    def _epilogue(self, finished: Value, m: Value, n: Value, height: Value) -> None:
        width = self.f.minimum(self.f.sub(self.columns, n), self.tile.columns)
        self.f.call_void("epilogue", [finished, m, n, height, width, self.described])

    def _tile(self, fresh: Value, height: Value, direct_args: list[Value], packed_args: list[Value]) -> None:
        """The packing tile if this panel is `fresh`, else a plain one."""
        f = self.f
        f.either(fresh, lambda: f.call_void("packing_tile", direct_args), lambda: self._call_tile(height, packed_args))

    def _call_tile(self, height: Value, args: list[Value]) -> None:
        """The variant with the fewest rows that cover `height`."""

        def choose(variants: tuple[int, ...]) -> None:
            if len(variants) == 1:
                self.f.call_void(f"tile{variants[0]}", args)
                return
            here, rest = variants[0], variants[1:]
            needed = self.f.compare("sgt", height, rest[0])
            self.f.either(needed, lambda: self.f.call_void(f"tile{here}", args), lambda: choose(rest))

        choose(self.tile.variants)


@dataclass(frozen=True)
class _Rows:
    """Packed rows of lhs, from row `start` of the task, `count` of them, `depth` k deep."""

    packed: Value
    start: Value
    count: Value
    depth: Value
