"""A traced graph as a short program: compiled pieces, and between them operators that run on PyTorch.

Registers hold tensors. A compiled piece is pure, so an operator that needs nothing from the piece under
construction runs before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import fx

from isobit.ir.graph import Graph
from isobit.ir.layout import Layout
from isobit.runtime.engine import Engine, Executable
from isobit.torch.dtypes import layout_of
from isobit.torch.plan import Fresh, empty

Registers = list[Any]


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

    def run(self, registers: Registers) -> None:
        args = fill(self.args, registers)
        registers[self.result] = self.function(*args, **{k: fill(v, registers) for k, v in self.kwargs.items()})


@dataclass(frozen=True)
class Register:
    """Stands for the tensor in a register."""

    number: int


def fill(tree: Any, registers: Registers) -> Any:
    """`tree` with every Register replaced by what it holds."""
    if isinstance(tree, Register):
        return registers[tree.number]
    if type(tree) in (list, tuple):
        return type(tree)(fill(x, registers) for x in tree)
    return tree


@dataclass
class CompiledStep:
    """Runs a compiled graph on registers; made for given layouts, and again for others that turn up."""

    engine: Engine
    graph: Graph
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    fresh: tuple[Fresh, ...]
    out_layouts: tuple[Layout, ...]
    programs: dict[Any, Executable] = field(default_factory=dict)

    def run(self, registers: Registers) -> None:
        tensors = [registers[k] for k in self.inputs]
        key = tuple([(t.shape, t.stride()) for t in tensors])
        program = self.programs.get(key) or self.compile(key, tensors)
        results = [empty(*f) for f in self.fresh]
        program.run([t.data_ptr() for t in tensors], [r.data_ptr() for r in results])
        for k, result in zip(self.outputs, results, strict=True):
            registers[k] = result

    def compile(self, key: Any, tensors: Sequence[torch.Tensor]) -> Executable:
        layouts = tuple(layout_of(t) for t in tensors)
        program = self.programs[key] = self.engine.compile(self.graph, layouts, self.out_layouts)
        return program


@dataclass(frozen=True)
class Program:
    """Steps over registers; `dead[k]` are the registers that nothing needs after step k."""

    steps: tuple[Step, ...]
    dead: tuple[tuple[int, ...], ...]
    n_registers: int
    constants: tuple[tuple[int, Any], ...]
    outputs: Any

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
        return fill(self.outputs, registers)

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
