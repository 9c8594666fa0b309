"""A watcher's process that never listens."""

from __future__ import annotations

import time


def main() -> None:
    """Take nothing, for a while."""
    time.sleep(20)
