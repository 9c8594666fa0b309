"""Reads what a record holds of a run's code, whichever schema it was written in and however the run ended."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path

from isobit.record.capture import JOURNAL
from isobit.record.errors import RecordError
from isobit.record.listing import FILE, LINK, Entry, LeftOut, Listing
from isobit.record.manifest import SCRIPT, Code, Tree
from isobit.record.objects import Objects
from isobit.record.store import Run


@dataclass(frozen=True)
class CodeFile:
    """One recorded file. ``mode`` as in a listing: of a symbolic link, the contents are where it points to."""

    digest: str
    mode: int
    size: int
    redacted: int
    _source: Objects | Path  # the store's objects; of schema 1, the file in code/

    def read(self) -> bytes:
        """Its recorded bytes; raises RecordError if they are lost or damaged."""
        if isinstance(self._source, Objects):
            return self._source.read(self.digest)
        return Objects.checked(self._source, self.digest)


def recorded_code(run: Run) -> Code:
    """What the record holds of the run's code; raises RecordError if that is not even its script."""
    code = run.manifest.code
    if code is None or not any(script_in(tree, listing, code) for tree, listing in recorded_trees(run)):
        raise RecordError(f"run {run.manifest.id} has no copy of its script: it cannot be replayed")
    return code


def script_root(run: Run) -> str:
    """The root of the tree that holds the script."""
    code = recorded_code(run)
    return next(tree.root for tree, listing in recorded_trees(run) if script_in(tree, listing, code) is not None)


def script_in(tree: Tree, listing: Listing, code: Code) -> str | None:
    """The script's path in `tree`, if it is the one that holds it."""
    real = resolved(code.script, code.links)
    name = os.path.relpath(real, tree.root) if real.startswith(os.path.join(tree.root, "")) else None
    return name if name in listing.files else None


def resolved(path: str, links: dict[str, str]) -> str:
    """`path` as it was without symbolic links where the run took place, by the recorded `links`."""
    done, rest = os.sep, [part for part in path.split(os.sep) if part]
    for _ in range(10_000):
        if not rest:
            break
        part, *rest = rest
        place = os.path.normpath(os.path.join(done, part))
        target = links.get(place)
        if target is None:
            done = place
        else:
            done = os.sep if os.path.isabs(target) else done
            rest = [piece for piece in target.split(os.sep) if piece] + rest
    return done


def recorded_trees(run: Run) -> list[tuple[Tree, Listing]]:
    """The run's trees with their listings, and what a killed run imported after its manifest was written."""
    code = run.manifest.code
    trees = [] if code is None else [(tree, _listing(run, tree)) for tree in code.trees]
    for line in _journal(run.folder):
        listing = next((held for tree, held in trees if tree.root == line["root"]), None)
        if listing is None:
            listing = Listing()
            trees.append((Tree(line["root"], line["kind"], "", package=line["package"]), listing))
        listing.keep(line["name"], Entry(line["mode"], line["size"], line["digest"]), line["redacted"])
    return trees


def code_files(run: Run) -> dict[str, CodeFile]:
    """All recorded files, by their path below their tree; that of trees other than the script's with their name."""
    found: dict[str, CodeFile] = {}
    for tree, listing in recorded_trees(run):
        prefix = "" if tree.kind == SCRIPT else f"{_label(run, tree)}/"
        for name in listing.files:
            found[prefix + name] = file_of(run, tree, listing, name)
    return found


def file_of(run: Run, tree: Tree, listing: Listing, name: str) -> CodeFile:
    """One file of a listing."""
    entry = listing.files[name]
    source: Objects | Path = run.code / name if tree.listed_v1 else run.objects
    return CodeFile(entry.digest, entry.mode, entry.size, sum(listing.redacted.get(name, {}).values()), source)


def held_paths(run: Run) -> frozenset[str]:
    """Where the recorded files lay, as absolute paths."""
    return frozenset(os.path.join(tree.root, name) for tree, listing in recorded_trees(run) for name in listing.files)


def object_digests(run: Run, known: Container[str] = ()) -> Iterator[str]:
    """Every object that the run's code refers to, listings among them; not those of a listing that is `known`."""
    code = run.manifest.code
    if code is not None and all(t.listing and t.listing in known for t in code.trees) and not _has_journal(run):
        yield from (digest for tree in code.trees for digest in _git_digests(tree))
        return
    for tree, listing in recorded_trees(run):
        if tree.listing:
            yield tree.listing
        if not tree.listed_v1:
            yield from (entry.digest for entry in listing.files.values())
        yield from _git_digests(tree)


def _git_digests(tree: Tree) -> Iterator[str]:
    if tree.git is not None:
        yield from tree.git.staged.values()
        if tree.git.patch is not None:
            yield tree.git.patch


def _has_journal(run: Run) -> bool:
    return (run.folder / JOURNAL).exists()


def taken_over(run: Run, objects: Objects) -> Code:
    """The run's code, with all that it refers to in `objects`: for a replay, which has the code of what it replays.
    Raises RecordError if the record is damaged or the store cannot be written.
    """
    code = recorded_code(run)
    trees = []
    for tree, listing in recorded_trees(run):
        for name in listing.files:
            objects.put(file_of(run, tree, listing, name).read())
        digest = objects.put(listing.to_bytes())
        for held in _git_digests(tree):
            objects.put(run.objects.read(held))
        count = len(listing.files)
        trees.append(dataclasses.replace(tree, listing=digest, files=count, listed_v1={}, left_out_v1={}))
    return dataclasses.replace(code, trees=tuple(trees))


def is_link(entry: Entry) -> bool:
    """Whether the recorded file is a symbolic link."""
    return entry.mode == LINK


def _label(run: Run, tree: Tree) -> str:
    """A short name for a tree: as seen from the script's, if it lies below or beside it; or its folder."""
    own = next((t.root for t in run.manifest.code.trees if t.kind == SCRIPT), "") if run.manifest.code else ""
    if own and tree.root.startswith(os.path.join(own, "")):
        return os.path.relpath(tree.root, own)
    return tree.root


def _listing(run: Run, tree: Tree) -> Listing:
    if not tree.listing:
        files = {name: Entry(FILE, 0, digest) for name, digest in tree.listed_v1.items()}
        return Listing(files, {name: LeftOut(None, why) for name, why in tree.left_out_v1.items()})
    return Listing.from_bytes(run.objects.read(tree.listing))


def _journal(folder: Path) -> Iterator[dict]:  # type: ignore[type-arg]
    try:
        lines = (folder / JOURNAL).read_bytes().split(b"\n")[:-1]  # a killed run's last may be torn
    except OSError:
        return
    for number, line in enumerate(lines, start=1):
        try:
            yield json.loads(line)
        except ValueError as error:
            raise RecordError(f"{folder / JOURNAL}, line {number}, is damaged: {error}") from error
