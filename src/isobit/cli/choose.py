"""Which of the recorded runs a list shows, and in which order."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import Any

from isobit.cli.arguments import named
from isobit.record.errors import RecordError
from isobit.record.index import Entry

_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_CONDITION = re.compile(r"\s*([^<>=!\s]+)\s*(<=|>=|!=|==|=|<|>)\s*(.*?)\s*", re.DOTALL)
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "=": operator.eq, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_FIELDS: dict[str, Callable[[Entry], Any]] = {
    "loss": lambda e: e.loss_value,
    "steps": lambda e: e.steps,
    "time": lambda e: e.seconds,
    "exit": lambda e: e.exit_code,
    "seed": lambda e: e.seed,
    "threads": lambda e: e.threads,
    "cpu": lambda e: e.cpu,
    "holes": lambda e: e.holes,
    "status": lambda e: e.status,
    "verdict": lambda e: e.verdict,
    "script": lambda e: e.script,
}


class Order(StrEnum):
    """What a list is sorted by."""

    STARTED = "started"
    TIME = "time"
    STEPS = "steps"
    LOSS = "loss"
    STATUS = "status"


_KEYS: dict[Order, Callable[[Entry], Any]] = {
    Order.STARTED: lambda e: e.started,
    Order.TIME: lambda e: e.seconds,
    Order.STEPS: lambda e: e.steps,
    Order.LOSS: lambda e: e.loss_value,
    Order.STATUS: lambda e: e.status,
}


@dataclass(frozen=True)
class Choice:
    """What the user asked for: a run must meet all of it."""

    statuses: Sequence[str] = ()
    script: str | None = None
    since: str | None = None
    where: Sequence[str] = ()
    order: Order = Order.STARTED
    reverse: bool = False


def chosen(entries: Sequence[Entry], choice: Choice) -> list[Entry]:
    """The entries that meet `choice`, sorted; raises RecordError for what cannot be understood."""
    tests = [condition(text) for text in choice.where]
    begin = None if choice.since is None else moment(choice.since, datetime.now(UTC))
    kept = [
        e
        for e in entries
        if (not choice.statuses or e.status in choice.statuses)
        and (choice.script is None or _is_script(e.script, choice.script))
        and (begin is None or _not_before(e.started, begin))
        and all(test(e) for test in tests)
    ]
    return _sorted(kept, choice.order, choice.reverse)


def _is_script(script: str, pattern: str) -> bool:
    """Whether the script's path as given, or its last part, fits the pattern."""
    return fnmatchcase(script, pattern) or fnmatchcase(PurePath(script).name, pattern)


def _not_before(started: str, begin: datetime) -> bool:
    try:
        return _aware(datetime.fromisoformat(started)) >= begin
    except ValueError:  # a record that cannot be read
        return False


def moment(text: str, now: datetime) -> datetime:
    """``2d`` (and s, m, h, w) before `now`, or a date or time of the local clock."""
    ago = _AGO.fullmatch(text.strip())
    try:
        if ago is not None:
            return now - timedelta(seconds=float(ago[1]) * _SECONDS[ago[2]])
        return _aware(datetime.fromisoformat(text.strip()))
    except (ValueError, OverflowError):
        raise RecordError(f"--since takes 30m, 12h, 2d, 3w or a date such as 2026-11-30, not {text!r}") from None


def _aware(when: datetime) -> datetime:
    return when.astimezone() if when.tzinfo is None else when


def condition(text: str) -> Callable[[Entry], bool]:
    """The test that ``loss<0.1``, ``arg.lr=0.1`` or ``status!=failed`` stands for.

    Numbers compare as numbers, all else as text, and only for equality. What a run does not have fits no condition.
    """
    parts = _CONDITION.fullmatch(text)
    if parts is None:
        raise RecordError(f"--where takes NAME, one of < <= > >= = !=, and a value, such as 'loss<0.1', not {text!r}")
    name, sign, wanted = parts[1], parts[2], parts[3]
    field = _field(name)
    number, compare = _number(wanted), _COMPARE[sign]
    if number is None and sign not in ("=", "==", "!="):
        raise RecordError(f"--where {text!r}: {sign} compares numbers, and {wanted!r} is none")

    def test(entry: Entry) -> bool:
        value = field(entry)
        if value is None:
            return False
        own = _number(value)
        if own is not None and number is not None:
            return compare(own, number)
        return sign in ("=", "==", "!=") and compare(str(value), wanted)

    return test


def _field(name: str) -> Callable[[Entry], Any]:
    if name.startswith("arg.") and len(name) > 4:
        return lambda e: named(e.args).get(name[4:])
    if name not in _FIELDS:
        raise RecordError(f"--where knows {', '.join(_FIELDS)} and arg.NAME, not {name!r}")
    return _FIELDS[name]


def _number(value: object) -> float | None:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None


def _sorted(entries: list[Entry], order: Order, reverse: bool) -> list[Entry]:
    """Ascending, ties in order of time. What has no value stands first in either direction: a terminal's last lines
    are those that are read.
    """
    key = _KEYS[order]
    with_value = [e for e in entries if not _missing(key(e))]
    return [e for e in entries if _missing(key(e))] + sorted(with_value, key=key, reverse=reverse)


def _missing(value: Any) -> bool:
    return value is None or value != value
