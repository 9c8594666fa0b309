"""Where a run came from, as a report says it: command, code, data, environment, machine, packages."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from isobit.cli.stdin import NAME as STDIN
from isobit.cli.view_data import data_of, data_words, input_remarks, size_words
from isobit.cli.words import many
from isobit.record.checkpoints import FOLDER as CHECKPOINTS
from isobit.record.code_files import recorded_trees
from isobit.record.inputs import read_inputs
from isobit.record.listing import Listing
from isobit.record.manifest import EDITABLE, OUTSIDE, SCRIPT, SUBMODULE, Environment, GitState, Machine, Manifest, Tree
from isobit.record.store import Run
from isobit.record.trace import open_trace

# A page is to be read: what is longer stands in the record, and the page says how much that is.
_MOST_ROWS = 500
_MOST_CODE = 1000  # files, of all trees together
_MOST_PATCH = 200_000  # characters
_OPENED = 30  # rows of a table that is open from the start

_KINDS = {
    SCRIPT: "of the script",
    SUBMODULE: "of a submodule",
    EDITABLE: "of an editable package",
    OUTSIDE: "imported from elsewhere",
}


@dataclass(frozen=True)
class Row:
    """A fact of each run. ``code``: to be set as code; ``differs``: worth pointing out."""

    name: str
    values: tuple[str, ...]
    code: bool = False
    differs: bool = False


@dataclass(frozen=True)
class Table:
    """A table of provenance. ``about``: facts that stand above it."""

    title: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    open: bool = False
    about: tuple[Row, ...] = ()


@dataclass(frozen=True)
class Patch:
    """Differences between the work tree and what was committed."""

    title: str
    text: str


def origin(run: Run) -> Iterator[Row]:
    """The facts that a reader looks for first."""
    for name, value, code in _origin(run):
        yield Row(name, (value,), code)


def _origin(run: Run) -> Iterator[tuple[str, str, bool]]:
    manifest = run.manifest
    code, machine, data = manifest.code, manifest.machine, data_of(run)
    yield from _started(manifest)
    stdin = run.folder / STDIN
    yield (
        "standard input",
        f"{size_words(stdin.stat().st_size)}, recorded" if stdin.exists() else "none is recorded",
        False,
    )
    if data is not None:
        yield "data", data_words(data), False
    if code is not None and code.git is not None:
        yield "git commit", code.git.commit or "none yet", True
        yield "git branch", code.git.branch or "none (detached)", True
        yield "work tree", _state(code.git), False
    elif code is not None:
        yield "git", "not a git work tree", False
    if machine is not None:
        yield "processor", f"{machine.processor}, {many(machine.cores, 'core')}", False
        yield "memory", f"{machine.memory_bytes / 2**30:.1f} GiB", False
        yield "system", machine.system, False
        yield "Python", machine.python, False
    yield "Isobit", manifest.isobit or "unknown", False
    yield "process", f"{manifest.process.pid} on {manifest.process.host}", False


def _started(manifest: Manifest) -> Iterator[tuple[str, str, bool]]:
    settings = manifest.settings
    yield "command", shlex.join(manifest.command), True
    if manifest.redacted:
        yield "redacted", f"secrets in {many(manifest.redacted, 'argument')} were made unreadable", False
    yield "folder", manifest.cwd, True
    yield "hash seed", settings.hash_seed, False
    if settings.strict:
        yield "strict", "holes in the arithmetic are errors", False
    if settings.steps is not None:
        yield "steps asked for", f"{settings.steps:,}", False


def _state(git: GitState) -> str:
    return "changed since the commit" if git.dirty else "as committed"


def tables(run: Run) -> Iterator[Table]:
    """All that is told of a run file by file or name by name; raises RecordError if its record is damaged."""
    manifest = run.manifest
    yield from _code(run)
    yield from _data(run)
    yield from _checkpoints(run)
    if manifest.settings.pins:
        yield _table("pin", ("variable", "value"), list(manifest.settings.pins.items()))
    if manifest.environment is not None:
        yield _table("environment variable", ("variable", "value"), _variables(manifest.environment))
    if manifest.machine is not None and (manifest.machine.limits or manifest.machine.flags):
        yield Table("limits and processor", ("name", "value"), _limits(manifest.machine))
    if manifest.packages:
        yield _table("package", ("package", "version", "BLAKE3 of its files"), _packages(manifest))


def _code(run: Run) -> Iterator[Table]:
    """One table for each tree, the remarkable files first."""
    left = _MOST_CODE
    for tree, listing in recorded_trees(run):
        rows = _files(listing, sized=not tree.listed_v1)
        shown = rows[:left]
        left -= len(shown)
        about = tuple(Row(name, (value,), code) for name, value, code in _tree(tree, listing, len(rows) - len(shown)))
        title = f"{many(len(listing.files), 'code file')} {_KINDS.get(tree.kind, tree.kind)}: {tree.root}"
        yield Table(title, ("file", "size", "BLAKE3", "remark"), shown, len(shown) <= _OPENED, about)
    code = run.manifest.code
    if code is not None and code.links:
        yield _table("symbolic link", ("on the way to the code", "target"), list(code.links.items()))


def _tree(tree: Tree, listing: Listing, hidden: int) -> Iterator[tuple[str, str, bool]]:
    if tree.package is not None:
        yield "package", tree.package, True
    if tree.git is not None:
        yield "git commit", f"{tree.git.commit or 'none yet'}, {_state(tree.git)}", True
        yield "git branch", tree.git.branch or "none (detached)", True
        for name, address in tree.git.remotes.items():
            yield f"git remote {name}", address, True
        for what, why in tree.git.left_out.items():
            yield f"not recorded of git: {what}", why, False
        if tree.git.staged:
            yield "staged alone", ", ".join(tree.git.staged), True
    else:
        yield "git", "not a git work tree", False
    if listing.left_out:
        yield "not recorded", many(len(listing.left_out), "file"), False
    if listing.redacted:
        yield "with secrets made unreadable", many(len(listing.redacted), "file"), False
    if hidden:
        yield "not shown here", f"{many(hidden, 'more file')}; the record has them", False


def _files(listing: Listing, sized: bool) -> list[tuple[str, str, str, str]]:
    out = [
        (name, "–" if file.size is None else size_words(file.size), "–", f"not recorded: {file.reason}")
        for name, file in listing.left_out.items()
    ]
    held = [
        (name, size_words(file.size) if sized else "–", file.digest, _redacted(listing.redacted.get(name, {})))
        for name, file in listing.files.items()
    ]
    return out + sorted(held, key=lambda row: not row[3])


def _redacted(kinds: Mapping[str, int]) -> str:
    return f"made unreadable: {', '.join(f'{count} × {kind}' for kind, count in kinds.items())}" if kinds else ""


def _data(run: Run) -> Iterator[Table]:
    inputs = read_inputs(run)
    if inputs.read:
        # those without a digest are what a reader has to know of
        files = sorted(inputs.read, key=lambda file: file.digest is not None)[:_MOST_ROWS]
        rows = [(f.path, size_words(f.size), f.digest or "–", input_remarks(f)) for f in files]
        hidden = len(inputs.read) - len(rows)
        more = f"{many(hidden, 'more file')}; `isobit show --data` prints them"
        about = (Row("not shown here", (more,)),) if hidden else ()
        title = many(len(inputs.read), "data file")
        yield Table(title, ("file", "size", "BLAKE3", "remark"), rows, len(rows) <= _OPENED, about)


def _checkpoints(run: Run) -> Iterator[Table]:
    rows = [
        (f"{event['i']:,}", event["path"], event["d"], _kept(run, event["d"]))
        for event in open_trace(run.folder).events("c")
    ]
    if rows:
        yield _table("checkpoint", ("before step", "file", "digest", "remark"), rows)


def _kept(run: Run, digest: str) -> str:
    return "kept in the record" if (run.folder / CHECKPOINTS / digest).exists() else ""


def _variables(environment: Environment) -> list[tuple[str, str]]:
    """Values first. Digests say nothing to a reader: they are there to tell runs apart."""
    hidden = [(name, "set; its value is not recorded") for name in environment.digests]
    secret = [(name, "set; it looks like a secret, so nothing of its value is recorded") for name in environment.names]
    return [*environment.values.items(), *sorted(hidden + secret)]


def _limits(machine: Machine) -> list[tuple[str, str]]:
    flags = [("processor flags", machine.flags)] if machine.flags else []
    return [*((f"limit: {name}", value) for name, value in machine.limits.items()), *flags]


def _packages(manifest: Manifest) -> list[tuple[str, str, str]]:
    def files(name: str) -> str:
        folder = manifest.editable.get(name)
        return f"editable: {folder}" if folder is not None else manifest.package_digests.get(name, "–")

    return [(name, version, files(name)) for name, version in manifest.packages.items()]


def patches(run: Run) -> Iterator[Patch]:
    """What was not committed, of each tree in which something was not."""
    for tree in run.manifest.code.trees if run.manifest.code is not None else ():
        if tree.git is not None and tree.git.patch is not None:
            text = run.objects.read(tree.git.patch).decode("utf-8", "backslashreplace").rstrip("\n")
            title = f"not committed in {tree.root}"
            if len(text) > _MOST_PATCH:
                lines = text.count("\n") + 1
                text = text[:_MOST_PATCH].rpartition("\n")[0] or text[:_MOST_PATCH]
                title += f" (the first {text.count(chr(10)) + 1:,} of {lines:,} lines)"
            yield Patch(title, text)


def _table(what: str, heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Table:
    more = f", the first {_MOST_ROWS}" if len(rows) > _MOST_ROWS else ""
    return Table(many(len(rows), what) + more, heads, rows[:_MOST_ROWS])
