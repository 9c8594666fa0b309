"""Switches the exact arithmetic on and off in PyTorch's dispatcher.

The dispatcher is one per process, so what is on holds for every thread. Layers nest; the innermost decides.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from isobit.runtime.engine import Engine, EngineOptions
from isobit.seeds import move_process
from isobit.torch.children import ChildProcesses
from isobit.torch.compile_default import CompileDefault
from isobit.torch.events import Event, NoteEvent
from isobit.torch.holes import UNNAMED, HoleMonitor
from isobit.torch.kernels import (
    Holder,
    Kernel,
    RandomKernel,
    StatementKernel,
    decomposition_kernel,
    hole_kernel,
    with_shortcut,
)
from isobit.torch.late_backward import LateBackward
from isobit.torch.library import library as own_operators
from isobit.torch.loader import LOADER_LAW
from isobit.torch.older_tracer import recorded_convolution, untraced
from isobit.torch.operators import table
from isobit.torch.optim import OptimizerRoutes
from isobit.torch.original import DIRECT, cpu_kernels, is_composite_implicit, original
from isobit.torch.random import decomposition, pure_overload
from isobit.torch.script_modules import ScriptModules
from isobit.torch.shortcut import shortcut_factory
from isobit.torch.signature import has_overload, overload_of, signature, variants
from isobit.torch.table import Decomposition, Pass, Statement


@dataclass(frozen=True)
class ExactOptions:
    """How the exact arithmetic runs. None: as this machine has it. None of it changes a bit of any result.

    `strict`: holes are errors. `cache_dir` keeps object code between processes. `reference` runs the interpreter.
    """

    threads: int | None = None
    cpu: str | None = None
    strict: bool = False
    cache_dir: Path | None = field(default_factory=lambda: Path.home() / ".cache" / "isobit")
    reference: bool = False

    @property
    def engine(self) -> EngineOptions:
        """What the engine needs to know."""
        return EngineOptions(self.threads, self.cpu, self.cache_dir, self.reference)


@dataclass(frozen=True)
class Registration:
    """A kernel for one overload, at a dispatch key."""

    name: str
    kernel: Kernel
    key: str


@contextmanager
def quiet_overrides() -> Iterator[None]:
    """PyTorch warns of the first kernel that is replaced."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*Overriding a previously registered kernel")
        yield


def forget_dispatch() -> None:
    """Empties what PyTorch's Python dispatcher, which its tracer uses, has remembered of who has kernels for what."""
    for overload in torch._ops.get_cached_ops():
        overload._dispatch_cache.clear()


class Override:
    """All kernels for one engine, made when they are first installed, with the plans they gather."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.holder = Holder()
        self.registrations = tuple(_registrations(engine, self.holder))
        self._libraries: list[torch.library.Library] = []

    def install(self) -> None:
        """Puts the kernels in place of PyTorch's."""
        libraries: dict[str, torch.library.Library] = {}
        with quiet_overrides():
            for r in self.registrations:
                namespace = r.name.partition("::")[0]
                if namespace not in libraries:
                    libraries[namespace] = torch.library.Library(namespace, "IMPL")
                libraries[namespace].impl(r.name, r.kernel, r.key)
        self._libraries = list(libraries.values())
        forget_dispatch()

    def remove(self) -> None:
        """Gives PyTorch its kernels back."""
        for library in self._libraries:
            library._destroy()
        self._libraries = []
        forget_dispatch()


def _registrations(engine: Engine, holder: Holder) -> list[Registration]:
    found: dict[str, Registration] = {}
    passing: set[str] = set()
    own_operators()
    for name, entry in table():
        if not has_overload(name):
            continue
        functional = overload_of(name)
        if isinstance(entry, Statement):
            for overload in [functional, *variants(functional, entry.in_place)]:
                full = signature(overload).name
                if not is_composite_implicit(full):
                    kernel = _kernel(engine, entry, functional, overload, holder)
                    found[full] = Registration(full, kernel, "CPU")
        elif isinstance(entry, Decomposition):
            found[name] = _decomposed(name, entry, holder)
        elif isinstance(entry, Pass):
            passing.add(name)
    return [*found.values(), *_holes(found.keys() | passing, holder)]


def _decomposed(name: str, entry: Decomposition, holder: Holder) -> Registration:
    if entry.composite:
        return Registration(name, untraced(entry.function), "CompositeImplicitAutograd")
    return Registration(name, untraced(decomposition_kernel(name, entry.function, original(name), holder)), "CPU")


def _kernel(engine: Engine, entry: Statement, functional: Any, overload: Any, holder: Holder) -> Kernel:
    name = signature(overload).name
    if entry.random:
        pure = pure_overload(signature(functional).name)
        return RandomKernel(engine, entry, pure, overload, original(name), holder)
    kernel = StatementKernel(engine, entry, functional, overload, original(name), holder)
    fast = with_shortcut(kernel, shortcut_factory(engine))
    return recorded_convolution(fast) if name == "aten::convolution" else fast


def _holes(named: set[str], holder: Holder) -> list[Registration]:
    """A loud kernel for everything with a CPU kernel that the table does not name."""
    loud: list[Registration] = []
    for namespace, names in cpu_kernels().items():
        if namespace in ("isobit", "c10d"):
            continue
        for name in sorted((names | DIRECT if namespace == "aten" else names) - named):
            if has_overload(name):
                loud.append(Registration(name, hole_kernel(name, UNNAMED, original(name), holder), "CPU"))
    return loud


