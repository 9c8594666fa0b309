"""Philox against its published vectors, the random operators against ARITHMETIC.md §6 in plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isobit.arithmetic import random
from isobit.arithmetic.dtypes import DType
from isobit.arithmetic.fma import narrow_bf16, widen_bf16
from isobit.arithmetic.functions import FUNCTIONS

FULL = 0xFFFFFFFF
VECTORS = [  # Random123 1.14, examples/kat_vectors, philox4x32 10: counter, key, words
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((FULL,) * 4, (FULL, FULL), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
KEYS = st.integers(0, 2**64 - 1)


def scalar_philox(counter: tuple[int, ...], key: tuple[int, int]) -> tuple[int, ...]:
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(10):
        p, q = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (q >> 32) ^ c1 ^ k0, q & FULL, (p >> 32) ^ c3 ^ k1, p & FULL
        k0, k1 = (k0 + 0x9E3779B9) & FULL, (k1 + 0xBB67AE85) & FULL
    return c0, c1, c2, c3


def stream(key: int, n: int) -> list[int]:
    words: list[int] = []
    for c in range(-(-n // 4)):
        words += scalar_philox((c & FULL, c >> 32, 0, 0), (key & FULL, key >> 32))
    return words[:n]


def stream64(key: int, n: int) -> list[int]:
    w = stream(key, 2 * n)
    return [w[2 * i] | w[2 * i + 1] << 32 for i in range(n)]


@pytest.mark.parametrize("counter,key,words", VECTORS)
def test_known_answers(counter: tuple[int, ...], key: tuple[int, int], words: tuple[int, ...]) -> None:
    c = tuple(np.array([v], np.uint64) for v in counter)
    k = tuple(np.array([v], np.uint64) for v in key)
    assert tuple(int(v[0]) for v in random.philox4x32((c[0], c[1], c[2], c[3]), (k[0], k[1]))) == words
    assert scalar_philox(counter, key) == words


@settings(max_examples=30)
@given(KEYS, st.integers(0, 2**62))
def test_word_at_any_place(key: int, j: int) -> None:
    c = j // 4
    expected = scalar_philox((c & FULL, c >> 32, 0, 0), (key & FULL, key >> 32))[j % 4]
    signed = key - 2**64 if key >= 2**63 else key
    assert random.word(np.int64(signed), np.int64(j)) == random.word(np.uint64(key), np.uint64(j)) == expected


@settings(max_examples=20)
@given(KEYS, st.integers(0, 30))
def test_uniform_is_the_page(key: int, n: int) -> None:
    w, w64 = stream(key, n), stream64(key, n)
    assert random.uniform(key, (n,)).tolist() == [(v >> 8) * 2.0**-24 for v in w]
    assert random.uniform(key, (n,), DType.F16).tolist() == [(v >> 21) * 2.0**-11 for v in w]
    assert widen_bf16(random.uniform(key, (n,), DType.BF16)).tolist() == [(v >> 24) * 2.0**-8 for v in w]
    assert random.uniform(key, (n,), DType.F64).tolist() == [(v >> 11) * 2.0**-53 for v in w64]


@settings(max_examples=20)
@given(KEYS, st.integers(1, 9))
def test_normal_is_the_page(key: int, n: int) -> None:
    got = random.normal(key, (n,), mean=2.0, std=3.0)
    w = stream(key, n + n % 2)
    f = np.float32
    for i in range(n):
        u, v = w[i // 2 * 2], w[i // 2 * 2 + 1]
        r = np.sqrt(f(-2) * FUNCTIONS["log"](f(((u >> 8) + 1) * 2.0**-24)))
        turn = FUNCTIONS["sin" if i % 2 else "cos"](f(2 * math.pi) * f((v >> 8) * 2.0**-24))
        assert got[i] == (r * turn) * f(3) + f(2)


def test_normal_of_narrow_dtypes_rounds_the_f32_value_once() -> None:
    wide = random.normal(7, (5,), mean=0.5, std=2.0)
    assert np.array_equal(random.normal(7, (5,), DType.BF16, 0.5, 2.0), narrow_bf16(wide))
    assert np.array_equal(random.normal(7, (5,), DType.F16, 0.5, 2.0), wide.astype(np.float16))


def test_an_element_depends_on_its_number_alone() -> None:
    for draw in (random.uniform, random.normal, random.exponential, random.bernoulli):
        long = draw(9, (64,))
        assert np.array_equal(draw(9, (4, 8)).reshape(-1), long[:32])
        assert np.array_equal(draw(9, (7,)), long[:7])


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
def test_moments(dtype: DType) -> None:
    n = 40000
    normal, uniform = random.normal(1, (n,), dtype), random.uniform(2, (n,), dtype)
    exponential = random.exponential(3, (n,), dtype, rate=2.0)
    assert abs(normal.mean()) < 5 / n**0.5 and abs(normal.std() - 1) < 5 / n**0.5
    assert abs(np.corrcoef(normal[0::2], normal[1::2])[0, 1]) < 5 / (n / 2) ** 0.5
    assert abs(uniform.mean() - 0.5) < 5 * 0.289 / n**0.5 and uniform.min() >= 0 and uniform.max() < 1
    assert abs(exponential.mean() - 0.5) < 5 * 0.5 / n**0.5 and exponential.min() > 0


def test_exponential_is_never_zero_or_infinite() -> None:
    w = np.array([0, FULL], np.uint64)
    u = (((w >> np.uint64(9)) * np.uint64(2) + np.uint64(1)).astype(np.float32)) * np.float32(2.0**-24)
    assert u[0] > 0 and u[1] < 1
    assert np.isfinite(FUNCTIONS["log"](u)).all() and (FUNCTIONS["log"](u) < 0).all()


@settings(max_examples=20)
@given(KEYS, st.floats(0, 1))
def test_bernoulli_compares_in_binary64(key: int, p: float) -> None:
    w = stream(key, 20)
    assert random.bernoulli(key, (20,), p).tolist() == [(v >> 8) * 2.0**-24 < p for v in w]
    assert random.dropout_mask(key, (20,), p).tolist() == [(v >> 8) * 2.0**-24 < 1 - p for v in w]


def test_bernoulli_of_certain_events() -> None:
    assert random.bernoulli(1, (500,), 1.0).all() and not random.bernoulli(1, (500,), 0.0).any()


@settings(max_examples=30)
@given(KEYS, st.integers(-(2**63), 2**63 - 1), st.integers(1, 2**64))
def test_randint_is_the_page(key: int, low: int, span: int) -> None:
    high = min(low + span, 2**63)
    expected = [((w * (high - low)) >> 64) + low for w in stream64(key, 6)]
    got = random.randint(key, (2, 3), low, high)
    assert got.dtype == np.int64 and got.reshape(-1).tolist() == expected
    assert all(low <= v < high for v in expected)


def test_randint_of_an_empty_range() -> None:
    with pytest.raises(ValueError, match=r"\[3, 3\) is empty"):
        random.randint(1, (2,), 3, 3)


@settings(max_examples=20)
@given(KEYS, st.integers(0, 50))
def test_randperm_sorts_the_words(key: int, n: int) -> None:
    w = stream64(key, n)
    assert random.randperm(key, n).tolist() == sorted(range(n), key=lambda i: w[i])


@pytest.mark.parametrize("draw", [random.uniform, random.normal, random.exponential])
def test_floats_only(draw: object) -> None:
    with pytest.raises(TypeError, match="i64 is no float"):
        draw(1, (2,), DType.I64)  # type: ignore[operator]
