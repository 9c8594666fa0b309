"""The manifest: all that is known of a run apart from its steps, as one versioned JSON file.

Fields may be added within a schema version, with a default; a reader ignores fields that it does not know.
A change that an old reader would misread raises the version.
"""

from __future__ import annotations

import dataclasses
import json
import os
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from isobit.record.errors import RecordError
from isobit.record.files import write_atomic
from isobit.record.process import Process

SCHEMA = 2
NAME = "manifest.json"

RUNNING = "running"
FINISHED = "finished"
FAILED = "failed"
INTERRUPTED = "interrupted"
STOPPED = "stopped"  # by Isobit: after the steps it was asked for, or at a replay's first difference
KILLED = "killed"  # never written: a record that says "running" while its process is gone


@dataclass(frozen=True)
class Settings:
    """What the run was asked for and what it got: ``threads`` and ``cpu`` are what was used."""

    mode: str  # "exact", or "plain" for PyTorch's own kernels
    seed: int
    hash_seed: str
    strict: bool = False
    asked_threads: int | None = None
    asked_cpu: str | None = None
    threads: int | None = None
    cpu: str | None = None
    arithmetic: int = 1
    steps: int | None = None  # stop after so many steps
    pins: dict[str, str] = field(default_factory=dict)  # variables that hold NumPy, BLAS and libm to one choice


@dataclass(frozen=True)
class GitState:
    """What git says of a tree. ``commit`` is None before the first one. Contents are digests of objects: ``patch`` is
    the difference between commit and work tree; ``staged`` are contents that lie in the index alone.
    """

    commit: str | None
    branch: str | None
    dirty: bool
    remotes: dict[str, str] = field(default_factory=dict)  # name -> address, without credentials
    patch: str | None = None
    staged: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)  # "patch" or a staged path -> why it is not kept


# Kinds of trees.
SCRIPT = "script"  # the work tree or folder that the script lies in
SUBMODULE = "submodule"  # a repository inside another tree
EDITABLE = "editable"  # an installed package whose code lies elsewhere
OUTSIDE = "outside"  # any other folder that modules were imported from


@dataclass(frozen=True)
class Tree:
    """A folder with recorded code. ``listing`` is the digest of the object that names its files (record.listing)."""

    root: str  # absolute, without symbolic links
    kind: str
    listing: str
    files: int = 0
    bytes: int = 0
    left_out: int = 0
    redacted: int = 0  # files in which secrets were made unreadable
    git: GitState | None = None
    package: str | None = None  # the installed package that an editable tree is of
    listed_v1: dict[str, str] = field(default_factory=dict)  # schema 1 has no listing: path -> digest, below code/
    left_out_v1: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Code:
    """The recorded code. All paths are absolute, as they were where the run took place."""

    script: str  # as it was named, symbolic links kept
    trees: tuple[Tree, ...] = ()
    paths: tuple[str, ...] = ()  # folders that modules were imported from, as in sys.path
    links: dict[str, str] = field(default_factory=dict)  # symbolic links on the way to script and paths -> target
    module: str | None = None  # for `python -m`

    @property
    def git(self) -> GitState | None:
        """The state of the script's own tree."""
        return next((tree.git for tree in self.trees if tree.kind == SCRIPT), None)


@dataclass(frozen=True)
class Machine:
    """Where the run took place."""

    system: str
    processor: str
    cores: int
    memory_bytes: int
    python: str
    flags: str = ""  # what the processor can do, in the kernel's words
    limits: dict[str, str] = field(default_factory=dict)  # of the process and its control group


@dataclass(frozen=True)
class Environment:
    """The variables that the run began with. Values are kept of those that are known to matter and hold no secret;
    the others have a digest under a key that stays in the store, so that two runs of a store can be compared.
    """

    values: dict[str, str] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    names: tuple[str, ...] = ()  # of those that look like secrets
    key: str = ""  # which key the digests are under


@dataclass(frozen=True)
class Hole:
    """An operator that ran outside the exact arithmetic, and how often."""

    operator: str
    reason: str
    count: int


@dataclass(frozen=True)
class Data:
    """What the run has read, in short; the list is in ``inputs.json``. ``note`` says why there is none, or not all."""

    files: int = 0
    bytes: int = 0
    unhashed: int = 0
    made: int = 0  # files that the run wrote itself and read back; they are not among `files`
    unlisted: int = 0  # opened beyond the number that is kept
    note: str | None = None


@dataclass(frozen=True)
class Verdict:
    """What a replay found. ``step`` is the first step that differs, counted from 0, ``what`` the part of it
    (parting.py), ``causes`` what may explain it, the likeliest first.
    """

    outcome: str  # "identical", "differs" or "none"
    steps: int  # steps that were compared and found equal
    text: str
    step: int | None = None
    what: str | None = None
    causes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Replay:
    """What a run is a replay of. ``code`` is "record", "current" or a folder."""

    of: str
    code: str
    verdict: Verdict | None = None


