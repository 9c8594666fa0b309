"""The epilogue of a contraction: expressions on a finished tile, vectorised along n, stored where the operands lie."""

from __future__ import annotations

from isobit.codegen.contraction_plan import Tile
from isobit.codegen.contraction_text import Body
from isobit.ir.kernel import Contraction, Temp


def epilogue_function(c: Contraction, tile: Tile, scalar: str, size: int) -> str:
    """`epilogue(tile, rows, columns, bases, tables)`: stores of one tile."""
    if len(c.stores) != 1 or not isinstance(c.stores[0].value, Temp):
        raise NotImplementedError("only the plain store")
    body = Body()
    kind = f"<{tile.lanes} x {scalar}>"
    base = body.load("ptr", "%bases", 8)
    mt = body.load("ptr", body.at("%tables", 0), 8)
    nt = body.load("ptr", body.at("%tables", 8), 8)
    rt = body.load("ptr", body.at("%tables", 16), 8)
    mt, nt = body.word(mt, "%m"), body.word(nt, "%n")
    rt = body.at(rt, body.let(f"udiv i64 %n, {tile.lanes}"))
    with body.loop("%rows") as r:
        row = body.at(base, body.load_word(mt, r))
        src = body.at("%tile", body.mul(r, tile.columns * size))
        with body.loop("%columns", step=tile.lanes) as col:
            at = body.at(src, body.mul(col, size))
            x = body.load(kind, at, size)
            x = body.let(f"fadd {kind} {x}, zeroinitializer")
            left = body.least(body.sub("%columns", col), tile.lanes)
            flag = body.let(f"icmp ne i8 {body.load('i8', body.at(rt, body.let(f'udiv i64 {col}, {tile.lanes}')), 1)}, 0")
            full = body.let(f"icmp eq i64 {left}, {tile.lanes}")
            with body.either(body.let(f"and i1 {flag}, {full}")) as other:
                body.store(kind, x, body.at(row, body.load_word(nt, col)), size)
                with other:
                    body.store(kind, x, at, size)
                    with body.loop(left) as j:
                        v = body.load(scalar, body.at(at, body.mul(j, size)), size)
                        body.store(scalar, v, body.at(row, body.load_word(nt, body.add(col, j))), size)
    return body.function("epilogue", ("ptr %tile", "i64 %m", "i64 %n", "i64 %rows", "i64 %columns", "ptr %bases", "ptr %tables"), "noinline nounwind")
