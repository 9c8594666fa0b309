"""Expressions of a kernel as vectors: every distinct subexpression once, loop-invariant ones before the loop.

An `Evaluator` emits at one place. What does not change from lane to lane stays a scalar until something needs it as a
vector. Evaluators nest like loops: the outer one's values are visible in the inner one, and `prepare` computes there
what an inner one will need and can be known already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from isobit.arithmetic.dtypes import DType
from isobit.codegen import philox
from isobit.codegen.emit import Builder, Value
from isobit.codegen.memory import Guard, Memory, Moving
from isobit.codegen.vector import literal, operation
from isobit.ir.expr import Const, Expr, Op
from isobit.ir.kernel import Fetch, Position, RowElement, Temp


class Frame(Protocol):
    """Where the leaves of expressions are, at the place of an evaluator."""

    memory: Memory

    def operand(self, index: int) -> Moving:
        """Address of the current element."""

    def linear(self, index: int) -> Moving:
        """Value (i64) of a linear function of the axes; strides are coefficients."""

    def guard(self, index: int) -> tuple[Moving, Value]:
        """The guarded linear and its bound."""

    def dynamic(self, index: int) -> tuple[Value, Value]:
        """Byte stride and extent of a data-dependent index."""

    def temp(self, index: int) -> Value:
        """A temporary; a scalar, or as wide as the lanes."""

    def row(self, index: int) -> Moving:
        """Address of the current element of a row buffer."""


Number = int


class Numbering:
    """Gives structurally equal expressions one number, in time linear in the number of distinct nodes."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], Number] = {}
        self._known: dict[int, Number] = {}
        self._alive: list[Expr] = []  # ids stay unique only while their objects live

    def __call__(self, e: Expr) -> Number:
        known = self._known.get(id(e))
        if known is not None:
            return known
        number = self._numbers.setdefault(self._key(e), len(self._numbers))
        self._known[id(e)] = number
        self._alive.append(e)
        return number

    def keys(self) -> Iterable[tuple[object, ...]]:
        """One key per number, in order: with the numbers of the roots, the whole structure."""
        return self._numbers

    def _key(self, e: Expr) -> tuple[object, ...]:
        match e:
            case Const(dtype, value, bits):
                return ("const", str(dtype), bits or int(value))
            case Op(dtype, name, args):
                return (name, str(dtype), *map(self, args))
            case Fetch(dtype, operand, guards, dynamic, fill):
                places = tuple((self(p), d) for p, d in dynamic)
                return ("fetch", str(dtype), operand, guards, places, None if fill is None else self(fill))
            case Position(dtype, index) | Temp(dtype, index) | RowElement(dtype, index):
                return (type(e).__name__, str(dtype), index)
        raise TypeError(f"not an expression of a kernel: {e!r}")


def children(e: Expr) -> tuple[Expr, ...]:
    if isinstance(e, Op):
        return e.args
    return tuple(p for p, _ in e.dynamic) if isinstance(e, Fetch) else ()


