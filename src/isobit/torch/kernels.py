"""Kernels that stand in for PyTorch's while the exact arithmetic is on: look up the plan of the call, run it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from isobit.ir.graph import Value
from isobit.runtime.engine import Engine
from isobit.torch.dtypes import Unowned
from isobit.torch.holes import HoleMonitor
from isobit.torch.lowering import without_floats
from isobit.torch.memory import resize_output
from isobit.torch.plan import Plan, PlanMaker, collect
from isobit.torch.signature import Kind, Signature, Slot, signature
from isobit.torch.table import Result, Statement

Kernel = Callable[..., Any]
Entry = tuple[Plan, tuple[bool, ...]] | str | None  # a plan; why it is a hole; None: exact on PyTorch's kernel

_LITERAL = (0, 1)


class Holder:
    """What kernels report holes to; the layer that is on now decides."""

    def __init__(self) -> None:
        self.monitor = HoleMonitor()


class StatementKernel:
    """All variants of one operator call this: functional, in-place and `out=`."""

    def __init__(
        self, engine: Engine, statement: Statement, functional: Any, overload: Any, original: Kernel, holder: Holder
    ) -> None:
        self.signature = signature(overload)
        self.maker = PlanMaker(engine, statement, signature(functional))
        self.original = original
        self.holder = holder
        self.plans: dict[Any, Entry] = {}
        self.inputs = len(self.maker.functional.slots)
        self.written = tuple(k for k, s in enumerate(self.signature.slots) if s.written)
        self.is_functional = not self.written
        self.numeric = tuple(_numeric(s, statement) for s in self.signature.slots)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        values = self.signature.bind(args, kwargs)
        key = self.key(values)
        try:
            entry = self.plans[key]
        except KeyError:
            entry = self.plans[self.key(values)] = self.make(values)
        if entry is None:
            return self.original(*args, **kwargs)
        if type(entry) is str:
            return run_hole(self.holder, self.signature.name, entry, self.original, args, kwargs)
        plan, run_time = entry  # type: ignore[misc]
        given = collect(values[: self.inputs], run_time)
        written = self.overwritten(values, plan)
        results = plan.run(given.tensors, given.numbers, written)
        return self.answer(values, results)

    def key(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Everything the plan depends on: layouts, attributes, and of run-time numbers the type alone."""
        parts: list[Any] = []
        for value, numeric in zip(values, self.numeric, strict=True):
            if isinstance(value, torch.Tensor):
                parts += (value.dtype, value.shape, value.stride())
            elif type(value) in (list, tuple):
                parts.append(tuple(_item_key(v) for v in value))
            elif numeric and value not in _LITERAL and self.reads_at_run_time(value, values):
                parts.append(type(value))
            else:
                parts += (type(value), str(value) if type(value) is float else value)
        return tuple(parts)

    def reads_at_run_time(self, value: Any, values: Sequence[Any]) -> bool:
        """Whether a number that is neither 0 nor 1 is read when the program runs (see lowering.is_run_time)."""
        return type(value) is float or (isinstance(value, int) and any_floating(values[: self.inputs]))

    def overwritten(self, values: Sequence[Any], plan: Plan) -> Sequence[Any]:
        """The tensors that the plan's targets stand for."""
        if self.written:
            return [values[k] for k in self.written]
        return ()

    def answer(self, values: Sequence[Any], results: list[Any]) -> Any:
        """What the operator returns."""
        if not self.written:
            return results[0] if len(results) == 1 else tuple(results)
        given = [values[k] for k in self.written]
        return given[0] if len(given) == 1 else tuple(given)

    def make(self, values: list[Any]) -> Entry:
        """The plan of a call that is new; errors in the arguments are PyTorch's own."""
        functional = values[: self.inputs]
        try:
            metas, results = self.maker.metas(self._with_dtype(functional, values))
            outs = [values[k] for k in self.written]
            if self.maker.statement.integers and without_floats(metas, list(results) + outs):
                return None
            self._fit(values, results)
            any_float = any_floating(functional)
            run_time = self.maker.run_time(functional, any_float)
            plan = self.maker.make(
                functional, metas, results, run_time, lambda r: _pairs(r, [values[k] for k in self.written])
            )
        except Unowned as reason:
            return str(reason)
        return plan, run_time

    def _with_dtype(self, functional: list[Any], values: Sequence[Any]) -> list[Any]:
        """Reductions into an `out=` tensor compute in its dtype, if none is asked for."""
        for k, slot in enumerate(self.maker.functional.slots):
            if slot.name == "dtype" and functional[k] is None and self.written and self.signature.slots[self.written[0]].is_out:
                functional[k] = values[self.written[0]].dtype
        return functional

    def _fit(self, values: Sequence[Any], results: Sequence[Any]) -> None:
        """Resizes `out=` tensors; raises where a result does not fit what it is written to."""
        for k, result in zip(self.written, results, strict=bool(self.written)):
            target, slot = values[k], self.signature.slots[k]
            if not torch.can_cast(result.dtype, target.dtype):
                raise RuntimeError(
                    f"result type {_name(result.dtype)} can't be cast to the desired output type {_name(target.dtype)}"
                )
            if slot.is_out:
                resize_output(target, result.shape)
            elif tuple(result.shape) != tuple(target.shape):
                raise RuntimeError(
                    f"output with shape {list(target.shape)} doesn't match the broadcast shape {list(result.shape)}"
                )


def _pairs(result: Result, written: Sequence[Any]) -> list[tuple[Value, Any]]:
    return [(v, t) for v, t in zip(result.outputs, written, strict=True) if v is not None] if written else []


def _numeric(slot: Slot, statement: Statement) -> bool:
    return slot.kind in (Kind.NUMBER, Kind.TENSOR) and slot.name not in statement.static


def _item_key(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return (value.dtype, value.shape, value.stride())
    return (type(value), value)


def _name(dtype: torch.dtype) -> str:
    return {"float32": "Float", "float64": "Double", "int64": "Long", "int32": "Int", "bool": "Bool"}.get(
        str(dtype).removeprefix("torch."), str(dtype)
    )


def any_floating(values: Sequence[Any]) -> bool:
    """Whether a tensor among the arguments holds floats."""
    return any(
        t.is_floating_point()
        for v in values
        for t in (v if type(v) in (list, tuple) else (v,))
        if isinstance(t, torch.Tensor)
    )


def run_hole(
    holder: Holder, name: str, reason: str, original: Kernel, args: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """Reports the hole, then runs PyTorch's kernel."""
    monitor = holder.monitor
    monitor.report(name, reason)
    with monitor.running():
        return original(*args, **kwargs)


def hole_kernel(name: str, reason: str, original: Kernel, holder: Holder) -> Kernel:
    """A kernel that does what PyTorch's does, loudly."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        return run_hole(holder, name, reason, original, args, kwargs)

    return kernel


__all__ = ["Entry", "Holder", "Kernel", "Signature", "StatementKernel", "any_floating", "hole_kernel", "run_hole"]
