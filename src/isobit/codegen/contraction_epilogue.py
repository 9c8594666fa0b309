"""The epilogue of a contraction: expressions on a finished tile, vectorised along n, stored where the operands lie."""

from __future__ import annotations

from collections.abc import Sequence

from isobit.codegen.contraction_pack import finish, read, word
from isobit.codegen.contraction_plan import Tile
from isobit.codegen.convert import from_memory, memory_element, to_memory
from isobit.codegen.emit import Builder, Module, Value, i64, vector, zero
from isobit.codegen.vector import literal, operation
from isobit.ir.expr import Const, Expr, Op
from isobit.ir.kernel import Contraction, Fetch, Position, Step, Store, Temp

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
    held, _, _, rows, columns, _ = f.params
    epilogue = _Epilogue(f, c, tile)
    with f.loop(0, columns, tile.lanes) as column:
        epilogue.at_column(column, f.minimum(f.sub(columns, column), tile.lanes))
        with f.loop(0, rows) as row:
            place = f.add(f.mul(row, tile.columns), column)
            total = f.load(f.offset(held, f.mul(place, size)), element, tile.lanes)
            epilogue.at_row(row, f.binary("fadd", total, zero(element, tile.lanes)))
    module.define("epilogue", finish(f, small=False))


class _Epilogue:
    """Emits fetches, expressions and stores of `lanes` columns of one row."""

    def __init__(self, f: Builder, c: Contraction, tile: Tile) -> None:
        self.f, self.c, self.lanes = f, c, tile.lanes
        self.m, self.n, self.tables = f.params[1], f.params[2], f.params[5]
        self.uniform = [self._is_uniform(operand.steps) for operand in c.operands]
        self.temp = self.left = self.wide = self.column = zero("i64")
        self.rows: list[Value] = []
        self.done: dict[Expr, Value] = {}

    def _is_uniform(self, steps: Sequence[Step]) -> bool:
        b, m, _, _ = self.c.n_axes
        return all(step == "0" for step in steps[b + m :])

    def _entry(self, table: int, field: int) -> Value:
        return self.f.load(self.f.offset(self.tables, 8 * (TABLE_WORDS * table + field)), "i64")

    def _pointer(self, table: int, field: int) -> Value:
        return self.f.emit(f"inttoptr i64 {self._entry(table, field).ref} to ptr", "ptr")

    def at_column(self, column: Value, left: Value) -> None:
        """Columns column … column + left; `wide` says that whole vectors can be moved."""
        f = self.f
        self.column, self.left = f.add(self.n, column), left
        self.wide = f.compare("eq", left, self.lanes)
        group = f.binary("udiv", self.column, i64(self.lanes))
        for i, uniform in enumerate(self.uniform):
            if not uniform:
                flag = f.load(f.offset(self._pointer(i, 3), group), "i8")
                self.wide = f.binary("and", self.wide, f.compare("ne", flag, 0))

    def at_row(self, row: Value, temp: Value) -> None:
        """All stores of one row of these columns."""
        f, self.temp, self.done = self.f, temp, {}
        at = f.add(self.m, row)
        n_tables = len(self.c.operands) + len(self.c.linears)
        self.rows = [f.add(self._entry(i, 0), read(f, self._pointer(i, 1), at)) for i in range(n_tables)]
        for store in self.c.stores:
            self._store(store)

    def _evaluate(self, e: Expr) -> Value:
        """`e` on all lanes; a node that occurs more than once is computed once."""
        if e not in self.done:
            self.done[e] = self._compute(e)
        return self.done[e]

    def _compute(self, e: Expr) -> Value:
        if isinstance(e, Temp):
            return self.temp
        if isinstance(e, Const):
            return literal(e.value, e.dtype, self.lanes)
        if isinstance(e, Position):
            return self._position(e.linear)
        if isinstance(e, Fetch):
            return self._fetch(e)
        if isinstance(e, Op):
            args = [self._evaluate(a) for a in e.args]
            return operation(self.f, e.name, e.dtype, args, e.args[-1].dtype)
        raise TypeError(f"{type(e).__name__} has no meaning in the epilogue of a contraction")

    def _position(self, linear: int) -> Value:
        table = len(self.c.operands) + linear
        across = self.f.load(word(self.f, self._pointer(table, 2), self.column), "i64", self.lanes)
        return self.f.add(across, self.f.splat(self.rows[table], self.lanes))

    def _place(self, table: int, column: Value) -> Value:
        """Address of an operand's element, or value of a linear, at this row and a column."""
        return self.f.add(self.rows[table], read(self.f, self._pointer(table, 2), column))

    def _address(self, operand: int, column: Value) -> Value:
        return self.f.emit(f"inttoptr i64 {self._place(operand, column).ref} to ptr", "ptr")

    def _fetch(self, e: Fetch) -> Value:
        dtype = self.c.operands[e.operand].dtype
        kind = memory_element(dtype)
        if e.guards or e.dynamic:
            return self._guarded(e, kind)
        if self.uniform[e.operand]:
            value = from_memory(self.f, self.f.load(self._address(e.operand, self.column), kind), dtype)
            return self.f.splat(value, self.lanes)
        return from_memory(self.f, self._across(e.operand, kind), dtype)

    def _across(self, operand: int, kind: str) -> Value:
        """The elements at this row's columns: one load, or where they do not lie side by side one for each."""
        f = self.f

        def together() -> Value:
            return f.load(self._address(operand, self.column), kind, self.lanes)

        def singly() -> Value:
            cell = self._cell(kind)
            with f.loop(0, self.left) as j:
                f.store(f.load(self._address(operand, f.add(self.column, j)), kind), _lane(f, cell, j, kind))
            return f.load(cell, kind, self.lanes)

        return f.choose(self.wide, together, singly)

    def _cell(self, kind: str) -> Value:
        """Stack memory for a vector, every lane defined."""
        cell = self.f.alloca(vector(kind, self.lanes))
        self.f.store(zero(kind, self.lanes), cell)
        return cell

    def _guarded(self, e: Fetch, kind: str) -> Value:
        """Lane by lane: the element where all guards and data-dependent positions are in range, else the fill."""
        f, dtype = self.f, self.c.operands[e.operand].dtype
        fill = literal(e.fill.value if e.fill else 0, e.dtype)
        cell, positions = self._cell(kind), [(self._spilled(p), d) for p, d in e.dynamic]
        with f.loop(0, self.left) as j:
            column, to = f.add(self.column, j), _lane(f, cell, j, kind)
            inside, address = self._inside(e, positions, column, j)
            f.store(to_memory(f, fill, dtype), to)
            with f.when(inside):
                f.store(f.load(f.emit(f"inttoptr i64 {address.ref} to ptr", "ptr"), kind), to)
        return from_memory(f, f.load(cell, kind, self.lanes), dtype)

    def _spilled(self, position: Expr) -> Value:
        cell = self._cell("i64")
        self.f.store(self._evaluate(position), cell)
        return cell

    def _inside(
        self, e: Fetch, positions: Sequence[tuple[Value, int]], column: Value, j: Value
    ) -> tuple[Value, Value]:
        """(whether the element exists, its address as i64)."""
        f, inside, address = self.f, Value("true", "i1"), self._place(e.operand, column)
        for guard in e.guards:
            here = self._place(len(self.c.operands) + self.c.guards[guard], column)
            inside = f.binary("and", inside, f.compare("ult", here, self._bound(guard)))
        for cell, dynamic in positions:
            at = f.load(_lane(f, cell, j, "i64"), "i64")
            stride, extent = (self._bound(len(self.c.guards) + 2 * dynamic + part) for part in (0, 1))
            inside = f.binary("and", inside, f.compare("ult", at, extent))
            address = f.add(address, f.mul(at, stride))
        return inside, address

    def _bound(self, index: int) -> Value:
        first = TABLE_WORDS * (len(self.c.operands) + len(self.c.linears))
        return read(self.f, self.tables, first + index)

    def _store(self, store: Store) -> None:
        f, dtype = self.f, self.c.operands[store.target].dtype
        if store.row:
            raise TypeError("a row buffer has no meaning in the epilogue of a contraction")
        value = to_memory(f, self._evaluate(store.value), dtype)

        def singly() -> None:
            cell = f.alloca(vector(value.element, self.lanes))
            f.store(value, cell)
            with f.loop(0, self.left) as j:
                one = f.load(_lane(f, cell, j, value.element), value.element)
                f.store(one, self._address(store.target, f.add(self.column, j)))

        f.either(self.wide, lambda: f.store(value, self._address(store.target, self.column)), singly)


def _lane(f: Builder, cell: Value, lane: Value, kind: str) -> Value:
    return f.emit(f"getelementptr {kind}, ptr {cell.ref}, i64 {lane.ref}", "ptr")
