"""How one step, and what belongs to it, lies in the files of a trace: entries of a fixed width, little-endian.

A step is one row, written by one system call after all that it refers to. It ends with a check value over itself, its
place and its entries in the other files, so damage is told from a row that was torn. What a step may have any number of
(losses before its last one) or not at all (sampled digests) lies in files of their own; a row says how many entries
each holds up to it.

The layout is said here alone, and without NumPy, which takes longer to import than a list of runs to print; columns.py
reads whole columns by it.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

FOLDER = "trace"
HEADER = "header.json"
STEPS = "steps"
METRICS = "metrics"
EVENTS = "events.jsonl"
VERSION = 2

DIGESTS = ("batch", "settings", "parameters", "random")  # of every step, in a row
SAMPLED = ("gradients", "state")
SIDES = ("losses", *SAMPLED)

NONE, UNREAD, XXH3 = range(3)
_WIDTHS = {
    "xxh3": 16, "f64": 8, "f32": 4, "f16": 2, "bf16": 2, "i64": 8, "i32": 4, "i16": 2, "i8": 1, "u8": 1, "bool": 1,
}  # fmt: skip
KINDS = ("none", "unread", *_WIDTHS)  # what bits are of, by their number in the files

Fields = tuple[tuple[str, str], ...]  # names and types, as NumPy writes them

_SAMPLE_FIELDS: Fields = (("step", "<u8"), ("digest", "|V16"))
FIELDS: dict[str, Fields] = {
    STEPS: (
        ("seconds", "<f8"), ("optimizer", "<u4"), ("present", "|u1"), ("kind", "|u1"), ("unused", "<u2"),
        *((name, "|V16") for name in (*DIGESTS, "loss")), *((name, "<u4") for name in (*SIDES, "check")),
    ),
    "losses": (("kind", "|u1"), ("bits", "|V16")),
    "gradients": _SAMPLE_FIELDS,
    "state": _SAMPLE_FIELDS,
    METRICS: (
        ("step", "<u8"), ("seconds", "<f8"), ("name", "<u4"), ("check", "<u2"), ("kind", "|u1"), ("unused", "|u1"),
        ("bits", "|V8"),
    ),
}  # fmt: skip
_CODES = {"<f8": "d", "<u8": "Q", "<u4": "I", "<u2": "H", "|u1": "B", "|V16": "16s", "|V8": "8s"}


def _packing(fields: Fields) -> struct.Struct:
    """What packs and unpacks an entry, without padding, as NumPy's structures have none."""
    return struct.Struct("<" + "".join(_CODES[code] for _, code in fields))


SIZES = {name: _packing(fields).size for name, fields in FIELDS.items()}
_ROW = _packing(FIELDS[STEPS][:-1])  # without its check value
_LOSS, _SAMPLE, _METRIC = (_packing(FIELDS[name]) for name in ("losses", "state", METRICS))
CHECKED = _ROW.size  # bytes of a row that its check value, the last of its fields, is over
_CHECK = struct.Struct("<I")
_ENDS = struct.Struct(f"<{len(SIDES)}I")
_ABSENT = bytes(16)
_NUMBERS = {name: number for number, name in enumerate(KINDS)}


@dataclass(frozen=True)
class Step:
    """One optimizer step, in the order in which its parts come about; "" stands for what was not taken.

    ``batch``: digest of what the loaders yielded since the step before. ``losses``: bits of what `backward()` started
    from since then. ``gradients``: of the optimizer's parameters, before the step (sampled). ``settings``: of its
    hyper-parameters, ``state`` of its state after the step (sampled), ``parameters`` after the step, ``random`` of the
    generators after the step.
    """

    index: int
    optimizer: int
    losses: tuple[str, ...]
    parameters: str
    seconds: float = 0.0
    batch: str = ""
    gradients: str = ""
    settings: str = ""
    state: str = ""
    random: str = ""


@dataclass(frozen=True)
class Logged:
    """A value that the script gave before step number `step`: bits of a number, such as ``f32:3f800000``, or a text."""

    step: int
    seconds: float
    name: str
    bits: str = ""
    text: str = ""


def packed(bits: str) -> tuple[int, bytes]:
    """The number of the kind and the bits, as ``f32:3f800000`` names them; "" is what could not be read."""
    if not bits:
        return UNREAD, _ABSENT
    kind, _, digits = bits.partition(":")
    if kind not in _WIDTHS or len(digits) != 2 * _WIDTHS[kind]:
        raise ValueError(f"{bits!r} are no bits of a number or digest")
    value = bytes.fromhex(digits)
    return _NUMBERS[kind], (value if kind == "xxh3" else value[::-1]).ljust(16, b"\0")