@cache
def override_for(options: EngineOptions) -> Override:
    """The kernels for an engine of these options; kept, with their plans, for the next time they are switched on."""
    return Override(Engine(options))


class ExactLayer:
    """Context manager: the exact arithmetic is on inside. Events about holes go to `sink`."""

    def __init__(self, options: ExactOptions, sink: Callable[[Event], None] | None = None) -> None:
        self.options = options
        self.monitor = HoleMonitor(sink, options.strict)

    def __enter__(self) -> ExactLayer:
        _STACK.push(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _STACK.pop(self)
        self.monitor.close()


def begin_in_child(options: ExactOptions, kind: type, numbers: tuple[int, ...]) -> Any:
    """Runs in a process that was started afresh, before its target is known: see children.py."""
    if active() is None:  # under `isobit run` it is on by now
        ExactLayer(options).__enter__()
    move_process(*numbers)
    return object.__new__(kind)


class _Stack:
    """Which layers are on. It mirrors PyTorch's dispatcher, which is one per process."""

    def __init__(self) -> None:
        self.layers: list[ExactLayer] = []
        self.installed: Override | None = None
        self.flags: Flags | None = None
        self.patches = (
            OptimizerRoutes(),
            CompileDefault(self.note),
            LOADER_LAW,
            ChildProcesses(begin_in_child, lambda: self.layers[-1].options),
            ScriptModules(),
        )
        self.late = LateBackward(lambda: bool(self.layers), lambda: ExactLayer(self.last))
        self.last = ExactOptions()
        self.lock = threading.RLock()

    def push(self, layer: ExactLayer) -> None:
        with self.lock:
            self.layers.append(layer)
            self.last = layer.options
            self._follow()

    def pop(self, layer: ExactLayer) -> None:
        with self.lock:
            self.layers.remove(layer)
            self._follow()

    def _follow(self) -> None:
        top = self.layers[-1] if self.layers else None
        wanted = override_for(top.options.engine) if top else None
        if wanted is not self.installed:
            if self.installed is not None:
                self.installed.remove()
            if wanted is not None:
                wanted.install()
            self.installed = wanted
        if top and wanted:
            wanted.holder.monitor = top.monitor
        self._set_flags(on=top is not None)

    def _set_flags(self, on: bool) -> None:
        if on and self.flags is None:
            self.flags = Flags.read()
            Flags(mkldnn=False, nnpack=False, mha=False, jit=False).write()
            for patch in self.patches:
                patch.install()
            self.late.begin()
        elif not on and self.flags is not None:
            self.late.end()
            self.flags.write()
            self.flags = None
            for patch in self.patches:
                patch.remove()

    def note(self, text: str) -> None:
        """A remark for the record, if there is one."""
        sink = self.layers[-1].monitor.sink if self.layers else None
        if sink is not None:
            sink(NoteEvent(text))


@dataclass(frozen=True)
class Flags:
    """Switches by which PyTorch takes fused kernels past the operators that the table names (LSTM, transformer,
    TorchScript's fusers and derivatives).
    """

    mkldnn: bool
    nnpack: bool
    mha: bool
    jit: bool

    @staticmethod
    def read() -> Flags:
        return Flags(
            torch._C._get_mkldnn_enabled(),
            torch._C._get_nnpack_enabled(),
            torch.backends.mha.get_fastpath_enabled(),
            torch._C._get_graph_executor_optimize(),
        )

    def write(self) -> None:
        torch._C._set_mkldnn_enabled(self.mkldnn)
        torch.backends.nnpack.set_flags(self.nnpack)
        torch.backends.mha.set_fastpath_enabled(self.mha)
        torch._C._set_graph_executor_optimize(self.jit)


_STACK = _Stack()


@contextmanager
def tracing() -> Iterator[dict[Any, Callable[..., Any]]]:
    """While a graph is traced: the table's composites are in place. Gives the decompositions for the tracer."""
    own_operators()
    found = {
        overload_of(name): entry.function
        for name, entry in table()
        if isinstance(entry, Decomposition) and entry.traced and has_overload(name)
    }
    for name, entry in table():
        if isinstance(entry, Statement) and entry.random and has_overload(name):
            found[overload_of(name)] = decomposition(name)
    libraries = [torch.library.Library("aten", "IMPL")] if active() is None else []
    for handle in libraries:
        with quiet_overrides():
            for name, entry in table():
                if isinstance(entry, Decomposition) and entry.composite and has_overload(name):
                    handle.impl(name, entry.function, "CompositeImplicitAutograd")
    forget_dispatch()
    try:
        yield found
    finally:
        for handle in libraries:
            handle._destroy()
        forget_dispatch()


def exactly(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with the exact arithmetic on while it runs, where it is not on anyway."""

    def run(*args: Any, **kwargs: Any) -> Any:
        if active() is not None:
            return function(*args, **kwargs)
        with ExactLayer(ExactOptions()):
            return function(*args, **kwargs)

    return run


def active() -> ExactLayer | None:
    """The layer that is on, if any."""
    return _STACK.layers[-1] if _STACK.layers else None
