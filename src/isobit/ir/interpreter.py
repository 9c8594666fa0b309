"""The meaning of a graph: executes its statements by ARITHMETIC.md with NumPy, slow and obvious.

Every axis of a statement is one array dimension; an expression's value is an array that broadcasts to the
statement's whole iteration space.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from isobit.arithmetic import orders
from isobit.arithmetic.dtypes import DType
from isobit.ir import numeric
from isobit.ir.expr import Affine, Axis, Const, Coord, Expr, Load, Op
from isobit.ir.graph import Assemble, Contract, Graph, Input, Map, Node, Part, Reduce, Reshape
from isobit.ir.numeric import Array


def interpret(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    """The graph's outputs for `inputs`, arrays of the declared shapes and NumPy dtypes (bf16: uint16 patterns).

    Raises ValueError where an input does not fit its declaration.
    """
    tensors: list[Array] = []
    for node in graph.nodes:
        with np.errstate(all="ignore"):
            value = _execute(node, tensors, inputs, graph)
        tensors.append(np.ascontiguousarray(value).reshape(node.shape))
    return [tensors[i].copy() for i in graph.outputs]


def _execute(node: Node, tensors: list[Array], inputs: Sequence[Array], graph: Graph) -> Array:
    match node.stmt:
        case Input(position):
            return _checked(np.asarray(inputs[position]), node, position)
        case Map(axes, body):
            return np.broadcast_to(_Grid(axes, tensors, graph).value(body), node.shape)
        case Reduce() as stmt:
            return _reduce(stmt, node, tensors, graph)
        case Contract() as stmt:
            return _contract(stmt, node, tensors, graph)
        case Reshape(source):
            return tensors[source].reshape(node.shape)
        case Assemble(parts):
            return _assemble(parts, node, tensors)


def _assemble(parts: Sequence[Part], node: Node, tensors: Sequence[Array]) -> Array:
    out = np.empty(node.shape, node.dtype.numpy)
    for part in parts:
        x = tensors[part.source]
        where = zip(part.offset, part.step, x.shape, strict=True)
        out[tuple(slice(o, o + s * n, s) for o, s, n in where)] = x
    return out


def _checked(x: Array, node: Node, position: int) -> Array:
    if x.shape != node.shape or x.dtype != node.dtype.numpy:
        raise ValueError(f"input {position} is {x.dtype}{x.shape}, the graph takes {node.dtype}{node.shape}")
    return x


class _Grid:
    """Evaluates expressions over the iteration space of `axes`."""

    def __init__(self, axes: Sequence[Axis], tensors: Sequence[Array], graph: Graph) -> None:
        self.place = {a: d for d, a in enumerate(axes)}
        self.tensors = tensors
        self.graph = graph
        self.done: dict[int, Array] = {}

    def value(self, e: Expr) -> Array:
        """The expression everywhere on the grid; shared subexpressions are computed once."""
        if id(e) not in self.done:
            self.done[id(e)] = self._evaluate(e)
        return self.done[id(e)]

    def _evaluate(self, e: Expr) -> Array:
        match e:
            case Const(dtype, value):
                return _literal(value, dtype, len(self.place))
            case Coord(_, index):
                return self._affine(index)
            case Load():
                return self._load(e)
            case Op(dtype, name, args):
                return numeric.apply(name, dtype, tuple(map(self.value, args)), args[-1].dtype)
        raise TypeError(f"not an expression: {e!r}")

    def _affine(self, index: Affine) -> Array:
        total: Array = np.full((1,) * len(self.place), index.const, np.int64)
        for axis, coefficient in index.terms:
            shape = [1] * len(self.place)
            shape[self.place[axis]] = axis.extent
            total = total + coefficient * np.arange(axis.extent, dtype=np.int64).reshape(shape)
        return total

    def _load(self, e: Load) -> Array:
        source = self.tensors[e.source]
        index = [self.value(i) if isinstance(i, Expr) else self._affine(i) for i in e.index]
        if not index:
            return source.reshape((1,) * len(self.place))
        if e.fill is None:
            return np.asarray(source[tuple(np.broadcast_arrays(*index))])
        inside = np.logical_and.reduce(
            np.broadcast_arrays(*((i >= 0) & (i < n) for i, n in zip(index, source.shape, strict=True)))
        )
        fill = _literal(e.fill.value, e.dtype, len(self.place))
        if not source.size:
            return np.broadcast_to(fill, inside.shape)
        safe = [np.where(inside, i, 0) for i in index]
        return np.asarray(np.where(inside, source[tuple(safe)], fill))


def _literal(value: float | int | bool, dtype: DType, ndim: int) -> Array:
    """A constant on a grid. Its value is representable in `dtype`, so the conversion is exact."""
    if dtype == DType.BF16:
        return numeric.cast(np.full((1,) * ndim, value, np.float32), DType.F32, dtype)
    return np.full((1,) * ndim, value, dtype.numpy)


def _runs(body: Expr, stmt: Reduce, shape: tuple[int, ...], tensors: Sequence[Array], graph: Graph) -> Array:
    """The body over the iteration space, its run flattened to the last dimension; narrow floats widened."""
    full = shape + tuple(a.extent for a in stmt.run)
    value = np.broadcast_to(_Grid(stmt.axes + stmt.run, tensors, graph).value(body), full)
    return numeric.widen(value.reshape(*shape, math.prod(full[len(shape) :])), body.dtype)


def _reduce(stmt: Reduce, node: Node, tensors: Sequence[Array], graph: Graph) -> Array:
    shape = node.shape
    if 0 in shape:
        return np.empty(shape, node.dtype.numpy)
    run = _runs(stmt.body, stmt, shape, tensors, graph)
    if stmt.kind in ("argmax", "argmin"):
        return _KINDS[stmt.kind](run)
    if stmt.aux is not None:
        mean = np.broadcast_to(_Grid(stmt.axes, tensors, graph).value(stmt.aux), shape)
        out = orders.squared_deviations(run, numeric.widen(mean, stmt.body.dtype))
    else:
        out = _KINDS[stmt.kind](run)
    narrow = stmt.body.dtype in (DType.F16, DType.BF16)
    return numeric.cast(out, DType.F32, stmt.body.dtype) if narrow else out


_KINDS: dict[str, Callable[[Array], Array]] = {
    "sum": orders.sum_run, "prod": orders.prod_run, "max": orders.max_run, "min": orders.min_run,
    "argmax": orders.argmax, "argmin": orders.argmin, "tree_sum": orders.tree_sum, "tree_prod": orders.tree_prod,
    "any": lambda x: np.asarray(x.any(-1)), "all": lambda x: np.asarray(x.all(-1)),
}  # fmt: skip


def _contract(stmt: Contract, node: Node, tensors: Sequence[Array], graph: Graph) -> Array:
    """Σ lhs·rhs over the flattened `over`, in the order of ARITHMETIC.md §4."""
    grid = _Grid(stmt.axes + stmt.over, tensors, graph)
    kept, k = len(node.shape), math.prod(a.extent for a in stmt.over)

    def flat(e: Load) -> Array:
        value = numeric.widen(grid.value(e), e.dtype)
        value = np.broadcast_to(value, value.shape[:kept] + tuple(a.extent for a in stmt.over))
        return value.reshape(*value.shape[:kept], k)

    out = np.broadcast_to(orders.contract(flat(stmt.lhs), flat(stmt.rhs)), node.shape)
    narrow = node.dtype in (DType.F16, DType.BF16)
    return numeric.cast(out, DType.F32, node.dtype) if narrow else out
