"""Everything that is switched on in PyTorch while a script runs under Isobit."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import numpy as np
import torch

from isobit.torch.events import EventSink, SessionInfo, SessionOptions
from isobit.torch.steps import StepHooks


@contextmanager
def exact_session(options: SessionOptions, sink: EventSink) -> Iterator[SessionInfo]:
    """Seed, switch the exact arithmetic on (unless ``options.plain``) and report every optimizer step to
    `sink`.

    Raises ValueError for a CPU level that this machine lacks.
    """
    seed_all(options.seed)
    layer = _plain_layer(options) if options.plain else _exact_layer(options, sink)
    with layer as info, StepHooks(sink):
        yield info


def seed_all(seed: int) -> None:
    """Seed PyTorch, Python's `random` and NumPy's legacy generator with one number, 0 <= seed < 2^63."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


@contextmanager
def _plain_layer(options: SessionOptions) -> Iterator[SessionInfo]:
    """PyTorch's own kernels on the given number of threads."""
    before = torch.get_num_threads()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    try:
        yield SessionInfo(torch.get_num_threads(), None)
    finally:
        torch.set_num_threads(before)


def _exact_layer(options: SessionOptions, sink: EventSink) -> AbstractContextManager[SessionInfo]:
    """TO BE WIRED: the eager override and the compile backend, reporting holes to `sink`."""
    raise NotImplementedError("the exact arithmetic is not built yet; --plain runs PyTorch's own kernels")
