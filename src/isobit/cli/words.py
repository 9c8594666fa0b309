"""How the terminal says what several views show."""

from __future__ import annotations

COLOURS = {
    "finished": "green", "running": "cyan", "failed": "red", "killed": "red", "interrupted": "yellow",
    "unreadable": "red",
}  # fmt: skip


def duration(seconds: float | None) -> str:
    """``12.3 s``, ``4:05 min``, ``3:04:05 h``; "" for None."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02} h" if hours else f"{minutes}:{rest:02} min"


def many(count: int, what: str) -> str:
    """A number of things: ``1 file``, ``1,200 files``."""
    return f"{count:,} {what}{'s' * (count != 1)}"
