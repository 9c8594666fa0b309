"""Kernel IR: what the compiler hands to code generation. Structure only; every size, stride and address is an argument.

A `Nest` is

    for o in outer axes (in parallel, any order):            # row-major, flattened for the split over threads
        for each stage:
            Loop:  for r in inner axes (in order):  stores; folds accumulate
            Point: temporaries and stores, once per outer point

`vector` says which axis runs across SIMD lanes: "inner" (the one inner axis; temporaries are scalars) or "outer" (the
last outer axis; temporaries are vectors across it, the inner axes are plain loops). Folds follow ARITHMETIC.md §3 in
both. A `Contraction` is Σ lhs·rhs of §4 with an epilogue. `NestCall` and `ContractionCall` carry the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from isobit.arithmetic.dtypes import DType
from isobit.ir.expr import Const, Expr

Step = Literal["0", "1", "s"]
"""How an address moves along an axis: not at all, by one element, or by a stride given at run time."""


@dataclass(frozen=True)
class Operand:
    """A tensor as a kernel sees it: `steps` has one entry per axis (outer axes first, then inner)."""

    dtype: DType
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Linear:
    """An integer function const + Σ coefficient·axis of the axes; coefficients of "s" axes are arguments."""

    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Fetch(Expr):
    """The element of operand `operand` at the current axes, shifted by data-dependent `dynamic` positions.

    `guards` are indices into Nest.guards: the element exists only where each guarded linear g has 0 <= g < bound, and
    each dynamic position p has 0 <= p < its extent; else the value is `fill`, and memory is not touched.
    `dynamic` holds (i64 expression, index into the call's dynamics).
    """

    operand: int = -1
    guards: tuple[int, ...] = ()
    dynamic: tuple[tuple[Expr, int], ...] = ()
    fill: Const | None = None


@dataclass(frozen=True, slots=True)
class Position(Expr):
    """The value of Nest.linears[linear], i64."""

    linear: int = -1


@dataclass(frozen=True, slots=True)
class Temp(Expr):
    """Temporary `index`, defined by a fold or a let of an earlier stage (or, in an epilogue, the contraction)."""

    index: int = -1


@dataclass(frozen=True, slots=True)
class RowElement(Expr):
    """The element of row buffer `index` at the current inner position, stored by an earlier stage or store."""

    index: int = -1


@dataclass(frozen=True)
class Store:
    """Write `value` to operand `target`, or to row buffer `target` if `row`."""

    target: int
    value: Expr
    row: bool = False


@dataclass(frozen=True)
class Fold:
    """Temporary `temp` = `kind` (ir.ops.REDUCTIONS) over the inner axes of `value`.

    "m2": Σ over blocks of q_b + n_b·(m_b − aux)², where `aux` depends on outer axes and temporaries only.
    argmax/argmin: the i64 position in the run. A segmented fold of kind sum/prod/m2 is that segment's part, to be
    combined by tree_sum or tree_prod.
    """

    temp: int
    kind: str
    value: Expr
    aux: Expr | None = None


@dataclass(frozen=True)
class Loop:
    """One pass over the inner axes. Stores happen in order before the folds of the same element."""

    stores: tuple[Store, ...] = ()
    folds: tuple[Fold, ...] = ()


@dataclass(frozen=True)
class Point:
    """Once per outer point: lets (temp, value) in order, then stores to operands (whose inner steps are all "0")."""

    lets: tuple[tuple[int, Expr], ...] = ()
    stores: tuple[Store, ...] = ()


@dataclass(frozen=True)
class Nest:
    """See the module's text. `rows` are the dtypes of the row buffers (per thread, one element per inner position; in
    "outer" mode times the lanes). `guards[i]` is the linear that guard i bounds. `segment`: the outer axis whose value
    s selects positions [s·length, min((s+1)·length, total)) of the one inner axis (fetches take absolute positions).
    """

    n_outer: int
    n_inner: int
    vector: Literal["inner", "outer"]
    operands: tuple[Operand, ...]
    linears: tuple[Linear, ...] = ()
    guards: tuple[int, ...] = ()
    n_dynamic: int = 0
    rows: tuple[DType, ...] = ()
    stages: tuple[Loop | Point, ...] = ()
    segment: int | None = None

    @property
    def n_axes(self) -> int:
        return self.n_outer + self.n_inner


@dataclass(frozen=True)
class Place:
    """Where an operand lies: slot, byte offset in it, and the byte stride along each axis (outer then inner)."""

    slot: int
    offset: int
    strides: tuple[int, ...]


@dataclass(frozen=True)
class NestCall:
    """The numbers of one launch of a nest.

    `sizes`: extents of all axes (a segmented inner axis: its total). `linears`: (const, coefficients of all axes).
    `dynamics`: (byte stride, extent). `scratch`: (arena slot, byte offset of thread 0, bytes between threads).
    `row_offsets`: byte offsets of the row buffers within a thread's scratch. `segment_length`: 1024·2^j, 0 if none.
    """

    nest: Nest
    sizes: tuple[int, ...]
    places: tuple[Place, ...]
    linears: tuple[tuple[int, tuple[int, ...]], ...] = ()
    bounds: tuple[int, ...] = ()
    dynamics: tuple[tuple[int, int], ...] = ()
    scratch: tuple[int, int, int] = (0, 0, 0)
    row_offsets: tuple[int, ...] = ()
    segment_length: int = 0

    def args(self) -> tuple[int, ...]:
        """The launch's argument array, in the order that `NestArgs` indexes."""
        out = list(self.sizes)
        for operand, place in zip(self.nest.operands, self.places, strict=True):
            out += [place.slot, place.offset, *_strided(operand.steps, place.strides)]
        for linear, (constant, coefficients) in zip(self.nest.linears, self.linears, strict=True):
            out += [constant, *_strided(linear.steps, coefficients)]
        out += self.bounds
        for dynamic in self.dynamics:
            out += dynamic
        out += [*self.scratch, *self.row_offsets, self.segment_length]
        return tuple(out)


