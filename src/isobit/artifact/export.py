"""`isobit.export`: a trained PyTorch model as a file that runs without PyTorch and returns the same bits."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from isobit import __version__
from isobit.arithmetic.dtypes import DType
from isobit.artifact.format import (
    ALIGNMENT,
    WEIGHTS,
    LaunchSpec,
    Manifest,
    ProgramFile,
    TensorSpec,
    WeightSpec,
    program_bytes,
    write_artifact,
)
from isobit.codegen.objects import MEMORY_FUNCTIONS, compile_object
from isobit.codegen.target import Target, host_target
from isobit.compiler.pipeline import compile_graph
from isobit.ir.layout import Layout
from isobit.runtime.driver import IMPORTS, driver_text
from isobit.runtime.engine import Linker
from isobit.runtime.program import ProgramSpec
from isobit.torch.trace import ExportError, TracedModel, trace_model

ARITHMETIC_VERSION = 1


class LinkError(RuntimeError):
    """No shared library could be linked."""


def export(model: Any, example_inputs: Sequence[Any], path: str | os.PathLike[str], *, cpu: str | None = None) -> Path:
    """Write `model`, for inputs of exactly the example inputs' shapes and dtypes, to `path` and return the path.

    `model` is a torch.nn.Module in eval mode; `cpu` names a CPU level of this machine's architecture (None: the best
    one here). Load it with `isobit.load(path)`, where NumPy alone is needed.

    Raises ExportError naming what cannot be exported, UnsupportedLevelError, and LinkError where linking fails.
    """
    out = Path(path)
    if out.is_dir() or not out.parent.is_dir():
        raise ExportError(f"{out} is no place for a file: {'a folder' if out.is_dir() else 'its folder is missing'}")
    traced = trace_model(model, example_inputs)
    target = host_target(cpu)
    spec = Linker(target, threads=1).link(compile_graph(traced.graph, traced.layouts, traced.outputs))
    weights, blob = _weights(traced)
    folder = f"targets/{target.level}"
    manifest = Manifest(
        version=__version__,
        arithmetic=ARITHMETIC_VERSION,
        inputs=tuple(_tensor(name, layout) for name, layout in traced.inputs),
        outputs=tuple(_tensor(f"output{k}", layout) for k, layout in enumerate(traced.outputs)),
        result=traced.result,
        weights=weights,
        targets={target.level: folder},
    )
    members = {
        WEIGHTS: blob,
        f"{folder}/program.json": program_bytes(_program(spec)),
        f"{folder}/library": _library(spec, target),
    }
    write_artifact(out, manifest, members)
    return out


def _tensor(name: str, layout: Layout) -> TensorSpec:
    return TensorSpec(name, str(layout.dtype), layout.shape)


def _weights(traced: TracedModel) -> tuple[tuple[WeightSpec, ...], bytes]:
    specs, blob = [], bytearray()
    for weight, layout in zip(traced.weights, traced.layouts[len(traced.inputs) :], strict=True):
        blob += bytes(-len(blob) % ALIGNMENT)
        specs.append(WeightSpec(weight.name, str(DType(layout.dtype)), layout.shape, len(blob)))
        blob += weight.array.tobytes()
    return tuple(specs), bytes(blob)


def _program(spec: ProgramSpec) -> ProgramFile:
    launches = tuple(LaunchSpec(x.kernel.symbol, tuple(x.args), x.parallel) for x in spec.launches)
    return ProgramFile(launches, spec.arena_bytes, spec.thread_bytes)


def _library(spec: ProgramSpec, target: Target) -> bytes:
    """One shared library of the program's kernels and the native driver."""
    sources = {x.kernel.symbol: x.kernel.text for x in spec.launches} | {"driver": driver_text(target)}
    with tempfile.TemporaryDirectory(prefix="isobit-link-") as name:
        folder = Path(name)
        objects = []
        for symbol, text in sources.items():
            objects.append(folder / f"{symbol}.o")
            imports = IMPORTS if symbol == "driver" else MEMORY_FUNCTIONS
            objects[-1].write_bytes(compile_object(text, target, symbol, imports))
        return _link(objects, folder / "library", target)


def _link(objects: Sequence[Path], out: Path, target: Target) -> bytes:
    """Link with LLVM's linker from the `ziglang` package. No library is named: what the code takes from the C library
    (memory and threads) the loading process has, whichever C library that is."""
    if "linux" not in target.triple:
        raise LinkError(f"linking for {target.triple} is not built yet; Linux targets only")
    command = [sys.executable, "-m", "ziglang", "ld.lld", "-shared", "-o", str(out), *map(str, objects)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise LinkError(f"linking failed (the package ziglang is needed: pip install isobit[link]):\n{done.stderr}")
    return out.read_bytes()
