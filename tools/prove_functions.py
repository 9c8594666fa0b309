"""Proves that the f32 elementary functions are correctly rounded, by trying every argument.

    python tools/prove_functions.py exp --all                        # 2^32 arguments with NumPy: hours
    PYTHONPATH=src:tools python tools/prove_functions.py exp --all --evaluator compiled_evaluator:compiled
    python tools/prove_functions.py --exponents 120:130 --random 1048576

An algorithm returns a binary64 value, which is rounded once to f32. If its error is below BOUND ulp of binary64,
the f32 result can be wrong only where a rounding boundary of f32 lies within BOUND ulp of the value. Arguments
within twice that are flagged, and each is decided by MPFR. `--list FOLDER` writes them: they hold every argument
whose true result lies within BOUND ulp of a boundary, so another evaluation with an error below BOUND is right
everywhere if it is right on these (tests/arithmetic/boundaries).

The bound itself is argued in docs/functions.md; `--random` and the ends of every binade check it against MPFR, and so
check that special arguments do not escape.

The evaluator is MODULE:FACTORY; FACTORY(name) returns a callable that maps a binary64 array of widened arguments
to the binary64 array of values. The default runs the reference, whose emulated fma is slow. Exit code 1 if an
argument is wrong or the bound is broken.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import gmpy2
import numpy as np
import numpy.typing as npt

from isobit.arithmetic.functions import FUNCTIONS, evaluate

BOUND = 16  # ulp of binary64, for every function
REACH = 2 * BOUND
BLOCK = 1 << 15
F64Array = npt.NDArray[np.float64]
U32Array = npt.NDArray[np.uint32]
Evaluator = Callable[[F64Array], F64Array]

UNARY = tuple(name for name, function in FUNCTIONS.items() if function.arity == 1)


def reference(name: str) -> Evaluator:
    """The algorithm on NumPy arrays."""
    return lambda x: evaluate(FUNCTIONS[name].f32, x)


def oracle(name: str, x: float) -> gmpy2.mpfr:
    """The function by MPFR, rounded as the current context says; 1/√−0 is −∞ as in IEEE 754."""
    if name == "rsqrt":
        return -gmpy2.inf() if x == 0 and np.signbit(x) else gmpy2.rec_sqrt(gmpy2.mpfr(x))
    value: gmpy2.mpfr = getattr(gmpy2, name)(gmpy2.mpfr(x))
    return value


def rounded(name: str, x: float) -> np.float32:
    """The correctly rounded f32 result."""
    with gmpy2.context(precision=24, emin=-148, emax=128, subnormalize=True):
        return np.float32(float(oracle(name, x)))


def widened(bits: U32Array) -> F64Array:
    """The arguments in binary64."""
    with np.errstate(all="ignore"):  # a signalling NaN is turned into a quiet one
        return bits.view(np.float32).astype(np.float64)


def flagged(values: F64Array, reach: int = REACH) -> npt.NDArray[np.bool_]:
    """True where a rounding boundary of f32 lies within `reach` ulp of the value."""
    size = np.abs(values)
    if size.min() < 2.0**-125:
        return _flagged_by_rounding(values, reach)
    # normal f32: boundaries are where the low 29 bits of binary64 are 2^28; the shift makes them 2^35 units of 2^-35
    distance = (values.view(np.int64) << np.int64(35)) ^ np.int64(-(2**63))  # 0 at a boundary, wraps around it
    return np.less_equal(np.abs(distance, out=distance).view(np.uint64), np.uint64(reach << 35))


def _flagged_by_rounding(values: F64Array, reach: int) -> npt.NDArray[np.bool_]:
    """The same for any values, up to twice as far."""
    with np.errstate(all="ignore"):
        margin = np.abs(values) * (reach * 2.0**-52)
        low, high = (values - margin).astype(np.float32), (values + margin).astype(np.float32)
        return np.asarray((low != high) & np.isfinite(values))


@dataclass
class Report:
    """What was tried: arguments, those flagged, the wrong ones as bit patterns, those that break the bound."""

    name: str
    tried: int = 0
    flagged: list[int] = field(default_factory=list)
    wrong: list[int] = field(default_factory=list)
    beyond: list[int] = field(default_factory=list)
    worst: float = 0.0  # largest error seen, in ulp of binary64

    def __str__(self) -> str:
        wrong = " ".join(f"{bits:#010x}" for bits in self.wrong[:20])
        text = f"{self.name}: tried {self.tried}, flagged {len(self.flagged)}, wrong {len(self.wrong)}"
        text += f", beyond the bound {len(self.beyond)}, largest error seen {self.worst:.2f} ulp"
        return f"{text}: {wrong}" if wrong else text


def same(a: np.float32, b: np.float32) -> bool:
    """The same bits, NaN being one value."""
    return bool((a != a and b != b) or (a == b and np.signbit(a) == np.signbit(b)))


def judge(report: Report, bits: U32Array, values: F64Array) -> None:
    """Decide arguments by MPFR: is the f32 result right, is the value within the bound?"""
    arguments = widened(bits)
    for pattern, x, value in zip(bits.tolist(), arguments.tolist(), values.tolist(), strict=True):
        with np.errstate(all="ignore"):
            result, error = np.float32(value), _error(report.name, x, value)
        if not same(result, rounded(report.name, x)):
            report.wrong.append(pattern)
        report.worst = max(report.worst, error)
        if error > BOUND:
            report.beyond.append(pattern)


def _error(name: str, x: float, value: float) -> float:
    """Error in ulp of binary64; 0 where it cannot matter.

    That is below half of f32's least number, above its range, and where an algorithm limits its argument because
    the result is ±1 or 2 to f32 from there on.
    """
    limited = abs(x) > 3 and abs(np.float32(value)) in (1.0, 2.0)
    if limited or not np.isfinite(value) or not 2.0**-151 < abs(value) < 2.0**128:
        return 0.0
    with gmpy2.context(precision=160):
        ulp = gmpy2.mpfr(float(np.spacing(abs(value))))
        return float(abs(oracle(name, x) - gmpy2.mpfr(value)) / ulp)


def prove(name: str, evaluator: Evaluator, blocks: Iterator[U32Array], spot_checks: U32Array) -> Report:
    """Evaluate all blocks, decide what is flagged, and judge `spot_checks` whether flagged or not."""
    report = Report(name)
    for bits in blocks:
        values = evaluator(widened(bits))
        doubtful = flagged(values)
        report.tried += bits.size
        report.flagged += bits[doubtful].tolist()
        judge(report, bits[doubtful], values[doubtful])
    judge(report, spot_checks, evaluator(widened(spot_checks)))
    return report


def consecutive(start: int, stop: int) -> Iterator[U32Array]:
    """All bit patterns from start to stop in blocks."""
    for first in range(start, stop, BLOCK):
        yield np.arange(first, min(first + BLOCK, stop), dtype=np.uint64).astype(np.uint32)


def binades(exponents: range) -> Iterator[U32Array]:
    """All arguments of either sign with these exponent fields."""
    for sign in (0, 1 << 31):
        yield from consecutive(sign + (exponents.start << 23), sign + (exponents.stop << 23))


def ends_of_binades() -> U32Array:
    """The first and last two arguments of each binade of either sign: zeros, subnormals, ∞ and NaN among them."""
    starts = np.arange(512, dtype=np.uint64) << np.uint64(23)
    offsets = np.array([0, 1, 2**23 - 2, 2**23 - 1], np.uint64)
    return (starts[:, None] + offsets).astype(np.uint32).reshape(-1)


def random_patterns(count: int, seed: int) -> U32Array:
    """Random bit patterns, the same for every run."""
    return np.random.default_rng(seed).integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32)


def _blocks(options: argparse.Namespace) -> Iterator[U32Array]:
    if options.all:
        yield from consecutive(0, 2**32)
    if options.exponents:
        low, _, high = options.exponents.partition(":")
        yield from binades(range(int(low), int(high)))
    for k in range(0, options.random, BLOCK):
        yield random_patterns(min(BLOCK, options.random - k), 1 + k)


def _factory(text: str) -> Callable[[str], Evaluator]:
    module, _, attribute = text.partition(":")
    factory: Callable[[str], Evaluator] = getattr(importlib.import_module(module), attribute)
    return factory


def main(arguments: Sequence[str]) -> int:
    """Prove the named functions, or all; 1 if one fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="functions (default: all of one argument)")
    parser.add_argument("--all", action="store_true", help="all 2^32 arguments")
    parser.add_argument("--exponents", help="all arguments with exponent fields LOW:HIGH (0 to 256)")
    parser.add_argument("--random", type=int, default=0, help="as many random arguments")
    parser.add_argument("--spot", type=int, default=2000, help="random arguments that MPFR judges in any case")
    parser.add_argument("--list", type=Path, help="folder for the flagged arguments, one NAME.txt a function")
    parser.add_argument("--evaluator", help="MODULE:FACTORY of a faster evaluator")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(UNARY):
        parser.error(f"no function of one argument: {', '.join(sorted(unknown))}")
    factory = _factory(options.evaluator) if options.evaluator else reference
    failed = False
    for name in options.names or UNARY:
        spots = np.concatenate([ends_of_binades(), random_patterns(options.spot, 0)])
        report = prove(name, factory(name), _blocks(options), spots)
        print(report, flush=True)
        if options.list:
            lines = [f"{bits:08x}\n" for bits in sorted(report.flagged)]
            (options.list / f"{name}.txt").write_text("".join(lines), encoding="ascii")
        failed = failed or bool(report.wrong or report.beyond)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