def _strided(steps: tuple[Step, ...], values: tuple[int, ...]) -> list[int]:
    return [v for step, v in zip(steps, values, strict=True) if step == "s"]


@dataclass(frozen=True)
class NestArgs:
    """Positions in the argument array of a nest; the only description of its order besides NestCall.args."""

    nest: Nest
    operands: tuple[int, ...] = field(init=False)
    linears: tuple[int, ...] = field(init=False)
    bounds: int = field(init=False)
    dynamics: int = field(init=False)
    scratch: int = field(init=False)
    rows: int = field(init=False)
    segment_length: int = field(init=False)
    length: int = field(init=False)

    def __post_init__(self) -> None:
        n = self.nest
        at = n.n_axes
        operands, linears = [], []
        for operand in n.operands:
            operands.append(at)
            at += 2 + operand.steps.count("s")
        for linear in n.linears:
            linears.append(at)
            at += 1 + linear.steps.count("s")
        places = {"operands": tuple(operands), "linears": tuple(linears), "bounds": at}
        at += len(n.guards)
        places |= {"dynamics": at, "scratch": at + 2 * n.n_dynamic, "rows": at + 2 * n.n_dynamic + 3}
        at += 2 * n.n_dynamic + 3 + len(n.rows)
        for name, value in (places | {"segment_length": at, "length": at + 1}).items():
            object.__setattr__(self, name, value)


Unit = Literal["m", "n", "k", ""]


@dataclass(frozen=True)
class Contraction:
    """out[b, m, n] = epilogue(Σ_k lhs[b, m, k]·rhs[b, k, n]); b, m, n, k are row-major flattenings of several axes.

    `n_axes` counts the axes of (b, m, n, k). `lhs_unit`/`rhs_unit` name the class whose *last* axis has unit stride in
    that operand (lhs: "m" or "k", rhs: "n" or "k", or ""): a hint for packing, the strides are arguments all the same.
    `operands` are those of the epilogue, outputs included, with steps over the (b, m, n) axes in this order; `stores`
    writes epilogue values, in which Temp(0) is the contraction's result (root added to +0) of dtype `dtype`.
    """

    dtype: DType
    n_axes: tuple[int, int, int, int]
    lhs_unit: Unit
    rhs_unit: Unit
    operands: tuple[Operand, ...]
    stores: tuple[Store, ...]
    linears: tuple[Linear, ...] = ()
    guards: tuple[int, ...] = ()
    n_dynamic: int = 0


@dataclass(frozen=True)
class ContractionCall:
    """The numbers of one contraction: extents of the (b, m, n, k) axes in this order; byte strides of lhs over
    (b, m, k) axes, of rhs over (b, k, n) axes, of the epilogue's operands over (b, m, n) axes; `workspace`: (arena
    slot, byte offset) of
    the shared packing buffer; `scratch` as in NestCall.
    """

    contraction: Contraction
    sizes: tuple[int, ...]
    lhs: Place
    rhs: Place
    places: tuple[Place, ...]
    linears: tuple[tuple[int, tuple[int, ...]], ...] = ()
    bounds: tuple[int, ...] = ()
    dynamics: tuple[tuple[int, int], ...] = ()
    workspace: tuple[int, int] = (0, 0)
    scratch: tuple[int, int, int] = (0, 0, 0)
