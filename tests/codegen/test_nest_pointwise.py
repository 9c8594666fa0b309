"""Pointwise nests against the reference, bit for bit: every operation, conversion, size, stride and guard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from isobit.arithmetic.dtypes import DType
from isobit.codegen.target import Target, host_levels, host_target
from isobit.ir import numeric, ops
from isobit.ir.expr import Expr, Op, binary, call, const, where
from isobit.ir.kernel import Fetch, Loop, Point, Position, Store
from tests.codegen.nest_cases import Array, Case, Window, check, interesting

F32, F64, I64 = DType.F32, DType.F64, DType.I64
FLOAT_ONLY = {"div", "sqrt", "fma", "floor", "ceil", "trunc", "round"}
INTEGER_ONLY = {"xor", "shl", "shr", "floordiv", "mod", "and", "or", "not"}
NOT_BOOL = {"add", "sub", "mul", "neg", "abs", "shl", "shr", "floordiv", "mod"}


BEST = host_target()
# The text of AVX-512 (16 lanes of f32) with instructions that this machine may have instead.
WIDE = replace(BEST, vector_bytes=64)


@pytest.fixture(params=host_levels())
def target(request: pytest.FixtureRequest) -> Target:
    return host_target(request.param)


def operations(dtype: DType) -> list[str]:
    """The operations of ops.TABLE that take arguments of `dtype`."""
    names = [n for n in ops.TABLE if n not in ("cast", "philox", "where") and n not in ops.ELEMENTARY]
    if dtype.is_float:
        return [n for n in names if n not in INTEGER_ONLY]
    names = [n for n in names if n not in FLOAT_ONLY]
    return [n for n in names if dtype != DType.BOOL or n not in NOT_BOOL]


def pointwise(
    views: Sequence[tuple[Array, DType]], values: Sequence[Expr], vector: str = "inner"
) -> tuple[Case, list[int]]:
    """y_k = values[k], over the shape of the first view; outputs are fresh and contiguous."""
    shape = views[0][0].shape
    outputs = [(np.full(shape, 7, v.dtype.numpy), v.dtype) for v in values]
    first = len(views)
    stores = tuple(Store(first + k, v) for k, v in enumerate(values))
    n_outer = len(shape) if vector == "outer" else len(shape) - 1
    stage = Loop(stores) if vector == "inner" else Point((), stores)
    return Case(n_outer, shape, vector, [*views, *outputs], (stage,)), list(range(first, first + len(values)))


@pytest.mark.parametrize("dtype", list(DType))
def test_operations(dtype: DType, target: Target) -> None:
    """Every operation on every dtype, on special values and others, in one kernel."""
    rng = np.random.default_rng(1)
    x, y, z = (interesting(rng, (1, 1003), dtype) for _ in range(3))
    fx, fy, fz = (Fetch(dtype, i) for i in range(3))
    shift = binary("mod", fy, dtype.itemsize * 8) if dtype.is_int else fy
    values = []
    for name in operations(dtype):
        args = [fx, shift if name in ("shl", "shr") else fy, fz][: ops.TABLE[name].arity]
        values.append(call(name, *args))
    values.append(where(call("lt", fx, fy), fx, fz))
    case, outputs = pointwise([(x, dtype), (y, dtype), (z, dtype)], values)
    check(case, target, outputs)


@pytest.mark.parametrize("source", list(DType))
def test_conversions(source: DType, target: Target) -> None:
    """Every pair of dtypes, at the borders of saturation and near ties of rounding."""
    rng = np.random.default_rng(2)
    x = interesting(rng, (1, 999), source)
    if source.is_float:
        borders = [2.0**k + d for k in (7, 8, 15, 31, 53, 63, 64) for d in (-1, -0.5, 0, 0.5, 1)]
        ties = [1 + 2.0**-8 + e for e in (0, 2.0**-30, -(2.0**-30), 2.0**-53)] + [
            1 + 2.0**-11,
            1 + 3 * 2.0**-11,
            65519.9999,
            65520.0,
        ]
        special = np.array(
            [*borders, *(-b for b in borders), *ties, 2.0**-25, 2.0**-25 * (1 + 2.0**-40), 5.9e-8], np.float64
        )
        with np.errstate(all="ignore"):
            x[0, : special.size] = numeric.cast(special, F64, source)
    elif source == I64:
        ties = [
            (1 << k) + d
            for k in (24, 25, 33, 54, 60, 62)
            for d in (-1, 0, 1, 1 << max(k - 24, 0), (1 << max(k - 24, 0)) + 1)
        ]
        x[0, : 2 * len(ties)] = [*ties, *(-t for t in ties)]
    case, outputs = pointwise([(x, source)], [Fetch(source, 0).cast(d) for d in DType if d != source])
    check(case, target, outputs)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("n", [0, 1, 7, 31, 32, 33, 127, 1025, 4095, 4096, 4097, 12289])
def test_sizes(n: int, threads: int) -> None:
    rng = np.random.default_rng(3)
    for target in map(host_target, host_levels()):
        x, y = interesting(rng, (n,), F32), interesting(rng, (n,), F32)
        case, outputs = pointwise([(x, F32), (y, F32)], [Fetch(F32, 0) * Fetch(F32, 1) + 1.5])
        check(case, target, outputs, threads)


def layouts(rng: np.random.Generator, dtype: DType) -> dict[str, Array]:
    """Views of shape (5, 37) that lie in memory in different ways."""
    whole = interesting(rng, (12, 80), dtype)
    return {
        "contiguous": interesting(rng, (5, 37), dtype),
        "transposed": interesting(rng, (37, 5), dtype).T,
        "sliced": whole[2:12:2, 3:77:2],
        "reversed": whole[4::-1, 40:3:-1],
        "row": np.broadcast_to(interesting(rng, (37,), dtype), (5, 37)),
        "column": np.broadcast_to(interesting(rng, (5, 1), dtype), (5, 37)),
        "scalar": np.broadcast_to(interesting(rng, (), dtype), (5, 37)),
    }


@pytest.mark.parametrize("vector", ["inner", "outer"])
@pytest.mark.parametrize("dtype", [F32, DType.BF16, DType.BOOL])
def test_strides(vector: str, dtype: DType, target: Target) -> None:
    """Every layout in one kernel, read along the lanes and across."""
    rng = np.random.default_rng(4)
    views = [(v, dtype) for v in layouts(rng, dtype).values()]
    combine = "xor" if dtype == DType.BOOL else "max"
    values = [call(combine, Fetch(dtype, k), Fetch(dtype, (k + 1) % len(views))) for k in range(len(views))]
    case, outputs = pointwise(views, values, vector)
    for threads in (1, 2):
        check(case, target, outputs, threads)
    check(case, WIDE, outputs)


@pytest.mark.parametrize("vector", ["inner", "outer"])
def test_strided_stores(vector: str) -> None:
    """Results go to transposed, sliced and reversed tensors; bytes between their elements stay."""
    rng = np.random.default_rng(5)
    x = interesting(rng, (5, 37), F32)
    whole = interesting(rng, (12, 80), F32)
    outputs = [np.zeros((37, 5), np.float32).T, whole[2:12:2, 3:77:2], np.zeros((5, 37), np.float32)[::-1, ::-1]]
    stores = tuple(Store(1 + k, Fetch(F32, 0) * float(k + 1)) for k in range(3))
    stage = Loop(stores) if vector == "inner" else Point((), stores)
    case = Case(1 if vector == "inner" else 2, (5, 37), vector, [(x, F32), *((o, F32) for o in outputs)], (stage,))
    check(case, BEST, [1, 2, 3])


@pytest.mark.parametrize("vector", ["inner", "outer"])
def test_in_place(vector: str) -> None:
    """An operand may be an input and an output at once."""
    rng = np.random.default_rng(6)
    x, y = interesting(rng, (3, 4200), F32), interesting(rng, (3, 4200), F32)
    stores = (Store(0, Fetch(F32, 0) + Fetch(F32, 1)), Store(1, Fetch(F32, 1) - Fetch(F32, 0)))
    stage = Loop(stores) if vector == "inner" else Point((), stores)
    case = Case(1 if vector == "inner" else 2, (3, 4200), vector, [(x, F32), (y, F32)], (stage,))
    check(case, BEST, [0, 1], 2)


@pytest.mark.parametrize("vector", ["inner", "outer"])
def test_guards(vector: str, target: Target) -> None:
    """Padding: a shifted, and a backwards strided, window that sticks out on all sides reads the fill value."""
    rng = np.random.default_rng(7)
    base = interesting(rng, (6, 20), F32)
    shape = (9, 41)

    def shifted(row: int, column: int, rows: int, columns: int) -> Window:
        r, c = base.strides
        return Window(base, row * r + column * c, (rows * r, columns * c))

    views = [(shifted(-2, -5, 1, 1), F32), (shifted(8, 30, -1, -1), F32), (shifted(-1, -7, 1, 2), F32)]
    output = np.zeros(shape, np.float32)
    fills = [const(v, F32) for v in (-1.0, float("nan"), 2.5)]
    values = [Fetch(F32, k, (2 * k, 2 * k + 1), (), fills[k]) for k in range(3)]
    total = values[0] + values[1] * 0.5 - values[2]
    linears = [(-2, (1, 0)), (-5, (0, 1)), (8, (-1, 0)), (30, (0, -1)), (-1, (1, 0)), (-7, (0, 2))]
    guards = [(k, 6 if k % 2 == 0 else 20) for k in range(6)]
    stage = Loop((Store(3, total),)) if vector == "inner" else Point((), (Store(3, total),))
    case = Case(1 if vector == "inner" else 2, shape, vector, [*views, (output, F32)], (stage,), linears, guards)
    check(case, target, [3], 2)


@pytest.mark.parametrize("vector", ["inner", "outer"])
def test_dynamic_positions(vector: str, target: Target) -> None:
    """Rows and elements picked by an index tensor; indices outside give the fill value."""
    rng = np.random.default_rng(8)
    table = interesting(rng, (11, 37), F32)
    rows = rng.integers(-3, 14, 6).astype(np.int64)
    each = rng.integers(-3, 40, (6, 37)).astype(np.int32)
    shape = (6, 37)
    along = np.broadcast_to(table[0], shape)
    whole = np.broadcast_to(table[:1, :1], shape)
    row_index = np.broadcast_to(rows[:, None], shape)
    views = [(along, F32), (whole, F32), (row_index, I64), (each, DType.I32)]
    row, element = Fetch(I64, 2), Fetch(DType.I32, 3).cast(I64)
    values = [
        Fetch(F32, 0, (), ((row, 0),), const(9.0, F32)),
        Fetch(F32, 1, (), ((row, 0), (element, 1)), const(-9.0, F32)),
    ]
    case, outputs = pointwise(views, values, vector)
    case.dynamics = [(table.strides[0], 11), (table.strides[1], 37)]
    check(case, target, outputs, 3)


def test_positions_and_random_words(target: Target) -> None:
    """Positions along both axes, and Philox words of far counters and of a key read from memory."""
    rng = np.random.default_rng(9)
    key = rng.integers(-(1 << 62), 1 << 62, 1).astype(np.int64)
    shape = (3, 77)
    keys = np.broadcast_to(key, shape)
    linears = [(5, (77, 1)), ((1 << 40) + 3, (2, -1)), (0, (0, 3)), (8, (78, 1))]
    word = call("philox", Fetch(I64, 0), Position(I64, 0))
    far = call("philox", Fetch(I64, 0) + 1, Position(I64, 1))
    uniform = call("shr", word, const(8, I64)).cast(F32) * 2.0**-24
    aligned = call("philox", Fetch(I64, 0), Position(I64, 3))
    values: list[Expr] = [word, far, aligned, uniform, Position(I64, 2).cast(F32), Position(I64, 1) + Position(I64, 0)]
    case, outputs = pointwise([(keys, I64)], values)
    case.linears = linears
    check(case, target, outputs, 2)


@pytest.mark.parametrize("name", ["exp", "sin"])
def test_elementary_in_a_nest(name: str, target: Target) -> None:
    """Elementary functions in every float dtype, lanes and tails included, one of them on a scalar per row."""
    rng = np.random.default_rng(10)
    values: list[Expr] = []
    views: list[tuple[Array, DType]] = []
    for dtype in (F32, F64, DType.F16):
        views += [(interesting(rng, (2, 45), dtype), dtype) for _ in range(ops.TABLE[name].arity)]
        first = len(views) - ops.TABLE[name].arity
        values.append(call(name, *(Fetch(dtype, k) for k in range(first, len(views)))))
    scalar = np.broadcast_to(interesting(rng, (2, 1), F32), (2, 45))
    views.append((scalar, F32))
    values.append(Op(F32, name, (Fetch(F32, len(views) - 1),) * ops.TABLE[name].arity))
    case, outputs = pointwise(views, values)
    check(case, target, outputs)
