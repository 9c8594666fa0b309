"""Contraction kernels against the reference, bit for bit, at every level that this machine runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from isobit.arithmetic.dtypes import DType
from isobit.codegen.contraction import contraction_needs, lower_contraction
from isobit.codegen.objects import compile_object
from isobit.codegen.target import Target, host_levels, host_target, level_target
from tests.codegen.contraction_cases import (
    Array,
    Call,
    contract,
    convolution,
    input_gradient,
    matmul,
    plain,
    plain_call,
    same_bits,
    weight_gradient,
)

FLOATS = [np.float32, np.float64]
LEVELS = list(host_levels())


@pytest.fixture(params=LEVELS)
def target(request: pytest.FixtureRequest) -> Target:
    return host_target(request.param)


def values(shape: tuple[int, ...], dtype: type, seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def check(call: Call, out: Array, target: Target, threads: int = 1) -> None:
    """Run into `out` and compare with the reference; `out` is the call's operand 0."""
    view = call.operands[0]
    view[...] = 7
    call.prepare(target, threads).run()
    expected = call.reference().reshape(view.shape)
    assert same_bits(view, expected), f"{np.count_nonzero(view != expected)} of {view.size} differ"


SHAPES = [
    (1, 1, 1), (0, 3, 4), (3, 0, 4), (2, 3, 0), (2, 5, 17), (5, 2, 31), (17, 33, 32), (33, 17, 33), (7, 13, 255),
    (6, 16, 256), (13, 31, 257), (12, 8, 511), (5, 7, 512), (3, 11, 513), (2, 3, 1031), (1, 37, 300), (29, 1, 300),
]  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", SHAPES)
def test_matrix_product(shape: tuple[int, int, int], dtype: type, target: Target) -> None:
    m, n, k = shape
    lhs, rhs, out = values((m, k), dtype, 0), values((k, n), dtype, 1), np.empty((m, n), dtype)
    check(matmul(lhs, rhs, out), out, target)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("order", ["CC", "CF", "FC", "FF"])
def test_layouts_and_threads(order: str, threads: int, dtype: type, target: Target) -> None:
    lhs = np.asarray(values((37, 270), dtype, 2), order=order[0])
    rhs = np.asarray(values((270, 70), dtype, 3), order=order[1])
    out = np.empty((37, 70), dtype)
    check(matmul(lhs, rhs, out), out, target, threads)
    check(matmul(lhs, rhs, np.empty((70, 37), dtype).T), out, target, threads)


@pytest.mark.parametrize("layout", ["rows", "columns", "strided"])
@pytest.mark.parametrize("depth", [1, 19, 600, 1031])
def test_single_row(depth: int, layout: str, target: Target) -> None:
    """A single row reads rhs where it lies, along columns or along k; what is left over goes by panels."""
    lhs, rhs = values((1, depth), np.float32, 25), values((depth, 2 * 201), np.float32, 26)
    rhs = {"rows": rhs[:, :201], "columns": np.asfortranarray(rhs[:, :201]), "strided": rhs[:, ::2]}[layout]
    out = np.empty((1, 201), np.float32)
    check(matmul(lhs, rhs, out), out, target, 2)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("level", "vector_bytes"), [("x86-64-v4", 64), ("aarch64", 16)])
def test_tiles_of_other_levels(level: str, vector_bytes: int, dtype: type) -> None:
    """The code of a level this machine may lack, with its tile and vectors, but compiled for this machine."""
    host = host_target()
    foreign = replace(host, level=level, vector_bytes=vector_bytes, vector_registers=32)
    lhs, rhs = values((45, 530), dtype, 27), values((530, 150), dtype, 28)
    for a, b in ((lhs, rhs), (np.asfortranarray(lhs), np.asfortranarray(rhs)), (lhs[::3, ::2], rhs[::2, ::3])):
        result = np.empty((a.shape[0], b.shape[1]), dtype)
        check(matmul(a, b, result), result, foreign, 2)
        check(matmul(a[:1], b, result[:1]), result, foreign)


