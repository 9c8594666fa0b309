"""Packing of a contraction's operands: offset tables over flattened axes, and copies into panels [k][width].

An operand's address is base + column_offset[c] + k_offset[k]. Three ways to copy a sub-panel, chosen at run time from
the offsets: columns that are neighbours in memory (vector copies), k that are neighbours (transposition in registers),
anything else (one by one). Positions past the end repeat the last offset, so that no load leaves the operand; what such
lanes compute is never stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from isobit.codegen.contraction_plan import MAX_AXES
from isobit.codegen.contraction_text import Body, shuffle


def offsets_function() -> str:
    """`offsets(out, start, count, padded, sizes, strides, axes)`: out[c] = Σ index·stride at flat position start + c.

    Positions are row-major over the axes. Entries count..padded repeat the last one. Nothing happens if count is 0.
    """
    body = Body()
    index = body.alloca(f"[{MAX_AXES} x i64]")
    current, done = body.alloca("i64"), body.alloca("i64")
    with body.when(body.let("icmp sgt i64 %count, 0")):
        _start_index(body, index, current)
        body.store("i64", "0", done, 8)
        with body.repeat() as over:
            _emit_run(body, index, current, done)
            body.leave(body.let(f"icmp sge i64 {body.load('i64', done, 8)}, %count"), over)
            _next_row(body, index, current)
        last = body.load_word("%out", body.sub("%count", 1))
        with body.loop("%padded", start="%count") as c:
            body.store("i64", last, body.word("%out", c), 8)
    parameters = ("ptr %out", "i64 %start", "i64 %count", "i64 %padded", "ptr %sizes", "ptr %strides", "i64 %axes")
    return body.function("offsets", parameters, "noinline nounwind")


def _start_index(body: Body, index: str, current: str) -> None:
    rest = body.alloca("i64")
    body.store("i64", "%start", rest, 8)
    body.store("i64", "0", current, 8)
    with body.loop("%axes") as i:
        axis = body.sub(body.sub("%axes", 1), i)
        size, flat = body.load_word("%sizes", axis), body.load("i64", rest, 8)
        quotient = body.let(f"udiv i64 {flat}, {size}")
        here = body.sub(flat, body.mul(quotient, size))
        body.store("i64", here, body.word(index, axis), 8)
        body.store("i64", quotient, rest, 8)
        _bump(body, current, body.mul(here, body.load_word("%strides", axis)))


def _bump(body: Body, cell: str, by: str) -> None:
    body.store("i64", body.add(body.load("i64", cell, 8), by), cell, 8)


def _emit_run(body: Body, index: str, current: str, done: str) -> None:
    """Write the rest of the last axis' row (or what is still wanted of it)."""
    last = body.sub("%axes", 1)
    here, size = body.load_word(index, last), body.load_word("%sizes", last)
    stride, base, at = body.load_word("%strides", last), body.load("i64", current, 8), body.load("i64", done, 8)
    run = body.least(body.sub(size, here), body.sub("%count", at))
    out = body.word("%out", at)
    with body.loop(run) as j:
        body.store("i64", body.add(base, body.mul(j, stride)), body.word(out, j), 8)
    body.store("i64", body.add(at, run), done, 8)
    body.store("i64", body.sub(base, body.mul(here, stride)), current, 8)
    body.store("i64", "0", body.word(index, last), 8)


def _next_row(body: Body, index: str, current: str) -> None:
    """Advance the second-last axis, carrying into those before it."""
    axis = body.alloca("i64")
    body.store("i64", body.sub("%axes", 2), axis, 8)
    with body.repeat() as over:
        a = body.load("i64", axis, 8)
        body.leave(body.let(f"icmp slt i64 {a}, 0"), over)
        stride, size = body.load_word("%strides", a), body.load_word("%sizes", a)
        after = body.add(body.load_word(index, a), 1)
        body.store("i64", after, body.word(index, a), 8)
        _bump(body, current, stride)
        body.leave(body.let(f"icmp slt i64 {after}, {size}"), over)
        body.store("i64", "0", body.word(index, a), 8)
        _bump(body, current, body.let(f"sub i64 0, {body.mul(stride, size)}"))
        body.store("i64", body.sub(a, 1), axis, 8)


def runs_function(lanes: int) -> str:
    """`runs(table, groups, step, flags)`: flags[g] = 1 where a group of `lanes` offsets ascends by `step` throughout."""
    body = Body()
    with body.loop("%groups") as g:
        flag = _ascending(body, body.word("%table", body.mul(g, lanes)), lanes, "%step")
        body.store("i8", body.let(f"zext i1 {flag} to i8"), body.at("%flags", g), 1)
    return body.function("runs", ("ptr %table", "i64 %groups", "i64 %step", "ptr %flags"), "noinline nounwind")


def _ascending(body: Body, table: str, count: int, step: str | int) -> str:
    """i1: do `count` entries of a table ascend by `step`?"""
    before, verdict = body.load_word(table), "true"
    for j in range(1, count):
        here = body.load_word(table, j)
        follows = body.let(f"icmp eq i64 {body.sub(here, before)}, {step}")
        verdict = body.let(f"and i1 {verdict}, {follows}")
        before = here
    return verdict


