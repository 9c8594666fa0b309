"""Kernels that stand in for PyTorch's while the exact arithmetic is on: look up the plan of the call, run it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from ctypes import addressof, c_double
from dataclasses import dataclass
from typing import Any

import torch

from isobit.runtime.engine import Engine
from isobit.torch.dtypes import INTEGERS, Unowned
from isobit.torch.holes import HoleMonitor
from isobit.torch.library import draw_key
from isobit.torch.lowering import map_tensors, one_dtype, tensors_in, without_floats
from isobit.torch.memory import resize_output
from isobit.torch.plan import Plan, PlanMaker, empty
from isobit.torch.shapes import shapes_of
from isobit.torch.signature import Kind, Signature, Slot, signature
from isobit.torch.table import Statement

Kernel = Callable[..., Any]
Entry = Plan | str | None  # a plan; why the call is a hole; None: exact on PyTorch's kernel
Tensors = Sequence[torch.Tensor]

_TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})
_LITERAL = frozenset({"0.0", "1.0", "0", "1", "False", "True"})


class Holder:
    """What kernels report holes to; the layer that is on now decides."""

    def __init__(self) -> None:
        self.monitor = HoleMonitor()


@dataclass(frozen=True, slots=True)
class Given:
    """A call's tensors and run-time numbers in schema order, and the key of its plan."""

    key: tuple[Any, ...]
    tensors: list[Any]
    numbers: list[float]


