"""log, log1p, log2 and log10. NAME_f32 takes a widened f32 and is rounded to f32 once, by the caller."""

from __future__ import annotations

from isobit.arithmetic.exponentials import LN2, LN2_SHORT, LN2_SHORT_REST, LOG2E
from isobit.arithmetic.ops import F, I, M, Ops
from isobit.arithmetic.steps import (
    INF,
    NAN,
    Cases,
    between_f32,
    divide_pairs,
    fast_two_sum,
    hexes,
    nudge,
    polynomial,
    polynomial_by_fours,
    two_product,
    two_sum,
)

SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
ONE_BITS = 0x3FF0000000000000
_TWO_52_BITS = 0x4330000000000000
LOG2E_REST = float.fromhex("0x1.777d0ffda0d24p-56")  # 1/ln 2 − LOG2E
LOG10E = float.fromhex("0x1.bcb7b1526e50ep-2")
LOG10E_REST = float.fromhex("0x1.95355baaafad3p-57")
LOG10_2 = float.fromhex("0x1.34413509f79ffp-2")
LOG10_2_SHORT = float.fromhex("0x1.34413509f7800p-2")  # 41 bits, so k·LOG10_2_SHORT is exact
LOG10_2_SHORT_REST = float.fromhex("0x1.fef311f12b358p-46")
_FRACTION = (1 << 52) - 1

# tools/fit_polynomials.py; relative errors in units of 2^-53; z = s², s = f ÷ (2 + f), √½ ≤ 1 + f < √2
LOG = hexes(  # log((1+s) ÷ (1−s)) ÷ s: 0.02
    "0x1.0000000000000p+1 0x1.55555555555aep-1 0x1.999999997abfbp-2 0x1.2492494536adbp-2"
    " 0x1.c71c4fe59a7c6p-3 0x1.74669e94fe1a6p-3 0x1.39993b48d2c61p-3 0x1.2f529c58c140cp-3"
)
LOG2 = hexes(  # log2((1+s) ÷ (1−s)) ÷ s: 0.13
    "0x1.71547652b82fep+1 0x1.ec709dc3a047ep-1 0x1.2776c50ee37ecp-1 0x1.a61762d6c5a79p-2"
    " 0x1.484afb67232d7p-2 0x1.0ca1643036873p-2 0x1.c46d55ad61be0p-3 0x1.b59a26a95270dp-3"
)
LOG10 = hexes(  # log10((1+s) ÷ (1−s)) ÷ s: 0.23
    "0x1.bcb7b1526e50ep-1 0x1.287a7636f43acp-2 0x1.63c627750a417p-3 0x1.fc3fa64dc4e6fp-4"
    " 0x1.8b4dd58639bf4p-4 0x1.4376992c511a8p-4 0x1.10636449cd69cp-4 0x1.077676a8bdf1ap-4"
)
LOG_TAIL = hexes(  # (log((1+s) ÷ (1−s)) − 2s) ÷ s³: 0.5
    "0x1.5555555555555p-1 0x1.9999999999a38p-2 0x1.2492492476b61p-2 0x1.c71c72017e211p-3"
    " 0x1.745cf8f627070p-3 0x1.3b1c3839a25f8p-3 0x1.0fbe4d3e2d62cp-3 0x1.0c066cb046cdbp-3"
)

# arguments whose binary64 value is halfway between two f32, and to which side (steps.nudge) the function lies
LOG_CASES: Cases = (
    ("0x1.827a74p-7", -1),
    ("0x1.2f1fd6p+3", -1),
    ("0x1.bacb4ap+25", 1),
    ("0x1.b121a6p+76", 1),
    ("0x1.6351d8p+95", 1),
)
LOG2_CASES: Cases = ()
LOG10_CASES: Cases = (("0x1.fddcf4p-98", 1),)
LOG1P_CASES: Cases = (
    ("0x1.800006p-21", 1),
    ("0x1.200036p-17", 1),
    ("0x1.0f1fd6p+3", -1),
    ("0x1.b121a6p+76", 1),
    ("0x1.6351d8p+95", 1),
    ("-0x1.7ffffap-21", -1),
    ("-0x1.1fffcap-17", -1),
    ("-0x1.1d9188p-9", 1),
)


