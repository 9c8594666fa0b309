"""Run ids: sortable by time, short, unique, readable, such as ``20261130-184207-k3f9``."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

# Crockford's base 32: in ASCII order, without letters that look like digits.
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def new_id(now_ns: int) -> str:
    """An id for a run that starts `now_ns` nanoseconds after the epoch.

    Date and time are UTC. Of the last four characters two count the second's 1024ths, so that ids sort by
    time to the millisecond, and two are random.
    """
    seconds, fraction = divmod(now_ns, 1_000_000_000)
    ticks = fraction * 1024 // 1_000_000_000
    stamp = datetime.fromtimestamp(seconds, UTC).strftime("%Y%m%d-%H%M%S")
    return f"{stamp}-{_base32(ticks)}{_base32(secrets.randbelow(1024))}"


def _base32(value: int) -> str:
    """Two characters for 0 <= value < 1024."""
    return _ALPHABET[value >> 5] + _ALPHABET[value & 31]
