"""Every operation of ops.TABLE on NumPy arrays: what the interpreter, and constant folding, compute with.

Arrays hold the dtype's NumPy representation (`DType.numpy`; bf16 as its uint16 pattern). An operation on f16 or bf16
widens to f32, computes there and rounds once, as ARITHMETIC.md §1 says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from isobit.arithmetic import random
from isobit.arithmetic.dtypes import DType
from isobit.arithmetic.fma import fma_f32, fma_f64, narrow_bf16, widen_bf16
from isobit.arithmetic.functions import FUNCTIONS

Array = npt.NDArray[Any]
_NARROW = (DType.F16, DType.BF16)


def apply(name: str, dtype: DType, args: tuple[Array, ...], arg_dtype: DType) -> Array:
    """Operation `name` with result `dtype` on arrays of `arg_dtype` (of the branches, for where)."""
    with np.errstate(all="ignore"):
        if name == "cast":
            return cast(args[0], arg_dtype, dtype)
        if name == "where":
            return np.where(args[0], args[1], args[2])
        if name == "philox":
            return np.asarray(random.word(args[0], args[1]))
        if arg_dtype in _NARROW:
            wide = _compute(name, tuple(widen(a, arg_dtype) for a in args))
            return wide if dtype == DType.BOOL else cast(wide, DType.F32, dtype)
        return _compute(name, args)


def _compute(name: str, args: tuple[Array, ...]) -> Array:
    if name in FUNCTIONS:
        return np.asarray(FUNCTIONS[name](*args))
    return np.asarray(TABLE[name](*args))


def widen(x: Array, dtype: DType) -> Array:
    """f16 or bf16 to f32, exactly; other dtypes as they are."""
    if dtype == DType.BF16:
        return widen_bf16(x)
    return x.astype(np.float32) if dtype == DType.F16 else x


def cast(x: Array, source: DType, target: DType) -> Array:
    """Conversion, rounded once; float to integer saturates and NaN gives 0; to bool is x ≠ 0."""
    if source == target:
        return x
    if target == DType.BOOL:
        return np.asarray(widen(x, source) != 0)
    if target == DType.BF16:
        return _to_bf16(widen(x, source))
    if source.is_float and target.is_int:
        return _saturate(widen(x, source), target)
    with np.errstate(all="ignore"):
        return widen(x, source).astype(target.numpy)


def _saturate(x: Array, target: DType) -> Array:
    info = np.iinfo(target.numpy.name)
    wide = x.astype(np.float64)
    inside = (wide > float(info.min) - 1) & (wide < float(info.max) + 1)  # the bounds are exact, or round to 2^63
    out = np.where(inside, wide, 0.0).astype(target.numpy)
    out = np.where(wide >= float(info.max), np.asarray(info.max, target.numpy), out)
    return np.where(wide <= float(info.min), np.asarray(info.min, target.numpy), out)


def _to_bf16(x: Array) -> Array:
    """Any dtype to bf16 patterns in one rounding, ties to even."""
    return narrow_bf16(x if x.dtype == np.float32 else _to_odd_f32(x))


def _to_odd_f32(x: Array) -> Array:
    """To f32, truncated towards zero with the last bit set where inexact: a further rounding is then the only one."""
    if x.dtype.kind in "iub":
        wide = x.astype(np.int64)
        low = wide & 0x7FF
        sticky = (wide - low) | np.where(low != 0, 0x400, 0)  # 53 bits that lie on the same side of every bf16 tie
        x = np.where(np.abs(wide) < 1 << 53, wide, sticky).astype(np.float64)
    near = x.astype(np.float32)
    bits = np.ascontiguousarray(near).view(np.uint32).reshape(near.shape)
    back = near.astype(np.float64)
    bits = np.where(np.abs(back) > np.abs(x), bits - np.uint32(1), bits)
    odd = np.where((back != x) & np.isfinite(x), bits | np.uint32(1), bits).astype(np.uint32)
    return odd.view(np.float32)


def maximum(a: Array, b: Array) -> Array:
    """The greater one: a NaN wins, −0 < +0."""
    return _extreme(a, b, np.maximum, np.signbit)


def minimum(a: Array, b: Array) -> Array:
    """The lesser one: a NaN wins, −0 < +0."""
    return _extreme(a, b, np.minimum, lambda x: ~np.signbit(x))


def _extreme(a: Array, b: Array, pick: Callable[..., Array], second: Callable[[Array], Array]) -> Array:
    out = pick(a, b)
    if out.dtype.kind != "f":
        return out
    return np.where((a == 0) & (b == 0), np.where(second(a), b, a), out)


def _floordiv(a: Array, b: Array) -> Array:
    return np.where(b == 0, 0, np.floor_divide(a, np.where(b == 0, 1, b))).astype(a.dtype)


def _mod(a: Array, b: Array) -> Array:
    return np.where(b == 0, 0, np.remainder(a, np.where(b == 0, 1, b))).astype(a.dtype)


def _fma(a: Array, b: Array, c: Array) -> Array:
    return fma_f32(a, b, c) if a.dtype == np.float32 else fma_f64(a, b, c)


TABLE: dict[str, Callable[..., Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": np.negative, "abs": np.abs,
    "sqrt": np.sqrt, "fma": _fma, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint,
    "max": maximum, "min": minimum, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "not": np.invert, "shl": np.left_shift, "shr": np.right_shift, "floordiv": _floordiv, "mod": _mod,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal,
}  # fmt: skip

SPECIAL = frozenset({"cast", "where", "philox"})