def test_strided_and_expanded(target: Target) -> None:
    lhs = values((40, 600), np.float32, 4)[::2, ::3]
    rhs = np.broadcast_to(values((200, 1), np.float32, 5), (200, 23))
    out = np.empty((20, 46), np.float32)[:, ::2]
    check(matmul(lhs, rhs, out), out, target)
    check(matmul(lhs[::-1, ::-1], rhs[::-1], out), out, target, 2)


@pytest.mark.parametrize("threads", [1, 3])
def test_batches(threads: int, target: Target) -> None:
    lhs, rhs = values((3, 4, 9, 40), np.float32, 6), values((3, 4, 40, 21), np.float32, 7)
    out = np.empty((3, 4, 9, 21), np.float32)
    check(matmul(lhs, rhs, out), out, target, threads)
    check(matmul(lhs, np.broadcast_to(rhs[:1], rhs.shape), out), out, target, threads)
    check(matmul(np.broadcast_to(lhs[:, :1], lhs.shape), rhs, out), out, target, threads)
    check(matmul(lhs.transpose(1, 0, 2, 3), rhs.transpose(1, 0, 2, 3), out.transpose(1, 0, 2, 3)), out, target, threads)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("stride", [1, 2])
def test_convolution(stride: int, dtype: type, target: Target) -> None:
    x = np.pad(values((2, 3, 9, 11), dtype, 8), [(0, 0), (0, 0), (1, 1), (1, 1)])
    w, out = values((7, 3, 3, 3), dtype, 9), np.empty((2, 7, -(-9 // stride), -(-11 // stride)), dtype)
    check(convolution(x, w, out, stride), out, target, 2)


def test_convolution_of_many_channels(target: Target) -> None:
    x = np.pad(values((2, 32, 6, 8), np.float32, 10), [(0, 0), (0, 0), (1, 1), (1, 1)])
    w, out = values((6, 32, 3, 3), np.float32, 11), np.empty((2, 6, 6, 8), np.float32)
    check(convolution(x, w, out), out, target)


def test_convolution_is_unfold_then_product(target: Target) -> None:
    x, w = values((1, 3, 7, 7), np.float32, 12), values((4, 3, 3, 3), np.float32, 13)
    direct, product = np.empty((1, 4, 5, 5), np.float32), np.empty((4, 25), np.float32)
    call = convolution(x, w, direct)
    call.prepare(target).run()
    matmul(w.reshape(4, 27), np.ascontiguousarray(call.rhs).reshape(27, 25), product).prepare(target).run()
    assert same_bits(direct.reshape(4, 25), product)


@pytest.mark.parametrize("width", [8, 7])
def test_convolution_gradients(width: int, target: Target) -> None:
    x = np.pad(values((3, 4, 10, width), np.float32, 14), [(0, 0), (0, 0), (1, 1), (1, 1)])
    dy, w = values((3, 5, 10, width), np.float32, 15), values((5, 4, 3, 3), np.float32, 16)
    check(weight_gradient(x, dy, np.empty_like(w)), w, target, 2)
    padded = np.pad(dy, [(0, 0), (0, 0), (2, 2), (2, 2)])
    check(input_gradient(w, padded, np.empty((3, 4, 12, width + 2), np.float32)), x, target, 2)


def test_depthwise(target: Target) -> None:
    """One channel each: the batch class is (channel), m has one row."""
    x, w = values((6, 2, 8, 9), np.float32, 17), values((6, 1, 3, 3), np.float32, 18)
    patches = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3)).transpose(0, 4, 5, 1, 2, 3)
    out = np.empty((6, 1, 2, 6, 7), np.float32)
    check(plain_call((1, 1, 3, 2), w, patches, out), out, target, 2)


@pytest.mark.parametrize("dtype", FLOATS)
def test_special_values(dtype: type, target: Target) -> None:
    tiny, huge = np.finfo(dtype).smallest_subnormal, np.finfo(dtype).max
    pool = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, tiny, -tiny, huge, -huge, 1, -1, tiny * 3, 1.5], dtype)
    rng = np.random.default_rng(19)
    for weights in (None, [0, 0, 0, 3, 3, 5, 5, 0, 0, 2, 2, 5, 5], [0, 1, 0, 3, 3, 0, 0, 3, 3, 9, 9, 0, 3]):
        p = None if weights is None else np.array(weights) / np.sum(weights)
        lhs, rhs = rng.choice(pool, (14, 300), p=p), rng.choice(pool, (300, 19), p=p)
        out = np.empty((14, 19), dtype)
        check(matmul(lhs, rhs, out), out, target)


