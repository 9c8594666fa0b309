"""Timing of two ways to do one thing, by turns: what slows the machine down slows both."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

# OpenMP threads spin for some milliseconds after a call and would take cores from whatever is timed next.
SETTLE_S = 0.02


@dataclass(frozen=True)
class Side:
    """One way to do the thing: the call that is timed, and what must be entered around a row of calls."""

    work: Callable[[], object]
    scope: Callable[[], AbstractContextManager[object]] = nullcontext


@dataclass(frozen=True)
class Times:
    """Seconds per call of both, at the median, and the median of the rounds' ratios (above 1: ours is faster)."""

    ours: float
    peer: float
    ratio: float


def seconds_per_call(side: Side, calls: int) -> float:
    """Mean over `calls` calls in a row."""
    with side.scope():
        time.sleep(SETTLE_S)
        begun = time.perf_counter()
        for _ in range(calls):
            side.work()
        return (time.perf_counter() - begun) / calls


def calls_for(side: Side, seconds: float) -> int:
    """How many calls fill about `seconds`; the first calls, which compile and fill caches, do not count."""
    seconds_per_call(side, 3)
    return max(1, int(seconds / max(seconds_per_call(side, 1), 1e-7)))


def alternate(ours: Side, peer: Side, rounds: int = 9, seconds: float = 0.2) -> Times:
    """Time both by turns, each for about `seconds` a round."""
    a, b = calls_for(ours, seconds), calls_for(peer, seconds)
    pairs = [(seconds_per_call(ours, a), seconds_per_call(peer, b)) for _ in range(rounds)]
    return Times(
        ours=statistics.median(x for x, _ in pairs),
        peer=statistics.median(y for _, y in pairs),
        ratio=statistics.median(y / x for x, y in pairs),
    )
