"""From a traced PyTorch graph to a program of compiled pieces, through the same table as eager code."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import fx

from isobit.ir.graph import Graph, Value
from isobit.ir.layout import Layout
from isobit.runtime.engine import Engine
from isobit.torch.dtypes import TO_TORCH, Unowned, dtype_of
from isobit.torch.holes import UNNAMED, HoleMonitor
from isobit.torch.layer import exactly
from isobit.torch.lowering import without_floats, write_statement
from isobit.torch.memory import fresh_strides
from isobit.torch.original import DIRECT, cpu_kernels
from isobit.torch.plan import Fresh
from isobit.torch.random import random_name
from isobit.torch.segments import (
    CompiledStep,
    HostStep,
    Program,
    Register,
    Step,
    as_registers,
    registers_in,
)
from isobit.torch.signature import Signature, signature
from isobit.torch.table import Builder, Check, Decomposition, Entry, Pass, Statement, Table


class GraphCompiler:
    """Compiles one traced graph. `monitor` gives the hole monitor at the time a hole runs. `host_steps`: results that
    are views of others are made by PyTorch, so that they share memory, and operators' checks run; else such results are
    computed like the rest, and nothing is checked."""

    def __init__(
        self, engine: Engine, table: Table, monitor: Callable[[], HoleMonitor], *, host_steps: bool = True
    ) -> None:
        self.engine = engine
        self.table = table
        self.monitor = monitor
        self.host_steps = host_steps

    def __call__(self, module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[[list[Any]], Any]:
        return self.program(module).boxed()

    def program(self, module: fx.GraphModule) -> Program:
        """The steps that compute `module`, compiled when they first run."""
        return _Builder(self, module).program()


class _Piece:
    """The compiled piece under construction: a graph, its inputs and which nodes have a value in it."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.values: dict[fx.Node, Any] = {}
        self.inputs: list[fx.Node] = []
        self.written: list[fx.Node] = []


