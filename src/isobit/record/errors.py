"""What can go wrong with a record."""

from __future__ import annotations


class RecordError(Exception):
    """A record cannot be found, read or written; the message says what to do."""
