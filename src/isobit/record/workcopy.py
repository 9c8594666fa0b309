"""A folder to run recorded code in: a mirror of the places that it lay in, below a temporary root.

`/home/u/proj/train.py` becomes `<root>/home/u/proj/train.py`, so that files of several trees, and data that a script
finds by a relative path, stay where they were to each other. Recorded files are copies, checked against their digests.
Whatever else a script can reach by a relative path is linked to where it lies today: ignored and left-out files of a
tree, and the folders around it. Small folders are made anew with links to their files, so that a script which clears
its output folder clears the mirror's.

A script would write through a link. So what was written since the run began, as its output was, is not linked: what the
run has read of it is copied, all else is left out.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from isobit.record.code_files import file_of, is_link, recorded_code, recorded_trees, resolved, script_in
from isobit.record.errors import RecordError
from isobit.record.inputs import read_inputs
from isobit.record.listing import EXECUTABLE, Listing
from isobit.record.manifest import Code, Tree
from isobit.record.store import Run, open_run

_SMALL = 200  # entries of a folder that is made anew
_LINKS = 2000  # in all such folders
_WHOLE = os.sep + ".git"  # a copy of it in pieces would be a repository of its own
_NEVER = frozenset({"__pycache__", ".isobit"})


@dataclass(frozen=True)
class Mirror:
    """A mirror below `root`. Paths go in as they were where the run took place. ``hidden``: files of the trees that
    are not in it, since they were written after the run had begun.
    """

    root: Path
    code: Code
    trees: tuple[str, ...]  # roots of the recorded trees
    hidden: tuple[str, ...] = ()

    def map(self, path: str) -> str:
        """The absolute `path` in the mirror."""
        return str(self.root) + os.path.normpath(path)

    def holds(self, path: str) -> bool:
        """Whether `path` lies in a recorded tree."""
        real = resolved(path, self.code.links)
        return any(real == tree or real.startswith(os.path.join(tree, "")) for tree in self.trees)

    def where(self, path: str) -> str:
        """`path` in the mirror if it lies in a recorded tree, else as it is."""
        return self.map(path) if os.path.isabs(path) and self.holds(path) else path

    def remove(self) -> None:
        """Delete it."""
        shutil.rmtree(self.root, ignore_errors=True)


def working_copy(run: Run) -> Mirror:
    """A new mirror with the code of `run`; the caller removes it.

    Raises RecordError if a file of the record is missing or not what was recorded.
    """
    code, trees = recorded_code(run), recorded_trees(run)
    root = Path(os.path.realpath(tempfile.mkdtemp(prefix="isobit-replay-")))
    mirror = Mirror(root, code, tuple(tree.root for tree, _ in trees))
    try:
        for tree, listing in trees:
            write_tree(run, tree, listing, Path(mirror.map(tree.root)), mirror)
        for path, target in code.links.items():
            _link(Path(mirror.map(path)), mirror.map(target) if os.path.isabs(target) else target)
        room = _Room(_began(run), frozenset(os.path.realpath(file.path) for file in read_inputs(run).read))
        _link_rest(mirror, trees, run.manifest.cwd, room)
    except OSError as error:
        mirror.remove()
        raise RecordError(f"cannot make a working copy in {root.parent}: {error.strerror or error}") from error
    except BaseException:
        mirror.remove()
        raise
    return dataclasses.replace(mirror, hidden=tuple(filter(mirror.holds, room.hidden)))


def _began(run: Run) -> float:
    """When the run began; of a replay, the run that it is one of: that one's output is to be spared."""
    while run.manifest.replay is not None:
        try:
            run = open_run(run.folder.with_name(run.manifest.replay.of))
        except RecordError:  # it is gone, or this one comes from a bundle
            break
    return datetime.fromisoformat(run.manifest.started).timestamp()


def write_tree(run: Run, tree: Tree, listing: Listing, folder: Path, mirror: Mirror | None = None) -> None:
    """Write the recorded files of `tree` below `folder`; absolute links into recorded trees lead to the mirror's."""
    folder.mkdir(parents=True, exist_ok=True)
    if os.path.realpath(folder) != str(folder):  # a link of another recorded tree is in the way
        raise RecordError(f"the record has a tree behind a symbolic link: {tree.root}")
    links = []
    for name, entry in listing.files.items():
        target = folder / checked_name(name)
        data = file_of(run, tree, listing, name).read()
        if is_link(entry):
            links.append((target, os.fsdecode(data)))
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        if entry.mode == EXECUTABLE:
            target.chmod(target.stat().st_mode | 0o111)
    for target, text in links:  # last: nothing may be written through one
        _link(target, mirror.where(text) if mirror else text)


