"""A graph of statements in index notation, and the handle (`Value`) through which operators build it.

Stmt = Input(position)
     | Map(axes, body)                              y[axes] = body
     | Reduce(axes, run, kind, body, aux)           y[axes] = kind over one run (row-major over `run`) of body
     | Contract(axes, over, lhs, rhs)               y[axes] = Σ lhs·rhs over `over` (row-major), ARITHMETIC.md §4
     | Reshape(source)                              the same elements in row-major order under another shape
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from isobit.arithmetic.dtypes import DType
from isobit.ir.expr import Affine, Axis, Const, Expr, Load, Scalar, axes, const
from isobit.ir.ops import REDUCTIONS

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Input:
    """The `position`-th tensor the caller passes."""

    position: int


@dataclass(frozen=True)
class Map:
    axes: tuple[Axis, ...]
    body: Expr


@dataclass(frozen=True)
class Reduce:
    """One run of ARITHMETIC.md §3. `aux` is the mean that kind "m2" measures from, a function of `axes` only.

    argmax/argmin give the i64 position in the run; "m2" is Σ over blocks of q_b + n_b·(m_b − m)².
    """

    axes: tuple[Axis, ...]
    run: tuple[Axis, ...]
    kind: str
    body: Expr
    aux: Expr | None = None


@dataclass(frozen=True)
class Contract:
    axes: tuple[Axis, ...]
    over: tuple[Axis, ...]
    lhs: Load
    rhs: Load


@dataclass(frozen=True)
class Reshape:
    source: int


@dataclass(frozen=True)
class Part:
    """Element i of dim d of node `source` stands at offset[d] + step[d]·i in the assembled tensor."""

    source: int
    offset: tuple[int, ...]
    step: tuple[int, ...]


@dataclass(frozen=True)
class Assemble:
    """Concatenation and interleaving: the parts cover every element exactly once."""

    parts: tuple[Part, ...]


Stmt = Input | Map | Reduce | Contract | Reshape | Assemble


@dataclass(frozen=True)
class Node:
    """One tensor of the graph. `origin` names the operator that made it, for messages."""

    id: int
    stmt: Stmt
    dtype: DType
    shape: Shape
    origin: str


@dataclass
class Graph:
    """Nodes in topological order; `outputs` are node ids and may repeat or be inputs."""

    nodes: list[Node] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    n_inputs: int = 0
    origin: str = "?"

    def input(self, dtype: DType, shape: Iterable[int]) -> Value:
        """The next input tensor."""
        self.n_inputs += 1
        return self._add(Input(self.n_inputs - 1), dtype, tuple(shape))

    def constant(self, value: Scalar, dtype: DType) -> Value:
        """A 0-d tensor that holds a literal."""
        return self._add(Map((), const(value, dtype)), dtype, ())

    def map(self, over: Sequence[Axis], body: Expr) -> Value:
        """y[over] = body."""
        return self._add(Map(tuple(over), body), body.dtype, tuple(a.extent for a in over))

    def reduce(
        self, kind: str, keep: Sequence[Axis], run: Sequence[Axis], body: Expr, aux: Expr | None = None
    ) -> Value:
        """y[keep] = `kind` over the run `run` (its axes in row-major order) of body."""
        if kind not in REDUCTIONS or (kind == "m2") != (aux is not None):
            raise ValueError(f"no such reduction: {kind!r} (aux {'given' if aux else 'missing'})")
        dtype = DType.I64 if kind in ("argmax", "argmin") else body.dtype
        stmt = Reduce(tuple(keep), tuple(run), kind, body, aux)
        return self._add(stmt, dtype, tuple(a.extent for a in keep))

    def contract(self, keep: Sequence[Axis], over: Sequence[Axis], lhs: Expr, rhs: Expr) -> Value:
        """y[keep] = Σ lhs·rhs over `over` in row-major order; both are plain loads of one float dtype."""
        if not (isinstance(lhs, Load) and isinstance(rhs, Load)) or lhs.fill or rhs.fill:
            raise ValueError("a contraction multiplies two plain loads")
        if lhs.dtype != rhs.dtype:
            raise TypeError(f"contraction of {lhs.dtype} with {rhs.dtype}")
        stmt = Contract(tuple(keep), tuple(over), lhs, rhs)
        return self._add(stmt, lhs.dtype, tuple(a.extent for a in keep))

    def reshape(self, x: Value, shape: Iterable[int]) -> Value:
        """The elements of x in row-major order under `shape`."""
        shape = tuple(shape)
        if math.prod(shape) != math.prod(x.shape):
            raise ValueError(f"cannot view {x.shape} as {shape}")
        return x if shape == x.shape else self._add(Reshape(x.id), x.dtype, shape)

    def assemble(self, shape: Iterable[int], parts: Sequence[tuple[Value, Sequence[int], Sequence[int]]]) -> Value:
        """One tensor of `shape` from (part, offsets, steps), which must cover it exactly once (counted, not proved)."""
        shape = tuple(shape)
        if not parts or sum(math.prod(v.shape) for v, _, _ in parts) != math.prod(shape):
            raise ValueError(f"parts {[v.shape for v, _, _ in parts]} do not cover {shape}")
        for v, offset, step in parts:
            ends = [o + s * (n - 1) for o, s, n in zip(offset, step, v.shape, strict=True)]
            if math.prod(v.shape) and any(o < 0 or e >= n for o, e, n in zip(offset, ends, shape, strict=True)):
                raise ValueError(f"part {v.shape} at {tuple(offset)} with steps {tuple(step)} leaves {shape}")
        stmt = Assemble(tuple(Part(v.id, tuple(offset), tuple(step)) for v, offset, step in parts))
        return self._add(stmt, parts[0][0].dtype, shape)

    def with_inputs(self, order: Sequence[int], count: int) -> Graph:
        """A copy whose input k is the caller's tensor `order[k]` of `count`."""
        nodes = [replace(n, stmt=Input(order[n.stmt.position])) if isinstance(n.stmt, Input) else n for n in self.nodes]
        return Graph(nodes, list(self.outputs), count, self.origin)

    def value(self, node: int) -> Value:
        return Value(self, node)

    def _add(self, stmt: Stmt, dtype: DType, shape: Shape) -> Value:
        self.nodes.append(Node(len(self.nodes), stmt, dtype, shape, self.origin))
        return Value(self, len(self.nodes) - 1)