def split(o: Ops[F, I, M], x: F) -> tuple[F, F]:
    """(k, m) with x = 2^k·m and √½ ≤ m < √2, for positive normal x."""
    shifted = o.iadd(o.bits(x), o.i(ONE_BITS - SQRT_HALF_BITS))  # the exponent field counts up at √½
    field = o.ior(o.lshr(shifted, o.i(52)), o.i(_TWO_52_BITS))
    k = o.sub(o.from_bits(field), o.f(2.0**52 + 1023))
    m = o.from_bits(o.iadd(o.iand(shifted, o.i(_FRACTION)), o.i(SQRT_HALF_BITS)))
    return k, m


def _outside(o: Ops[F, I, M], x: F, pole: float) -> F:
    """The result where x is not inside (pole, ∞): −∞ at the pole, ∞ at ∞, else NaN."""
    above = o.select(o.gt(x, o.f(pole)), x, o.f(NAN))
    return o.select(o.eq(x, o.f(pole)), o.f(-INF), above)


def _finish_f32(o: Ops[F, I, M], x: F, y: F, pole: float, cases: Cases) -> F:
    """y outside the poles and the listed arguments: one test, hardly ever met, finds both."""
    inside = _inside(o, x, pole)

    def special() -> F:
        return o.select(inside, nudge(o, x, y, cases), _outside(o, x, pole))

    return o.rare(o.mor(o.mnot(inside), between_f32(o, y)), special, y)


def _inside(o: Ops[F, I, M], x: F, pole: float) -> M:
    return o.mand(o.gt(x, o.f(pole)), o.lt(x, o.f(INF)))


def _log_near_one_f32(o: Ops[F, I, M], c: tuple[float, ...], f: F) -> F:
    """log(1 + f), to the base that c is for, where √½ ≤ 1 + f < √2."""
    s = o.div(f, o.add(f, o.f(2.0)))
    return o.mul(s, polynomial_by_fours(o, c, o.mul(s, s)))


def _log_f32(o: Ops[F, I, M], x: F, c: tuple[float, ...], log_of_2: float, cases: Cases) -> F:
    """k·log(2) + log(m); a subnormal f32 is a normal f64."""
    k, m = split(o, x)
    result = o.fma(k, o.f(log_of_2), _log_near_one_f32(o, c, o.sub(m, o.f(1.0))))
    return _finish_f32(o, x, result, 0.0, cases)


def log_f32(o: Ops[F, I, M], x: F) -> F:
    """log."""
    return _log_f32(o, x, LOG, LN2, LOG_CASES)


def log2_f32(o: Ops[F, I, M], x: F) -> F:
    """log2."""
    return _log_f32(o, x, LOG2, 1.0, LOG2_CASES)


def log10_f32(o: Ops[F, I, M], x: F) -> F:
    """log10."""
    return _log_f32(o, x, LOG10, LOG10_2, LOG10_CASES)


def log1p_core_f32(o: Ops[F, I, M], x: F) -> F:
    """log(1 + x) for −1 < x < ∞, where 1 + x is exact, or x is tiny and stands for m − 1 itself, or is huge."""
    k, m = split(o, o.add(o.f(1.0), x))
    near = o.eq(k, o.f(0.0))
    part = _log_near_one_f32(o, LOG, o.select(near, x, o.sub(m, o.f(1.0))))
    return o.select(near, part, o.fma(k, o.f(LN2), part))  # k = 0 would lose the sign of −0


def log1p_f32(o: Ops[F, I, M], x: F) -> F:
    """log(1 + x)."""
    return _finish_f32(o, x, log1p_core_f32(o, x), -1.0, LOG1P_CASES)


