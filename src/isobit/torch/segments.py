"""A traced graph as a short program: compiled pieces, and between them operators that run on PyTorch.

Registers hold tensors. A compiled piece is pure, so an operator that needs nothing from the piece under
construction runs before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Protocol

import torch
from torch import fx

from isobit.ir.graph import Graph
from isobit.ir.layout import Layout
from isobit.runtime.engine import Engine
from isobit.torch.dtypes import layout_of
from isobit.torch.plan import Fresh, Plan
from isobit.torch.shortcut import Shortcut, shortcut_factory

Registers = list[Any]
Getter = Callable[[Registers], Any]


class Step(Protocol):
    """One step of a program."""

    def run(self, registers: Registers) -> None: ...


@dataclass(frozen=True)
class HostStep:
    """Calls `function`; arguments that are registers are given as Register."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: int
    _args: tuple[Getter, ...] = field(init=False)
    _kwargs: dict[str, Getter] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_args", tuple(map(getter, self.args)))
        object.__setattr__(self, "_kwargs", {k: getter(v) for k, v in self.kwargs.items()})

    def run(self, registers: Registers) -> None:
        args = [get(registers) for get in self._args]
        named = {k: get(registers) for k, get in self._kwargs.items()} if self._kwargs else {}
        registers[self.result] = self.function(*args, **named)


@dataclass(frozen=True)
class Register:
    """Stands for the tensor in a register."""

    number: int


def getter(tree: Any) -> Getter:
    """Gives, of the registers, `tree` with every Register in it replaced by what it holds."""
    if isinstance(tree, Register):
        return itemgetter(tree.number)
    if type(tree) in (list, tuple) and registers_in(tree):
        kind, parts = type(tree), tuple(map(getter, tree))
        return lambda registers: kind([get(registers) for get in parts])
    return lambda registers: tree


@dataclass
class CompiledStep:
    """Runs a compiled graph on registers; made for given layouts, and again for others that turn up."""

    engine: Engine
    graph: Graph
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    fresh: tuple[Fresh, ...]
    out_layouts: tuple[Layout, ...]
    plans: dict[Any, Plan] = field(default_factory=dict)

    def __post_init__(self) -> None:
        factory = shortcut_factory(self.engine)
        self.shortcut = Shortcut(factory, self.answer) if factory else None
        self.call = self.shortcut.function if self.shortcut else self.answer

    def run(self, registers: Registers) -> None:
        results = self.call(*[registers[k] for k in self.inputs])
        for k, result in zip(self.outputs, results, strict=True):
            registers[k] = result

    def answer(self, *tensors: torch.Tensor) -> Sequence[torch.Tensor]:
        """The step's results; the way of calls that the shortcut does not know."""
        key = tuple([(t.shape, t.stride()) for t in tensors])
        plan = self.plans.get(key) or self.compile(key, tensors)
        return plan.run(tensors, ())

    def compile(self, key: Any, tensors: Sequence[torch.Tensor]) -> Plan:
        layouts = tuple(layout_of(t) for t in tensors)
        executable = self.engine.compile(self.graph, layouts, self.out_layouts)
        plan = self.plans[key] = Plan(executable, self.fresh, (), layouts)
        if self.shortcut:
            self.shortcut.add(tensors, {}, [False] * len(tensors), plan, len(self.fresh), in_tuple=True)
        return plan


@dataclass(frozen=True)
class Program:
    """Steps over registers; `dead[k]` are the registers that nothing needs after step k."""

    steps: tuple[Step, ...]
    dead: tuple[tuple[int, ...], ...]
    n_registers: int
    constants: tuple[tuple[int, Any], ...]
    outputs: Any
    answer: Getter = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "answer", getter(self.outputs))

    def __call__(self, args: list[Any]) -> Any:
        """Takes a list of inputs, which it empties, as PyTorch's boxed calling convention has it."""
        registers: Registers = [None] * self.n_registers
        registers[: len(args)] = args
        args.clear()
        for number, value in self.constants:
            registers[number] = value
        for step, dead in zip(self.steps, self.dead, strict=True):
            step.run(registers)
            for k in dead:
                registers[k] = None
        return self.answer(registers)

    def boxed(self) -> Callable[[list[Any]], Any]:
        """The program as a function that is marked as PyTorch wants it."""

        def run(args: list[Any]) -> Any:
            return self(args)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run


def as_registers(tree: Any, number: Callable[[fx.Node], int]) -> Any:
    """An fx argument with its nodes replaced by registers."""
    if isinstance(tree, fx.Node):
        return Register(number(tree))
    if isinstance(tree, (list, tuple)):
        return (
            type(tree)(as_registers(x, number) for x in tree)
            if type(tree) in (list, tuple)
            else [as_registers(x, number) for x in tree]
        )
    return tree


def registers_in(tree: Any) -> list[int]:
    """All registers that an argument tree names."""
    if isinstance(tree, Register):
        return [tree.number]
    if isinstance(tree, (list, tuple)):
        return [n for x in tree for n in registers_in(x)]
    if isinstance(tree, dict):
        return registers_in(list(tree.values()))
    return []
