"""Recorded calls of compiled programs, run again as code for another architecture under qemu-user."""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isobit.codegen.objects import compile_object
from isobit.codegen.target import level_target
from isobit.compiler.pipeline import compile_graph
from isobit.ir.graph import Graph
from isobit.ir.layout import Layout
from isobit.runtime.engine import Engine, Linker
from isobit.runtime.program import ProgramSpec

HARNESS = Path(__file__).with_name("harness.c")


@dataclass(frozen=True)
class Recorded:
    """One call: the graph and layouts, the bytes its inputs held, and the bytes its outputs held afterwards."""

    graph: Graph
    inputs: tuple[Layout, ...]
    outputs: tuple[Layout, ...]
    before: tuple[bytes, ...]
    after: tuple[bytes, ...]
    aliases: tuple[int | None, ...]
    """For each output, the input whose memory it is."""


def span(layout: Layout) -> int:
    """Bytes from a tensor's address to its end; 0 for an empty one."""
    if layout.size == 0:
        return 0
    reach = sum((n - 1) * s for n, s in zip(layout.shape, layout.strides, strict=True))
    return (reach + 1) * layout.dtype.itemsize


@contextmanager
def recording(engine_class: type[Engine] = Engine) -> Iterator[list[Recorded]]:
    """Record every program call inside the block."""
    made: list[Recorded] = []
    original = engine_class.compile

    def compile_and_watch(self: Engine, graph: Graph, inputs: Any, outputs: Any) -> Any:
        return _Watched(original(self, graph, inputs, outputs), graph, inputs, outputs, made)

    engine_class.compile = compile_and_watch  # type: ignore[method-assign]
    try:
        yield made
    finally:
        engine_class.compile = original  # type: ignore[method-assign]


@dataclass
class _Watched:
    inner: Any
    graph: Graph
    inputs: tuple[Layout, ...]
    outputs: tuple[Layout, ...]
    made: list[Recorded]

    @property
    def in_place(self) -> frozenset[tuple[int, int]]:
        pairs: frozenset[tuple[int, int]] = self.inner.in_place
        return pairs

    def run(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        before = tuple(_bytes(a, lay) for a, lay in zip(inputs, self.inputs, strict=True))
        self.inner.run(inputs, outputs)
        after = tuple(_bytes(a, lay) for a, lay in zip(outputs, self.outputs, strict=True))
        aliases = tuple(next((k for k, a in enumerate(inputs) if a == out), None) for out in outputs)
        self.made.append(Recorded(self.graph, self.inputs, self.outputs, before, after, aliases))


def _bytes(address: int, layout: Layout) -> bytes:
    return ctypes.string_at(address, span(layout)) if span(layout) else b""


class Cross:
    """Builds one static executable for `level` that runs recorded calls, and runs it under qemu-user."""

    def __init__(self, level: str, triple: str, runner: Sequence[str], folder: Path) -> None:
        self.target, self.triple, self.runner, self.folder = level_target(level), triple, list(runner), folder

    def outputs(self, calls: Sequence[Recorded]) -> list[list[bytes]]:
        """The bytes of every output of every call."""
        linker = Linker(self.target, threads=1)
        specs = [linker.link(compile_graph(c.graph, c.inputs, c.outputs)) for c in calls]
        sources = {launch.kernel.symbol: launch.kernel.text for spec in specs for launch in spec.launches}
        symbols = sorted(sources)
        program = self._link({s: compile_object(sources[s], self.target) for s in symbols})
        job, out = self.folder / "job", self.folder / "out"
        job.write_bytes(_job(calls, specs, {s: k for k, s in enumerate(symbols)}))
        subprocess.run([*self.runner, str(program), str(job), str(out)], check=True, timeout=600)
        return _split(out.read_bytes(), calls)

    def _link(self, objects: dict[str, bytes]) -> Path:
        paths = []
        for symbol, code in objects.items():
            paths.append(self.folder / f"{symbol}.o")
            paths[-1].write_bytes(code)
        table = self.folder / "table.c"
        kind = "void {}(long long *, const long long *, long long, long long);"
        names = ", ".join(objects)
        table.write_text("\n".join(kind.format(s) for s in objects) + f"\nvoid *const kernels[] = {{{names}}};\n")
        program = self.folder / "program"
        command = [sys.executable, "-m", "ziglang", "cc", "-target", self.triple, "-O1", "-static", "-o", str(program)]
        subprocess.run([*command, str(HARNESS), str(table), *map(str, paths), "-lm"], check=True, capture_output=True)
        return program


def _job(calls: Sequence[Recorded], specs: Sequence[ProgramSpec], kernels: dict[str, int]) -> bytes:
    out = [len(calls)]
    chunks: list[bytes] = []

    def flush() -> None:
        chunks.append(struct.pack(f"<{len(out)}q", *out))
        out.clear()

    for call, spec in zip(calls, specs, strict=True):
        arena = spec.arena_bytes + spec.thread_bytes
        out += [len(call.inputs) + len(call.outputs) + 1, len(spec.launches)]
        for data in call.before:
            out += [0, len(data)]
            flush()
            chunks.append(data + bytes(-len(data) % 8))
        for layout, alias in zip(call.outputs, call.aliases, strict=True):
            out += [1 if alias is None else 3 + alias, span(layout)]
        out += [2, arena]
        for launch in spec.launches:
            out += [kernels[launch.kernel.symbol], len(launch.args), *launch.args]
        flush()
    return b"".join(chunks)


def _split(data: bytes, calls: Sequence[Recorded]) -> list[list[bytes]]:
    at = 0
    found = []
    for call in calls:
        found.append([])
        for layout in call.outputs:
            found[-1].append(data[at : at + span(layout)])
            at += span(layout)
    return found


def elements(data: bytes, layout: Layout) -> np.ndarray[Any, Any]:
    """The tensor in `data` as bits, NaNs being one value."""
    dtype = layout.dtype.numpy
    if not data:
        return np.empty(layout.shape, dtype)
    strides = tuple(s * dtype.itemsize for s in layout.strides)
    x = np.lib.stride_tricks.as_strided(np.frombuffer(data, dtype), layout.shape, strides).copy()
    if dtype.kind == "f":
        x[np.isnan(x)] = np.nan
    return x.view(f"u{dtype.itemsize}") if x.ndim else x.reshape(1).view(f"u{dtype.itemsize}")


def qemu(arch: str) -> str | None:
    """The user-mode emulator for `arch`, if this machine has one."""
    return shutil.which(f"qemu-{arch}-static") or shutil.which(f"qemu-{arch}")
