"""What a user may call a run: an id, a unique prefix, ``latest``, ``latest~2``, a bundle file or a folder."""

from __future__ import annotations

import re
from pathlib import Path

from isobit.record.bundle import is_bundle, is_exported_model, unpacked
from isobit.record.errors import RecordError
from isobit.record.manifest import NAME
from isobit.record.store import Run, Store, open_run

_LATEST = re.compile(r"latest(?:~(\d+))?")
_SHOWN = 8


def resolve(store: Store, name: str) -> Run:
    """The run that `name` means; raises RecordError that lists candidates where it means none or several."""
    path = Path(name)
    if (path / NAME).is_file():
        return open_run(path.resolve())
    if path.is_file():
        return _from_file(path)
    return store.open(resolve_id(store.ids(), name, store.runs))


def resolve_id(ids: list[str], name: str, where: Path) -> str:
    """The one of `ids` (oldest first) that `name` means. The last four characters of an id will do as well."""
    latest = _LATEST.fullmatch(name)
    if latest is not None:
        return _latest(ids, int(latest[1] or 0), where)
    if name in ids:
        return name
    found = [i for i in ids if name and (i.startswith(name) or i.endswith(f"-{name}"))]
    if len(found) == 1:
        return found[0]
    if not found:
        raise RecordError(f"no run {name!r} in {where}{_listing('; the latest are', ids)}")
    raise RecordError(f"{name!r} means {len(found)} runs{_listing(':', found)}")


def _latest(ids: list[str], back: int, where: Path) -> str:
    if back < len(ids):
        return ids[-1 - back]
    raise RecordError(
        f"there are {len(ids)} runs in {where}: none is the latest but {back}" if ids else f"no runs in {where}"
    )


def _listing(lead: str, ids: list[str]) -> str:
    """The newest of `ids`, for an error."""
    shown = "".join(f"\n  {i}" for i in ids[: -_SHOWN - 1 : -1])
    more = f"\n  … and {len(ids) - _SHOWN} older" if len(ids) > _SHOWN else ""
    return f"{lead}{shown}{more}" if ids else ""


def _from_file(path: Path) -> Run:
    if is_exported_model(path):
        raise RecordError(
            f"{path} is an exported model, not a run: isobit.load() reads it. RUN is an id, latest, or a file that "
            "`isobit bundle` wrote"
        )
    if not is_bundle(path):
        raise RecordError(f"{path} is neither a run nor a bundle of one")
    return open_run(unpacked(path))
