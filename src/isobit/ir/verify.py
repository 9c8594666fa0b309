"""The executable check of a graph: what every pass and the interpreter may rely on."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from isobit.arithmetic.dtypes import DType
from isobit.ir import ops
from isobit.ir.expr import Affine, Axis, Const, Coord, Expr, Load, Op, children
from isobit.ir.graph import Assemble, Contract, Graph, Input, Map, Node, Part, Reduce, Reshape


class VerifyError(ValueError):
    """A graph breaks its grammar; the message names the node and the operator that made it."""


def verify(graph: Graph) -> None:
    """Raises VerifyError at the first node, in order, that is not what the grammar of graph.py says."""
    for place, node in enumerate(graph.nodes):
        try:
            _require(node.id == place, f"stands at place {place}")
            _Checker(graph, node).statement()
        except _Broken as broken:
            raise VerifyError(f"node {node.id} of operator {node.origin}: {broken}") from None
    for output in graph.outputs:
        if not 0 <= output < len(graph.nodes):
            raise VerifyError(f"output {output} is not a node of the graph")


class _Broken(Exception):
    pass


def _require(ok: bool, message: str) -> None:
    if not ok:
        raise _Broken(message)


class _Checker:
    """Checks one node's statement."""

    def __init__(self, graph: Graph, node: Node) -> None:
        self.graph, self.node = graph, node
        self.scope: frozenset[Axis] = frozenset()
        self.is_empty = False
        self.done: set[int] = set()

    def statement(self) -> None:
        match self.node.stmt:
            case Input(position):
                _require(0 <= position < self.graph.n_inputs, f"is input {position} of {self.graph.n_inputs}")
            case Map(axes, body):
                self._result(axes, body.dtype)
                self._within(axes, body)
            case Reduce() as stmt:
                self._reduce(stmt)
            case Contract() as stmt:
                self._contract(stmt)
            case Reshape(source):
                self._reshape(self._source(source))
            case Assemble(parts):
                self._assemble(parts)

    def _source(self, node: int) -> Node:
        _require(0 <= node < self.node.id, f"reads node {node}, which does not stand before it")
        return self.graph.nodes[node]

    def _result(self, axes: tuple[Axis, ...], dtype: DType) -> None:
        shape = tuple(a.extent for a in axes)
        _require(shape == self.node.shape, f"has shape {self.node.shape} but axes {shape}")
        _require(dtype == self.node.dtype, f"has dtype {self.node.dtype} but computes {dtype}")

    def _within(self, axes: Iterable[Axis], *exprs: Expr) -> None:
        """The expressions are well-formed over `axes`."""
        axes = tuple(axes)
        self.scope, self.done = frozenset(axes), set()
        self.is_empty = any(a.extent == 0 for a in axes)
        _require(len(self.scope) == len(axes), "has the same axis twice")
        _require(all(a.extent >= 0 for a in axes), "has an axis of negative extent")
        for e in exprs:
            self._expr(e)

    def _reduce(self, stmt: Reduce) -> None:
        _require(stmt.kind in ops.REDUCTIONS, f"reduces by {stmt.kind!r}")
        _require((stmt.kind == "m2") == (stmt.aux is not None), "gives an aux to a kind other than m2, or none to m2")
        position = stmt.kind in ("argmax", "argmin")
        _require(not position or math.prod(a.extent for a in stmt.run) > 0, "seeks a position in an empty run")
        self._result(stmt.axes, DType.I64 if position else stmt.body.dtype)
        if stmt.kind in ("any", "all"):
            _require(stmt.body.dtype == DType.BOOL, f"takes {stmt.kind} of {stmt.body.dtype}")
        self._within(stmt.axes + stmt.run, stmt.body)
        if stmt.aux is not None:
            _require(stmt.body.dtype.is_float and stmt.aux.dtype == stmt.body.dtype, "measures m2 in two dtypes")
            self._within(stmt.axes, stmt.aux)

    def _contract(self, stmt: Contract) -> None:
        self._result(stmt.axes, stmt.lhs.dtype)
        _require(stmt.lhs.dtype == stmt.rhs.dtype, "contracts two dtypes")
        _require(stmt.lhs.dtype.is_float, "contracts other than floats")
        self._within(stmt.axes + stmt.over, stmt.lhs, stmt.rhs)
        for side in (stmt.lhs, stmt.rhs):
            _require(side.fill is None, "contracts something else than plain loads")
            _require(all(isinstance(i, Affine) for i in side.index), "contracts over a data-dependent index")

    def _reshape(self, source: Node) -> None:
        _require(source.dtype == self.node.dtype, "reshapes to another dtype")
        _require(math.prod(source.shape) == math.prod(self.node.shape), f"reshapes {source.shape} to {self.node.shape}")

    def _assemble(self, parts: tuple[Part, ...]) -> None:
        covered = np.zeros(self.node.shape, np.int32)
        for part in parts:
            source = self._source(part.source)
            _require(source.dtype == self.node.dtype, "assembles parts of another dtype")
            ranks = {len(part.offset), len(part.step), len(source.shape), covered.ndim}
            _require(len(ranks) == 1, "has a part of another rank")
            if math.prod(source.shape):
                covered[self._place(part, source.shape)] += 1
        _require(bool((covered == 1).all()), "has parts that do not cover it exactly once")

    def _place(self, part: Part, shape: tuple[int, ...]) -> tuple[slice, ...]:
        places = []
        for offset, step, extent, bound in zip(part.offset, part.step, shape, self.node.shape, strict=True):
            last = offset + step * (extent - 1)
            _require(offset >= 0 and step > 0 and last < bound, "has a part that sticks out")
            places.append(slice(offset, last + 1, step))
        return tuple(places)

    def _expr(self, e: Expr) -> None:
        if id(e) in self.done:
            return
        self.done.add(id(e))
        for child in children(e):
            self._expr(child)
        match e:
            case Const(dtype, value):
                self._constant(dtype, value)
            case Coord(dtype, index):
                _require(dtype == DType.I64, "has a coordinate that is not i64")
                self._affine(index)
            case Load():
                self._load(e)
            case Op():
                self._op(e)
            case _:
                raise _Broken(f"holds {type(e).__name__}, which is no expression")

    def _constant(self, dtype: DType, value: float | int | bool) -> None:
        rounded = ops.round_scalar(value, dtype)
        _require(rounded == value or value != value, f"holds the literal {value}, which is no {dtype}")

    def _affine(self, index: Affine) -> None:
        for axis, _ in index.terms:
            _require(axis in self.scope, f"uses axis {axis.name}{axis.serial} outside its statement")

    def _load(self, e: Load) -> None:
        source = self._source(e.source)
        _require(e.dtype == source.dtype, f"loads {e.dtype} from node {source.id} of {source.dtype}")
        _require(len(e.index) == len(source.shape), f"loads with {len(e.index)} indices from {source.shape}")
        _require(e.fill is None or e.fill.dtype == e.dtype, "fills with another dtype")
        for i, extent in zip(e.index, source.shape, strict=True):
            self._index(i, extent, e)

    def _index(self, i: Affine | Expr, extent: int, e: Load) -> None:
        if isinstance(i, Expr):
            _require(i.dtype == DType.I64 and e.fill is not None, "has a data-dependent index without i64 or fill")
            return
        self._affine(i)
        low, high = i.bounds()
        inside = self.is_empty or (low >= 0 and high < extent)
        _require(inside or e.fill is not None, f"loads {low}..{high} of extent {extent} from node {e.source}, no fill")

    def _op(self, e: Op) -> None:
        _require(e.name in ops.TABLE, f"has no operation {e.name!r}")
        types = tuple(a.dtype for a in e.args)
        if e.name == "cast":
            _require(len(types) == 1, "casts other than one value")
            return
        try:
            expected = ops.result_dtype(e.name, types)
        except TypeError as wrong:
            raise _Broken(str(wrong)) from None
        _require(e.dtype == expected, f"{e.name} of {types} is {expected}, not {e.dtype}")
        floats_only = e.name in ops.ELEMENTARY | {"div", "sqrt", "fma", "floor", "ceil", "trunc", "round"}
        _require(not floats_only or types[0].is_float, f"{e.name} of {types[0]}")
        ints_only = e.name in {"shl", "shr", "floordiv", "mod"}
        _require(not ints_only or types[0].is_int, f"{e.name} of {types[0]}")
        _require(e.name not in {"and", "or", "xor", "not"} or not types[0].is_float, f"{e.name} of {types[0]}")
