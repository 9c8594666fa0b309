"""The epilogue of a contraction: expressions on a finished tile, vectorised along n, stored where the operands lie.

Columns that are neighbours in memory for every operand go by whole vectors; others, and the last few of a row, lane by
lane through the offset tables. What does not depend on the row is computed once for all rows of the tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from isobit.codegen.contraction_pack import finish, read, word
from isobit.codegen.contraction_plan import Tile
from isobit.codegen.emit import Builder, Module, Value, i64, zero
from isobit.codegen.expr import Evaluator, Numbering, children
from isobit.codegen.memory import Memory, Moving
from isobit.ir.expr import Expr
from isobit.ir.kernel import Contraction, Fetch, Position, Step, Temp

TABLE_WORDS = 4
"""Words that describe one operand or linear to the epilogue: base, m table, n table, run flags of the n table."""


def described_words(c: Contraction) -> int:
    """Length of the epilogue's description: the tables, then a bound per guard, then (stride, extent) per dynamic."""
    return TABLE_WORDS * (len(c.operands) + len(c.linears)) + len(c.guards) + 2 * c.n_dynamic


def define_epilogue(module: Module, c: Contraction, tile: Tile, element: str, size: int) -> None:
    """`epilogue(tile, m, n, rows, columns, tables)`: the stores of the tile at (m, n) of the task.

    `tables` holds TABLE_WORDS words for each operand, then for each linear; then what `described_words` tells.
    """
    numbers = [("i64", n) for n in ("m", "n", "rows", "columns")]
    f = Builder(module, "epilogue", "void", [("ptr", "tile"), *numbers, ("ptr", "tables")])
    epilogue = _Epilogue(f, c, tile, element, size)
    columns = f.params[4]
    with f.loop(0, columns, tile.lanes) as column:
        epilogue.columns(column, f.minimum(f.sub(columns, column), tile.lanes))
    module.define("epilogue", finish(f))


class _Epilogue:
    """Emits the stores of `lanes` columns of all rows of a tile."""

    def __init__(self, f: Builder, c: Contraction, tile: Tile, element: str, size: int) -> None:
        self.f, self.c, self.tile, self.element, self.size = f, c, tile, element, size
        self.numbering = Numbering()
        self.invariant: dict[int, bool] = {}
        self.dummy = f.alloca("i64", 8)
        tables = range(len(c.operands) + len(c.linears))
        self.tables = [_Table.load(f, index) for index in tables]  # here, as no store can change them: LLVM cannot know

    def columns(self, column: Value, left: Value) -> None:
        """`left` columns from `column` on."""
        f, at = self.f, f_add(self.f, "%n", column)
        wide = f.compare("eq", left, self.tile.lanes)
        group = f.binary("udiv", at, i64(self.tile.lanes))
        for i, operand in enumerate(self.c.operands):
            if not _Place.is_still(self.c, operand.steps, "n"):
                flag = f.load(f.offset(self.tables[i].runs, group), "i8")
                wide = f.binary("and", wide, f.compare("ne", flag, 0))
        f.either(wide, lambda: self._rows(column, at, None), lambda: self._rows(column, at, left))

    def _rows(self, column: Value, at: Value, left: Value | None) -> None:
        f = self.f
        memory = Memory(f, self.tile.lanes, self.dummy, left)
        tables = [self._at_column(i, table, at, left) for i, table in enumerate(self.tables)]
        shared = Evaluator(f, _Place(f, self.c, memory, tables), self.numbering, known=self._row_invariant)
        shared.prepare(store.value for store in self.c.stores)
        with f.loop(0, f.params[3]) as row:
            held = f.offset(f.params[0], f.mul(f.add(f.mul(row, self.tile.columns), column), self.size))
            total = f.load(held, self.element, self.tile.lanes)
            place = _Place(f, self.c, memory, tables, f_add(f, "%m", row))
            place.total = f.binary("fadd", total, zero(self.element, self.tile.lanes))
            here = Evaluator(f, place, self.numbering, shared)
            values = [here.vector(store.value) for store in self.c.stores]  # before any store: one may be in place
            for store, value in zip(self.c.stores, values, strict=True):
                memory.store(value, place.operand(store.target), self.c.operands[store.target].dtype)

    def _at_column(self, index: int, table: _Table, column: Value, left: Value | None) -> _Table:
        """The table with `base` at the first column of a whole vector, or with the offsets of each lane's column."""
        f, operands = self.f, self.c.operands
        steps = operands[index].steps if index < len(operands) else self.c.linears[index - len(operands)].steps
        if _Place.is_still(self.c, steps, "n"):
            return table
        if left is None and index < len(operands):
            return replace(table, base=f.add(table.base, read(f, table.n, column)))
        return replace(table, lanes=f.load(word(f, table.n, column), "i64", self.tile.lanes))

    def _row_invariant(self, e: Expr) -> bool:
        """Whether `e` is the same in all rows of a tile."""
        number = self.numbering(e)
        if number not in self.invariant:
            self.invariant[number] = self._is_row_invariant(e)
        return self.invariant[number]

    def _is_row_invariant(self, e: Expr) -> bool:
        if isinstance(e, Temp):
            return False
        if isinstance(e, Position):
            return self._linear_still(e.linear)
        if isinstance(e, Fetch):
            still = _Place.is_still(self.c, self.c.operands[e.operand].steps, "m")
            if not still or not all(self._linear_still(self.c.guards[g]) for g in e.guards):
                return False
        return all(self._row_invariant(child) for child in children(e))

    def _linear_still(self, linear: int) -> bool:
        return _Place.is_still(self.c, self.c.linears[linear].steps, "m")


