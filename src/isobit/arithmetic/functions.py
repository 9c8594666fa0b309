"""The elementary functions of ARITHMETIC.md §2: one registry, from which everyone looks them up.

An f32 algorithm takes the argument widened to binary64 and returns a binary64 value that, rounded once to f32, is
the correctly rounded result for every f32 argument (`tools/prove_functions.py`, docs/functions.md). An f64
algorithm is the definition: a fixed sequence of IEEE operations with an error below 1 ulp.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from isobit.arithmetic import (
    error_functions,
    exponentials,
    inverse_trigonometric,
    logarithms,
    powers,
    trigonometric,
)
from isobit.arithmetic.ops import NumpyOps

Array = npt.NDArray[Any]
Algorithm = Callable[..., Any]  # (Ops[F, I, M], F, ...) -> F for whatever F, I, M the caller computes with


@dataclass(frozen=True)
class Function:
    """An elementary function; calling it evaluates it on NumPy arrays of f32 or f64, which broadcast."""

    name: str
    arity: int
    f32: Algorithm
    f64: Algorithm

    def __call__(self, *args: npt.ArrayLike) -> Array:
        """The result in the arguments' dtype. Raises TypeError for other dtypes or another number of them."""
        arrays = [np.asarray(a) for a in args]
        kinds = {a.dtype for a in arrays}
        if len(arrays) != self.arity or kinds not in ({np.dtype("f4")}, {np.dtype("f8")}):
            found = ", ".join(str(a.dtype) for a in arrays)
            raise TypeError(f"{self.name}: wants {self.arity} arrays of one dtype, f32 or f64; got ({found})")
        (dtype,) = kinds
        algorithm = self.f32 if dtype == np.float32 else self.f64
        with np.errstate(all="ignore"):
            return evaluate(algorithm, *arrays).astype(dtype)


def evaluate(algorithm: Algorithm, *args: Array) -> npt.NDArray[np.float64]:
    """The binary64 value of an algorithm on arrays, before it is rounded to the result's dtype."""
    with np.errstate(all="ignore"):
        wide = np.broadcast_arrays(*(np.asarray(a).astype(np.float64) for a in args))
        result = algorithm(NumpyOps(), *(np.ascontiguousarray(a).reshape(-1) for a in wide))
    return np.broadcast_to(np.asarray(result, np.float64), wide[0].size).reshape(wide[0].shape)


FUNCTIONS: dict[str, Function] = {
    f.name: f
    for f in (
        Function("exp", 1, exponentials.exp_f32, exponentials.exp_f64),
        Function("expm1", 1, exponentials.expm1_f32, exponentials.expm1_f64),
        Function("tanh", 1, exponentials.tanh_f32, exponentials.tanh_f64),
        Function("log", 1, logarithms.log_f32, logarithms.log_f64),
        Function("log1p", 1, logarithms.log1p_f32, logarithms.log1p_f64),
        Function("sin", 1, trigonometric.sin_f32, trigonometric.sin_f64),
        Function("cos", 1, trigonometric.cos_f32, trigonometric.cos_f64),
        Function("erf", 1, error_functions.erf_f32, error_functions.erf_f64),
        Function("erfc", 1, error_functions.erfc_f32, error_functions.erfc_f64),
        Function("exp2", 1, exponentials.exp2_f32, exponentials.exp2_f64),
        Function("sinh", 1, exponentials.sinh_f32, exponentials.sinh_f64),
        Function("cosh", 1, exponentials.cosh_f32, exponentials.cosh_f64),
        Function("log2", 1, logarithms.log2_f32, logarithms.log2_f64),
        Function("log10", 1, logarithms.log10_f32, logarithms.log10_f64),
        Function("tan", 1, trigonometric.tan_f32, trigonometric.tan_f64),
        Function("asin", 1, inverse_trigonometric.asin_f32, inverse_trigonometric.asin_f64),
        Function("acos", 1, inverse_trigonometric.acos_f32, inverse_trigonometric.acos_f64),
        Function("atan", 1, inverse_trigonometric.atan_f32, inverse_trigonometric.atan_f64),
        Function("rsqrt", 1, powers.rsqrt_f32, powers.rsqrt_f64),
        Function("pow", 2, powers.pow_f32, powers.pow_f64),
    )
}


def algorithm(name: str, dtype: str) -> Algorithm:
    """The algorithm of `name` on "f32" (widened) or "f64". Raises KeyError for an unknown name or dtype."""
    function = FUNCTIONS[name]
    return {"f32": function.f32, "f64": function.f64}[dtype]
