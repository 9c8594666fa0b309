"""The table of operators. An operator is a Python function from tensors of a graph (and attributes) to tensors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from isobit.arithmetic.dtypes import DType
from isobit.ir.graph import Graph, Value

P = ParamSpec("P")
R = TypeVar("R")

NARROW = frozenset({DType.F16, DType.BF16})


@dataclass(frozen=True)
class Operator:
    """One entry: `fn` writes the operator's statements into the graph of its arguments."""

    name: str
    fn: Callable[..., Any]
    doc: str


REGISTRY: dict[str, Operator] = {}


def operator(fn: Callable[P, R]) -> Callable[P, R]:
    """Registers `fn` under its name (without a trailing underscore) as an operator that computes.

    Narrow floats among its arguments are widened to f32 on the way in, and its f32 results are rounded to that
    dtype, once, on the way out (ARITHMETIC.md §1).
    """

    @wraps(fn)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        graph = _graph_of(args, kwargs)
        narrow = next((v.dtype for v in _values((args, kwargs)) if v.dtype in NARROW), None)
        with _origin(graph, _name(fn)):
            if narrow is None:
                return fn(*args, **kwargs)
            wide_args = _each(args, lambda v: recast(v, DType.F32) if v.dtype in NARROW else v)
            wide_kwargs = _each(kwargs, lambda v: recast(v, DType.F32) if v.dtype in NARROW else v)
            result = fn(*wide_args, **wide_kwargs)
            rounded: R = _each(result, lambda v: recast(v, narrow) if v.dtype == DType.F32 else v)
            return rounded

    return _register(fn, run)


def bit_move(fn: Callable[P, R]) -> Callable[P, R]:
    """Registers `fn` as an operator that only moves elements, or converts them itself: every dtype as it is."""

    @wraps(fn)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with _origin(_graph_of(args, kwargs), _name(fn)):
            return fn(*args, **kwargs)

    return _register(fn, run)


def recast(x: Value, dtype: DType) -> Value:
    """x converted to `dtype` as a Map; x itself where it has it already."""
    if x.dtype == dtype:
        return x
    at = x.axes()
    return x.graph.map(at, x[at].cast(dtype))


def _register(fn: Callable[P, R], run: Callable[P, R]) -> Callable[P, R]:
    name = _name(fn)
    if name in REGISTRY:
        raise ValueError(f"two operators are called {name!r}")
    REGISTRY[name] = Operator(name, run, inspect.getdoc(fn) or "")
    return run


def _name(fn: Callable[..., Any]) -> str:
    return fn.__name__.rstrip("_")


class _origin:
    """Names the operator in the graph's nodes; the outermost name, or one that the caller has set, stays."""

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph, self.name, self.before = graph, name, graph.origin

    def __enter__(self) -> None:
        if self.before == "?":
            self.graph.origin = self.name

    def __exit__(self, *_: object) -> None:
        self.graph.origin = self.before


def _values(tree: object) -> Iterator[Value]:
    if isinstance(tree, Value):
        yield tree
    elif isinstance(tree, (tuple, list)):
        for x in tree:
            yield from _values(x)
    elif isinstance(tree, dict):
        yield from _values(tuple(tree.values()))


def _each(tree: Any, change: Callable[[Value], Value]) -> Any:
    if isinstance(tree, Value):
        return change(tree)
    if isinstance(tree, (tuple, list)):
        return type(tree)(_each(x, change) for x in tree)
    if isinstance(tree, dict):
        return {k: _each(x, change) for k, x in tree.items()}
    return tree


def _graph_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Graph:
    if args and isinstance(args[0], Graph):
        return args[0]
    value = next(_values((args, kwargs)), None)
    if value is None:
        raise TypeError("an operator needs a tensor, or the graph as its first argument")
    return value.graph
