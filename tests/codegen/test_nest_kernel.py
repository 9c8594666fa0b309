"""What a nest's kernel is as text and object, on every target; that it stays inside its tensors; what it rejects."""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from isobit.arithmetic.dtypes import DType
from isobit.codegen.nest import nest_kernel, row_lanes
from isobit.codegen.objects import compile_object
from isobit.codegen.target import Target, host_levels, host_target, level_target
from isobit.ir.expr import Expr, binary, call, const
from isobit.ir.kernel import (
    Fetch,
    Fold,
    Linear,
    Loop,
    Nest,
    NestArgs,
    NestCall,
    Operand,
    Place,
    Point,
    Position,
    RowElement,
    Store,
    Temp,
)
from tests.codegen.nest_cases import Array, Case, Window, check

F32, F64, I64 = DType.F32, DType.F64, DType.I64
ALL_LEVELS = ["x86-64-v4", "x86-64-v3", "x86-64-v2", "aarch64"]


def everything(vector: str) -> Nest:
    """A nest that uses every construct: narrow floats, guards, dynamic positions, rows, folds, random words."""
    operands = (
        Operand(F32, ("s", "1")), Operand(DType.BF16, ("1", "s")), Operand(DType.F16, ("s", "1")),
        Operand(I64, ("1", "0")), Operand(F32, ("0", "1")), Operand(DType.BOOL, ("s", "s")),
        Operand(F64, ("1", "0")), Operand(DType.U8, ("s", "1")),
    )  # fmt: skip
    guarded = Fetch(F32, 0, (0,), (), const(1.0, F32))
    picked = Fetch(F32, 4, (1,), ((Fetch(I64, 3), 0),), const(2.0, F32))
    word = call("philox", Position(I64, 0), Position(I64, 1))
    mixed = guarded + Fetch(DType.BF16, 1).cast(F32) * Fetch(DType.F16, 2).cast(F32) + picked
    noisy = mixed * call("shr", word, const(8, I64)).cast(F32)
    element: Expr = RowElement(F32, 0)
    folds = tuple(Fold(k, kind, element) for k, kind in enumerate(("sum", "max", "argmin", "prod")))
    wide = element.cast(F64)
    folds += (
        Fold(4, "sum", wide),
        Fold(5, "m2", wide, const(0.5, F64)),
        Fold(6, "any", call("lt", element, const(0.0, F32))),
    )
    divided = binary("floordiv", call("round", element).cast(DType.U8), 3)
    stages = (
        Loop((Store(0, call("exp", noisy), row=True),)),
        Loop((), folds),
        Point(((7, Temp(F64, 4) / 3.0),), (Store(6, Temp(F64, 7) + Temp(F64, 5)),)),
        Loop(
            (
                Store(5, call("lt", element, Temp(F32, 0))),
                Store(7, divided),
                Store(2, (element * Temp(F32, 1)).cast(DType.F16)),
            )
        ),
    )
    linears = (Linear(("1", "1")), Linear(("s", "1")))
    return Nest(1, 1, vector, operands, linears, (0, 1), 1, (F32,), stages)  # type: ignore[arg-type]


@pytest.mark.parametrize("vector", ["inner", "outer"])
@pytest.mark.parametrize("level", ALL_LEVELS)
def test_objects_need_nothing_but_memory_functions(level: str, vector: str) -> None:
    """No conversion, remainder or elementary function of a C library stands behind a kernel."""
    target = level_target(level)
    source = nest_kernel(everything(vector), target)
    assert undefined_symbols(compile_object(source.text, target)) <= {"memcpy", "memset", "memmove"}


@pytest.mark.parametrize("vector", ["inner", "outer"])
def test_text_is_the_same_in_every_process(vector: str) -> None:
    source = nest_kernel(everything(vector), level_target("x86-64-v3"))
    assert source == nest_kernel(everything(vector), level_target("x86-64-v3"))
    script = (
        "from tests.codegen.test_nest_kernel import everything; from isobit.codegen.nest import nest_kernel;"
        f"from isobit.codegen.target import level_target; import hashlib; k = nest_kernel(everything('{vector}'),"
        "level_target('x86-64-v3')); print(k.symbol, hashlib.sha256(k.text.encode()).hexdigest())"
    )
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=_environment()
    )
    assert told.stdout.split() == [source.symbol, hashlib.sha256(source.text.encode()).hexdigest()]


def _environment() -> dict[str, str]:
    return {"PYTHONPATH": ":".join(p for p in sys.path if p), "PYTHONHASHSEED": "7"}


def test_shared_subexpressions_are_written_once() -> None:
    """A chain of 64 squarings has 2^64 paths and 64 nodes."""
    x: Expr = Fetch(F32, 0)
    for _ in range(64):
        x = call("mul", x, x)
    nest = Nest(0, 1, "inner", (Operand(F32, ("1",)), Operand(F32, ("1",))), stages=(Loop((Store(1, x),)),))
    assert len(nest_kernel(nest, level_target("x86-64-v3")).text) < 60_000


def test_symbols_tell_structures_apart() -> None:
    base = everything("inner")
    others = [
        replace(base, stages=base.stages[:1]), replace(base, guards=(1, 0)), replace(base, rows=(F32, F32)),
        replace(base, operands=(Operand(F32, ("s", "s")), *base.operands[1:])), everything("outer"),
    ]  # fmt: skip
    symbols = {nest_kernel(n, level_target("x86-64-v3")).symbol for n in [base, *others]}
    assert len(symbols) == 1 + len(others)


