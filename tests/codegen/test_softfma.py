"""The software fma against exact rational arithmetic."""

from __future__ import annotations

import ctypes
import itertools
import math
import struct
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isobit.arithmetic.dtypes import DType
from isobit.codegen.objects import compile_object
from isobit.codegen.softfma import soft_fma
from isobit.codegen.target import host_levels, level_target
from isobit.runtime.loader import Loader
from tests.runtime.emulated import needs_emulator, run_aarch64

Array = np.ndarray[Any, Any]
LANES = {DType.F32: (1, 4, 8), DType.F64: (1, 2, 4)}
_MANTISSA = {DType.F32: (24, -149, 128), DType.F64: (53, -1074, 1024)}  # precision, lowest place, overflow exponent


def exact_fma(a: float, b: float, c: float, dtype: DType) -> float:
    """fma(a, b, c) from its definition: the exact value, rounded once."""
    if not (math.isfinite(a) and math.isfinite(b)):
        return a * b + c if not math.isnan(a * b) else math.nan
    if not math.isfinite(c):
        return c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        negative = math.copysign(1, a) * math.copysign(1, b) < 0
        both = negative and math.copysign(1, c) < 0 and c == 0 and (a == 0 or b == 0)
        return -0.0 if both else 0.0
    return math.copysign(_round(abs(exact), dtype), -1 if exact < 0 else 1)


def _round(x: Fraction, dtype: DType) -> float:
    precision, lowest, overflow = _MANTISSA[dtype]
    exponent = x.numerator.bit_length() - x.denominator.bit_length()
    exponent -= x < Fraction(2) ** exponent
    place = max(exponent - precision + 1, lowest)
    scaled = x / Fraction(2) ** place
    whole = scaled.numerator // scaled.denominator
    rest = scaled - whole
    whole += rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1)
    value = whole * Fraction(2) ** place
    return math.inf if value >= Fraction(2) ** overflow else float(value)


