"""Fits the coefficients of isobit.arithmetic.functions: relative minimax polynomials and rationals.

    python tools/fit_polynomials.py [NAME ...]      # prints hex floats and the error bound of each fit

A polynomial is fitted by Remez exchange in 60-digit arithmetic. A rational's denominator comes from iterated
least squares on Chebyshev points (Sanathanan and Koerner 1963), is rounded to binary64 and held while the
numerator is fitted by Remez. Bounds are of the coefficients as printed, on a dense grid, in units of 2^-53.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import mpmath as mp

Function = Callable[[mp.mpf], mp.mpf]
mp.mp.dps = 60


@dataclass(frozen=True)
class Fit:
    """f(x) ≈ (fixed[0] + ... + Σ c_i x^i) / Q(x) on [low, high]; the error counts against `scale`(x)."""

    f: Function
    low: mp.mpf
    high: mp.mpf
    degree: int
    fixed: tuple[float, ...] = ()  # leading coefficients that the algorithm wants exact
    denominator: int = 0
    scale: Function | None = None

    def size(self, x: mp.mpf) -> mp.mpf:
        return abs(self.scale(x) if self.scale else self.f(x))


def chebyshev(low: mp.mpf, high: mp.mpf, n: int) -> list[mp.mpf]:
    """n extrema-like points, the ends among them."""
    return [(low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * i / (n - 1)) for i in range(n)]


def horner(c: list[mp.mpf], x: mp.mpf) -> mp.mpf:
    total = mp.mpf(0)
    for v in reversed(c):
        total = total * x + v
    return total


def extrema(errors: list[mp.mpf], n: int) -> list[int]:
    """Indices of n alternating extrema of a sampled error, the largest consecutive ones."""
    found: list[int] = []
    for i, e in enumerate(errors):
        if not found or (e > 0) != (errors[found[-1]] > 0):
            found.append(i)
        elif abs(e) > abs(errors[found[-1]]):
            found[-1] = i
    while len(found) > n:
        found.pop(0 if abs(errors[found[0]]) < abs(errors[found[-1]]) else -1)
    return found


def remez(fit: Fit, q: list[mp.mpf]) -> list[mp.mpf]:
    """Numerator coefficients, the fixed ones first, that minimise the largest error over the interval."""
    first, count = len(fit.fixed), fit.degree + 1 - len(fit.fixed)
    grid = chebyshev(fit.low, fit.high, 40 * (count + 1))
    den = [horner(q, x) for x in grid]
    size = [fit.size(x) for x in grid]
    goal = [fit.f(x) for x in grid]
    # error_i = (goal − (fixed + Σ c x^j) / den) / size
    rest = [g - horner([mp.mpf(v) for v in fit.fixed], x) / d for g, x, d in zip(goal, grid, den, strict=True)]
    points = [round(i * (len(grid) - 1) / count) for i in range(count + 1)]
    coefficients: list[mp.mpf] = []
    for _ in range(30):
        rows = [[grid[p] ** (first + j) / den[p] / size[p] for j in range(count)] + [(-1) ** i]
                for i, p in enumerate(points)]  # fmt: skip
        solution = mp.lu_solve(mp.matrix(rows), mp.matrix([rest[p] / size[p] for p in points]))
        coefficients = [solution[j] for j in range(count)]
        errors = [
            (r - x**first * horner(coefficients, x) / d) / s for r, x, d, s in zip(rest, grid, den, size, strict=True)
        ]
        peaks = extrema(errors, count + 1)
        if len(peaks) < count + 1 or max(map(abs, errors)) < abs(solution[count]) * mp.mpf("1.001"):
            break
        points = peaks
    return [mp.mpf(v) for v in fit.fixed] + coefficients


def denominator(fit: Fit) -> list[mp.mpf]:
    """Q with Q(0) = 1, rounded to binary64: min Σ ((f·Q − P) / (Q_before · size))²."""
    n, m = fit.degree + 1, fit.denominator
    grid = chebyshev(fit.low, fit.high, 6 * (n + m))
    goal, size = [fit.f(x) for x in grid], [fit.size(x) for x in grid]
    q = [mp.mpf(1)] + [mp.mpf(0)] * m
    for _ in range(8):
        weights = [1 / (abs(horner(q, x)) * s) for x, s in zip(grid, size, strict=True)]
        rows = [[w * x**j for j in range(n)] + [-w * g * x**j for j in range(1, m + 1)]
                for w, x, g in zip(weights, grid, goal, strict=True)]  # fmt: skip
        solution = mp.qr_solve(mp.matrix(rows), mp.matrix([w * g for w, g in zip(weights, goal, strict=True)]))[0]
        q = [mp.mpf(1)] + [solution[n + j] for j in range(m)]
    return [mp.mpf(float(v)) for v in q]


def run(fit: Fit) -> tuple[list[float], list[float], float]:
    """(P, Q, the largest error in units of 2^-53) with the coefficients rounded to binary64."""
    q = denominator(fit) if fit.denominator else [mp.mpf(1)]
    p = [float(v) for v in remez(fit, q)]
    worst = mp.mpf(0)
    for x in chebyshev(fit.low, fit.high, 2001):
        value = horner([mp.mpf(v) for v in p], x) / horner(q, x)
        worst = max(worst, abs(value - fit.f(x)) / fit.size(x))
    return p, [float(v) for v in q] if fit.denominator else [], float(worst * 2**53)


def _series(f: Function, limit: float, order: int) -> Function:
    """f with its removable singularity at 0 filled in by a Taylor expansion of g at 0."""
    terms = mp.taylor(f, 0, order)
    return lambda x: horner(terms, x) if abs(x) < limit else f(x)


def _guard(near: Function, far: Function, limit: str = "1e-9") -> Function:
    """`near` where |x| < limit, where `far` cancels too much."""
    return lambda x: near(x) if abs(x) < mp.mpf(limit) else far(x)


LN2, PI = mp.log(2), mp.pi
_R = LN2 / 2 * mp.mpf("1.0001")  # a little more than half: n·ln 2 is rounded before it is subtracted
_S = ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) ** 2 * mp.mpf("1.0001")
_HALF_PI2 = (PI / 2 * mp.mpf("1.001")) ** 2
_QUARTER_PI2 = (PI / 4 * mp.mpf("1.001")) ** 2


def _atanh2(z: mp.mpf) -> mp.mpf:
    """log((1+s)/(1−s)) / s at z = s²."""
    s = mp.sqrt(z)
    return mp.log((1 + s) / (1 - s)) / s if z > mp.mpf("1e-30") else 2 + 2 * z / 3


def _sinc(z: mp.mpf) -> mp.mpf:
    r = mp.sqrt(z)
    return mp.sin(r) / r if z > mp.mpf("1e-30") else 1 - z / 6


def _erf_over_x(z: mp.mpf) -> mp.mpf:
    x = mp.sqrt(z)
    return mp.erf(x) / x if z > mp.mpf("1e-30") else 2 / mp.sqrt(PI) * (1 - z / 3)


def _erfcx(x: mp.mpf) -> mp.mpf:
    return mp.exp(x * x) * mp.erfc(x)


def _exp_tail(r: mp.mpf) -> mp.mpf:
    return (mp.exp(r) - 1 - r - r * r / 2) / r**3 if abs(r) > mp.mpf("1e-12") else mp.mpf(1) / 6 + r / 24


def _atanh2_tail(z: mp.mpf) -> mp.mpf:
    return (_atanh2(z) - 2) / z if z > mp.mpf("1e-20") else mp.mpf(2) / 3 + 2 * z / 5


def _atanh2_far_tail(z: mp.mpf) -> mp.mpf:
    rest = _atanh2(z) - 2 - 2 * z / 3 - 2 * z**2 / 5
    return rest / z**3 if z > mp.mpf("1e-10") else mp.mpf(2) / 7 + 2 * z / 9


def _sin_tail(z: mp.mpf) -> mp.mpf:
    return (_sinc(z) - 1) / z if z > mp.mpf("1e-20") else mp.mpf(-1) / 6 + z / 120


def _cos_tail(z: mp.mpf) -> mp.mpf:
    return (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2 if z > mp.mpf("1e-12") else mp.mpf(1) / 24 - z / 720


def _scaled_erfcx(q: mp.mpf) -> mp.mpf:
    """(1 + 2a)·erfcx(a) − 1 at q = (a − 4)/(a + 4)."""
    a = 4 * (1 + q) / (1 - q)
    return (1 + 2 * a) * _erfcx(a) - 1


def _tan_over_r(z: mp.mpf) -> mp.mpf:
    r = mp.sqrt(z)
    return mp.tan(r) / r if z > mp.mpf("1e-30") else 1 + z / 3


def _asin_over_s(z: mp.mpf) -> mp.mpf:
    s = mp.sqrt(z)
    return mp.asin(s) / s if z > mp.mpf("1e-30") else 1 + z / 6


def _atan_over_t(z: mp.mpf) -> mp.mpf:
    t = mp.sqrt(z)
    return mp.atan(t) / t if z > mp.mpf("1e-30") else 1 - z / 3


def _tail(f: Function, slope: mp.mpf) -> Function:
    """(f(z) − 1) ÷ z, `slope` at 0."""
    return lambda z: (f(z) - 1) / z if z > mp.mpf("1e-20") else slope


FITS: dict[str, Fit] = {
    # f32
    "EXP": Fit(mp.exp, -_R, _R, 10),
    "EXPM1": Fit(_guard(lambda r: 1 + r / 2, lambda r: mp.expm1(r) / r, "1e-30"), -_R, _R, 10),
    "TANH": Fit(_guard(lambda r: 2 + 2 * r, lambda r: mp.expm1(2 * r) / r, "1e-30"), -_R / 2, _R / 2, 10),
    "LOG": Fit(_atanh2, mp.mpf(0), _S, 7),
    "SIN": Fit(_sinc, mp.mpf(0), _HALF_PI2, 8),
    "ERF": Fit(_erf_over_x, mp.mpf(0), mp.mpf("15.5"), 11, denominator=11),
    "ERFC": Fit(_erfcx, mp.mpf(0), mp.mpf("10.2"), 9, denominator=10),
    "EXP2": Fit(lambda r: mp.power(2, r), mp.mpf("-0.5"), mp.mpf("0.5"), 10, fixed=(1.0,)),
    "LOG2": Fit(lambda z: _atanh2(z) / LN2, mp.mpf(0), _S, 7),
    "LOG10": Fit(lambda z: _atanh2(z) / mp.log(10), mp.mpf(0), _S, 7),
    "TAN": Fit(_tan_over_r, mp.mpf(0), _QUARTER_PI2, 3, denominator=3),
    "ASIN": Fit(_asin_over_s, mp.mpf(0), mp.mpf("0.25"), 12),
    "ATAN": Fit(_atan_over_t, mp.mpf(0), mp.mpf(1), 6, denominator=6),
    # f64: what is left after the terms that are summed in double-double
    "EXP_TAIL": Fit(_exp_tail, -_R, _R, 9),
    "LOG_TAIL": Fit(_atanh2_tail, mp.mpf(0), _S, 7),
    "LOG_FAR_TAIL": Fit(_atanh2_far_tail, mp.mpf(0), _S, 6),
    "SIN_TAIL": Fit(_sin_tail, mp.mpf(0), _QUARTER_PI2, 6),
    "COS_TAIL": Fit(_cos_tail, mp.mpf(0), _QUARTER_PI2, 6),
    "ASIN_TAIL": Fit(_tail(_asin_over_s, mp.mpf(1) / 6), mp.mpf(0), mp.mpf("0.25"), 13),
    "ATAN_TAIL": Fit(_tail(_atan_over_t, mp.mpf(-1) / 3), mp.mpf(0), mp.mpf("0.192"), 11),
    "ERF_NEAR": Fit(lambda z: _erf_over_x(z) - 1, mp.mpf(0), mp.mpf("0.563"), 11, scale=_erf_over_x),
    "ERFCX": Fit(_scaled_erfcx, mp.mpf(-1), mp.mpf("0.747"), 22, scale=lambda q: 1 + _scaled_erfcx(q)),
}


def main(names: list[str]) -> None:
    for name in names or list(FITS):
        p, q, bound = run(FITS[name])
        print(f"{name}: error {bound:.3g} · 2^-53 relative")
        print("   P", " ".join(v.hex() for v in p))
        if q:
            print("   Q", " ".join(v.hex() for v in q))


if __name__ == "__main__":
    main(sys.argv[1:])