class StatementKernel:
    """All variants of one operator call this: functional, in-place and `out=`."""

    def __init__(
        self, engine: Engine, statement: Statement, functional: Any, overload: Any, original: Kernel, holder: Holder
    ) -> None:
        self.signature = signature(overload)
        self.statement = statement
        self.maker = PlanMaker(engine, statement, signature(functional))
        self.original = original
        self.holder = holder
        self.plans: dict[Any, Entry] = {}
        self.written = () if overload is functional else _written(self.signature)
        self.numeric = tuple(_is_numeric(s, statement) for s in self.signature.slots)
        self.numeric_by_name = {s.name: _is_numeric(s, statement) for s in self.signature.slots}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.invoke((), args, kwargs)

    def invoke(self, leading: Tensors, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Runs the call; `leading` are tensors that the statement takes before the arguments."""
        given = self.collect(leading, args, kwargs)
        try:
            entry = self.plans[given.key]
        except KeyError:
            entry = self.make(leading, args, kwargs)
            given = self.collect(leading, args, kwargs)  # an `out=` tensor may have been resized
            self.plans[given.key] = entry
        if type(entry) is Plan:
            return self.answer(entry.run(given.tensors, given.numbers))
        if entry is None:
            return self.original(*args, **kwargs)
        return run_hole(self.holder, self.signature.name, str(entry), self.original, args, kwargs)

    def collect(self, leading: Tensors, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Given:
        """Sorts the arguments out. The key holds all a plan depends on: layouts, attributes, and of run-time numbers
        the type alone. PyTorch leaves defaults out, so equal calls look equal.
        """
        parts: list[Any] = []
        tensors: list[Any] = list(leading)
        numbers: list[float] = []
        numeric: Sequence[bool] = self.numeric
        if kwargs:
            parts += kwargs
            args = (*args, *kwargs.values())
            numeric = (*numeric[: len(args) - len(kwargs)], *[self.numeric_by_name[n] for n in kwargs])
        floating = False
        for value, may_run_time in zip(args, numeric, strict=False):
            kind = type(value)
            if kind in _TENSORS or isinstance(value, torch.Tensor):
                dtype = value.dtype
                parts += (dtype, value.shape, value.stride())
                floating = floating or dtype not in INTEGERS
                tensors.append(value)
            elif kind is float or kind is int or kind is bool:
                if may_run_time and (floating or kind is float) and repr(value) not in _LITERAL:
                    parts.append(kind)
                    numbers.append(value)
                else:
                    parts += (kind, repr(value))
            elif kind is list or kind is tuple:
                parts.append(len(value))
                for item in value:
                    if isinstance(item, torch.Tensor):
                        dtype = item.dtype
                        parts += (dtype, item.shape, item.stride())
                        floating = floating or dtype not in INTEGERS
                        tensors.append(item)
                    else:
                        parts.append(item)
            else:
                parts.append(value)
        if not floating:
            parts.append(torch.get_default_dtype())  # which integers promote to
        return Given(tuple(parts), tensors, numbers)

    def answer(self, results: list[Any]) -> Any:
        """What the operator returns."""
        if len(results) == 1 and self.signature.returns == 1:
            return results[0]
        return tuple(results[: self.signature.returns]) if self.signature.returns else None

    def make(self, leading: Tensors, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Entry:
        """The plan of a call that is new; errors in the arguments are PyTorch's own."""
        values = self.signature.bind(args, kwargs)
        functional = [*leading, *self.functional_values(values)]
        outs = self.outputs(len(leading), values)
        try:
            fakes, results = self.shapes(functional, args, kwargs)
            if self._is_exact(fakes, [*results, *(t for _, t in outs)]):
                return None
            self._fit(outs, results)
            run_time = self.maker.run_time(functional, any_floating(functional))
            return self.maker.make(functional, fakes, results, run_time, outs)
        except Unowned as reason:
            return str(reason)

    def shapes(
        self, functional: Sequence[Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[list[Any], tuple[Any, ...]]:
        """As shapes_of. Where that fails, PyTorch's kernel is tried on copies, for its error, which users know; where
        it has none the call is Unowned.
        """
        try:
            return shapes_of(self.maker.functional, functional)
        except Unowned:
            raise
        except Exception as error:
            copies = map_tensors(torch.clone, list(args))
            self.original(*copies, **{k: map_tensors(torch.clone, v) for k, v in kwargs.items()})
            raise Unowned(f"its shapes are not known beforehand ({error})") from error

    def functional_values(self, values: Sequence[Any]) -> list[Any]:
        """The arguments of the functional form. Into an `out=` tensor a reduction computes in its dtype, if none is
        asked for.
        """
        pairs = list(zip(self.signature.slots, values, strict=True))
        into = [v.dtype for s, v in pairs if s.is_out]
        inputs = [(s, v) for s, v in pairs if not s.is_out and s.kind is not Kind.GENERATOR]
        return [into[0] if s.name == "dtype" and v is None and into else v for s, v in inputs]

    def outputs(self, position: int, values: Sequence[Any]) -> list[tuple[int, torch.Tensor]]:
        """(position among the call's tensors, tensor) of what takes the results."""
        found = []
        for k, value in enumerate(values):
            if k in self.written:
                found.append((position, value))
            position += len(tensors_in(value))
        return found

    def _is_exact(self, fakes: Sequence[Any], results: Sequence[Any]) -> bool:
        """Whether PyTorch's own kernel gives the exact result: integers alone, or a move within one dtype."""
        if self.statement.random or self.statement.name.startswith("isobit::"):
            return False
        return without_floats(fakes, results) or (self.statement.uniform and one_dtype(fakes, results))

    def _fit(self, outs: Sequence[tuple[int, torch.Tensor]], results: Sequence[Any]) -> None:
        """Resizes `out=` tensors; raises where a result does not fit what it is written to."""
        for (_, target), result in zip(outs, results, strict=bool(outs)):
            if not torch.can_cast(result.dtype, target.dtype):
                raise RuntimeError(
                    f"result type {_name(result.dtype)} can't be cast to the desired output type {_name(target.dtype)}"
                )
            if self.signature.slots[-1].is_out:
                resize_output(target, result.shape)
            elif tuple(result.shape) != tuple(target.shape):
                raise RuntimeError(
                    f"output with shape {list(target.shape)} doesn't match the broadcast shape {list(result.shape)}"
                )


class RandomKernel(StatementKernel):
    """A random operator: draws a key, which the statement of the pure form takes first."""

    def __init__(
        self, engine: Engine, statement: Statement, functional: Any, overload: Any, original: Kernel, holder: Holder
    ) -> None:
        super().__init__(engine, statement, functional, overload, original, holder)
        self.written = _written(self.signature)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        key = draw_key(kwargs.pop("generator", None))  # in every schema a generator is a keyword
        return self.invoke((key,), args, kwargs)


def with_lane(kernel: StatementKernel) -> Kernel:
    """`kernel` behind a shorter way for what small models call most: one or two tensors in, one fresh tensor out."""
    kinds = [s.kind for s in kernel.signature.slots]
    if kernel.statement.uniform and kinds[:2] == [Kind.TENSOR] * 2:
        return _copy_lane(kernel)
    if kernel.written or kernel.signature.returns != 1:
        return kernel
    if kinds == [Kind.TENSOR]:
        return _unary_lane(kernel)
    if kinds[:2] == [Kind.TENSOR] * 2 and all(s.keyword for s in kernel.signature.slots[2:]):
        return _binary_lane(kernel)
    return kernel


def _copy_lane(kernel: StatementKernel) -> Kernel:
    original = kernel.original

    def lane(target: torch.Tensor, source: Any, *rest: Any, **named: Any) -> Any:
        if isinstance(source, torch.Tensor) and target.dtype is source.dtype:
            return original(target, source, *rest, **named)
        return kernel(target, source, *rest, **named)

    return lane


def _unary_lane(kernel: StatementKernel) -> Kernel:
    known: dict[Any, Any] = {}

    def lane(x: torch.Tensor) -> Any:
        try:
            call, fresh = known[(x.dtype, x.shape, x.stride())]
        except KeyError:
            result = kernel(x)
            _remember(kernel, known, (x.dtype, x.shape, x.stride()), x)
            return result
        if fresh is None:
            return call(x)
        out = empty(*fresh)
        call(x.data_ptr(), out.data_ptr())
        return out

    return lane


def _binary_lane(kernel: StatementKernel) -> Kernel:
    known: dict[Any, Any] = {}

    def lane(x: Any, y: Any, **rest: Any) -> Any:
        if type(y) is float:
            return with_number(x, y, rest)
        try:
            key = (x.dtype, x.shape, x.stride(), y.dtype, y.shape, y.stride())
            call, fresh = known[key]
        except (AttributeError, KeyError):
            result = kernel(x, y, **rest)
            if not rest and isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor):
                _remember(kernel, known, key, x, y)
            return result
        if rest:
            return kernel(x, y, **rest)
        if fresh is None:
            return call(x, y)
        out = empty(*fresh)
        call(x.data_ptr(), y.data_ptr(), out.data_ptr())
        return out

    def with_number(x: Any, y: float, rest: dict[str, Any]) -> Any:
        if rest or y in (0.0, 1.0):
            return kernel(x, y, **rest)
        key = (x.dtype, x.shape, x.stride())
        found = known.get(key)
        if found is None:
            result = kernel(x, y)
            _remember(kernel, known, key, x, y)
            return result
        call, fresh = found
        out, cell = empty(*fresh), c_double(y)
        call(x.data_ptr(), addressof(cell), out.data_ptr())
        return out

    return lane


def _remember(kernel: StatementKernel, known: dict[Any, Any], key: Any, *args: Any) -> None:
    """Files what a lane can do: run a plan, or call PyTorch's kernel (with no fresh result).

    Where integers give floats, the default dtype counts, too, and the lane does not know it.
    """
    entry = kernel.plans.get(kernel.collect((), args, {}).key)
    if entry is None:
        known[key] = kernel.original, None
    elif isinstance(entry, Plan) and any_floating(args):
        known[key] = entry.call, entry.fresh[0]


def _written(full: Signature) -> tuple[int, ...]:
    return tuple(k for k, s in enumerate(full.slots) if s.written)


def _is_numeric(slot: Slot, statement: Statement) -> bool:
    return slot.kind in (Kind.NUMBER, Kind.TENSOR) and slot.name not in statement.static


def _name(dtype: torch.dtype) -> str:
    return {"float32": "Float", "float64": "Double", "int64": "Long", "int32": "Int", "bool": "Bool"}.get(
        str(dtype).removeprefix("torch."), str(dtype)
    )


def any_floating(values: Sequence[Any]) -> bool:
    """Whether a tensor among the arguments holds floats."""
    return any(t.dtype not in INTEGERS for t in tensors_in(*values))


def run_hole(
    holder: Holder, name: str, reason: str, original: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Reports the hole, then runs PyTorch's kernel."""
    monitor = holder.monitor
    monitor.report(name, reason)
    with monitor.running():
        return original(*args, **kwargs)


def decomposition_kernel(name: str, function: Kernel, original: Kernel, holder: Holder) -> Kernel:
    """A kernel that calls other operators; a hole where `function` raises Unowned."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Unowned as reason:
            return run_hole(holder, name, str(reason), original, args, kwargs)

    return kernel


def hole_kernel(name: str, reason: str, original: Kernel, holder: Holder) -> Kernel:
    """A kernel that does what PyTorch's does, loudly."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        return run_hole(holder, name, reason, original, args, kwargs)

    return kernel