def log_pair(o: Ops[F, I, M], k: F, f: F, rest: F) -> tuple[F, F]:
    """k·ln 2 + log(1 + f + rest) as a pair, relative error about 2^-58; |rest| ≤ ulp(f)."""
    below, below_rest = two_sum(o, o.f(2.0), f)
    s, s_rest = divide_pairs(o, (f, rest), (below, o.add(below_rest, rest)))
    z = o.mul(s, s)
    tail = o.mul(o.mul(s, z), polynomial(o, LOG_TAIL, z))
    high, error = fast_two_sum(o, o.mul(k, o.f(LN2_SHORT)), o.add(s, s))
    small = o.fma(k, o.f(LN2_SHORT_REST), o.add(o.add(s_rest, s_rest), tail))
    return fast_two_sum(o, high, o.add(error, small))


def split_f64(o: Ops[F, I, M], x: F) -> tuple[F, F]:
    """`split` for all positive x."""
    tiny = o.lt(x, o.f(2.0**-1022))
    k, m = split(o, o.select(tiny, o.mul(x, o.f(2.0**54)), x))
    return o.select(tiny, o.sub(k, o.f(54.0)), k), m


def _finish_f64(o: Ops[F, I, M], x: F, y: F, pole: float) -> F:
    return o.rare(o.mnot(_inside(o, x, pole)), lambda: _outside(o, x, pole), y)


def log_f64(o: Ops[F, I, M], x: F) -> F:
    """log, error below 0.6 ulp."""
    k, m = split_f64(o, x)
    high, low = log_pair(o, k, o.sub(m, o.f(1.0)), o.f(0.0))
    return _finish_f64(o, x, o.add(high, low), 0.0)


def _log_other_base(o: Ops[F, I, M], x: F, unit: tuple[float, float], log_of_2: tuple[float, float]) -> F:
    """k·log(2) + ln(m)·unit, both constants pairs, k·log_of_2[0] exact."""
    k, m = split_f64(o, x)
    natural = log_pair(o, o.f(0.0), o.sub(m, o.f(1.0)), o.f(0.0))
    part, rest = two_product(o, natural[0], o.f(unit[0]))
    rest = o.add(rest, o.fma(natural[0], o.f(unit[1]), o.mul(natural[1], o.f(unit[0]))))
    high, low = fast_two_sum(o, o.mul(k, o.f(log_of_2[0])), part)
    low = o.add(low, o.fma(k, o.f(log_of_2[1]), rest))
    return _finish_f64(o, x, o.add(high, low), 0.0)


def log2_f64(o: Ops[F, I, M], x: F) -> F:
    """log2, error below 0.6 ulp."""
    return _log_other_base(o, x, (LOG2E, LOG2E_REST), (1.0, 0.0))


def log10_f64(o: Ops[F, I, M], x: F) -> F:
    """log10, error below 0.6 ulp."""
    return _log_other_base(o, x, (LOG10E, LOG10E_REST), (LOG10_2_SHORT, LOG10_2_SHORT_REST))


def log1p_pair(o: Ops[F, I, M], x: F, rest: F, factor: F, doublings: F) -> tuple[F, F]:
    """log((1 + x + rest)·factor·2^doublings) as a pair, for −1 < x < ∞; factor is 1, or x = rest = 0.

    What 1 + x loses is scaled along and added to f.
    """
    total, lost = two_sum(o, factor, x)
    k, m = split(o, total)
    # total and m differ by k in the exponent field; where k > 1000 the loss does not matter
    shrink = o.from_bits(o.iadd(o.i(ONE_BITS), o.isub(o.bits(m), o.bits(total))))
    lost = o.select(o.gt(k, o.f(1000.0)), o.f(0.0), o.mul(o.add(lost, rest), shrink))
    f, rest = two_sum(o, o.sub(m, o.f(1.0)), lost)
    return log_pair(o, o.add(k, doublings), f, rest)


def log1p_f64(o: Ops[F, I, M], x: F) -> F:
    """log(1 + x), error below 0.6 ulp."""
    high, low = log1p_pair(o, x, o.f(0.0), o.f(1.0), o.f(0.0))
    result = o.select(o.lt(o.fabs(x), o.f(2.0**-54)), x, o.add(high, low))
    return _finish_f64(o, x, result, -1.0)
