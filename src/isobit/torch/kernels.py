"""Kernels that stand in for PyTorch's while the exact arithmetic is on: look up the plan of the call, run it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from isobit.runtime.engine import Engine
from isobit.torch.dtypes import Unowned
from isobit.torch.holes import HoleMonitor
from isobit.torch.library import draw_key
from isobit.torch.lowering import one_dtype, without_floats
from isobit.torch.memory import resize_output
from isobit.torch.plan import Plan, PlanMaker, collect, shapes_of
from isobit.torch.random import key_slots
from isobit.torch.signature import Kind, Signature, Slot, signature
from isobit.torch.table import Statement

Kernel = Callable[..., Any]
Place = tuple[int, int | None]  # a slot, and the item of a list
# A plan, its run-time numbers and what it overwrites; or why it is a hole; or None: exact on PyTorch's kernel.
Entry = tuple[Plan, tuple[bool, ...], tuple[Place, ...]] | str | None

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
        self.statement = statement
        self.maker = PlanMaker(engine, statement, signature(functional))
        self.original = original
        self.holder = holder
        self.plans: dict[Any, Entry] = {}
        self.inputs = sum(not s.is_out for s in self.signature.slots)
        self.written = () if overload is functional else _written(self.signature)
        self.numeric = tuple(_numeric(s, statement) for s in self.signature.slots)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        values = self.signature.bind(args, kwargs)
        try:
            entry = self.plans[self.key(values)]
        except KeyError:
            entry = self.make(values)
            self.plans[self.key(values)] = entry  # an `out=` tensor may have been resized
        if entry is None:
            return self.original(*args, **kwargs)
        if type(entry) is str:
            return run_hole(self.holder, self.signature.name, entry, self.original, args, kwargs)
        plan, run_time, places = entry  # type: ignore[misc]
        given = collect(self.functional_values(values), run_time)
        results = plan.run(given.tensors, given.numbers, [at(values, p) for p in places])
        return self.answer(values, results)

    def functional_values(self, values: Sequence[Any]) -> Sequence[Any]:
        """The arguments of the functional form."""
        return values[: self.inputs]

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
        if not any_floating(values):
            parts.append(torch.get_default_dtype())
        return tuple(parts)

    def reads_at_run_time(self, value: Any, values: Sequence[Any]) -> bool:
        """Whether a number that is neither 0 nor 1 is read when the program runs (see lowering.is_run_time)."""
        return type(value) is float or (isinstance(value, int) and any_floating(values[: self.inputs]))

    def answer(self, values: Sequence[Any], results: list[Any]) -> Any:
        """What the operator returns."""
        if self.written:
            results = [values[k] for k in self.written]
        if not self.signature.returns:
            return None
        return results[0] if len(results) == 1 else tuple(results)

    def make(self, values: list[Any]) -> Entry:
        """The plan of a call that is new; errors in the arguments are PyTorch's own."""
        given = self._with_dtype(list(self.functional_values(values)), values)
        outs = [values[k] for k in self.written]
        try:
            metas, results = shapes_of(self.maker.functional, given)
            if self._is_exact(metas, [*results, *outs]):
                return None
            self._fit(values, results)
            run_time = self.maker.run_time(given, any_floating(given))
            plan, names = self.maker.make(given, metas, results, run_time, outs)
        except Unowned as reason:
            return str(reason)
        places = [*((k, None) for k in self.written), *self._mutated(names)]
        return plan, run_time, tuple(places)

    def _is_exact(self, metas: Sequence[Any], results: Sequence[Any]) -> bool:
        """Whether PyTorch's own kernel gives the exact result: integers alone, or a move within one dtype."""
        if self.statement.random or self.statement.name.startswith("isobit::"):
            return False
        return without_floats(metas, results) or (self.statement.uniform and one_dtype(metas, results))

    def _mutated(self, names: Sequence[str]) -> list[Place]:
        """Where the arguments that the functional form overwrites stand; of a list, every tensor."""
        slots = [s.name for s in self.signature.slots]
        return [(slots.index(n.partition("#")[0]), int(n.partition("#")[2]) if "#" in n else None) for n in names]

    def _with_dtype(self, given: list[Any], values: Sequence[Any]) -> list[Any]:
        """Reductions into an `out=` tensor compute in its dtype, if none is asked for."""
        for k, slot in enumerate(self.maker.functional.slots):
            into = self.written and self.signature.slots[self.written[0]].is_out
            if slot.name == "dtype" and given[k] is None and into:
                given[k] = values[self.written[0]].dtype
        return given

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


class RandomKernel(StatementKernel):
    """A random operator: draws a key, which the statement of the pure form takes first."""

    def __init__(
        self, engine: Engine, statement: Statement, functional: Any, overload: Any, original: Kernel, holder: Holder
    ) -> None:
        super().__init__(engine, statement, functional, overload, original, holder)
        self.kept = key_slots(self.signature)
        self.generator = next((k for k, s in enumerate(self.signature.slots) if s.kind is Kind.GENERATOR), None)
        self.written = _written(self.signature)

    def key(self, values: Sequence[Any]) -> tuple[Any, ...]:
        plain = [None if k == self.generator else v for k, v in enumerate(values)]
        return super().key(plain)

    def functional_values(self, values: Sequence[Any]) -> Sequence[Any]:
        generator = values[self.generator] if self.generator is not None else None
        return [draw_key(generator), *(values[k] for k in self.kept)]

    def make(self, values: list[Any]) -> Entry:
        state = torch.default_generator.get_state()  # making a plan must not advance it
        plain = [None if k == self.generator else v for k, v in enumerate(values)]
        entry = super().make(plain)
        torch.default_generator.set_state(state)
        return entry


def at(values: Sequence[Any], place: Place) -> Any:
    """The tensor at a place."""
    slot, item = place
    return values[slot] if item is None else values[slot][item]


def _written(full: Signature) -> tuple[int, ...]:
    return tuple(k for k, s in enumerate(full.slots) if s.written)


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


__all__ = ["Entry", "Holder", "Kernel", "RandomKernel", "Signature", "StatementKernel", "any_floating", "decomposition_kernel", "hole_kernel", "run_hole"]
