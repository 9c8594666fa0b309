"""Everything that is switched on in PyTorch while a script runs under Isobit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Protocol

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from isobit.torch.accelerators import OnlyCpu
from isobit.torch.checkpoint_watch import watching
from isobit.torch.entropy import EntropyNotes
from isobit.torch.events import EventSink, SessionInfo, SessionOptions
from isobit.torch.layer import ExactLayer, ExactOptions, override_for
from isobit.torch.log import logging_to
from isobit.torch.optrace import StepTracer
from isobit.torch.seeding import UnseededGenerators, seed_all
from isobit.torch.steps import ForeignSteps, StepHooks


class Patch(Protocol):
    """What replaces something of PyTorch, NumPy or Python for a while."""

    def install(self) -> None: ...

    def remove(self) -> None: ...


@contextmanager
def exact_session(options: SessionOptions, sink: EventSink) -> Iterator[SessionInfo]:
    """Seed, switch the exact arithmetic on (unless ``options.plain``) and report every optimizer step to
    `sink`.

    Raises ValueError for a CPU level that this machine lacks.
    """
    seed_all(options.seed)
    patches = (UnseededGenerators(options.seed), OnlyCpu(options.hidden_devices), EntropyNotes(options.ours, sink))
    with _torch_threads(options.threads) as threads, _installed(patches):
        layer = nullcontext(SessionInfo(threads, None)) if options.plain else _exact_layer(options, sink)
        with (
            layer as info,
            _operators(options, sink) as sink,
            StepHooks(sink, options.sampling),
            logging_to(sink),
            watching(sink, Path(options.resume_from) if options.resume_from else None, options.anew),
        ):
            yield info


@contextmanager
def _operators(options: SessionOptions, sink: EventSink) -> Iterator[EventSink]:
    """`sink`, with a tracer of operators before it where a step is asked for. Compiled code runs eager then: the bits
    are the same, and there are operators to see.
    """
    if options.operators_at is None:
        yield sink
        return
    tracer = StepTracer(sink, options.operators_at, options.ours)
    with torch.compiler.set_stance("force_eager"):
        try:
            yield tracer
        finally:
            tracer.close()


def child_session(options: SessionOptions, sink: EventSink) -> Callable[[], None]:
    """The exact arithmetic for the rest of a process that the script has started; PyTorch has the run's seed there.

    Returns what reports the counts of holes when it ends. Steps are the first process's to record: here a note says
    that there were some.
    """
    torch.manual_seed(options.seed)
    OnlyCpu(options.hidden_devices).install()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    register_optimizer_step_post_hook(ForeignSteps(sink))
    if options.plain:
        return lambda: None
    layer = ExactLayer(ExactOptions(threads=options.threads, cpu=options.cpu, strict=options.strict), sink)
    layer.__enter__()
    return layer.monitor.close


@contextmanager
def _installed(patches: tuple[Patch, ...]) -> Iterator[None]:
    with ExitStack() as stack:
        for patch in patches:
            patch.install()
            stack.callback(patch.remove)
        yield


@contextmanager
def _torch_threads(threads: int | None) -> Iterator[int]:
    """PyTorch's own kernels, which also run where the exact arithmetic has none, on so many threads."""
    before = torch.get_num_threads()
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        yield torch.get_num_threads()
    finally:
        torch.set_num_threads(before)


@contextmanager
def _exact_layer(options: SessionOptions, sink: EventSink) -> Iterator[SessionInfo]:
    """The exact arithmetic in eager PyTorch; torch.compile(backend="isobit") inside uses the same engine."""
    wanted = ExactOptions(threads=options.threads, cpu=options.cpu, strict=options.strict)
    with ExactLayer(wanted, sink):
        engine = override_for(wanted.engine).engine
        yield SessionInfo(engine.runtime.threads, engine.target.level)
