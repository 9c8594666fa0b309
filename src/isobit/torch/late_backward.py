"""Backward passes after the exact arithmetic is off, of graphs that were made while it was on: they get it back.

PyTorch numbers the nodes of a graph as they are made, thread by thread. Which numbers were given while the arithmetic
was on is remembered, so a graph without such a node is left alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

_autograd: Any = torch.autograd
_sequence_nr: Callable[[], int] = _autograd._get_sequence_nr
_MOST = 16  # then the two oldest spans become one; that more than needed is exact does no harm
_LEAF = 2**64 - 1  # the number of the nodes that accumulate gradients


class LateBackward:
    """Watches backward passes from the first `begin` on. `exact()` switches the arithmetic on as it was then."""

    def __init__(self, is_on: Callable[[], bool], exact: Callable[[], AbstractContextManager[Any]]) -> None:
        self._is_on = is_on
        self._exact = exact
        self._start = 0
        self._spans: list[tuple[int, int]] = []
        self._watching = False

    def begin(self) -> None:
        """The arithmetic is on now."""
        self._start = _sequence_nr()
        if not self._watching:
            self._watching = True
            self._watch()

    def end(self) -> None:
        """It is off now."""
        stop = _sequence_nr()
        if stop > self._start:
            self._spans.append((self._start, stop))
        if len(self._spans) > _MOST:
            (a, b), (c, d), *rest = self._spans
            self._spans = [(min(a, c), max(b, d)), *rest]

    def _watch(self) -> None:
        original: Callable[..., Any] = _autograd._engine_run_backward

        @functools.wraps(original)
        def run(outputs: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
            if self._is_on() or not self._made_within(outputs):
                return original(outputs, *args, **kwargs)
            with self._exact():
                return original(outputs, *args, **kwargs)

        _autograd._engine_run_backward = run

    def _made_within(self, outputs: Iterable[Any]) -> bool:
        """Whether a node of the graph was made while the arithmetic was on. Older nodes are reached from newer ones."""
        if not self._spans:
            return False
        first = min(start for start, _ in self._spans)
        todo = [getattr(output, "grad_fn", None) or getattr(output, "node", None) for output in outputs]
        seen: set[Any] = set()
        while todo:
            node = todo.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            number = node._sequence_nr()
            if any(start <= number < stop for start, stop in self._spans):
                return True
            if number >= first and number != _LEAF:
                todo += [following for following, _ in node.next_functions]
        return False
