"""Letters that a page can show."""

from __future__ import annotations

import unicodedata

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})  # letters that are not seen, or that turn the text around
_KEPT = frozenset("\n\t\u200c\u200d")  # joiners are part of how some scripts and emoji are written


def printable(text: str) -> str:
    r"""`text` with all that cannot be seen written out: bytes that are no UTF-8 as ``\xff``, others as ``\u202e``."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(letter if letter in _KEPT or not _is_hidden(letter) else _written_out(letter) for letter in text)


def _is_hidden(letter: str) -> bool:
    return unicodedata.category(letter) in _HIDDEN


def _written_out(letter: str) -> str:
    code = ord(letter)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that Python could not decode
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
