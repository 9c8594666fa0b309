"""The file of a checkpoint: safetensors, with the values that are no tensors and all digests in its header.

Nothing in it is code: loading reads JSON and tensors. The header's `isobit` is a JSON text with the format's version,
the content as trees (see `checkpoint_values.py`) and the BLAKE3 of each tensor; `digest` is the BLAKE3 of that text, so
it stands for the whole file. Any reader of safetensors finds the tensors under names such as `model.fc.weight`.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from blake3 import blake3
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save_file

from isobit.torch.dtypes import FROM_TORCH

FORMAT = 1
_WORTH_THREADS = 1 << 22  # bytes below which more threads make BLAKE3 slower


class CheckpointError(RuntimeError):
    """A checkpoint cannot be written, read or restored; the message says which part, and why."""


def write(path: Path, content: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> str:
    """Writes the file and returns its digest: until it is complete and on the disk, `path` is what it was before."""
    digests = {name: _digest(tensor) for name, tensor in tensors.items()}
    text = json.dumps({"format": FORMAT, "content": content, "tensors": digests}, separators=(",", ":"))
    digest = blake3(text.encode()).hexdigest()
    header = {"isobit": text, "digest": digest}
    room = path.with_name(f".{path.name}.partial")  # the same every time: kills leave one behind, not one each
    try:
        shutil.rmtree(room, ignore_errors=True)
        room.mkdir(parents=True)
        save_file(dict(tensors), room / path.name, header)
        _to_disk(room / path.name)
        os.replace(room / path.name, path)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path}: could not be written: {error}") from error
    finally:
        shutil.rmtree(room, ignore_errors=True)
    _to_disk(path.parent)
    return digest


def _to_disk(path: Path) -> None:
    """After this the file, or the folder's list of names, survives a loss of power; Windows knows no folders here."""
    if os.name == "nt" and path.is_dir():
        return
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """The content and the tensors of a file, all digests checked. Raises FileNotFoundError where there is none."""
    data = path.read_bytes()
    text = _header(path, data)
    held = json.loads(text)
    if held["format"] != FORMAT:
        raise CheckpointError(f"{path}: format {held['format']}; this version of isobit reads format {FORMAT}")
    try:
        tensors = load_tensors(data)
    except SafetensorError as error:
        raise CheckpointError(f"{path}: truncated or damaged: {error}") from error
    _compare(path, held["tensors"], tensors)
    return held["content"], tensors


def _header(path: Path, data: bytes) -> str:
    """The text under `isobit`, checked against its digest."""
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or size > len(data) - 8:
        raise CheckpointError(f"{path}: truncated, or no checkpoint: its header does not fit into {len(data)} bytes")
    try:
        header = json.loads(data[8 : 8 + size])["__metadata__"]
        text, digest = header["isobit"], header["digest"]
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: no checkpoint, or its header is damaged") from error
    if blake3(text.encode()).hexdigest() != digest:
        raise CheckpointError(f"{path}: damaged: the header does not have its digest")
    return str(text)


def _compare(path: Path, digests: Mapping[str, str], tensors: Mapping[str, torch.Tensor]) -> None:
    for name, digest in digests.items():
        if name not in tensors:
            raise CheckpointError(f"{path}: damaged: {name} is missing")
        if _digest(tensors[name]) != digest:
            raise CheckpointError(f"{path}: damaged: {name} does not have its digest")


def _digest(tensor: torch.Tensor) -> str:
    """That of docs/arithmetic.md §7, but over the bytes as they are, whatever NaNs there may be."""
    dtype = FROM_TORCH.get(tensor.dtype, str(tensor.dtype).removeprefix("torch."))
    start = f"{dtype}[{','.join(map(str, tensor.shape))}]".encode()
    if not tensor.numel():
        return blake3(start).hexdigest()
    memory = tensor.detach().reshape(-1).view(torch.uint8).numpy().data
    threads = blake3.AUTO if memory.nbytes >= _WORTH_THREADS else 1
    return blake3(start, max_threads=threads).update(memory).hexdigest()