def unpacked(kind: int, value: bytes) -> str:
    """The inverse of packed(); raises ValueError for a kind that there is not."""
    if kind == UNREAD:
        return ""
    if not XXH3 <= kind < len(KINDS):
        raise ValueError(f"bits are of an unknown kind, {kind}")
    name = KINDS[kind]
    value = value[: _WIDTHS[name]]
    return f"{name}:{(value if kind == XXH3 else value[::-1]).hex()}"


@dataclass
class Ends:
    """How many entries the files beside the rows hold."""

    losses: int = 0
    gradients: int = 0
    state: int = 0


def step_bytes(step: Step, ends: Ends) -> dict[str, bytes]:
    """What is appended to each file for a step, the row last; counts it in `ends`."""
    sides = {"losses": b"".join(_LOSS.pack(*packed(loss)) for loss in step.losses[:-1])}
    for name, digest in (("gradients", step.gradients), ("state", step.state)):
        sides[name] = _SAMPLE.pack(step.index, _digest(digest)) if digest else b""
    ends.losses += max(0, len(step.losses) - 1)
    ends.gradients += bool(step.gradients)
    ends.state += bool(step.state)
    kind, loss = packed(step.losses[-1]) if step.losses else (NONE, _ABSENT)
    digests = (step.batch, step.settings, step.parameters, step.random)
    present = sum(bool(digest) << place for place, digest in enumerate(digests))
    parts = (_digest(digest) if digest else _ABSENT for digest in digests)
    row = _ROW.pack(
        step.seconds, step.optimizer, present, kind, 0, *parts, loss, ends.losses, ends.gradients, ends.state
    )
    return {**sides, "steps": row + _CHECK.pack(check(step.index, b"".join(sides.values()), row))}


def check(index: int, sides: bytes, row: bytes) -> int:
    """The check value of the row at `index`, without its own check value, with its entries in the other files."""
    return zlib.crc32(row, zlib.crc32(sides, index & 0xFFFFFFFF))


def unpacked_step(index: int, row: bytes, sides: dict[str, bytes]) -> Step:
    """The inverse of step_bytes(); raises ValueError where the check value is another."""
    if _CHECK.unpack_from(row, _ROW.size)[0] != check(index, b"".join(sides.values()), row[: _ROW.size]):
        raise ValueError("its check value does not fit")
    seconds, optimizer, present, kind, _, *digests, loss, _, _, _ = _ROW.unpack_from(row)
    batch, settings, parameters, random = (
        digest.hex() if present >> place & 1 else "" for place, digest in enumerate(digests)
    )
    losses = [unpacked(*entry) for entry in _LOSS.iter_unpack(sides["losses"])]
    if kind != NONE:
        losses.append(unpacked(kind, loss))
    gradients, state = (_sample(sides[name]) for name in SAMPLED)
    return Step(
        index, optimizer, tuple(losses), parameters, seconds, batch, gradients, settings, state, random
    )  # fmt: skip


def _sample(entry: bytes) -> str:
    return entry[8:24].hex()


def _digest(digits: str) -> bytes:
    digest = bytes.fromhex(digits)
    if len(digest) != 16:
        raise ValueError(f"{digits!r} is no digest of 128 bits")
    return digest


def metric_bytes(step: int, seconds: float, name: int, bits: str) -> bytes:
    """The entry of a value that the script gave; `name` is the number of its name."""
    kind, value = packed(bits)
    entry = (step, seconds, name, 0, kind, 0, value[:8])
    return _METRIC.pack(*entry[:3], zlib.crc32(_METRIC.pack(*entry)) & 0xFFFF, *entry[4:])


def unpacked_metric(entry: bytes) -> tuple[int, float, int, str]:
    """Step, seconds, number of the name and bits; raises ValueError where the check value is another."""
    step, seconds, name, found, kind, unused, value = _METRIC.unpack(entry)
    if found != zlib.crc32(_METRIC.pack(step, seconds, name, 0, kind, unused, value)) & 0xFFFF:
        raise ValueError("its check value does not fit")
    return step, seconds, name, unpacked(kind, value)


def ends_of(row: bytes) -> dict[str, int]:
    """How many entries the files beside the rows hold up to this row, as it says."""
    return dict(zip(SIDES, _ENDS.unpack_from(row, _ROW.size - _ENDS.size)))