def f_add(f: Builder, name: str, offset: Value) -> Value:
    """A parameter plus an offset."""
    return f.add(Value(name, "i64"), offset)


@dataclass(frozen=True)
class _Table:
    """One operand or linear: `base` (i64) + m[row] + the columns' offsets, which are `lanes` if they are irregular."""

    base: Value
    m: Value
    n: Value
    runs: Value
    lanes: Value | None = None

    @staticmethod
    def load(f: Builder, index: int) -> _Table:
        words = [word(f, Value("%tables", "ptr"), TABLE_WORDS * index + field) for field in range(TABLE_WORDS)]
        return _Table(f.load(words[0], "i64"), *(f.load(w, "ptr") for w in words[1:]))


class _Place:
    """The frame of the epilogue's expressions: a column group, in a row or (row None) for what all rows share."""

    def __init__(
        self, f: Builder, c: Contraction, memory: Memory, tables: Sequence[_Table], row: Value | None = None
    ) -> None:
        self.f, self.c, self.memory, self.tables, self.at_row = f, c, memory, tables, row
        self.total: Value | None = None

    @staticmethod
    def is_still(c: Contraction, steps: Sequence[Step], axis: str) -> bool:
        """Whether no axis of class m or n moves along these steps."""
        b, m, _, _ = c.n_axes
        part = steps[b : b + m] if axis == "m" else steps[b + m :]
        return all(step == "0" for step in part)

    def operand(self, index: int) -> Moving:
        """Address of the element at this place."""
        f, steps, table = self.f, self.c.operands[index].steps, self.tables[index]
        start = f.emit(f"inttoptr i64 {self._start(table, steps).ref} to ptr", "ptr")
        if table.lanes is not None:
            return Moving(start, "s", table.lanes)
        return Moving(start, "0" if self.is_still(self.c, steps, "n") else "1")

    def linear(self, index: int) -> Moving:
        """Value of a linear at this place."""
        steps, table = self.c.linears[index].steps, self.tables[len(self.c.operands) + index]
        return Moving(self._start(table, steps), "0" if table.lanes is None else "s", table.lanes)

    def _start(self, table: _Table, steps: Sequence[Step]) -> Value:
        """Base plus the row's offset, i64."""
        if self.at_row is None or self.is_still(self.c, steps, "m"):
            return table.base
        return self.f.add(table.base, read(self.f, table.m, self.at_row))

    def guard(self, index: int) -> tuple[Moving, Value]:
        """The guarded linear and its bound."""
        return self.linear(self.c.guards[index]), self._number(index)

    def dynamic(self, index: int) -> tuple[Value, Value]:
        """Byte stride and extent of a data-dependent index."""
        first = len(self.c.guards) + 2 * index
        return self._number(first), self._number(first + 1)

    def _number(self, index: int) -> Value:
        first = TABLE_WORDS * (len(self.c.operands) + len(self.c.linears))
        return read(self.f, Value("%tables", "ptr"), first + index)

    def temp(self, index: int) -> Value:
        """The contraction's result."""
        if index != 0 or self.total is None:
            raise TypeError(f"an epilogue has one temporary, Temp(0), in a row; not Temp({index})")
        return self.total

    def row(self, index: int) -> Moving:
        """Row buffers belong to nests."""
        raise TypeError("a contraction has no row buffers")
