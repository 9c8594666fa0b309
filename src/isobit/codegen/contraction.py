"""Contractions to LLVM IR: Σ_k lhs[b, m, k]·rhs[b, k, n] in the order of ARITHMETIC.md §4, then an epilogue.

One kernel serves matrix products, batches of them, convolution and its gradients: every operand's address is a sum of
one term per index class, so packing needs nothing but tables of offsets. Sizes, strides and blocking are arguments.
"""

from __future__ import annotations

import hashlib

from isobit.arithmetic.dtypes import DType
from isobit.codegen.contraction_epilogue import epilogue_function
from isobit.codegen.contraction_pack import offsets_function, pack_function, runs_function
from isobit.codegen.contraction_plan import (
    CHUNK,
    MAX_AXES,
    Arguments,
    Tile,
    contraction_args,
    contraction_needs,
    tile_for,
)
from isobit.codegen.contraction_text import Body
from isobit.codegen.contraction_tile import MultiplyAdd, tile_function
from isobit.codegen.kernel import KernelSource
from isobit.codegen.target import Target
from isobit.ir.kernel import Contraction

__all__ = ["contraction_args", "contraction_needs", "lower_contraction"]

_SCALARS = {DType.F32: "float", DType.F64: "double"}


def lower_contraction(c: Contraction, target: Target) -> tuple[KernelSource, ...]:
    """The kernels of a contraction, in launch order; `contraction_args` makes their argument arrays.

    Raises NotImplementedError for dtypes other than f32 and f64, and for more axes in a class than the tables hold.
    """
    if c.dtype not in _SCALARS:
        raise NotImplementedError(f"contraction in {c.dtype}: only f32 and f64 are accumulated here")
    if max(c.n_axes) > MAX_AXES:
        raise NotImplementedError(f"contraction over {c.n_axes} axes: at most {MAX_AXES} in each of b, m, n, k")
    scalar, tile = _SCALARS[c.dtype], tile_for(c.dtype, target)
    multiply_add = _multiply_add(scalar, tile)
    size = c.dtype.itemsize
    parts = [
        f"declare {_vector(scalar, tile)} @{_fma(scalar, tile)}({', '.join([_vector(scalar, tile)] * 3)})\n",
        "declare i64 @llvm.cttz.i64(i64, i1)\n",
        offsets_function(),
        runs_function(tile.lanes),
        pack_function("pack_lhs", tile.rows, tile.lanes, scalar, size),
        pack_function("pack_rhs", tile.columns, tile.lanes, scalar, size),
        *(tile_function(f"tile{r}", r, tile, scalar, size, multiply_add) for r in tile.variants),
        epilogue_function(c, tile, scalar, size),
        _Driver(c, tile).text("SYMBOL"),
    ]
    text = "\n".join(parts)
    symbol = "contraction_" + hashlib.sha256(text.encode()).hexdigest()[:16]
    return (KernelSource(symbol, text.replace("@SYMBOL(", f"@{symbol}(")),)


def _vector(scalar: str, tile: Tile) -> str:
    return f"<{tile.lanes} x {scalar}>"


def _fma(scalar: str, tile: Tile) -> str:
    return f"llvm.fma.v{tile.lanes}{'f32' if scalar == 'float' else 'f64'}"


def _multiply_add(scalar: str, tile: Tile) -> MultiplyAdd:
    kind = _vector(scalar, tile)

    def emit(body: Body, a: str, b: str, c: str) -> str:
        return body.let(f"call {kind} @{_fma(scalar, tile)}({kind} {a}, {kind} {b}, {kind} {c})")

    return emit


