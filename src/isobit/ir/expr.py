"""Scalar expressions over index variables: what one element of a statement is.

Grammar (every node is frozen; equality is structural):

    Expr  = Const(value, dtype)
          | Load(source, index, dtype, fill)      an element of another node; outside it reads `fill`
          | Coord(index)                          the value of an index expression, as i64
          | Op(name, args, dtype)                 one rounded operation, see ops.py
    Index = Affine | Expr (i64, a data-dependent position)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from isobit.arithmetic.dtypes import DType
from isobit.ir import ops

_SERIAL = itertools.count()

Scalar = float | int | bool


@dataclass(frozen=True, slots=True)
class Axis:
    """An index variable that runs over range(extent). Two axes are the same only if they share `serial`."""

    extent: int
    name: str = field(default="i", compare=False)
    serial: int = field(default_factory=lambda: next(_SERIAL))

    def __add__(self, other: Axis | Affine | int) -> Affine:
        return Affine.of(self) + other

    def __radd__(self, other: int) -> Affine:
        return Affine.of(self) + other

    def __sub__(self, other: Axis | Affine | int) -> Affine:
        return Affine.of(self) - other

    def __rsub__(self, other: int) -> Affine:
        return Affine.of(self) * -1 + other

    def __mul__(self, factor: int) -> Affine:
        return Affine.of(self) * factor

    __rmul__ = __mul__


def axes(*extents: int, names: str = "ijklmnpq") -> tuple[Axis, ...]:
    """One new axis per extent."""
    return tuple(Axis(n, names[k % len(names)]) for k, n in enumerate(extents))


@dataclass(frozen=True, slots=True)
class Affine:
    """const + sum of coefficient * axis; terms sorted by the axis' serial, no zero coefficients."""

    const: int = 0
    terms: tuple[tuple[Axis, int], ...] = ()

    @staticmethod
    def of(x: Axis | Affine | int) -> Affine:
        if isinstance(x, Affine):
            return x
        if isinstance(x, Axis):
            return Affine(0, ((x, 1),))
        return Affine(int(x))

    def coefficient(self, axis: Axis) -> int:
        return next((c for a, c in self.terms if a == axis), 0)

    def __add__(self, other: Axis | Affine | int) -> Affine:
        o = Affine.of(other)
        total = dict(self.terms)
        for a, c in o.terms:
            total[a] = total.get(a, 0) + c
        kept = sorted(((a, c) for a, c in total.items() if c), key=lambda t: t[0].serial)
        return Affine(self.const + o.const, tuple(kept))

    def __radd__(self, other: int) -> Affine:
        return self + other

    def __sub__(self, other: Axis | Affine | int) -> Affine:
        return self + Affine.of(other) * -1

    def __rsub__(self, other: int) -> Affine:
        return self * -1 + other

    def __mul__(self, factor: int) -> Affine:
        if factor == 0:
            return Affine()
        return Affine(self.const * factor, tuple((a, c * factor) for a, c in self.terms))

    __rmul__ = __mul__

    def substitute(self, binding: Mapping[Axis, Affine]) -> Affine:
        """Replace axes by affine expressions; axes that are not bound stay."""
        total = Affine(self.const)
        for a, c in self.terms:
            total = total + binding.get(a, Affine.of(a)) * c
        return total

    def bounds(self) -> tuple[int, int]:
        """Least and greatest value over the axes' ranges (inclusive); of empty ranges, nothing is meant."""
        low = high = self.const
        for a, c in self.terms:
            span = c * (max(a.extent, 1) - 1)
            low, high = low + min(span, 0), high + max(span, 0)
        return low, high


