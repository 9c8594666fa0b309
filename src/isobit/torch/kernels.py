"""Kernels that stand in for PyTorch's while the exact arithmetic is on: look up the plan of the call, run it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from isobit.runtime.engine import Engine
from isobit.torch.dtypes import INTEGERS, Unowned
from isobit.torch.holes import HoleMonitor
from isobit.torch.library import draw_key
from isobit.torch.lowering import map_tensors, one_dtype, tensors_in, without_floats
from isobit.torch.memory import resize_output
from isobit.torch.older_tracer import tracing_state, untraced_call
from isobit.torch.plan import Plan, PlanMaker
from isobit.torch.shapes import shapes_of
from isobit.torch.shortcut import Shortcut, ShortcutFactory
from isobit.torch.signature import Kind, Signature, Slot, signature
from isobit.torch.table import Check, Statement

Kernel = Callable[..., Any]
Entry = Plan | str | None  # a plan; why the call is a hole; None: exact on PyTorch's kernel
Tensors = Sequence[torch.Tensor]

_TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})
MAX_PLANS = 4096
"""Plans of one operator; then the oldest goes. A script that calls it in more shapes makes some of them again."""
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
        self.shortcut: Shortcut | None = None
        self.plans: dict[Any, Entry] = {}
        self.written = () if overload is functional else _written(self.signature)
        self.numeric = tuple(_is_numeric(s, statement) for s in self.signature.slots)
        self.numeric_by_name = {s.name: _is_numeric(s, statement) for s in self.signature.slots}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.invoke((), args, kwargs)

    def invoke(self, leading: Tensors, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Runs the call; `leading` are tensors that the statement takes before the arguments."""
        if tracing_state() is not None:
            return untraced_call(self.invoke, leading, args, kwargs)
        given = self.collect(leading, args, kwargs)
        try:
            entry = self.plans[given.key]
        except KeyError:
            entry = self.make(leading, args, kwargs)
            given = self.collect(leading, args, kwargs)  # an `out=` tensor may have been resized
            if len(self.plans) == MAX_PLANS:
                del self.plans[next(iter(self.plans))]
            self.plans[given.key] = entry
            self.remember(args, kwargs, entry)
        if type(entry) is Plan:
            return self.answer(entry.run(given.tensors, given.numbers))
        if entry is None:
            return self.original(*args, **kwargs)
        if self.statement.own:
            raise Unowned(str(entry))
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

    def remember(self, args: Sequence[Any], kwargs: Mapping[str, Any], entry: Entry) -> None:
        """Tells the shortcut of an answer that depends on no more than the arguments."""
        floating = any_floating([*args, *kwargs.values()])
        if self.shortcut is not None and (entry is None or (isinstance(entry, Plan) and floating)):
            roles = self.run_time(args, kwargs)
            answer = self.original if entry is None else entry
            self.shortcut.add(args, kwargs, roles, answer, self.signature.returns, in_tuple=False)

    def run_time(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[bool]:
        """Which arguments, then keywords, are numbers that the program reads: those that `collect` takes."""
        numeric = [*self.numeric[: len(args)], *(self.numeric_by_name[n] for n in kwargs)]
        found, floating = [], False
        for value, may in zip((*args, *kwargs.values()), numeric, strict=True):
            floating = floating or any_floating([value])
            number = type(value) is float or (type(value) is int and floating)
            found.append(may and number and repr(value) not in _LITERAL)
        return found

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
            run_time = self.maker.run_time(functional, self._numbers(args, kwargs), any_floating(functional))
            return self.maker.make(functional, fakes, results, run_time, outs)
        except Unowned as reason:
            return str(reason)

    def _numbers(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> set[str]:
        """The slots whose number comes with the call; one that holds its default does not."""
        names = [*(s.name for s in self.signature.slots[: len(args)]), *kwargs]
        return {n for n, number in zip(names, self.run_time(args, kwargs), strict=True) if number}

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
        if self.statement.random or self.statement.own:
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


def with_shortcut(kernel: StatementKernel, factory: ShortcutFactory | None) -> Kernel:
    """`kernel` behind native code that knows the calls it has answered; as it is, if there is no factory."""
    kinds = [s.kind for s in kernel.signature.slots]
    if kernel.statement.uniform and kinds[:2] == [Kind.TENSOR] * 2:
        return _copy_lane(kernel)
    if factory is not None:
        kernel.shortcut = Shortcut(factory, kernel)
    fast = kernel.shortcut.function if kernel.shortcut else kernel
    return _checked(kernel, kernel.statement.check, fast) if kernel.statement.check else fast


def _checked(kernel: StatementKernel, check: Check, run: Kernel) -> Kernel:
    def checked(*args: Any, **kwargs: Any) -> Any:
        values = kernel.signature.bind(args, kwargs)
        check.function(values, values[check.slot])
        return run(*args, **kwargs)

    return checked


def _copy_lane(kernel: StatementKernel) -> Kernel:
    """A copy within one dtype is PyTorch's; it comes in more layouts than are worth remembering."""
    original = kernel.original

    def lane(target: torch.Tensor, source: Any, *rest: Any, **named: Any) -> Any:
        if isinstance(source, torch.Tensor) and target.dtype is source.dtype:
            return original(target, source, *rest, **named)
        return kernel(target, source, *rest, **named)

    return lane


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
