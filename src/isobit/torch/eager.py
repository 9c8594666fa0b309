"""The exact arithmetic in eager PyTorch: `with isobit.exact():`, or `isobit.enable()` and `isobit.disable()`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from isobit.torch.events import Event
from isobit.torch.layer import ExactLayer, ExactOptions

_ENABLED: list[ExactLayer] = []  # what enable() has entered; PyTorch's dispatcher is one per process, too


@contextmanager
def exact(
    *,
    threads: int | None = None,
    cpu: str | None = None,
    strict: bool = False,
    sink: Callable[[Event], None] | None = None,
) -> Iterator[ExactLayer]:
    """Inside, every operator on CPU tensors gives the bits of docs/arithmetic.md, in all threads of the process.

    `threads` and `cpu` (an instruction-set level) say how it runs; they change no bit. Operators outside the
    arithmetic, holes, run on PyTorch's kernels: the first of a kind is named on stderr and `sink` gets a HoleEvent;
    with `strict` it raises HoleError before it runs.
    """
    with ExactLayer(ExactOptions(threads, cpu, strict), sink) as layer:
        yield layer


def enable(*, threads: int | None = None, cpu: str | None = None, strict: bool = False) -> None:
    """Switches the exact arithmetic on until `disable()`; calls nest."""
    layer = ExactLayer(ExactOptions(threads, cpu, strict))
    layer.__enter__()
    _ENABLED.append(layer)


def disable() -> None:
    """Takes back the last `enable()`; raises RuntimeError where there is none."""
    if not _ENABLED:
        raise RuntimeError("isobit.disable() without isobit.enable()")
    _ENABLED.pop().__exit__(None, None, None)