class Evaluator:
    """Emits expressions at one place of the program.

    `known` says of an expression whether it can be evaluated here already (for `prepare`).
    """

    def __init__(
        self,
        b: Builder,
        frame: Frame,
        number: Numbering,
        parent: Evaluator | None = None,
        known: Callable[[Expr], bool] = lambda e: True,
    ) -> None:
        self.b, self.frame, self.number, self.parent, self.known = b, frame, number, parent, known
        self.lanes = frame.memory.lanes
        self._values: dict[Number, Value] = {}
        self._splats: dict[Number, Value] = {}
        self._guards: dict[tuple[int, ...], tuple[list[Value], list[tuple[Moving, Value]]]] = {}

    def value(self, e: Expr) -> Value:
        """The expression: a scalar if no lane differs, else all lanes."""
        n = self.number(e)
        found = self._find(n)
        if found is None:
            found = self._values[n] = self._compute(e)
        return found

    def vector(self, e: Expr) -> Value:
        """The expression in all lanes."""
        value = self.value(e)
        if value.lanes == self.lanes:
            return value
        n = self.number(e)
        if n not in self._splats:
            self._splats[n] = self.b.splat(value, self.lanes)
        return self._splats[n]

    def define(self, e: Expr, value: Value) -> None:
        """From now on `e` is `value` (an element of a row buffer that was just stored)."""
        self._values[self.number(e)] = value

    def prepare(self, roots: Iterable[Expr]) -> None:
        """Evaluate the largest parts of `roots` that are known here."""
        seen: set[Number] = set()
        stack = list(roots)
        while stack:
            e = stack.pop()
            n = self.number(e)
            if n in seen or isinstance(e, Const | Temp):
                continue
            seen.add(n)
            if self.known(e):
                self.value(e)
            else:
                stack.extend(children(e))

    def _find(self, n: Number) -> Value | None:
        at: Evaluator | None = self
        while at is not None:
            if n in at._values:
                return at._values[n]
            at = at.parent
        return None

    def _compute(self, e: Expr) -> Value:
        match e:
            case Const(dtype, value):
                return literal(value, dtype)
            case Op():
                return self._operation(e)
            case Fetch():
                return self._fetch(e)
            case Position(_, index):
                return self._position(self.frame.linear(index))
            case Temp(_, index):
                return self.frame.temp(index)
            case RowElement(dtype, index):
                return self.frame.memory.load(self.frame.row(index), dtype)
        raise TypeError(f"not an expression of a kernel: {e!r}")

    def _operation(self, e: Op) -> Value:
        if e.name == "philox" and isinstance(e.args[1], Position) and self.lanes % 4 == 0:
            key, at = self.value(e.args[0]), self.frame.linear(e.args[1].linear)
            if key.lanes == 1 and at.step == "1":
                return philox.consecutive_words(self.b, key, at.base, self.lanes)
        arg_dtype = e.args[-1].dtype
        values = [self.value(a) for a in e.args]
        if any(v.lanes > 1 for v in values):
            values = [self.vector(a) for a in e.args]
        return operation(self.b, e.name, e.dtype, values, arg_dtype)

    def _position(self, at: Moving) -> Value:
        if at.step == "0" or self.lanes == 1:
            return at.base
        return self.b.add(self.b.splat(at.base, self.lanes), at.offsets(self.b, 1, self.lanes))

    def _fetch(self, e: Fetch) -> Value:
        at = self.frame.operand(e.operand)
        scalars, vectors = self._conditions(e.guards)
        scalars, masks = list(scalars), [self._lane_test(*v) for v in vectors]
        ends = [self._all_inside(*v) for v in vectors]
        for position, index in e.dynamic:
            p = self.value(position)
            stride, extent = self.frame.dynamic(index)
            inside = self._inside(p, extent)
            at = self._shift(at, p, stride, e.dtype.itemsize)
            if p.lanes == 1:
                scalars.append(inside)
            else:
                masks.append(_constantly(inside))
                ends.append(None)
        fill = None if e.fill is None else literal(e.fill.value, e.dtype)
        if at.step == "0" and not masks:
            return self.frame.memory.load_scalar(at.base, e.dtype, self._both(scalars), fill)
        guard = self._guard(scalars, masks, ends)
        wide = None if fill is None else self.b.splat(fill, self.lanes)
        return self.frame.memory.load(at, e.dtype, guard, wide)

    def _shift(self, at: Moving, p: Value, stride: Value, size: int) -> Moving:
        """The address moved by position p along a dimension."""
        b = self.b
        if p.lanes == 1:
            return Moving(b.offset(at.base, b.mul(p, stride)), at.step, at.stride)
        moved = b.mul(p, b.splat(stride, p.lanes))
        return Moving(at.base, "s", b.add(moved, at.offsets(b, size, p.lanes)))

    def _conditions(self, guards: tuple[int, ...]) -> tuple[list[Value], list[tuple[Moving, Value]]]:
        """The guards that hold or fail for all lanes, as i1, and the others."""
        if guards not in self._guards:
            pairs = [self.frame.guard(g) for g in guards]
            same = [p for p in pairs if p[0].step == "0" or self.lanes == 1]
            apart = [p for p in pairs if p not in same]
            self._guards[guards] = [self._inside(at.base, bound) for at, bound in same], apart
        return self._guards[guards]

    def _inside(self, position: Value, bound: Value) -> Value:
        """0 ≤ position < bound (one comparison: negative numbers are large unsigned ones)."""
        return self.b.compare("ult", position, self.b.splat(bound, position.lanes))

    def _lane_test(self, at: Moving, bound: Value) -> Callable[[], Value]:
        return lambda: self._inside(self._position(at), bound)

    def _all_inside(self, at: Moving, bound: Value) -> Value | None:
        """Both ends inside, then all: a linear function is monotonic. Unknown for irregular lanes."""
        b = self.b
        if at.stride is not None and at.stride.lanes > 1:
            return None
        step = at.stride if at.stride is not None else Value("1", "i64")
        last = b.add(at.base, b.mul(step, self.lanes - 1))
        return b.binary("and", self._inside(at.base, bound), self._inside(last, bound))

    def _both(self, conditions: Sequence[Value]) -> Value | None:
        """The conjunction of i1 (or equally wide masks); None of nothing."""
        out: Value | None = None
        for c in conditions:
            out = c if out is None else self.b.binary("and", out, c)
        return out

    def _guard(self, scalars: list[Value], masks: list[Callable[[], Value]], ends: list[Value | None]) -> Guard | None:
        if not masks:
            every = self._both(scalars)
            return None if every is None else Guard(every, None)
        sure = [x for x in ends if x is not None]
        every = self._both(scalars + sure) if len(sure) == len(ends) else None

        def mask() -> Value:
            found = self._both([m() for m in masks])
            uniform = self._both(scalars)
            assert found is not None
            return found if uniform is None else self.b.binary("and", found, self.b.splat(uniform, self.lanes))

        return Guard(every, mask)


def _constantly(value: Value) -> Callable[[], Value]:
    return lambda: value


def widened(dtype: DType) -> DType:
    """The dtype that sums of `dtype` are computed in."""
    return DType.F32 if dtype in (DType.F16, DType.BF16) else dtype
