"""Decisions about a nest that its text follows from: lanes, how many vectors go side by side, what depends on what."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from isobit.arithmetic.dtypes import DType
from isobit.codegen.convert import NARROW
from isobit.codegen.expr import Number, Numbering, children
from isobit.codegen.target import Target
from isobit.ir import ops
from isobit.ir.expr import Const, Expr, Op
from isobit.ir.kernel import Fetch, Loop, Nest, Point, Position, RowElement, Step, Temp

FOLD_LANES = 32
BLOCK = 1024
CHUNK = 4096
"""Inner positions of one unit of work where a row is split over threads."""

_LIGHT = 160  # so many instructions, about, that a loop's body may hold copies of itself
_COSTS = {"max": 4, "min": 4, "div": 5, "sqrt": 5, "fma": 2, "philox": 150, "floordiv": 40, "mod": 40, "cast": 2}
_BLOCKED = frozenset({"sum", "prod", "m2"})
_TREES = frozenset({"tree_sum", "tree_prod"})


def is_blocked(kind: str, dtype: DType) -> bool:
    """Whether the fold goes by blocks and lanes; integers wrap alike in any order."""
    return kind in _BLOCKED and dtype.is_float


@dataclass(frozen=True)
class Plan:
    """How a nest runs on a target.

    `lanes` elements make a vector; in "outer" mode `copies` vectors go side by side through all stages.
    """

    nest: Nest
    number: Numbering
    lanes: int
    copies: int
    levels: dict[Number, int]
    costs: dict[Number, int]
    symbol: str

    @property
    def width(self) -> int:
        """Elements of the vector axis in one unit of work of "outer" mode."""
        return self.lanes * self.copies

    @property
    def splits_rows(self) -> bool:
        """Whether rows are cut into chunks for the threads: nothing is carried along them."""
        n = self.nest
        return n.vector == "inner" and not n.rows and n.segment is None and _only_stores(n)

    def level(self, e: Expr) -> int:
        """0: the same for the whole launch; 1: for an outer point; 2: changes along inner axes."""
        return self.levels[self.number(e)]

    def stage_lanes(self, loop: Loop) -> int:
        """Lanes of a loop of "inner" mode; trees of neighbours are built element by element."""
        return 1 if any(f.kind in _TREES for f in loop.folds) else self.lanes

    def stage_copies(self, loop: Loop) -> int:
        """Vectors in the body of a loop of "inner" mode."""
        lanes = self.stage_lanes(loop)
        if lanes == 1:
            return 1
        wanted = FOLD_LANES // lanes if loop.folds else 4
        return wanted if self.cost(stage_values(loop)) * wanted <= _LIGHT else 1

    def cost(self, roots: Iterable[Expr]) -> int:
        """About the number of instructions of the values, for one vector."""
        return sum(self.costs[n] for n in _reachable(roots, self.number))


def plan_nest(nest: Nest, target: Target) -> Plan:
    """Decide how `nest` runs on `target`. Raises ValueError where the nest breaks the rules of ir.kernel."""
    _check(nest)
    number = Numbering()
    roots = list(nest_values(nest))
    levels: dict[Number, int] = {}
    for e in _post_order(roots, number):
        levels[number(e)] = _level(e, nest, levels, number)
    lanes = _lanes(_post_order(roots, number), target)
    costs = {number(e): _cost(e, nest, lanes) for e in _post_order(roots, number)}
    plan = Plan(nest, number, lanes, 1, levels, costs, _symbol(nest, number))
    if nest.vector == "outer" and plan.cost(roots) * 4 <= _LIGHT:
        return Plan(nest, number, lanes, max(1, min(4, FOLD_LANES // lanes)), levels, costs, plan.symbol)
    return plan


def row_lanes(nest: Nest, target: Target) -> int:
    """Elements that a row buffer holds for each inner position."""
    return plan_nest(nest, target).width if nest.vector == "outer" else 1


def nest_values(nest: Nest) -> Iterator[Expr]:
    """Every expression of a nest, in order."""
    for stage in nest.stages:
        yield from stage_values(stage)


def stage_values(stage: Loop | Point) -> Iterator[Expr]:
    if isinstance(stage, Point):
        yield from (value for _, value in stage.lets)
    yield from (s.value for s in stage.stores)
    if isinstance(stage, Loop):
        for fold in stage.folds:
            yield fold.value
            if fold.aux is not None:
                yield fold.aux


def _only_stores(nest: Nest) -> bool:
    return all(isinstance(s, Loop) and not s.folds for s in nest.stages)


def _check(nest: Nest) -> None:
    if nest.vector == "inner" and nest.n_inner != 1:
        raise ValueError(f'a nest vectorised "inner" has one inner axis, this one has {nest.n_inner}')
    if nest.vector == "outer" and nest.n_outer < 1:
        raise ValueError('a nest vectorised "outer" has an outer axis')
    if nest.segment is not None and nest.n_inner != 1:
        raise ValueError(f"a segmented nest has one inner axis, this one has {nest.n_inner}")
    if nest.vector == "outer" and nest.segment == nest.n_outer - 1:
        raise ValueError("the segment's axis cannot be the one across the lanes")
    for steps in [o.steps for o in nest.operands] + [x.steps for x in nest.linears]:
        if len(steps) != nest.n_axes:
            raise ValueError(f"steps {steps} for {nest.n_axes} axes")
    for stage in nest.stages:
        for store in stage.stores:
            _check_store(nest, store.row, store.target, store.value)


def _check_store(nest: Nest, row: bool, target: int, value: Expr) -> None:
    held = nest.rows[target] if row else nest.operands[target].dtype
    if held != value.dtype:
        raise ValueError(f"store of {value.dtype} to {'row' if row else 'operand'} {target} of {held}")


def _post_order(roots: Iterable[Expr], number: Numbering) -> Iterator[Expr]:
    """Every distinct expression after those it is made of."""
    seen: set[Number] = set()

    def go(e: Expr) -> Iterator[Expr]:
        n = number(e)
        if n not in seen:
            seen.add(n)
            for c in children(e):
                yield from go(c)
            yield e

    for root in roots:
        yield from go(root)


def _reachable(roots: Iterable[Expr], number: Numbering) -> list[Number]:
    return [number(e) for e in _post_order(roots, number)]


def _level(e: Expr, nest: Nest, levels: dict[Number, int], number: Numbering) -> int:
    below = max((levels[number(c)] for c in children(e)), default=0)
    match e:
        case Fetch():
            linears = [_moves(nest.linears[nest.guards[g]].steps, nest) for g in e.guards]
            return max(below, _moves(nest.operands[e.operand].steps, nest), *linears, 0)
        case Position():
            return _moves(nest.linears[e.linear].steps, nest)
        case Temp():
            return 1
        case RowElement():
            return 2
    return below


def _moves(steps: tuple[Step, ...], nest: Nest) -> int:
    if any(s != "0" for s in steps[nest.n_outer :]):
        return 2
    return 1 if any(s != "0" for s in steps) else 0


def _lanes(expressions: Iterable[Expr], target: Target) -> int:
    """As many as the widest float computed with allows; without floats, the widest integer."""
    floats, integers = {1}, {1}
    for e in expressions:
        size = 4 if e.dtype in NARROW else e.dtype.itemsize
        (floats if e.dtype.is_float else integers).add(size)
    size = max(floats) if max(floats) > 1 else max(integers)
    return min(FOLD_LANES, target.lanes(size))


def _cost(e: Expr, nest: Nest, lanes: int) -> int:
    match e:
        case Const() | Temp():
            return 0
        case Fetch():
            step = nest.operands[e.operand].steps[nest.n_outer if nest.vector == "inner" else nest.n_outer - 1]
            scattered = step == "s" or bool(e.dynamic)
            return (3 * lanes if scattered else 2) + (12 if e.guards or e.dynamic else 0)
        case Op():
            return 80 if e.name in ops.ELEMENTARY else _COSTS.get(e.name, 1)
    return 2


def nest_key(nest: Nest) -> str:
    """Equal for nests of one structure; made in time linear in their distinct expressions."""
    return _structure(nest, Numbering())


def _symbol(nest: Nest, number: Numbering) -> str:
    return "nest_" + hashlib.sha256(_structure(nest, number).encode()).hexdigest()[:20]


def _structure(nest: Nest, number: Numbering) -> str:
    """Expressions by number, so that shared ones are written once."""
    stages: list[object] = []
    for stage in nest.stages:
        stores = [(s.target, number(s.value), s.row) for s in stage.stores]
        if isinstance(stage, Point):
            stages.append(("point", [(t, number(v)) for t, v in stage.lets], stores))
        else:
            folds = [(f.temp, f.kind, number(f.value), None if f.aux is None else number(f.aux)) for f in stage.folds]
            stages.append(("loop", stores, folds))
    operands = [(str(o.dtype), o.steps) for o in nest.operands]
    shape = (nest.n_outer, nest.n_inner, nest.vector, nest.guards, nest.n_dynamic, nest.segment)
    rows = [str(d) for d in nest.rows]
    return repr((shape, operands, [x.steps for x in nest.linears], rows, stages, list(number.keys())))