@dataclass(frozen=True)
class Value:
    """A tensor of a graph under construction. `x[i, j]` is an element, to be used in statements."""

    graph: Graph
    id: int

    @property
    def node(self) -> Node:
        return self.graph.nodes[self.id]

    @property
    def dtype(self) -> DType:
        return self.node.dtype

    @property
    def shape(self) -> Shape:
        return self.node.shape

    @property
    def ndim(self) -> int:
        return len(self.node.shape)

    def axes(self) -> tuple[Axis, ...]:
        """Fresh axes that run over this tensor."""
        return axes(*self.shape)

    def __getitem__(self, index: object) -> Load:
        return self.at(*(index if isinstance(index, tuple) else (index,)))

    def at(self, *index: object, fill: Scalar | None = None) -> Load:
        """Element `index` (axes, affine expressions, ints or i64 expressions); `fill` is read outside the tensor."""
        if len(index) != self.ndim:
            raise ValueError(f"{len(index)} indices for a tensor of shape {self.shape}")
        parts = tuple(i if isinstance(i, Expr) else Affine.of(i) for i in index)  # type: ignore[arg-type]
        value: Const | None = None if fill is None else const(fill, self.dtype)
        if value is None and any(isinstance(i, Expr) for i in parts):
            raise ValueError("a data-dependent index needs a fill value")
        return Load(self.dtype, self.id, parts, value)
