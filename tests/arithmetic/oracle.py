"""Elementary functions by MPFR, for the tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gmpy2
import numpy as np

EXACT = 300  # bits that count as the true value


def _rsqrt(x: Any) -> Any:
    return -gmpy2.inf() if x == 0 and gmpy2.is_signed(x) else gmpy2.rec_sqrt(x)  # MPFR has +∞ at −0


def function(name: str) -> Callable[..., Any]:
    """The function on mpfr values, rounded as the current context says."""
    if name == "pow":
        return lambda x, y: x**y
    found: Callable[..., Any] = _rsqrt if name == "rsqrt" else getattr(gmpy2, name)
    return found


def f32(name: str, *args: float) -> np.float32:
    """The correctly rounded f32 result."""
    with gmpy2.context(precision=24, emin=-148, emax=128, subnormalize=True):
        return np.float32(float(function(name)(*(gmpy2.mpfr(a, 53) for a in args))))


def f64(name: str, *args: float) -> float:
    """The correctly rounded f64 result."""
    with gmpy2.context(precision=53, emin=-1073, emax=1024, subnormalize=True):
        return float(function(name)(*(gmpy2.mpfr(a) for a in args)))


def ulps(name: str, value: float, *args: float) -> float:
    """The error of an f64 `value` in ulp of the correctly rounded result; 0 or ∞ where that is 0 or not finite."""
    right = f64(name, *args)
    if not np.isfinite(right) or right == 0:
        return 0.0 if same(value, right) else np.inf
    if not np.isfinite(value):
        return np.inf
    with gmpy2.context(precision=EXACT):
        apart = abs(function(name)(*(gmpy2.mpfr(a) for a in args)) - gmpy2.mpfr(value))
        return float(apart / gmpy2.mpfr(float(np.spacing(abs(right)))))


def same(a: Any, b: Any) -> bool:
    """The same bits, NaN being one value."""
    return bool((a != a and b != b) or (a == b and np.signbit(a) == np.signbit(b)))
