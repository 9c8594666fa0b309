"""Epilogues of contraction kernels: expressions of every kind on the finished tile, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from isobit.arithmetic import FUNCTIONS
from isobit.arithmetic.dtypes import DType
from isobit.arithmetic.fma import narrow_bf16, narrow_f16
from isobit.codegen.target import Target, host_levels, host_target
from isobit.ir.expr import Expr, call, const, where
from isobit.ir.kernel import Contraction, Fetch, Linear, Operand, Position, Store, Temp
from tests.codegen.contraction_cases import Array, Call, same_bits

F32, I64, BOOL = DType.F32, DType.I64, DType.BOOL
RESULT = Temp(F32, 0)
M, N, K = 19, 45, 300


@pytest.fixture(params=list(host_levels()))
def target(request: pytest.FixtureRequest) -> Target:
    return host_target(request.param)


def values(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def steps_of(x: Array) -> tuple[Any, ...]:
    last = x.ndim - 1
    return tuple("0" if s == 0 else "1" if s == x.itemsize and d == last else "s" for d, s in enumerate(x.strides))


def run(
    target: Target,
    operands: list[tuple[DType, Array]],
    stores: list[tuple[int, Expr]],
    threads: int = 1,
    **numbers: Any,
) -> Array:
    """Run one contraction over (m, n, k) with these operands over (m, n); returns the plain result."""
    lhs, rhs = values(M, K, seed=1), values(K, N, seed=2)
    contraction = Contraction(
        F32, (0, 1, 1, 1), "k", "n",
        tuple(Operand(dtype, steps_of(x)) for dtype, x in operands),
        tuple(Store(i, e) for i, e in stores),
        linears=tuple(Linear(("s", "s")) for _ in numbers.get("linears", ())),
        guards=numbers.pop("guards", ()),
        n_dynamic=len(numbers.get("dynamics", ())),
    )  # fmt: skip
    call_ = Call(contraction, lhs, rhs, tuple(x for _, x in operands), **numbers)
    call_.prepare(target, threads).run()
    return call_.reference().reshape(M, N)


def column(x: Array) -> Array:
    return np.broadcast_to(x, (M, N))


def row(x: Array) -> Array:
    return np.broadcast_to(x[:, None], (M, N))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("turned", [False, True])
def test_bias_activation_residual(turned: bool, threads: int, target: Target) -> None:
    out, bias, scale = np.empty((M, N), np.float32), values(N, seed=3), values(M, seed=4)
    residual = values(N, M, seed=5).T if turned else values(M, N, seed=5)
    operands = [(F32, out), (F32, column(bias)), (F32, row(scale)), (F32, residual)]
    value = call("max", (RESULT + Fetch(F32, 1)) * Fetch(F32, 2), const(0.0, F32)) + Fetch(F32, 3)
    result = run(target, operands, [(0, value)], threads)
    assert same_bits(out, np.maximum((result + bias) * scale[:, None], np.float32(0)) + residual)


def test_several_outputs_of_several_dtypes(target: Target) -> None:
    out, mask = np.empty((N, M), np.float32).T, np.empty((M, N), np.bool_)
    brain, half = np.empty((M, N), np.uint16), np.empty((M, 2 * N), np.float16)[:, ::2]
    wide, whole = np.empty((M, N), np.float64), np.empty((M, N), np.int64)
    dtypes = (F32, BOOL, DType.BF16, DType.F16, DType.F64, I64)
    operands = list(zip(dtypes, (out, mask, brain, half, wide, whole), strict=True))
    shifted = RESULT * const(3.0, F32)
    stores = [(0, RESULT), (1, RESULT > 0.0), *((i, shifted.cast(dtypes[i])) for i in range(2, 6))]
    result = run(target, operands, stores)
    tripled = result * np.float32(3)
    assert same_bits(out, result)
    assert np.array_equal(mask, result > 0)
    assert np.array_equal(brain, narrow_bf16(tripled))
    assert same_bits(half, narrow_f16(tripled))
    assert same_bits(wide, tripled.astype(np.float64))
    assert np.array_equal(whole, tripled.astype(np.int64))


def test_narrow_and_bool_operands(target: Target) -> None:
    out, keep = np.empty((M, N), np.float32), np.random.default_rng(6).random((M, N)) < 0.5
    brain = narrow_bf16(values(M, N, seed=7))
    operands = [(F32, out), (BOOL, keep), (DType.BF16, brain)]
    value = where(Fetch(BOOL, 1), RESULT + Fetch(DType.BF16, 2).cast(F32), const(-1.0, F32))
    result = run(target, operands, [(0, value)])
    added = result + (brain.astype(np.uint32) << 16).view(np.float32)
    assert same_bits(out, np.where(keep, added, np.float32(-1)))


def test_elementary_function(target: Target) -> None:
    out = np.empty((M, N), np.float32)
    result = run(target, [(F32, out)], [(0, call("tanh", RESULT))])
    assert same_bits(out, FUNCTIONS["tanh"](result))


def test_position_and_random_word(target: Target) -> None:
    out, words = np.empty((M, N), np.int64), np.empty((M, N), np.int64)
    key = np.broadcast_to(np.array(1234567, np.int64), (M, N))
    place = Position(I64, 0)
    stores = [(0, place), (1, call("philox", Fetch(I64, 2), place))]
    linears = ((5, (N, 1)),)
    run(target, [(I64, out), (I64, words), (I64, key)], stores, linears=linears)
    expected = 5 + np.arange(M)[:, None] * N + np.arange(N)
    assert np.array_equal(out, expected)
    assert np.array_equal(words, philox_words(1234567, expected))


def philox_words(key: int, words: Array) -> Array:
    """Philox 4x32-10 by Python integers."""
    out = np.empty_like(words)
    for place, j in np.ndenumerate(words):
        c, k = [int(j) // 4 & 0xFFFFFFFF, int(j) // 4 >> 32, 0, 0], [key & 0xFFFFFFFF, key >> 32]
        for _ in range(10):
            p, q = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
            c = [q >> 32 ^ c[1] ^ k[0], q & 0xFFFFFFFF, p >> 32 ^ c[3] ^ k[1], p & 0xFFFFFFFF]
            k = [k[0] + 0x9E3779B9 & 0xFFFFFFFF, k[1] + 0xBB67AE85 & 0xFFFFFFFF]
        out[place] = c[int(j) % 4]
    return out


def test_guarded_fetch_reads_its_fill_outside(target: Target) -> None:
    """An operand of (M − 3) × (N − 8) elements, read shifted by (2, 5)."""
    inner = values(M - 3, N - 8, seed=8)
    shifted = np.lib.stride_tricks.as_strided(inner, (M, N), inner.strides)
    out = np.empty((M, N), np.float32)
    start = -2 * inner.strides[0] - 5 * inner.strides[1]
    moved = Pointer(shifted, start)
    value = RESULT + Fetch(F32, 1, guards=(0, 1), fill=const(2.0, F32))
    linears, bounds = ((-2, (1, 0)), (-5, (0, 1))), (M - 3, N - 8)
    result = run(target, [(F32, out), (F32, moved)], [(0, value)], linears=linears, guards=(0, 1), bounds=bounds)
    padded = np.full((M, N), 2, np.float32)
    padded[2 : M - 1, 5 : N - 3] = inner
    assert same_bits(out, result + padded)


class Pointer(np.ndarray[Any, Any]):
    """A view whose address is moved by bytes: elements before it need not exist."""

    def __new__(cls, base: Array, offset: int) -> Pointer:
        self = base.view(cls)
        self.moved = offset
        return self

    def __array_finalize__(self, other: Any) -> None:
        self.moved = getattr(other, "moved", 0)


def test_fetch_at_a_position_from_data(target: Target) -> None:
    table = values(6, N, seed=9)
    index = np.random.default_rng(10).integers(-1, 8, (M, N))
    out = np.empty((M, N), np.float32)
    row_zero = np.broadcast_to(table[0], (M, N))
    value = RESULT + Fetch(F32, 1, dynamic=((Fetch(I64, 2), 0),), fill=const(0.5, F32))
    result = run(target, [(F32, out), (F32, row_zero), (I64, index)], [(0, value)], dynamics=((table.strides[0], 6),))
    inside = (index >= 0) & (index < 6)
    picked = np.where(inside, table[np.clip(index, 0, 5), np.arange(N)], np.float32(0.5))
    assert same_bits(out, result + picked)
