"""Notes where a script asks the operating system for random numbers: no seed makes those repeat.

They are left as they are, since keys, names of files and the like must not repeat. Only calls from the script's own
code count, each place once.
"""

from __future__ import annotations

import functools
import os
import random
import secrets
import sys
import uuid
from collections.abc import Callable
from typing import Any

import torch

from isobit.torch.events import EventSink, NoteEvent

_SECRETS = ("choice", "randbelow", "randbits", "token_bytes", "token_hex", "token_urlsafe")
_SYSTEM = ("choice", "choices", "getrandbits", "randbytes", "randint", "random", "randrange", "sample", "shuffle")
_ALWAYS: tuple[tuple[Any, str, str], ...] = (
    (os, "urandom", "os.urandom()"),
    (uuid, "uuid1", "uuid.uuid1()"),
    (uuid, "uuid4", "uuid.uuid4()"),
    (torch, "seed", "torch.seed()"),
    *((secrets, name, f"secrets.{name}()") for name in _SECRETS),
    *((random.SystemRandom, name, f"random.SystemRandom.{name}()") for name in _SYSTEM),
)
_WITHOUT_SEED: tuple[tuple[Any, str, str, int], ...] = (  # and how many arguments come before the seed
    (random.Random, "__init__", "random.Random() without a seed", 1),
    (random.Random, "seed", "random.Random.seed() without a seed", 1),
    (random, "seed", "random.seed() without a seed", 0),
)


class EntropyNotes:
    """Wrappers of what asks for entropy, in place from `install` to `remove`. `is_script` judges a file's name."""

    def __init__(self, is_script: Callable[[str], bool], sink: EventSink) -> None:
        self._is_script = functools.cache(is_script)
        self._sink = sink
        self._seen: set[tuple[str, str, int]] = set()
        self._originals: list[tuple[Any, str, bool, Any]] = []

    def install(self) -> None:
        for place, name, what in _ALWAYS:
            self._replace(place, name, what, lambda args, kwargs: True)
        for place, name, what, before in _WITHOUT_SEED:
            self._replace(place, name, what, functools.partial(_unseeded, before))

    def remove(self) -> None:
        for place, name, own, original in reversed(self._originals):
            if own:
                setattr(place, name, original)
            else:
                delattr(place, name)
        self._originals.clear()

    def _replace(self, place: Any, name: str, what: str, counts: Callable[[Any, Any], bool]) -> None:
        original = getattr(place, name)
        self._originals.append((place, name, name in vars(place), original))

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if counts(args, kwargs):
                self._note(what, sys._getframe(1))
            return original(*args, **kwargs)

        setattr(place, name, call)

    def _note(self, what: str, frame: Any) -> None:
        """`frame` is the caller's. What the standard library asks for on its own account is not the script's."""
        file, line = frame.f_code.co_filename, frame.f_lineno
        if (what, file, line) not in self._seen and self._is_script(file):
            self._seen.add((what, file, line))
            self._sink(NoteEvent(f"entropy: {what} at {file}:{line}"))


def _unseeded(before: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the first argument after `before` others is missing or None. SystemRandom has no use for a seed."""
    if before and isinstance(args[0], random.SystemRandom):
        return False
    given = args[before] if len(args) > before else next(iter(kwargs.values()), None)
    return given is None