def test_arguments_stand_where_both_sides_look() -> None:
    nest = everything("inner")
    places = tuple(Place(k, 100 + k, (8 * k + 8, 4)) for k in range(8))
    call_ = NestCall(
        nest, (11, 12), places, ((1, (1, 1)), (2, (77, 1))), (31, 32), ((41, 42),), (51, 52, 53), (61,), 2048
    )
    args, at = call_.args(), NestArgs(nest)
    assert len(args) == at.length
    assert [args[i] for i in at.operands] == list(range(8))
    assert [args[i] for i in at.linears] == [1, 2]
    assert args[at.bounds : at.bounds + 2] == (31, 32)
    assert args[at.dynamics : at.dynamics + 2] == (41, 42)
    assert args[at.scratch : at.scratch + 3] == (51, 52, 53)
    assert (args[at.rows], args[at.segment_length]) == (61, 2048)


def test_rows_hold_lanes_of_outer_nests() -> None:
    target = level_target("x86-64-v3")
    assert row_lanes(everything("inner"), target) == 1
    assert row_lanes(everything("outer"), target) % target.lanes(8) == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_outer": 0, "n_inner": 2}, "one inner axis"),
        ({"segment": 0, "vector": "outer"}, "across the lanes"),
        ({"rows": (F64,)}, "store of f32 to row 0 of f64"),
        ({"linears": (Linear(("1",)), Linear(("s", "1")))}, "2 axes"),
    ],
)
def test_nests_that_break_the_rules(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nest_kernel(replace(everything("inner"), **change), level_target("x86-64-v3"))  # type: ignore[arg-type]


class Fenced:
    """Memory between two pages that nobody may touch."""

    def __init__(self) -> None:
        self.page = mmap.PAGESIZE
        self._map = mmap.mmap(-1, 3 * self.page)
        self._held = (ctypes.c_char * (3 * self.page)).from_buffer(self._map)
        self.start = ctypes.addressof(self._held) + self.page
        protect = ctypes.CDLL(None).mprotect
        for fence in (self.start - self.page, self.start + self.page):
            assert protect(ctypes.c_void_p(fence), ctypes.c_size_t(self.page), 0) == 0

    def array(self, dtype: DType, n: int, at_end: bool) -> Array:
        """n elements at the start or at the end of the memory."""
        offset = self.page - n * dtype.itemsize if at_end else 0
        raw = (ctypes.c_char * (n * dtype.itemsize)).from_address(self.start + offset)
        return np.frombuffer(raw, dtype.numpy)


@pytest.mark.skipif(sys.platform != "linux", reason="protects pages by mprotect")
@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("vector", ["inner", "outer"])
def test_nothing_outside_is_touched(vector: str, at_end: bool) -> None:
    """Tails, windows that stick out, positions out of range: with forbidden pages on both sides."""
    rng = np.random.default_rng(1)
    for target in map(host_target, host_levels()):
        for dtype in (F32, DType.I16):
            _stay_inside(target, dtype, vector, at_end, rng)


def _stay_inside(target: Target, dtype: DType, vector: str, at_end: bool, rng: np.random.Generator) -> None:
    n = 61
    memory = [Fenced() for _ in range(4)]
    x, y, out, index = (m.array(d, n, at_end) for m, d in zip(memory, (dtype, dtype, dtype, I64), strict=True))
    x[:], y[:], index[:] = rng.integers(-9, 9, n), rng.integers(-9, 9, n), rng.integers(-70, 130, n)
    size = dtype.itemsize
    views = [
        (Window(x, -7 * size, (size,)), dtype), (Window(x, 70 * size, (-2 * size,)), dtype),
        (Window(y, 0, (0,)), dtype),
        (index, I64), (y, dtype), (Window(out, (n - 1) * size, (-size,)), dtype), (Window(y, 90 * size, (0,)), dtype),
    ]  # fmt: skip
    fill = const(5, dtype)
    total = Fetch(dtype, 0, (0,), (), fill) + Fetch(dtype, 1, (1,), (), fill) + Fetch(dtype, 4)
    total = total + Fetch(dtype, 2, (), ((Fetch(I64, 3), 0),), fill) + Fetch(dtype, 6, (2,), (), fill)
    stage = Loop((Store(5, total),)) if vector == "inner" else Point((), (Store(5, total),))
    linears = [(-7, (1,)), (70, (-2,)), (90, (0,))]
    guards = [(0, n), (1, n), (2, n)]
    case = Case(0 if vector == "inner" else 1, (n,), vector, views, (stage,), linears, guards, [(size, n)])
    check(case, target, [5])


def undefined_symbols(code: bytes) -> set[str]:
    """Names that an ELF object wants from elsewhere."""

    def word(at: int, size: int) -> int:
        return int.from_bytes(code[at : at + size], "little")

    assert code[:4] == b"\x7fELF"
    table, entry, count = word(0x28, 8), word(0x3A, 2), word(0x3C, 2)
    sections = [table + k * entry for k in range(count)]
    names: set[str] = set()
    for section in sections:
        if word(section + 4, 4) != 2:  # SHT_SYMTAB
            continue
        start, size = word(section + 0x18, 8), word(section + 0x20, 8)
        strings = word(sections[word(section + 0x28, 4)] + 0x18, 8)
        for symbol in range(start + 24, start + size, 24):
            if word(symbol + 6, 2) == 0:
                at = strings + word(symbol, 4)
                names.add(code[at : code.index(b"\0", at)].decode())
    return names
