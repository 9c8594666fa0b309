"""The installed packages: version, digest of the list of files, and where the code of editable ones lies.

What the list says is read once and remembered, since a hundred packages have megabytes of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from blake3 import blake3

from isobit.record.files import write_atomic

_VERSION = 1
INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Folders of packages that are installed, not the user's own."""

_ENDINGS = (".dist-info", ".egg-info")
_HEADERS = 8192  # bytes of METADATA that hold name and version


@dataclass(frozen=True)
class Package:
    """One installed distribution. ``digest``: BLAKE3 of its RECORD, which has a digest of each of its files."""

    name: str
    version: str
    digest: str = ""
    editable: str | None = None


def packages(home: Path, path: Iterable[str] | None = None) -> list[Package]:
    """Every installed distribution on `path` (``sys.path``), by name; of several copies the first counts. `home`: the
    store's folder.
    """
    cache = _Cache(home / "cache" / "packages.json")
    found: dict[str, Package] = {}
    for place in _places(sys.path if path is None else path):
        package = cache.get(place)
        if package is not None:
            found.setdefault(package.name, package)
    cache.save()
    return sorted(found.values(), key=lambda package: package.name.lower())


def _places(path: Iterable[str]) -> Iterator[str]:
    """The folders that describe distributions."""
    for folder in dict.fromkeys(entry or os.curdir for entry in path):
        try:
            names = sorted(os.listdir(folder))
        except OSError:  # not there, or an archive
            continue
        yield from (os.path.join(os.path.abspath(folder), name) for name in names if name.endswith(_ENDINGS))


class _Cache:
    """What was read of each place, by the times of its files."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._old = self._load()
        self._new: dict[str, list] = {}  # type: ignore[type-arg]

    def _load(self) -> dict[str, list]:  # type: ignore[type-arg]
        try:
            data = json.loads(self._path.read_bytes())
            held: dict[str, list] = data["packages"] if data["version"] == _VERSION else {}  # type: ignore[type-arg]
        except (OSError, ValueError, KeyError, TypeError):
            return {}
        return held

    def get(self, place: str) -> Package | None:
        """The distribution that `place` describes; None for what is left of a half removed one."""
        stamp = [_stamp(os.path.join(place, name)) for name in ("METADATA", "RECORD", "direct_url.json", "PKG-INFO")]
        held = self._old.get(place)
        if held is None or held[0] != stamp:
            package = _read(place)
            held = [stamp, None if package is None else asdict(package)]
        self._new[place] = held
        return None if held[1] is None else Package(**held[1])

    def save(self) -> None:
        if self._new == self._old:
            return
        data = json.dumps({"version": _VERSION, "packages": self._new}, separators=(",", ":")).encode("ascii")
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self._path, data)


def _stamp(path: str) -> list[int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return [found.st_size, found.st_mtime_ns, found.st_ino]


def _read(place: str) -> Package | None:
    heads = _headers(place)
    if "Name" not in heads:
        return None
    record = _content(os.path.join(place, "RECORD"))
    digest = "" if record is None else blake3(record).hexdigest()
    return Package(heads["Name"], heads.get("Version", "unknown"), digest, _editable(place))


def _headers(place: str) -> dict[str, str]:
    """The first lines of METADATA (or PKG-INFO, or of a file that is all there is), up to the first empty one."""
    names = (os.path.join(place, "METADATA"), os.path.join(place, "PKG-INFO"), place)
    data = next((held for held in map(_content, names) if held is not None), b"")
    head = data[:_HEADERS].decode("utf-8", "replace").replace("\r\n", "\n").partition("\n\n")[0]
    pairs = (line.partition(":") for line in head.split("\n") if line[:1].strip())
    return {name: value.strip() for name, _, value in pairs}


def _editable(place: str) -> str | None:
    """The project's folder, if the distribution is installed so that its code stays there."""
    data = _content(os.path.join(place, "direct_url.json"))
    if data is not None:
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            said = json.loads(data)
            if said.get("dir_info", {}).get("editable") and said["url"].startswith("file://"):
                return unquote(urlsplit(said["url"]).path)
    if place.endswith(".egg-info") and not INSTALLED & set(Path(place).parts):
        return os.path.dirname(place)  # `setup.py develop` describes it where it lies
    return None


def _content(path: str) -> bytes | None:
    try:
        return Path(path).read_bytes()
    except OSError:
        return None
