"""Symbolic links on the way to a path: what a copy of the path needs besides the file itself."""

from __future__ import annotations

import os

_MOST = 40  # as many as the kernel follows


def links_along(path: str) -> dict[str, str]:
    """The symbolic links that are followed from `path` (absolute) to the file: each link's path, with no further link
    on the way, and what it says.
    """
    found: dict[str, str] = {}
    done, rest = os.sep, [part for part in path.split(os.sep) if part not in ("", ".")]
    while rest and len(found) < _MOST:
        part, *rest = rest
        if part == os.pardir:
            done = os.path.dirname(done)
            continue
        place = os.path.join(done, part)
        try:
            target = os.readlink(place)
        except OSError:  # no link, or nothing there
            done = place
            continue
        if place in found:  # a circle
            break
        found[place] = target
        done = os.sep if os.path.isabs(target) else done
        rest = [piece for piece in target.split(os.sep) if piece not in ("", ".")] + rest
    return found