class _Driver:
    """Emits the entry point: the loop over this thread's tasks, and a task's loops over chunks and panels."""

    def __init__(self, c: Contraction, tile: Tile) -> None:
        self.c, self.tile, self.size = c, tile, c.dtype.itemsize
        self.arguments, self.body = Arguments(c), Body()
        self.tables = self._table_names()

    def _table_names(self) -> list[tuple[str, list[str]]]:
        """(name, its regions) of everything the epilogue addresses: operands, then linears."""
        named = [f"op{i}" for i in range(len(self.c.operands))] + [f"linear{i}" for i in range(len(self.c.linears))]
        return [(name, [f"{name}.{part}" for part in ("m", "n", "runs")]) for name in named]

    def text(self, symbol: str) -> str:
        body = self.body
        self._scratch_base()
        self.bases = body.alloca(f"[{max(1, len(self.tables))} x i64]")
        self.table_pointers = body.alloca(f"[{max(1, 3 * len(self.tables))} x ptr]")
        for i, (_, regions) in enumerate(self.tables):
            for j, region in enumerate(regions):
                body.store("ptr", self.region(region), body.word(self.table_pointers, 3 * i + j), 8)
        tasks = self.arg("tasks")
        first, last = self._share(tasks, "%tid"), self._share(tasks, body.add("%tid", 1))
        with body.loop(last, start=first) as task:
            self._task(task)
        parameters = ("ptr %slots", "ptr %args", "i64 %tid", "i64 %nthreads")
        return body.function(symbol, parameters, "nounwind", linkage="")

    def arg(self, name: str) -> str:
        return self.body.load_word("%args", self.arguments.index[name])

    def pointer(self, name: str) -> str:
        """Address of the argument `name`."""
        return self.body.word("%args", self.arguments.index[name])

    def region(self, name: str) -> str:
        return self.body.at(self.scratch, self.arg(f"at.{name}"))

    def _slot(self, name: str) -> str:
        address = self.body.load_word("%slots", self.arg(f"{name}.slot"))
        return self.body.let(f"inttoptr i64 {self.body.add(address, self.arg(f'{name}.offset'))} to ptr")

    def _scratch_base(self) -> None:
        base = self._slot("scratch")
        self.scratch = self.body.at(base, self.body.mul("%tid", self.arg("scratch.stride")))

    def _share(self, tasks: str, tid: str) -> str:
        return self.body.let(f"udiv i64 {self.body.mul(tasks, tid)}, %nthreads")

    def _task(self, task: str) -> None:
        body = self.body
        m_tasks, n_tasks = self.arg("m_tasks"), self.arg("n_tasks")
        column = body.let(f"urem i64 {task}, {n_tasks}")
        rest = body.let(f"udiv i64 {task}, {n_tasks}")
        row = body.let(f"urem i64 {rest}, {m_tasks}")
        self.b = body.let(f"udiv i64 {rest}, {m_tasks}")
        self.m0, self.rows = self._range("m", row)
        self.n0, self.columns = self._range("n", column)
        self.padded_columns = body.mul(body.ceil_div(self.columns, self.tile.columns), self.tile.columns)
        self._operand_tables()
        self._epilogue_tables()
        with body.loop(self.arg("chunks")) as chunk:
            self._chunk(chunk)

    def _range(self, axis: str, part: str) -> tuple[str, str]:
        """Start and length of a task's part of m or n."""
        block = self.arg(f"{axis}_block")
        start = self.body.mul(part, block)
        return start, self.body.least(self.body.sub(self.arg(axis), start), block)

    def _offsets(self, out: str, start: str, count: str, padded: str, axis: str, strides: str) -> None:
        n = self.arguments.counts["bmnk".index(axis)]
        sizes = self.pointer(f"size.{axis}0")
        self.body.do(
            f"call void @offsets(ptr {out}, i64 {start}, i64 {count}, i64 {padded}, ptr {sizes}, "
            f"ptr {self.pointer(f'{strides}.{axis}0')}, i64 {n})"
        )

    def _batch_offset(self, strides: str) -> str:
        cell = self.body.alloca("i64")
        self._offsets(cell, self.b, "1", "1", "b", strides)
        return self.body.load("i64", cell, 8)

    def _m_table(self, out: str, strides: str) -> None:
        padded = self.body.mul(self.body.ceil_div(self.rows, self.tile.rows), self.tile.rows)
        self._offsets(out, self.m0, self.rows, padded, "m", strides)

    def _n_table(self, out: str, strides: str) -> None:
        self._offsets(out, self.n0, self.columns, self.padded_columns, "n", strides)

    def _runs(self, table: str, count: str, step: int, flags: str) -> None:
        groups = self.body.let(f"udiv i64 {count}, {self.tile.lanes}")
        self.body.do(f"call void @runs(ptr {table}, i64 {groups}, i64 {step}, ptr {flags})")

    def _operand_tables(self) -> None:
        self.lhs = self.body.at(self._slot("lhs"), self._batch_offset("lhs"))
        self.rhs = self.body.at(self._slot("rhs"), self._batch_offset("rhs"))
        self._m_table(self.region("lm"), "lhs")
        self._n_table(self.region("rn"), "rhs")

    def _epilogue_tables(self) -> None:
        body = self.body
        for i, (name, (m_table, n_table, flags)) in enumerate(self.tables):
            is_operand = i < len(self.c.operands)
            start = body.let(f"ptrtoint ptr {self._slot(name)} to i64") if is_operand else self.arg(f"{name}.offset")
            body.store("i64", body.add(start, self._batch_offset(name)), body.word(self.bases, i), 8)
            self._m_table(self.region(m_table), name)
            self._n_table(self.region(n_table), name)
            step = self.c.operands[i].dtype.itemsize if is_operand else 1
            self._runs(self.region(n_table), self.padded_columns, step, self.region(flags))

    def _chunk(self, chunk: str) -> None:
        body = self.body
        k0 = body.mul(chunk, CHUNK)
        count = body.least(body.sub(self.arg("k"), k0), CHUNK)
        for side in ("lhs", "rhs"):
            table = self.region(f"{side[0]}k")
            self._offsets(table, k0, count, count, "k", side)
            self._runs(table, count, self.size, self.region(f"{side[0]}k.runs"))
        self._pack("rhs", "0", self.columns, self.region("rn"), count)
        merge, target, is_last = self._place_in_tree(chunk)
        with body.loop(self.rows, step=self.arg("m_cache")) as m:
            rows = body.least(body.sub(self.rows, m), self.arg("m_cache"))
            self._pack("lhs", m, rows, self.region("lm"), count)
            self._tiles(m, rows, count, merge, target, is_last)

    def _pack(self, side: str, start: str, count: str, columns: str, depth: str) -> None:
        body = self.body
        width = self.tile.rows if side == "lhs" else self.tile.columns
        panel_bytes, base = CHUNK * width * self.size, self.lhs if side == "lhs" else self.rhs
        with body.loop(body.ceil_div(count, width)) as panel:
            out = body.at(self.region(side), body.mul(panel, panel_bytes))
            these = body.word(columns, body.add(body.mul(panel, width), start))
            body.do(
                f"call void @pack_{side}(ptr {out}, ptr {base}, ptr {these}, ptr {self.region(side[0] + 'k')}, "
                f"ptr {self.region(side[0] + 'k.runs')}, i64 {depth})"
            )

    def _place_in_tree(self, chunk: str) -> tuple[str, str, str]:
        """(levels to merge, offset of the level to write, is it the last chunk?).

        An inner chunk i closes the subtrees of its trailing ones; the last one also takes what is left over, from
        small to large, which is every set bit of i.
        """
        body = self.body
        is_last = body.let(f"icmp eq i64 {body.add(chunk, 1)}, {self.arg('chunks')}")
        closed = body.let(f"and i64 {chunk}, {body.let(f'xor i64 {body.add(chunk, 1)}, -1')}")
        level = body.let(f"call i64 @llvm.cttz.i64(i64 {body.add(chunk, 1)}, i1 false)")
        merge = body.let(f"select i1 {is_last}, i64 {chunk}, i64 {closed}")
        return merge, body.mul(level, self.arg("level_bytes")), is_last

    def _tiles(self, m: str, rows: str, depth: str, merge: str, target: str, is_last: str) -> None:
        body, tile, size = self.body, self.tile, self.size
        tile_bytes = tile.rows * tile.columns * size
        panels = body.let(f"udiv i64 {self.arg('m_block')}, {tile.rows}")
        first_panel = body.let(f"udiv i64 {m}, {tile.rows}")
        with body.loop(self.columns, step=tile.columns) as n:
            column_panel = body.let(f"udiv i64 {n}, {tile.columns}")
            right = body.at(self.region("rhs"), body.mul(n, CHUNK * size))
            with body.loop(rows, step=tile.rows) as i:
                row_panel = body.add(first_panel, body.let(f"udiv i64 {i}, {tile.rows}"))
                number = body.add(body.mul(column_panel, panels), row_panel)
                levels = body.at(self.region("levels"), body.mul(number, tile_bytes))
                left = body.at(self.region("lhs"), body.mul(i, CHUNK * size))
                inner = body.at(levels, target)
                out = body.let(f"select i1 {is_last}, ptr {self.region('tile')}, ptr {inner}")
                height = body.least(body.sub(rows, i), tile.rows)
                self._call_tile(height, f"ptr {left}, ptr {right}, i64 {depth}, i64 {merge}, ptr {levels}", out)
                with body.when(is_last):
                    width = body.least(body.sub(self.columns, n), tile.columns)
                    body.do(
                        f"call void @epilogue(ptr {out}, i64 {body.add(m, i)}, i64 {n}, i64 {height}, i64 {width}, "
                        f"ptr {self.bases}, ptr {self.table_pointers})"
                    )

    def _call_tile(self, height: str, operands: str, out: str) -> None:
        """The variant with the fewest rows that cover `height`."""
        body = self.body
        function = f"@tile{self.tile.variants[0]}"
        for rows in self.tile.variants[1:]:
            fits = body.let(f"icmp sle i64 {height}, {rows}")
            function = body.let(f"select i1 {fits}, ptr @tile{rows}, ptr {function}")
        body.do(f"call void {function}({operands}, i64 {self.arg('level_bytes')}, ptr {out})")
