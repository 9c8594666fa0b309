"""Folds against the orders of ARITHMETIC.md §3, bit for bit: along the lanes and across them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from isobit.arithmetic.dtypes import DType
from isobit.codegen.target import Target, host_levels, host_target
from isobit.ir.expr import Expr, call, const, where
from isobit.ir.kernel import Fetch, Fold, Loop, Point, RowElement, Store, Temp
from tests.codegen.nest_cases import Array, Case, Window, check, interesting

F32, F64, BF16, I64, BOOL = DType.F32, DType.F64, DType.BF16, DType.I64, DType.BOOL
VECTORS = ["inner", "outer"]
BEST = host_target()
# The text of AVX-512 (16 lanes of f32) with instructions that this machine may have instead.
WIDE = replace(BEST, vector_bytes=64)


@pytest.fixture(params=host_levels())
def target(request: pytest.FixtureRequest) -> Target:
    return host_target(request.param)


def kept(x: Array, n_inner: int = 1) -> Window:
    """A tensor of the outer axes alone."""
    owner = x if x.base is None else x.base
    return Window(
        owner, x.__array_interface__["data"][0] - owner.__array_interface__["data"][0], x.strides + (0,) * n_inner
    )


def result_dtype(kind: str, dtype: DType) -> DType:
    return I64 if kind in ("argmax", "argmin") else dtype


def folded(vector: str, kinds: list[str], dtype: DType, x: Array, n_outer: int = 1) -> tuple[Case, list[int]]:
    """All `kinds` over the inner axes of x in one pass; m2 from a mean that is anything."""
    rng = np.random.default_rng(x.size)
    outer, n_inner = x.shape[:n_outer], x.ndim - n_outer
    views: list[tuple[Array | Window, DType]] = [(x, dtype), (kept(interesting(rng, outer, dtype), n_inner), dtype)]
    folds, stores = [], []
    for temp, kind in enumerate(kinds):
        out = result_dtype(kind, dtype)
        views.append((kept(np.zeros(outer, out.numpy), n_inner), out))
        folds.append(Fold(temp, kind, Fetch(dtype, 0), Fetch(dtype, 1) if kind == "m2" else None))
        stores.append(Store(len(views) - 1, Temp(out, temp)))
    case = Case(n_outer, x.shape, vector, views, (Loop((), tuple(folds)), Point((), tuple(stores))))
    return case, list(range(2, len(views)))


def kinds_for(dtype: DType) -> list[str]:
    if dtype == BOOL:
        return ["any", "all", "argmax", "argmin"]
    kinds = ["sum", "prod", "max", "min", "argmax", "argmin"]
    return kinds + (["m2"] if dtype.is_float else [])


def dtypes_and_targets() -> list[tuple[DType, Target]]:
    """All dtypes at the best level; at lower ones those whose code differs most."""
    every = [F32, F64, BF16, DType.F16, I64, DType.I32, DType.U8, BOOL]
    lower = [host_target(level) for level in host_levels()[1:]]
    return [(d, BEST) for d in every] + [(d, t) for t in lower for d in (F32, DType.F16, BOOL)]


@pytest.mark.parametrize("vector", VECTORS)
@pytest.mark.parametrize(("dtype", "target"), dtypes_and_targets(), ids=lambda x: getattr(x, "level", str(x)))
def test_kinds_and_lengths(dtype: DType, target: Target, vector: str) -> None:
    """One kernel with all folds; lengths around lanes, blocks and the tree of blocks."""
    rng = np.random.default_rng(11)
    for n in (1, 2, 31, 32, 33, 63, 1023, 1024, 1025, 2049, 7 * 1024 + 5):
        case, outputs = folded(vector, kinds_for(dtype), dtype, interesting(rng, (3, n), dtype))
        check(case, target, outputs, 2)


@pytest.mark.parametrize("vector", VECTORS)
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_wide_lanes(dtype: DType, vector: str) -> None:
    rng = np.random.default_rng(22)
    for n in (1, 31, 33, 1023, 1025, 3000):
        case, outputs = folded(vector, kinds_for(dtype), dtype, interesting(rng, (37, n), dtype))
        check(case, WIDE, outputs)


@pytest.mark.parametrize("vector", VECTORS)
@pytest.mark.parametrize("dtype", [F32, F64])
def test_finite_sums(dtype: DType, vector: str) -> None:
    """Without NaN and infinity every addition counts, over any number of outer points."""
    rng = np.random.default_rng(12)
    for outer, n in ((1, 9001), (70, 40), (31, 100), (33, 1500), (129, 3)):
        x = (rng.standard_normal((outer, n)) * 2.0 ** rng.integers(-20, 20, (outer, n))).astype(dtype.numpy)
        case, outputs = folded(vector, ["sum", "m2", "prod"], dtype, x)
        check(case, BEST, outputs, 3)


@pytest.mark.parametrize("vector", VECTORS)
def test_negative_zeros(vector: str) -> None:
    """A sum of −0 is +0, as lanes start from +0; the maximum of −0 and −0 is −0, with a +0 it is +0."""
    for n in (1, 5, 40, 1030):
        x = np.full((37, n), -0.0, np.float32)
        x[::2, n // 2] = 0.0
        case, outputs = folded(vector, ["sum", "max", "min", "argmax", "prod"], F32, x)
        check(case, BEST, outputs)


@pytest.mark.parametrize("vector", VECTORS)
def test_empty_runs(vector: str) -> None:
    x = np.zeros((5, 0), np.float32)
    case, outputs = folded(vector, ["sum", "prod", "m2"], F32, x)
    check(case, BEST, outputs)
    none, outputs = folded(vector, ["sum", "max"], F32, np.zeros((0, 5), np.float32))
    check(none, BEST, outputs)


@pytest.mark.parametrize("vector", VECTORS)
def test_strides(vector: str) -> None:
    rng = np.random.default_rng(13)
    whole = interesting(rng, (40, 90), F32)
    for x in (whole[:37, 1:78], whole.T[1:40, :33], whole[36::-1, 88:4:-2], np.broadcast_to(whole[:37, :1], (37, 50))):
        case, outputs = folded(vector, ["sum", "argmin", "max"], F32, x)
        check(case, BEST, outputs)


@pytest.mark.parametrize("vector", VECTORS)
@pytest.mark.parametrize("kind", ["tree_sum", "tree_prod"])
def test_neighbour_trees(kind: str, vector: str) -> None:
    rng = np.random.default_rng(14)
    for n in (0, 1, 2, 3, 7, 8, 13, 100):
        case, outputs = folded(vector, [kind], F32, (1 + rng.standard_normal((19, n))).astype(np.float32))
        check(case, BEST, outputs)


@pytest.mark.parametrize("total", [1, 1023, 2048, 5000, 9217])
@pytest.mark.parametrize("vector", VECTORS)
def test_segments(vector: str, total: int) -> None:
    """A run cut at multiples of 2048, its parts combined by a tree of neighbours, is the whole run's fold."""
    rng = np.random.default_rng(15)
    points, length = 9, 2048
    segments = -(-total // length)
    x = (rng.standard_normal((points, total)) * 100).astype(np.float32)
    mean = x.mean(1)
    spread = np.lib.stride_tricks.as_strided(x, (segments, points, total), (0, *x.strides))
    parts = [np.zeros((segments, points), np.float32) for _ in range(2)]
    views = [(spread, F32), (Window(mean, 0, (0, 4, 0)), F32), *((Window(p, 0, (*p.strides, 0)), F32) for p in parts)]
    folds = (Fold(0, "sum", Fetch(F32, 0)), Fold(1, "m2", Fetch(F32, 0), Fetch(F32, 1)))
    stages = (Loop((), folds), Point((), (Store(2, Temp(F32, 0)), Store(3, Temp(F32, 1)))))
    case = Case(2, spread.shape, vector, views, stages, segment=0, segment_length=length)
    check(case, BEST, [2, 3], 3)
    whole, outputs = folded("inner", ["sum", "m2"], F32, x)
    whole.views[1] = (kept(mean), F32)
    check(whole, BEST, outputs)
    joined, outputs = folded("outer", ["tree_sum"], F32, parts[0].T)
    check(joined, BEST, outputs)
    assert np.array_equal(joined.views[2][0].base, whole.views[2][0].base)  # type: ignore[union-attr]


@pytest.mark.parametrize("vector", VECTORS)
@pytest.mark.parametrize("columns", [1, 31, 100, 1500])
def test_softmax(vector: str, columns: int, target: Target) -> None:
    """Row buffers, temporaries and several passes; x is overwritten by the result."""
    rng = np.random.default_rng(16)
    x = (rng.standard_normal((13, columns)) * 5).astype(np.float32)
    e = RowElement(F32, 0)
    stages = (
        Loop((), (Fold(0, "max", Fetch(F32, 0)),)),
        Loop((Store(0, call("exp", Fetch(F32, 0) - Temp(F32, 0)), row=True),), (Fold(1, "sum", e),)),
        Point(((2, const(1.0, F32) / Temp(F32, 1)),)),
        Loop((Store(0, e * Temp(F32, 2)),)),
    )
    check(Case(1, x.shape, vector, [(x, F32)], stages, rows=(F32,)), target, [0], 2)


@pytest.mark.parametrize("vector", VECTORS)
def test_layer_norm(vector: str) -> None:
    """Mean, m2 about it, and an affine map, for bf16 in memory and f32 inside."""
    rng = np.random.default_rng(17)
    rows, n = 21, 1400
    x, out = interesting(rng, (rows, n), BF16), np.zeros((rows, n), np.uint16)
    weight = np.broadcast_to(rng.standard_normal(n).astype(np.float32), (rows, n))
    f, count = Fetch(BF16, 0).cast(F32), const(float(n), F32)
    stages = (
        Loop((Store(0, f, row=True),), (Fold(0, "sum", f),)),
        Point(((1, Temp(F32, 0) / count),)),
        Loop((), (Fold(2, "m2", RowElement(F32, 0), Temp(F32, 1)),)),
        Point(((3, call("rsqrt", Temp(F32, 2) / count + 1e-5)),)),
        Loop((Store(1, ((RowElement(F32, 0) - Temp(F32, 1)) * Temp(F32, 3) * Fetch(F32, 2)).cast(BF16)),)),
    )
    case = Case(1, x.shape, vector, [(x, BF16), (out, BF16), (weight, F32)], stages, rows=(F32,))
    check(case, BEST, [1], 2)


@pytest.mark.parametrize("extra", [0, 1])
def test_pooling_windows(extra: int, target: Target) -> None:
    """Sum, maximum and its position over 3×3 (or 4×40) windows of a padded image, stride 2, across the lanes."""
    rng = np.random.default_rng(18)
    height, width, kernel = 9, 60, (3, 3) if not extra else (4, 40)
    image = interesting(rng, (2, height, width), F32)
    rows, columns = (height + 2 - kernel[0]) // 2 + 1, (width + 2 - kernel[1]) // 2 + 1
    s = image.strides
    view = Window(image, -s[1] - s[2], (s[0], 2 * s[1], 2 * s[2], s[1], s[2]))
    linears = [(-1, (0, 2, 0, 1, 0)), (-1, (0, 0, 2, 0, 1))]
    total = Fetch(F32, 0, (0, 1), (), const(0.0, F32))
    most = Fetch(F32, 0, (0, 1), (), const(float("-inf"), F32))
    outer = (2, rows, columns)
    outputs = [np.zeros(outer, np.float32), np.zeros(outer, np.float32), np.zeros(outer, np.int64)]
    dtypes = [F32, F32, I64]
    folds = (Fold(0, "sum", total), Fold(1, "max", most), Fold(2, "argmax", most))
    stores = tuple(Store(1 + k, Temp(d, k)) for k, d in enumerate(dtypes))
    views = [(view, F32), *((kept(o, 2), d) for o, d in zip(outputs, dtypes, strict=True))]
    stages = (Loop((), folds), Point((), stores))
    case = Case(3, (*outer, *kernel), "outer", views, stages, linears, [(0, height), (1, width)])
    check(case, target, [1, 2, 3], 3)


def test_several_inner_axes_cross_blocks() -> None:
    """Blocks and lanes count positions of the flattened inner axes; m2 goes over each block twice."""
    rng = np.random.default_rng(19)
    x = rng.standard_normal((3, 41, 7, 50)).astype(np.float32).transpose(1, 0, 2, 3)
    for part in (x, x[:, :, ::-1, 3:40]):
        case, outputs = folded("outer", ["sum", "m2", "max", "argmin"], F32, part)
        check(case, BEST, outputs, 2)


@pytest.mark.parametrize("vector", VECTORS)
def test_stores_beside_folds(vector: str) -> None:
    """An operand is updated in place while it is folded, by m2 too: values are read before they are written."""
    rng = np.random.default_rng(20)
    x = rng.standard_normal((10, 1100)).astype(np.float32)
    total, spread = np.zeros(10, np.float32), np.zeros(10, np.float32)
    value: Expr = where(call("gt", Fetch(F32, 0), const(0.0, F32)), Fetch(F32, 0) * 2.0, Fetch(F32, 0))
    folds = (Fold(0, "sum", value), Fold(1, "m2", value, const(0.25, F32)))
    stages = (Loop((Store(0, value),), folds), Point((), (Store(1, Temp(F32, 0)), Store(2, Temp(F32, 1)))))
    case = Case(1, x.shape, vector, [(x, F32), (kept(total), F32), (kept(spread), F32)], stages)
    check(case, BEST, [0, 1, 2])


def test_whole_tensor() -> None:
    """No outer axis: one thread has work, the others none."""
    x = np.random.default_rng(21).standard_normal(5001).astype(np.float32)
    case, outputs = folded("inner", ["sum", "m2", "argmax"], F32, x, 0)
    check(case, BEST, outputs, 3)