class _Builder:
    def __init__(self, compiler: GraphCompiler, module: fx.GraphModule) -> None:
        self.compiler = compiler
        self.module = module
        self.nodes = list(module.graph.nodes)
        self.numbers: dict[fx.Node, int] = {}
        self.registers = 0
        self.steps: list[Step] = []
        self.reads: list[list[int]] = []
        self.constants: list[tuple[int, Any]] = []
        self.held: set[fx.Node] = set()  # nodes whose tensor is in a register once the steps so far have run
        self.piece = _Piece()
        self.outputs: Any = None

    def program(self) -> Program:
        for node in self.nodes:
            self.add(node)
        dead = _last_uses(self.reads, set(registers_in(self.outputs)))
        return Program(tuple(self.steps), dead, self.registers, tuple(self.constants), self.outputs)

    def number(self, node: fx.Node) -> int:
        if node not in self.numbers:
            self.numbers[node] = self.register()
        return self.numbers[node]

    def register(self) -> int:
        self.registers += 1
        return self.registers - 1

    def add(self, node: fx.Node) -> None:
        if node.op == "placeholder":
            self.number(node)
            self.held.add(node)
        elif node.op == "get_attr":
            self.constants.append((self.number(node), _attribute(self.module, str(node.target))))
            self.held.add(node)
        elif node.op == "output":
            self.finish(node)
        elif node.target is operator.getitem:
            self.take_item(node)
        else:
            self.call(node)

    def call(self, node: fx.Node) -> None:
        """A statement of the piece, if the table has one that covers the arguments; else a step on PyTorch."""
        entry = self.entry(node)
        if isinstance(entry, Decomposition) or (entry is None and _calls_others(node)):
            function: Any = entry.function if entry else node.target
            self.host(node, exactly(function), None)
            return
        reason = None if entry is not None or _is_harmless(node) else UNNAMED
        if isinstance(entry, (Statement, Pass)) and entry.build is not None:
            try:
                if isinstance(entry, Statement) and entry.check and self.compiler.host_steps:
                    self.check(node, entry.check)
                self.write(node, entry.build)
                return
            except Unowned as error:
                reason = None if isinstance(entry, Pass) or _is_of_integers(node) else str(error)
        self.host(node, node.target, reason)

    def entry(self, node: fx.Node) -> Entry | None:
        """What the table says about the node's operator."""
        if not isinstance(node.target, torch._ops.OpOverload):
            return None
        name = signature(node.target).name
        return self.compiler.table.get(name) or self.compiler.table.get(random_name(name))

    # Statements ----------------------------------------------------------------------------------------------

    def write(self, node: fx.Node, build: Builder) -> None:
        sig = signature(node.target)
        values = sig.bind(node.args, node.kwargs)
        metas = [fx.map_arg(_plain(v), lambda n: n.meta["val"]) for v in values]
        results = node.meta["val"]
        results = tuple(results) if isinstance(results, (list, tuple)) else (results,)
        for r in results:
            dtype_of(r.dtype) if isinstance(r, torch.Tensor) else None
        operands = self.operands(values, sig)
        piece = self.piece
        piece.graph.origin = sig.name
        result = write_statement(build, sig, piece.graph, operands, metas, results)
        many = isinstance(node.meta["val"], (list, tuple))
        piece.values[node] = tuple(result.outputs) if many else result.outputs[0]
        piece.written.append(node)

    def check(self, node: fx.Node, check: Check) -> None:
        """A step before the piece that refuses what the statement would compute with."""
        values = signature(node.target).bind(node.args, node.kwargs)
        tensor: fx.Node = values[check.slot]
        self.materialise(tensor)
        metas = [fx.map_arg(_plain(v), lambda n: n.meta["val"]) for v in values]
        register = self.number(tensor)
        self.push(HostStep(partial(check.function, metas), (Register(register),), {}, self.register()), [register])

    def operands(self, values: Sequence[Any], sig: Signature) -> list[Any]:
        """Slot values with nodes replaced by values of the piece's graph, declaring inputs as they are needed."""
        needed = [n for v in values for n in _nodes(v)]
        for n in needed:
            if isinstance(n.meta["val"], torch.Tensor):
                dtype_of(n.meta["val"].dtype)
        return [_map(v, self.value) for v in values]

    def value(self, node: fx.Node) -> Any:
        """The node's value in the piece's graph."""
        if node not in self.piece.values:
            meta = node.meta["val"]
            if not isinstance(meta, torch.Tensor):
                raise Unowned(f"an argument of type {type(meta).__name__}")
            self.materialise(node)
            self.piece.values[node] = self.piece.graph.input(dtype_of(meta.dtype), tuple(meta.shape))
            self.piece.inputs.append(node)
        return self.piece.values[node]

    def take_item(self, node: fx.Node) -> None:
        source, index = node.args
        if source in self.piece.values:
            self.piece.values[node] = self.piece.values[source][index]  # type: ignore[index]
            self.piece.written.append(node)
        else:
            self.host(node, node.target, None)

    # Steps on PyTorch ----------------------------------------------------------------------------------------

    def host(self, node: fx.Node, function: Any, reason: str | None) -> None:
        """A step that calls `function`, the node's own or one in its place, loudly if there is a reason."""
        for n in node.all_input_nodes:
            self.materialise(n)
        called = function if reason is None else self.loud(node, function, reason)
        args = tuple(as_registers(a, self.number) for a in node.args)
        kwargs = {k: as_registers(v, self.number) for k, v in node.kwargs.items()}
        self.push(HostStep(called, args, kwargs, self.number(node)), registers_in([args, kwargs]), node)

    def loud(self, node: fx.Node, function: Callable[..., Any], reason: str) -> Callable[..., Any]:
        name = signature(node.target).name if isinstance(node.target, torch._ops.OpOverload) else str(node.target)
        monitor_now = self.compiler.monitor

        def run(*args: Any, **kwargs: Any) -> Any:
            monitor = monitor_now()
            monitor.report(name, reason)
            with monitor.running():
                return function(*args, **kwargs)

        run.__qualname__ = name
        return run

    def push(self, step: Step, reads: list[int], *results: fx.Node) -> None:
        self.steps.append(step)
        self.reads.append([*reads, *(self.number(r) for r in results)])
        self.held.update(results)

    # Boundaries ----------------------------------------------------------------------------------------------

    def materialise(self, node: fx.Node) -> None:
        """Makes sure that the node's tensor is in a register after the steps so far."""
        if node in self.held:
            return
        if self.is_view_of_held(node):
            self.host(node, node.target, None)
            return
        self.close([n for n in self.wanted() if n not in self.held])

    def is_view_of_held(self, node: fx.Node) -> bool:
        """Whether the node is a chain of views of a tensor that a register holds: then no element need move."""
        if not (self.compiler.host_steps and _is_view(node)):
            return False
        return node.args[0] in self.held or self.is_view_of_held(node.args[0])  # type: ignore[arg-type]

    def wanted(self) -> list[fx.Node]:
        """Nodes of the piece that something outside it may read: all with a user that is not written in it."""
        inside = set(self.piece.written)
        return [
            n for n in self.piece.written
            if isinstance(self.piece.values[n], Value) and any(u not in inside for u in n.users)
        ]  # fmt: skip

    def close(self, nodes: list[fx.Node]) -> None:
        """Ends the piece: it computes `nodes` into registers."""
        piece, self.piece = self.piece, _Piece()
        moved = [n for n in nodes if self.compiler.host_steps and _is_view(n) and self.root(n) in piece.values]
        direct = list(dict.fromkeys([n for n in nodes if n not in moved] + [self.root(n) for n in moved]))
        direct = [n for n in direct if n not in self.held]
        if direct:
            step = self.compiled(piece, direct)
            self.push(step, [self.number(n) for n in piece.inputs], *direct)
        for n in moved:
            self.materialise(n)

    def compiled(self, piece: _Piece, nodes: list[fx.Node]) -> CompiledStep:
        values = [piece.values[n] for n in nodes]
        piece.graph.outputs = [v.id for v in values]
        fresh = tuple(_fresh(v, n.meta["val"]) for v, n in zip(values, nodes, strict=True))
        layouts = tuple(Layout(v.dtype, f[0], f[1]) for v, f in zip(values, fresh, strict=True))
        inputs = tuple(self.number(n) for n in piece.inputs)
        outputs = tuple(self.number(n) for n in nodes)
        return CompiledStep(self.compiler.engine, piece.graph, inputs, outputs, fresh, layouts)

    def root(self, node: fx.Node) -> fx.Node:
        """What a chain of views starts from, as long as the elements stay the same ones."""
        while _is_view(node) and _same_elements(node):
            node = node.args[0]  # type: ignore[assignment]
        return node

    def finish(self, output: fx.Node) -> None:
        results = [n for n in output.all_input_nodes if n not in self.held]
        for n in results:
            if self.is_view_of_held(n):
                self.materialise(n)
        late = [n for n in results if n not in self.held]
        if late:
            self.close(late)
        self.outputs = as_registers(_plain(output.args[0]), self.number)


