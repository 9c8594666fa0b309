"""From one bound aten call to statements of a graph. Eager plans and compiled graphs both come through here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from isobit.arithmetic.dtypes import DType
from isobit.ir.graph import Graph, Value
from isobit.operators.registry import recast
from isobit.torch.dtypes import INTEGERS, Unowned, dtype_of
from isobit.torch.signature import Kind, Signature, Slot
from isobit.torch.table import Builder, Result, Statement

Number = float | int | bool

_LITERALS = frozenset({"0", "1", "0.0", "1.0", "False", "True"})


@dataclass(frozen=True)
class Call:
    """The call whose statement is being written.

    `metas` are the arguments as meta tensors and numbers, `results` what PyTorch's shape function gives for them.
    """

    graph: Graph
    name: str
    slots: tuple[Slot, ...]
    metas: tuple[Any, ...]
    results: tuple[Any, ...]

    @property
    def dtype(self) -> DType:
        """The dtype of the first result, which promotion has decided."""
        return self.result_dtype(0)

    def result_dtype(self, position: int) -> DType:
        return dtype_of(self.results[position].dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.results[0].shape)

    def meta(self, name: str) -> Any:
        """Argument `name` as a meta tensor or number."""
        return next(m for s, m in zip(self.slots, self.metas, strict=True) if s.name == name)

    def common(self, *names: str) -> DType:
        """The dtype in which PyTorch compares or combines the arguments `names`."""
        first, *rest = (self.meta(n) for n in names)
        found = torch.result_type(first, rest[0]) if rest else first.dtype
        for other in rest[1:]:
            found = torch.promote_types(found, torch.result_type(first, other))
        return dtype_of(found)

    def promote(self, *operands: Any, dtype: DType | None = None) -> Any:
        """A tuple: the tensors among `operands` converted to `dtype` (of the result, if not given); numbers stay."""
        target = dtype or self.dtype
        return tuple(recast(x, target) if is_tensor(x) else x for x in operands)

    def tensor(self, x: Value | Number) -> Value:
        """An operand of the result's dtype as a tensor, a number as a 0-d one."""
        return recast(self.number(x), self.dtype)

    def number(self, x: Value | Number, dtype: DType = DType.F64) -> Value:
        """A number as a 0-d tensor."""
        return x if isinstance(x, Value) else self.graph.constant(x, dtype)


def is_tensor(x: object) -> bool:
    """A tensor argument, as opposed to a run-time number (see RunTimeNumber)."""
    return isinstance(x, Value) and not isinstance(x, RunTimeNumber)


@dataclass(frozen=True)
class RunTimeNumber(Value):
    """A Python number that reaches the graph as a 0-d f64 tensor; it does not take part in promotion."""


def number_input(graph: Graph) -> RunTimeNumber:
    """The next input of `graph`, a number."""
    return RunTimeNumber(graph, graph.input(DType.F64, ()).id)


def number_constant(graph: Graph, value: Number) -> RunTimeNumber:
    """A number that is known when the graph is built."""
    return RunTimeNumber(graph, graph.constant(float(value), DType.F64).id)


def is_run_time(slot: Slot, value: object, statement: Statement, any_float: bool) -> bool:
    """Whether `value` is a number that the graph reads when it runs; others are attributes that shape it.

    Integers take part in integer arithmetic exactly, so they become binary64 only beside a float tensor. 0 and 1
    are worth a graph of their own: a factor 1 goes away, and a term with the factor 0 must not be read.
    """
    if isinstance(value, complex):
        raise Unowned("complex numbers are outside version 1")
    if slot.name in statement.static or not isinstance(value, (float, int)) or str(value) in _LITERALS:
        return False
    if slot.kind is Kind.NUMBER and slot.type.endswith(("float", "float]")):
        return True
    if slot.kind not in (Kind.NUMBER, Kind.TENSOR):
        return False
    return any_float or isinstance(value, float)


def write_statement(
    build: Builder,
    signature: Signature,
    graph: Graph,
    operands: Sequence[Any],
    metas: Sequence[Any],
    results: Sequence[Any],
) -> Result:
    """Writes the call into `graph`; results are converted to the dtypes that PyTorch gives them.

    Raises Unowned where the statement does not cover these arguments.
    """  # fmt: skip
    call = Call(graph, signature.name, signature.slots, tuple(metas), tuple(results))
    try:
        written = build(call, *operands)
    except NotImplementedError as error:
        raise Unowned(str(error)) from error
    result = written if isinstance(written, Result) else Result(_as_tuple(written))
    outputs = tuple(_fitted(o, m, signature.name) for o, m in zip(result.outputs, results, strict=True))
    return Result(outputs, result.writes)


def _as_tuple(x: Any) -> tuple[Any, ...]:
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)


def _fitted(x: Value | None, meta: Any, name: str) -> Value | None:
    if x is None or meta is None:
        return None
    if tuple(meta.shape) != x.shape:
        raise AssertionError(f"{name}: the statement gives {x.shape}, PyTorch {tuple(meta.shape)}")
    return recast(x, dtype_of(meta.dtype))


def map_tensors(fn: Callable[[torch.Tensor], Any], tree: Any) -> Any:
    """`tree` (an argument: tensor, list of tensors, anything) with `fn` applied to its tensors."""
    if isinstance(tree, torch.Tensor):
        return fn(tree)
    if isinstance(tree, (list, tuple)):
        return type(tree)(map_tensors(fn, x) for x in tree) if type(tree) in (list, tuple) else tree
    return tree


def tensors_in(*trees: Any) -> list[torch.Tensor]:
    """All tensors in argument trees."""
    found: list[torch.Tensor] = []
    for x in trees:
        if isinstance(x, torch.Tensor):
            found.append(x)
        elif isinstance(x, (list, tuple)):
            found += tensors_in(*x)
    return found


def without_floats(*trees: Any) -> bool:
    """Whether a call reads and gives integers and bools alone, so that PyTorch's kernel is exact."""
    return all(t.dtype in INTEGERS for t in tensors_in(*trees))


def one_dtype(metas: Sequence[Any], results: Sequence[Any]) -> bool:
    """Whether all tensors of a call have one dtype, so that a copying operator only moves bits."""
    return len({t.dtype for t in tensors_in(metas, results)}) <= 1