def over_arrays(dtype: DType, lanes: int) -> str:
    """The text of ``over(a, b, c, r, n)``: r[i] = fma(a[i], b[i], c[i]) for n, a multiple of ``lanes``."""
    name, text = soft_fma(dtype, lanes)
    scalar = {DType.F32: "float", DType.F64: "double"}[dtype]
    vector = f"<{lanes} x {scalar}>"
    return f"""{text}
define void @over(ptr %a, ptr %b, ptr %c, ptr %r, i64 %n) nounwind {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i2, %loop ]
  %ap = getelementptr {scalar}, ptr %a, i64 %i
  %bp = getelementptr {scalar}, ptr %b, i64 %i
  %cp = getelementptr {scalar}, ptr %c, i64 %i
  %rp = getelementptr {scalar}, ptr %r, i64 %i
  %x = load {vector}, ptr %ap, align {dtype.itemsize}
  %y = load {vector}, ptr %bp, align {dtype.itemsize}
  %z = load {vector}, ptr %cp, align {dtype.itemsize}
  %w = call {vector} @{name}({vector} %x, {vector} %y, {vector} %z)
  store {vector} %w, ptr %rp, align {dtype.itemsize}
  %i2 = add i64 %i, {lanes}
  %more = icmp ult i64 %i2, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""


def compiled(dtype: DType, lanes: int, loader: Loader, level: str) -> Callable[[Array, Array, Array], Array]:
    """The function over arrays whose length is a multiple of ``lanes``."""
    [address] = loader.link(compile_object(over_arrays(dtype, lanes), level_target(level)), ["over"], {}, "over")
    return caller(address, loader)


def caller(address: int, loader: Loader) -> Callable[[Array, Array, Array], Array]:
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4, ctypes.c_int64)(address)

    def run(a: Array, b: Array, c: Array, keep: Loader = loader) -> Array:
        result = np.empty_like(a)
        function(a.ctypes.data, b.ctypes.data, c.ctypes.data, result.ctypes.data, len(a))
        return result

    return run


def same_bits(got: Array, want: Array) -> Array:
    """Where two float arrays hold the same bits, all NaNs being one value."""
    integer = {4: np.uint32, 8: np.uint64}[got.itemsize]
    equal: Array = (got.view(integer) == want.view(integer)) | (np.isnan(got) & np.isnan(want))
    return equal


def nasty_values(dtype: DType) -> list[float]:
    """Zeros, ends of the subnormal and normal ranges, neighbours of powers of two, values whose products tie."""
    precision, lowest, overflow = _MANTISSA[dtype]
    tiny, least = 2.0**lowest, 2.0 ** (lowest + precision - 1)
    ulp = 2.0 ** (1 - precision)
    most = (2 - ulp) * 2.0 ** (overflow - 1)
    half = 2.0 ** ((lowest + precision) // 2)
    positive = [
        0.0, tiny, 3 * tiny, least - tiny, least, least + tiny, least * (1 + ulp), half, half * (1 + ulp), 0.5,
        1 - ulp / 2, 1.0, 1 + ulp, 1 + 2 * ulp, 1.5, 3.0, 2.0**precision - 1, 2.0**precision + 2, ulp / 2, ulp,
        2.0 ** (overflow // 2), most / 2, most, math.inf,
    ]  # fmt: skip
    return [*positive, *(-x for x in positive), math.nan]


def check(function: Callable[[Array, Array, Array], Array], triples: Array, dtype: DType) -> None:
    padded = np.resize(triples, (-(-len(triples) // 8) * 8, 3)).astype(dtype.numpy)
    a, b, c = (np.ascontiguousarray(column) for column in padded.T)
    got = function(a, b, c)
    want = np.array([exact_fma(x, y, z, dtype) for x, y, z in zip(a.tolist(), b.tolist(), c.tolist())], dtype.numpy)
    wrong = ~same_bits(got, want)
    first = int(np.argmax(wrong))
    case = [float(v).hex() for v in (a[first], b[first], c[first], got[first], want[first])]
    assert not wrong.any(), f"{wrong.sum()} wrong; first: a, b, c, got, want = {case}"


def random_triples(dtype: DType, count: int, seed: int) -> Array:
    """Random bit patterns; half of them made to cancel or to tie: c near −a·b, or half an ulp away in the sum."""
    rng = np.random.default_rng(seed)
    integer = {4: np.uint32, 8: np.uint64}[dtype.itemsize]
    bits = rng.integers(0, 2 ** (8 * dtype.itemsize), (count, 3), dtype=integer)
    x = bits.view(dtype.numpy).copy()
    x[np.isnan(x)] = 1.0
    part = count // 2
    near = rng.standard_normal((part, 2)) * 2.0 ** rng.integers(-20, 20, (part, 2))
    x[:part, :2] = near
    with np.errstate(all="ignore"):
        c = -(x[:part, 0] * x[:part, 1])
        x[:part, 2] = c + np.spacing(c) * rng.integers(-2, 3, part)
        x[: part // 4, 2] = c[: part // 4] * 2.0 ** rng.integers(-60, 60, part // 4)
        x[: part // 8, 0] = rng.integers(1, 2**20, part // 8)  # few bits: exact ties happen
        x[: part // 8, 1] = 2.0 ** rng.integers(-40, 20, part // 8)
        x[: part // 8, 2] = rng.integers(1, 2 ** min(_MANTISSA[dtype][0], 62), part // 8)
    return x


@pytest.fixture(scope="module", params=["x86-64-v2", "best"])
def level(request: pytest.FixtureRequest) -> str:
    chosen = host_levels()[0] if request.param == "best" else request.param
    if chosen not in host_levels():
        pytest.skip(f"this machine cannot run {chosen}")
    return str(chosen)


@pytest.fixture(scope="module")
def loader(level: str) -> Loader:
    return Loader(level_target(level))


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
def test_nasty_values(dtype: DType, loader: Loader, level: str) -> None:
    values = nasty_values(dtype)
    triples = np.array(list(itertools.product(values, values, values[::4])))
    check(compiled(dtype, LANES[dtype][1], loader, level), triples, dtype)


@pytest.mark.parametrize(("dtype", "lanes"), [(d, n) for d in LANES for n in LANES[d]])
def test_random_values(dtype: DType, lanes: int, loader: Loader, level: str) -> None:
    check(compiled(dtype, lanes, loader, level), random_triples(dtype, 4_000, lanes), dtype)


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
def test_equals_the_hardware(dtype: DType, loader: Loader, level: str) -> None:
    """On a machine with fma, many more values than rational arithmetic has time for."""
    if "x86-64-v3" not in host_levels():
        pytest.skip("this machine has no fma to compare with")
    soft = compiled(dtype, LANES[dtype][1], loader, level)
    a, b, c = (np.ascontiguousarray(x) for x in random_triples(dtype, 1_000_000, 7).T)
    assert same_bits(soft(a, b, c), hardware_fma(dtype)(a, b, c)).all()


def hardware_fma(dtype: DType) -> Callable[[Array, Array, Array], Array]:
    scalar = {DType.F32: "float", DType.F64: "double"}[dtype]
    text = f"""