def _calls_others(node: fx.Node) -> bool:
    """Whether PyTorch's kernel only calls other operators, which the eager layer then takes one by one."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    name = signature(node.target).name
    return name.startswith("aten::") and name not in cpu_kernels()["aten"] and name not in DIRECT


def _is_of_integers(node: fx.Node) -> bool:
    return without_floats([n.meta["val"] for n in (node, *node.all_input_nodes)])


def _is_harmless(node: fx.Node) -> bool:
    """Whether a function that is in no table is exact: picking items, and drawing keys."""
    return node.target in (operator.getitem, torch.ops.isobit.draw_key.default)


def _last_uses(reads: list[list[int]], kept: set[int]) -> tuple[tuple[int, ...], ...]:
    last = {register: k for k, used in enumerate(reads) for register in used}
    dead: list[list[int]] = [[] for _ in reads]
    for register, k in last.items():
        if register not in kept:
            dead[k].append(register)
    return tuple(map(tuple, dead))


def _attribute(module: torch.nn.Module, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part)
    return module


def _nodes(tree: Any) -> list[fx.Node]:
    found: list[fx.Node] = []
    fx.map_arg(_plain(tree), found.append)
    return found


def _plain(tree: Any) -> Any:
    """fx's immutable lists as ordinary ones."""
    if isinstance(tree, (list, tuple)):
        kind = tuple if isinstance(tree, tuple) else list
        return kind(_plain(x) for x in tree)
    return tree


def _map(tree: Any, fn: Callable[[fx.Node], Any]) -> Any:
    if isinstance(tree, fx.Node):
        return fn(tree)
    if isinstance(tree, (list, tuple)):
        kind = tuple if isinstance(tree, tuple) else list
        return kind(_map(x, fn) for x in tree)
    return tree


def _is_view(node: object) -> bool:
    """Whether the node's operator returns a view of its first argument, by its schema."""
    if not isinstance(node, fx.Node) or not isinstance(node.target, torch._ops.OpOverload):
        return False
    schema = node.target._schema
    first = schema.arguments[0].alias_info if schema.arguments else None
    return (
        len(schema.returns) == 1
        and str(schema.returns[0].type) == "Tensor"
        and first is not None
        and not first.is_write
        and schema.returns[0].alias_info is not None
        and isinstance(node.args[0], fx.Node)
    )


def _same_elements(node: fx.Node) -> bool:
    """Whether a view shows every element of its base: then the base may be computed in its stead."""
    base = node.args[0].meta["val"]  # type: ignore[union-attr]
    mine = node.meta["val"]
    return bool(base.dtype == mine.dtype and mine.numel() >= base.numel())


def _fresh(value: Value, meta: torch.Tensor) -> Fresh:
    return value.shape, fresh_strides(value.shape, tuple(meta.stride())), TO_TORCH[value.dtype]