def checked_name(name: str) -> str:
    """`name`, if it stays below its tree; a record from elsewhere may say anything."""
    if name.startswith("/") or "\0" in name or os.pardir in name.split("/"):
        raise RecordError(f"the record names a file outside its tree: {name!r}")
    return name


def code_in(folder: Path, run: Run) -> str:
    """The script of `run` in `folder`, at the same place as in its tree; raises RecordError if it is not there."""
    code = recorded_code(run)
    name = next(filter(None, (script_in(tree, listing, code) for tree, listing in recorded_trees(run))))
    if not (folder / name).is_file():
        raise RecordError(f"there is no {name} in {folder}")
    return str(folder / name)


def _link(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.path.lexists(path):
        path.symlink_to(target)


def _link_rest(mirror: Mirror, trees: Iterable[tuple[Tree, Listing]], cwd: str, room: _Room) -> None:
    """Links to what lies today in the folders that the mirror has."""
    closed: dict[str, Listing] = {}  # folders of which the record says all that lay there
    folders: dict[str, None] = {}
    for tree, listing in trees:
        inside = {os.path.dirname(name) for name in listing.files} | {""}
        inside |= {above for name in inside for above in _above(name)}
        places = [os.path.join(tree.root, name).rstrip(os.sep) for name in sorted(inside)]
        folders |= dict.fromkeys(places)
        if listing.complete:
            closed |= dict.fromkeys(places, listing)
            _link_named(mirror, tree.root, [".git", *listing.ignored, *listing.left_out], room)
    if mirror.holds(cwd):
        real = resolved(cwd, mirror.code.links)
        Path(mirror.map(real)).mkdir(parents=True, exist_ok=True)
        folders[real] = None
    for root in mirror.trees:
        folders |= dict.fromkeys(str(place) for place in Path(root).parents)
    for folder in folders:
        if folder not in closed:
            _link_folder(folder, mirror.map(folder), mirror.trees, room)


@dataclass
class _Room:
    """What may be linked: ``left`` more single files in small folders, and nothing written since ``began``, of which
    the files ``read`` are copied.
    """

    began: float
    read: frozenset[str]
    left: int = _LINKS
    hidden: list[str] = field(default_factory=list)

    def link(self, original: str, copy: str) -> None:
        """Link a file or folder, or copy it, or leave it out."""
        if not self._is_later(original):
            os.symlink(original, copy)
        elif os.path.realpath(original) in self.read:
            shutil.copy2(original, copy)
        else:
            self.hidden.append(original)

    def _is_later(self, path: str) -> bool:
        try:
            found = os.stat(path)
        except OSError:  # a link that leads nowhere
            return False
        return stat.S_ISREG(found.st_mode) and found.st_mtime > self.began


def _above(name: str) -> list[str]:
    return [str(place) for place in Path(name).parents if str(place) != "."]


def _link_named(mirror: Mirror, root: str, names: Iterable[str], room: _Room) -> None:
    for name in names:
        place = os.path.normpath(os.path.join(root, checked_name(name)))
        copy = mirror.map(place)
        if os.path.basename(place) in _NEVER or not os.path.lexists(place):
            continue
        if os.path.isdir(copy) and os.path.isdir(place):  # some of it is recorded
            _link_folder(place, copy, (), room)
        elif not os.path.lexists(copy):
            _link_one(place, copy, room)


def _link_folder(original: str, copy: str, trees: tuple[str, ...], room: _Room) -> None:
    """Link all that `original` holds and `copy` does not. Folders within a tree are made anew where they are small."""
    try:
        entries = list(os.scandir(original))
    except OSError:  # another machine, or the folder is gone: the record alone must do
        return
    within = not trees or any(original == tree or original.startswith(os.path.join(tree, "")) for tree in trees)
    for entry in entries:
        target = os.path.join(copy, entry.name)
        if entry.name in _NEVER or os.path.lexists(target):
            continue
        if within:
            _link_one(entry.path, target, room)
        else:
            room.link(entry.path, target)


def _link_one(original: str, copy: str, room: _Room) -> None:
    """Link a file, or make a small folder anew with links to what it holds."""
    os.makedirs(os.path.dirname(copy), exist_ok=True)
    entries = _entries(original) if room.left > 0 else None
    if entries is None:
        room.link(original, copy)
        return
    room.left -= len(entries)
    os.mkdir(copy)
    for name in entries:
        if name not in _NEVER:
            _link_one(os.path.join(original, name), os.path.join(copy, name), room)


def _entries(folder: str) -> list[str] | None:
    """What a small folder holds; None for a large one, and for what is no folder."""
    if os.path.islink(folder) or not os.path.isdir(folder) or folder.endswith(_WHOLE):
        return None
    try:
        names = os.listdir(folder)
    except OSError:
        return None
    return names if len(names) <= _SMALL else None