define void @hard(ptr %a, ptr %b, ptr %c, ptr %r, i64 %n) nounwind {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i2, %loop ]
  %ap = getelementptr {scalar}, ptr %a, i64 %i
  %bp = getelementptr {scalar}, ptr %b, i64 %i
  %cp = getelementptr {scalar}, ptr %c, i64 %i
  %rp = getelementptr {scalar}, ptr %r, i64 %i
  %x = load {scalar}, ptr %ap
  %y = load {scalar}, ptr %bp
  %z = load {scalar}, ptr %cp
  %w = call {scalar} @llvm.fma.f{8 * dtype.itemsize}({scalar} %x, {scalar} %y, {scalar} %z)
  store {scalar} %w, ptr %rp
  %i2 = add i64 %i, 1
  %more = icmp ult i64 %i2, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""
    target = level_target("x86-64-v3")
    loader = Loader(target)
    [address] = loader.link(compile_object(text, target), ["hard"], {}, "hard")
    return caller(address, loader)


def test_no_library_call_is_left() -> None:
    """The v2 object links with no imports at all, so llvm.fma has nowhere to hide."""
    if "x86-64-v2" not in host_levels():
        pytest.skip("this machine cannot run x86-64-v2")
    loader = Loader(level_target("x86-64-v2"))
    for dtype, lanes in ((DType.F32, 4), (DType.F64, 2)):
        compiled(dtype, lanes, loader, "x86-64-v2")


_OVER_STDIN = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
extern void over(void *, void *, void *, void *, int64_t);
int main(void) {
  int64_t n, size;
  if (!fread(&n, 8, 1, stdin) || !fread(&size, 8, 1, stdin)) return 1;
  char *data = malloc(4 * n * size);
  if (fread(data, size, 3 * n, stdin) != (size_t)(3 * n)) return 2;
  over(data, data + n * size, data + 2 * n * size, data + 3 * n * size, n);
  return fwrite(data + 3 * n * size, size, n, stdout) != (size_t)n;
}
"""


@needs_emulator
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
def test_aarch64(dtype: DType, tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text(_OVER_STDIN)
    code = compile_object(over_arrays(dtype, LANES[dtype][1]), level_target("aarch64"))

    def run(a: Array, b: Array, c: Array) -> Array:
        data = struct.pack("<2q", len(a), a.itemsize) + a.tobytes() + b.tobytes() + c.tobytes()
        status, out = run_aarch64({"over": code}, tmp_path / "main.c", tmp_path, data)
        assert status == 0
        return np.frombuffer(out, a.dtype)

    values = nasty_values(dtype)
    nasty = np.array(list(itertools.product(values, values, values[::8])))
    check(run, np.concatenate([nasty, random_triples(dtype, 4_000, 1)]), dtype)


def test_other_dtypes_are_refused() -> None:
    with pytest.raises(ValueError, match="no software fma for 4 lanes of f16"):
        soft_fma(DType.F16, 4)
