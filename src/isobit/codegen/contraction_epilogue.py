"""The epilogue of a contraction: expressions on a finished tile, vectorised along n, stored where the operands lie."""

from __future__ import annotations

from collections.abc import Sequence

from isobit.arithmetic.dtypes import DType
from isobit.codegen.contraction_pack import finish, read, word
from isobit.codegen.contraction_plan import Tile
from isobit.codegen.emit import Builder, Module, Value, const, i64, vector, zero
from isobit.ir.expr import Expr
from isobit.ir.kernel import Contraction, Fetch, Position, Step, Store, Temp

TABLE_WORDS = 4
"""Words that describe one operand or linear to the epilogue: base, m table, n table, run flags of the n table."""

_MEMORY = {
    DType.F32: "float", DType.F64: "double", DType.F16: "i16", DType.BF16: "i16", DType.I64: "i64", DType.I32: "i32",
    DType.I16: "i16", DType.I8: "i8", DType.U8: "i8", DType.BOOL: "i8",
}  # fmt: skip


def define_epilogue(module: Module, c: Contraction, tile: Tile, element: str, size: int) -> None:
    """`epilogue(tile, m, n, rows, columns, tables)`: the stores of the tile at (m, n) of the task.

    `tables` holds TABLE_WORDS words for each operand, then for each linear.
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
        f, self.temp = self.f, temp
        at = f.add(self.m, row)
        n_tables = len(self.c.operands) + len(self.c.linears)
        self.rows = [f.add(self._entry(i, 0), read(f, self._pointer(i, 1), at)) for i in range(n_tables)]
        for store in self.c.stores:
            self._store(store, evaluate(f, store.value, self._leaf))

    def _leaf(self, e: Expr) -> Value:
        if isinstance(e, Temp):
            return self.temp
        if isinstance(e, Position):
            return self._position(e.linear)
        if isinstance(e, Fetch):
            return self._plain(e) if not e.guards and not e.dynamic else self._guarded(e)
        raise TypeError(f"{type(e).__name__} has no meaning in the epilogue of a contraction")

    def _position(self, linear: int) -> Value:
        table = len(self.c.operands) + linear
        across = self.f.load(word(self.f, self._pointer(table, 2), self.column), "i64", self.lanes)
        return self.f.add(across, self.f.splat(self.rows[table], self.lanes))

    def _address(self, operand: int, column: Value) -> Value:
        offset = self.f.add(self.rows[operand], read(self.f, self._pointer(operand, 2), column))
        return self.f.emit(f"inttoptr i64 {offset.ref} to ptr", "ptr")

    def _plain(self, e: Fetch) -> Value:
        f, kind = self.f, _MEMORY[self.c.operands[e.operand].dtype]
        address = self._address(e.operand, self.column)
        if self.uniform[e.operand]:
            return f.splat(f.load(address, kind), self.lanes)

        def singly() -> Value:
            cell = f.alloca(vector(kind, self.lanes))
            with f.loop(0, self.left) as j:
                value = f.load(self._address(e.operand, f.add(self.column, j)), kind)
                f.store(value, _lane(f, cell, j, kind))
            return f.load(cell, kind, self.lanes)

        return f.choose(self.wide, lambda: f.load(address, kind, self.lanes), singly)

    def _guarded(self, e: Fetch) -> Value:
        """Lane by lane: the element where all guards and dynamic positions are in range, else the fill."""
        raise NotImplementedError("guarded and data-dependent fetches in an epilogue")

    def _store(self, store: Store, value: Value) -> None:
        f = self.f
        if store.row:
            raise NotImplementedError("row buffers in the epilogue of a contraction")
        address = self._address(store.target, self.column)

        def singly() -> None:
            cell = f.alloca(vector(value.element, self.lanes))
            f.store(value, cell)
            with f.loop(0, self.left) as j:
                one = f.load(_lane(f, cell, j, value.element), value.element)
                f.store(one, self._address(store.target, f.add(self.column, j)))

        f.either(self.wide, lambda: f.store(value, address), singly)


def _lane(f: Builder, cell: Value, lane: Value, kind: str) -> Value:
    return f.emit(f"getelementptr {kind}, ptr {cell.ref}, i64 {lane.ref}", "ptr")


def evaluate(f: Builder, e: Expr, leaf: object) -> Value:
    if isinstance(e, Temp | Fetch | Position):
        return leaf(e)
    raise NotImplementedError