def pack_function(name: str, width: int, lanes: int, scalar: str, size: int) -> str:
    """`name(out, base, columns, ks, k_runs, count)`: out[k][c] for k < count, c < width, of elements `scalar`."""
    body = Body()
    at = 0
    for part in _parts(width, lanes):
        columns, out = body.word("%columns", at), body.at("%out", at * size)
        pack = _Part(body, columns, out, part, width, lanes, scalar, size)
        with body.either(_ascending(body, columns, part, size)) as other:
            pack.neighbours()
            with other:
                pack.transposed()
        at += part
    parameters = ("ptr noalias %out", "ptr %base", "ptr %columns", "ptr %ks", "ptr %k_runs", "i64 %count")
    return body.function(name, parameters, "noinline nounwind")


def _parts(width: int, lanes: int) -> list[int]:
    """Sub-panels of at most a vector: whole vectors, then what is left."""
    return [lanes] * (width // lanes) + ([width % lanes] if width % lanes else [])


def powers(width: int) -> list[tuple[int, int]]:
    """(position, length) of the powers of two that make up a width, largest first."""
    out, at = [], 0
    for bit in reversed(range(width.bit_length())):
        if width >> bit & 1:
            out.append((at, 1 << bit))
            at += 1 << bit
    return out


class _Part:
    """Emits the copies of one sub-panel of `part` columns."""

    def __init__(
        self, body: Body, columns: str, out: str, part: int, width: int, lanes: int, scalar: str, size: int
    ) -> None:
        self.body, self.out, self.part, self.lanes, self.scalar, self.size = body, out, part, lanes, scalar, size
        self.row_bytes = width * size
        self.sources = [body.at("%base", body.load_word(columns, j)) for j in range(part)]

    def neighbours(self) -> None:
        body = self.body
        with body.loop("%count") as k:
            source = body.at(self.sources[0], body.load_word("%ks", k))
            row = body.at(self.out, body.mul(k, self.row_bytes))
            for at, length in powers(self.part):
                kind = f"<{length} x {self.scalar}>"
                value = body.load(kind, body.at(source, at * self.size), self.size)
                body.store(kind, value, body.at(row, at * self.size), self.size)

    def transposed(self) -> None:
        """Groups of `lanes` k: through registers where they are neighbours; the rest, and the last few k, singly."""
        body = self.body
        groups = body.let(f"udiv i64 %count, {self.lanes}")
        with body.loop(groups) as g:
            k = body.mul(g, self.lanes)
            run = body.let(f"icmp ne i8 {body.load('i8', body.at('%k_runs', g), 1)}, 0")
            with body.either(run) as other:
                self._block(k)
                with other:
                    self._singly(k, body.add(k, self.lanes))
        self._singly(body.mul(groups, self.lanes), "%count")

    def _block(self, k: str) -> None:
        body, kind = self.body, f"<{self.lanes} x {self.scalar}>"
        offset = body.load_word("%ks", k)
        rows = [body.load(kind, body.at(s, offset), self.size) for s in self.sources]
        rows += ["zeroinitializer"] * (self.lanes - self.part)
        out = body.at(self.out, body.mul(k, self.row_bytes))
        for j, value in enumerate(transpose(rows, self.scalar, self.size, body)):
            for at, length in powers(self.part):
                piece = shuffle(kind, value, "poison", range(at, at + length), body) if length < self.lanes else value
                where = body.at(out, j * self.row_bytes + at * self.size)
                body.store(f"<{length} x {self.scalar}>", piece, where, self.size)

    def _singly(self, start: str, stop: str) -> None:
        body = self.body
        with body.loop(stop, start=start) as k:
            offset = body.load_word("%ks", k)
            row = body.at(self.out, body.mul(k, self.row_bytes))
            for j, source in enumerate(self.sources):
                value = body.load(self.scalar, body.at(source, offset), self.size)
                body.store(self.scalar, value, body.at(row, j * self.size), self.size)


def transpose(rows: Sequence[str], scalar: str, size: int, body: Body) -> list[str]:
    """The square matrix of n vectors of n lanes, transposed: within 128-bit parts by unpacking, then by parts."""
    n, kind = len(rows), f"<{len(rows)} x {scalar}>"
    block = min(n, 16 // size)

    def pick(a: str, b: str, lane: Callable[[int], int]) -> str:
        return shuffle(kind, a, b, [lane(j) for j in range(n)], body)

    out = list(rows)
    for start in range(0, n, block):
        out[start : start + block] = _transpose_parts(out[start : start + block], block, n, pick)
    distance = block
    while distance < n:
        for i in range(n):
            if not i & distance:
                a, b, d = out[i], out[i + distance], distance
                out[i] = pick(a, b, lambda j, d=d: j if not j & d else n + j - d)
                out[i + distance] = pick(a, b, lambda j, d=d: j + d if not j & d else n + j)
        distance *= 2
    return out


def _transpose_parts(
    rows: list[str], block: int, n: int, pick: Callable[[str, str, Callable[[int], int]], str]
) -> list[str]:
    """Transpose the blocks of `block` lanes that `block` vectors have in common."""

    def low(j: int, half: int) -> int:  # interleave units of `half` lanes from the lower half of each part
        part, lane = j - j % block, j % block
        unit, inside = lane // half, lane % half
        source = part + (unit // 2) * half + inside
        return source + n * (unit % 2)

    if block == 1:
        return rows
    if block == 2:
        a, b = rows
        return [pick(a, b, lambda j: low(j, 1)), pick(a, b, lambda j: low(j, 1) + 1)]
    a, b, c, d = rows
    ab = [pick(a, b, lambda j, h=h: low(j, 1) + h) for h in (0, 2)]
    cd = [pick(c, d, lambda j, h=h: low(j, 1) + h) for h in (0, 2)]
    return [pick(x, y, lambda j, h=h: low(j, 2) + h) for x, y in zip(ab, cd) for h in (0, 2)]
