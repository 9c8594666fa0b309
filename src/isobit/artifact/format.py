"""The `.iso` file: an uncompressed ZIP that holds a model's weights once and its compiled code per target.

    manifest.json                 versions, inputs, outputs, weights, targets, and a digest of every other member
    weights.bin                   the tensors, little-endian, row-major, each at a multiple of 64 bytes
    targets/NAME/library          a shared library: the kernels and the program's native driver
    targets/NAME/program.json     the launches: symbols and argument arrays, sizes of the arena

A reader that knows `FORMAT` refuses files of another one. New targets are new members; nothing else changes.
Standard library and NumPy only.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FORMAT = 2
MANIFEST = "manifest.json"
WEIGHTS = "weights.bin"
ALIGNMENT = 64
# What zipfile and json raise for damaged bytes, depending on where the damage is.
_DAMAGE = (EOFError, LookupError, OSError, RuntimeError, TypeError, ValueError, zipfile.BadZipFile, zlib.error)


class ArtifactError(ValueError):
    """The file is no artifact, is damaged, or cannot run on this machine."""


@dataclass(frozen=True)
class TensorSpec:
    """A tensor that goes in or out: `dtype` is isobit's short name ("f32")."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class WeightSpec:
    """A tensor in weights.bin."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class LaunchSpec:
    """A kernel of the library with its argument array."""

    symbol: str
    args: tuple[int, ...]
    parallel: bool


@dataclass(frozen=True)
class ProgramFile:
    """A target's program; slots are the inputs, the weights, the outputs and one arena of these sizes."""

    launches: tuple[LaunchSpec, ...]
    arena_bytes: int
    thread_bytes: int


@dataclass(frozen=True)
class Manifest:
    """`result`: what a call returns: an output's number, {"tuple": […]}, {"list": […]} or {"dict": {name: …}} of such.
    `targets`: member folder by CPU level, best first.
    """

    version: str
    arithmetic: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    result: Any
    weights: tuple[WeightSpec, ...]
    targets: Mapping[str, str]


def write_artifact(path: Path, manifest: Manifest, members: Mapping[str, bytes]) -> None:
    """Write all members and the manifest with their digests; the file appears whole or not at all."""
    head = {"format": FORMAT, **asdict(manifest), "digests": {name: _digest(data) for name, data in members.items()}}
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    # not mkstemp, whose files are the owner's alone: a model is trained by one user and served by another
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            _add(archive, MANIFEST, json.dumps(head, indent=1).encode())
            for name, data in members.items():
                _add(archive, name, data)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    """A member without a time stamp, so that one model gives one file."""
    archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=32).hexdigest()


@dataclass(frozen=True)
class ArtifactFile:
    """An artifact in memory; members are checked against the manifest when they are read."""

    path: Path
    manifest: Manifest
    digests: Mapping[str, str]
    data: bytes

    def member(self, name: str) -> bytes:
        """A member's bytes. Raises ArtifactError if it is missing or differs from its digest."""
        try:
            with zipfile.ZipFile(io.BytesIO(self.data)) as archive:
                found = archive.read(name)
        except _DAMAGE as e:
            raise ArtifactError(f"{self.path}: member {name} is missing or damaged: {e}") from e
        if _digest(found) != self.digests.get(name):
            raise ArtifactError(f"{self.path}: member {name} does not match its digest; the file is damaged")
        return found

    def program(self, folder: str) -> ProgramFile:
        """The launches of one target."""
        raw = json.loads(self.member(f"{folder}/program.json"))
        launches = tuple(LaunchSpec(x["symbol"], tuple(x["args"]), x["parallel"]) for x in raw["launches"])
        return ProgramFile(launches, raw["arena_bytes"], raw["thread_bytes"])


def program_bytes(program: ProgramFile) -> bytes:
    """program.json of a target."""
    return json.dumps(asdict(program)).encode()


def read_artifact(path: Path) -> ArtifactFile:
    """Open an artifact. Raises FileNotFoundError, or ArtifactError for what is no artifact of this format."""
    data = path.read_bytes()
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            head = json.loads(archive.read(MANIFEST))
        if "format" not in head:
            raise ValueError("its manifest names no format")
    except _DAMAGE as e:
        raise ArtifactError(f"{path} is not an Isobit artifact, or is damaged: {e}") from e
    if head["format"] != FORMAT:
        raise ArtifactError(f"{path} has format {head['format']}; this isobit reads format {FORMAT}")
    try:
        return ArtifactFile(path, _manifest(head), dict(head["digests"]), data)
    except _DAMAGE as e:
        raise ArtifactError(f"{path}: the manifest is damaged: {e!r}") from e


def _manifest(head: Mapping[str, Any]) -> Manifest:
    def specs(kind: type[Any], key: str) -> tuple[Any, ...]:
        return tuple(kind(**{**x, "shape": tuple(x["shape"])}) for x in head[key])

    return Manifest(
        head["version"],
        head["arithmetic"],
        specs(TensorSpec, "inputs"),
        specs(TensorSpec, "outputs"),
        head["result"],
        specs(WeightSpec, "weights"),
        head["targets"],
    )
