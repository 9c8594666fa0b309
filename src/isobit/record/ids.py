"""Run ids: sortable by time, short, unique, readable, such as ``20261130-184207-k3f9``."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime

# Crockford's base 32: in ASCII order, without letters that look like digits.
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_ID = re.compile(rf"\d{{8}}-\d{{6}}-[{_ALPHABET}]{{4}}")
_TICK = 1_000_000_000 // 1024 + 1  # nanoseconds


def new_id(now_ns: int) -> str:
    """An id for a run that starts `now_ns` nanoseconds after the epoch.

    Date and time are UTC. Of the last four characters two count the second's 1024ths, so that ids sort by
    time to the millisecond, and two are random.
    """
    seconds, fraction = divmod(now_ns, 1_000_000_000)
    ticks = fraction * 1024 // 1_000_000_000
    stamp = datetime.fromtimestamp(seconds, UTC).strftime("%Y%m%d-%H%M%S")
    return f"{stamp}-{_base32(ticks)}{_base32(secrets.randbelow(1024))}"


def later_id(now_ns: int, others: Sequence[str]) -> str:
    """An id for `now_ns` that sorts after all of `others`, which are sorted: where the latest of them is not in the
    past, a 1024th of a second after it.
    """
    latest = next((time for time in map(_time_of, reversed(others)) if time is not None), 0)
    return new_id(max(now_ns, latest + _TICK))


def _time_of(run_id: str) -> int | None:
    """The beginning of the tick that `run_id` was made in, in nanoseconds; None for a name that is no such id."""
    if _ID.fullmatch(run_id) is None:
        return None
    try:
        moment = datetime.strptime(run_id[:15], "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    ticks = _ALPHABET.index(run_id[16]) * 32 + _ALPHABET.index(run_id[17])
    return int(moment.timestamp()) * 1_000_000_000 + -(-ticks * 1_000_000_000 // 1024)


def _base32(value: int) -> str:
    """Two characters for 0 <= value < 1024."""
    return _ALPHABET[value >> 5] + _ALPHABET[value & 31]
