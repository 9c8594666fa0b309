"""A script's arguments as names and values, for lists and other trackers; the script parses its own."""

from __future__ import annotations

from collections.abc import Sequence


def named(args: Sequence[str]) -> dict[str, str]:
    """``--lr 0.1 --name=x -v data.csv`` as ``{"lr": "0.1", "name": "x", "v": "data.csv"}``.

    Without the script's parser a word after an option without ``=`` counts as its value, unless it looks like an option
    itself; an option alone is "true". What belongs to no option is ``arg1``, ``arg2``, …, and so is all after ``--``.
    """
    found: dict[str, str] = {}
    words, count = list(args), 0
    while words:
        word = words.pop(0)
        if word == "--":
            for rest in words:
                count += 1
                found[f"arg{count}"] = rest
            break
        if not _is_option(word):
            count += 1
            found[f"arg{count}"] = word
            continue
        name, equals, value = word.lstrip("-").partition("=")
        if not equals:
            value = words.pop(0) if words and words[0] != "--" and not _is_option(words[0]) else "true"
        found[name] = value
    return found


def _is_option(word: str) -> bool:
    """Whether a word names an option: ``-1`` and ``-.5e3`` are numbers, ``-`` is standard input."""
    if not word.startswith("-") or not word.strip("-"):
        return False
    try:
        float(word)
    except ValueError:
        return True
    return False