@dataclass(frozen=True, slots=True)
class Expr:
    """Base of all scalar expressions; Python operators build `Op` nodes."""

    dtype: DType

    def __add__(self, o: Expr | Scalar) -> Expr:
        return binary("add", self, o)

    def __radd__(self, o: Scalar) -> Expr:
        return binary("add", self.like(o), self)

    def __sub__(self, o: Expr | Scalar) -> Expr:
        return binary("sub", self, o)

    def __rsub__(self, o: Scalar) -> Expr:
        return binary("sub", self.like(o), self)

    def __mul__(self, o: Expr | Scalar) -> Expr:
        return binary("mul", self, o)

    def __rmul__(self, o: Scalar) -> Expr:
        return binary("mul", self.like(o), self)

    def __truediv__(self, o: Expr | Scalar) -> Expr:
        return binary("div", self, o)

    def __rtruediv__(self, o: Scalar) -> Expr:
        return binary("div", self.like(o), self)

    def __neg__(self) -> Expr:
        return call("neg", self)

    def __lt__(self, o: Expr | Scalar) -> Expr:
        return binary("lt", self, o)

    def __le__(self, o: Expr | Scalar) -> Expr:
        return binary("le", self, o)

    def __gt__(self, o: Expr | Scalar) -> Expr:
        return binary("gt", self, o)

    def __ge__(self, o: Expr | Scalar) -> Expr:
        return binary("ge", self, o)

    def __and__(self, o: Expr | Scalar) -> Expr:
        return binary("and", self, o)

    def __or__(self, o: Expr | Scalar) -> Expr:
        return binary("or", self, o)

    def eq(self, o: Expr | Scalar) -> Expr:
        return binary("eq", self, o)

    def ne(self, o: Expr | Scalar) -> Expr:
        return binary("ne", self, o)

    def cast(self, dtype: DType) -> Expr:
        """Conversion: to a narrower float one rounding; float to integer saturates, NaN gives 0."""
        if dtype == self.dtype:
            return self
        if isinstance(self, Const):
            return const(self.value, dtype)
        return Op(dtype, "cast", (self,))

    def like(self, value: Expr | Scalar) -> Expr:
        """A Python scalar as a constant of this expression's dtype (rounded once)."""
        return value if isinstance(value, Expr) else const(value, self.dtype)


@dataclass(frozen=True, slots=True)
class Const(Expr):
    """A literal. Floats are kept as binary64 that the dtype represents exactly; compared by bits, so −0 ≠ +0."""

    value: Scalar = 0
    bits: str = ""


@dataclass(frozen=True, slots=True)
class Load(Expr):
    """Element `index` of node `source`; where an index lies outside the source, the value is `fill`.

    Without `fill` every index must lie inside (data-dependent indices always need one).
    """

    source: int = -1
    index: tuple[Affine | Expr, ...] = ()
    fill: Const | None = None


@dataclass(frozen=True, slots=True)
class Coord(Expr):
    """The value of an index expression, i64."""

    index: Affine = field(default_factory=Affine)


@dataclass(frozen=True, slots=True)
class Op(Expr):
    """Operation `name` (ops.TABLE) on `args`."""

    name: str = ""
    args: tuple[Expr, ...] = ()


def const(value: Scalar, dtype: DType) -> Const:
    """A literal of `dtype`: floats are rounded once, integers wrap into range."""
    v = ops.round_scalar(value, dtype)
    return Const(dtype, v, v.hex() if isinstance(v, float) else "")


def coord(index: Axis | Affine) -> Coord:
    return Coord(DType.I64, Affine.of(index))


def call(name: str, *args: Expr) -> Expr:
    """Operation `name`; the arguments must have the dtypes ops.TABLE asks for."""
    return Op(ops.result_dtype(name, tuple(a.dtype for a in args)), name, tuple(args))


def binary(name: str, a: Expr, b: Expr | Scalar) -> Expr:
    return call(name, a, a.like(b))


def where(cond: Expr, a: Expr, b: Expr | Scalar) -> Expr:
    return call("where", cond, a, a.like(b))


def children(e: Expr) -> tuple[Expr, ...]:
    if isinstance(e, Op):
        return e.args
    if isinstance(e, Load):
        return tuple(i for i in e.index if isinstance(i, Expr))
    return ()


def walk(e: Expr) -> Iterator[Expr]:
    """All nodes below and including `e`, before what they are made of; shared ones once."""
    seen: set[int] = set()
    todo = [e]
    while todo:
        x = todo.pop()
        if id(x) not in seen:
            seen.add(id(x))
            yield x
            todo += reversed(children(x))


def loads(e: Expr) -> list[Load]:
    return [x for x in walk(e) if isinstance(x, Load)]


def rewrite(e: Expr, leaf: Callable[[Expr], Expr]) -> Expr:
    """Rebuild `e` bottom-up, applying `leaf` to every node after its children; shared nodes stay shared."""
    done: dict[int, Expr] = {}

    def go(x: Expr) -> Expr:
        if id(x) in done:
            return done[id(x)]
        if isinstance(x, Op):
            new: Expr = replace(x, args=tuple(go(a) for a in x.args))
        elif isinstance(x, Load):
            new = replace(x, index=tuple(go(i) if isinstance(i, Expr) else i for i in x.index))
        else:
            new = x
        done[id(x)] = out = leaf(new)
        return out

    return go(e)


def substitute(e: Expr, binding: Mapping[Axis, Affine]) -> Expr:
    """Replace axes in every index of `e`."""

    def leaf(x: Expr) -> Expr:
        if isinstance(x, Load):
            return replace(x, index=tuple(i.substitute(binding) if isinstance(i, Affine) else i for i in x.index))
        if isinstance(x, Coord):
            return replace(x, index=x.index.substitute(binding))
        return x

    return rewrite(e, leaf)