def test_underflow_to_minus_zero_gives_plus_zero(target: Target) -> None:
    lhs, rhs = np.full((1, 1), -1e-30, np.float32), np.full((1, 1), 1e-30, np.float32)
    out = np.empty((1, 1), np.float32)
    check(matmul(lhs, rhs, out), out, target)
    assert not np.signbit(out[0, 0])


def test_the_order_matters(target: Target) -> None:
    """The reference is not any sum: with another chunk length or another tree the bits differ."""
    lhs, rhs, out = values((3, 1300), np.float32, 20), values((1300, 5), np.float32, 21), np.empty((3, 5), np.float32)
    check(matmul(lhs, rhs, out), out, target)
    halves = contract(lhs[:, :650], rhs[:650]) + contract(lhs[:, 650:], rhs[650:])
    assert not same_bits(out, halves)
    assert not same_bits(out, (lhs.astype(np.float64) @ rhs.astype(np.float64)).astype(np.float32))


def test_blocks_larger_than_the_caches(target: Target) -> None:
    """Several tasks, several passes over packed lhs, many levels; integers, whose sums are exact in any order."""
    m, n, k = (400, 800, 1100) if target.has_fma else (60, 70, 1100)
    rng = np.random.default_rng(22)
    lhs = rng.integers(-8, 9, (m, k)).astype(np.float32)
    rhs = rng.integers(-8, 9, (k, n)).astype(np.float32)
    out = np.empty((m, n), np.float32)
    matmul(lhs, rhs, out).prepare(target, 2).run()
    assert np.array_equal(out, (lhs.astype(np.float64) @ rhs.astype(np.float64)).astype(np.float32))


def test_nothing_is_written_beside_the_result(target: Target) -> None:
    memory = np.full((20, 40), 5, np.float32)
    out = memory[3:14, 4:23]
    check(matmul(values((11, 30), np.float32, 23), values((30, 19), np.float32, 24), out), out, target)
    memory[3:14, 4:23] = 5
    assert np.all(memory == 5)


@pytest.mark.parametrize("level", ["x86-64-v4", "x86-64-v3", "x86-64-v2", "aarch64"])
def test_every_level_compiles_without_libraries(level: str) -> None:
    target = level_target(level)
    (source,) = lower_contraction(plain(DType.F32, (1, 1, 1, 1)), target)
    code = compile_object(source.text, target, source.symbol)
    for name in (b"fmaf", b"memcpy", b"memset"):
        assert name not in code


def test_errors_name_what_is_wrong() -> None:
    target = level_target("x86-64-v3")
    with pytest.raises(NotImplementedError, match="bf16"):
        lower_contraction(plain(DType.BF16, (0, 1, 1, 1)), target)
    with pytest.raises(ValueError, match="needs 3 sizes"):
        contraction_needs(plain(DType.F32, (0, 1, 1, 1)), (1, 2), target)


def test_same_text_for_same_contraction() -> None:
    target = level_target("x86-64-v3")
    c = plain(DType.F32, (0, 1, 1, 1))
    assert lower_contraction(c, target) == lower_contraction(c, target)