@dataclass(frozen=True)
class Manifest:
    """One run."""

    id: str
    status: str
    command: tuple[str, ...]
    script: str
    args: tuple[str, ...]
    cwd: str
    settings: Settings
    process: Process
    started: str  # UTC, ISO 8601
    schema: int = SCHEMA
    isobit: str = ""
    ended: str | None = None
    seconds: float | None = None
    exit_code: int | None = None
    error: str | None = None
    steps: int | None = None
    code: Code | None = None
    machine: Machine | None = None
    packages: dict[str, str] = field(default_factory=dict)  # name -> version
    package_digests: dict[str, str] = field(default_factory=dict)  # name -> BLAKE3 of the list of its files
    editable: dict[str, str] = field(default_factory=dict)  # name -> the folder that its code lies in
    environment: Environment | None = None
    redacted: int = 0  # arguments in which secrets were made unreadable
    holes: tuple[Hole, ...] = ()
    notes: tuple[str, ...] = ()
    trace_error: str | None = None  # why the trace breaks off before the run ended
    replay: Replay | None = None
    module: str | None = None  # what ran, where it was named as a module
    data: Data | None = None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of the run in `folder`, atomically."""
    text = json.dumps(dataclasses.asdict(manifest), indent=1, ensure_ascii=False)
    write_atomic(folder / NAME, text.encode("utf-8", "surrogateescape") + b"\n")


def read_manifest(folder: Path) -> Manifest:
    """The manifest of the run in `folder`; raises RecordError if it is missing, damaged or of a newer
    schema.
    """
    path = folder / NAME
    try:
        data = json.loads(path.read_bytes().decode("utf-8", "surrogateescape"))
        schema = _checked("schema", int, data["schema"])
        if schema > SCHEMA:
            raise RecordError(f"{path} has schema {schema}; this Isobit reads up to {SCHEMA}: update Isobit")
        return _decode(Manifest, _upgraded(data) if schema == 1 else data)
    except FileNotFoundError:
        raise RecordError(f"{folder} holds no run: {NAME} is missing") from None
    except KeyError as error:
        raise RecordError(f"{path} cannot be read (it has no {error.args[0]})") from error
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise RecordError(f"{path} cannot be read ({error})") from error


def _upgraded(data: dict[str, Any]) -> dict[str, Any]:
    """A manifest of schema 1, in the form of schema 2: its code was one tree, copied to the run's folder."""
    old = data.get("code")
    if old is None:
        return data
    root = old["root"]
    tree = {"root": root, "kind": SCRIPT, "listing": "", "files": len(old["files"]), "git": old.get("git")}
    tree |= {"left_out": len(old["left_out"]), "listed_v1": old["files"], "left_out_v1": old["left_out"]}
    paths = [os.path.normpath(os.path.join(root, path)) for path in old["paths"]]
    return {**data, "code": {"script": os.path.join(root, old["script"]), "trees": [tree], "paths": paths}}


T = TypeVar("T")
Decoder = Callable[[str, Any], Any]  # a field's name and what JSON has for it -> the field's value


def _decode(cls: type[T], data: Any) -> T:
    """The dataclass `cls` from what its asdict() became in JSON; fields it does not know are ignored.

    Raises TypeError for a value of another type than the field's.
    """
    if not isinstance(data, dict):
        raise TypeError(f"{cls.__name__.lower()} is {_kind(data)}, not an object")
    return cls(**{name: decode(name, data[name]) for name, decode in _fields(typing.cast(Any, cls)) if name in data})


@cache
def _fields(cls: type[Any]) -> tuple[tuple[str, Decoder], ...]:
    """The fields of a dataclass, with what decodes each."""
    hints = typing.get_type_hints(cls)
    return tuple((f.name, _decoder(hints[f.name])) for f in dataclasses.fields(cls))


def _decoder(hint: Any) -> Decoder:
    """What decodes a field of this type: nested dataclasses and tuples of them become what they were."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        some = _decoder(next(a for a in inner if a is not type(None)))
        return lambda name, value: None if value is None else some(name, value)
    if origin is tuple:
        item = _decoder(inner[0])
        return lambda name, value: tuple([item(name, x) for x in _checked(name, list, value)])
    if origin is dict:
        item = _decoder(inner[1])
        return lambda name, value: {key: item(name, x) for key, x in _checked(name, dict, value).items()}
    if dataclasses.is_dataclass(hint):
        return lambda name, value: _decode(typing.cast(type[Any], hint), value)
    return lambda name, value: value if type(value) is hint else _checked(name, hint, value)


def _checked(name: str, wanted: type[Any], value: Any) -> Any:
    """`value`, if it is of the type that the field `name` has; a whole number serves as a float."""
    if type(value) is wanted or (wanted is float and type(value) is int):
        return value
    raise TypeError(f"{name} is {_kind(value)}, not {wanted.__name__}")


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__
