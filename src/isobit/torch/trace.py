"""A model as one graph: torch.export, the one table, no PyTorch left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.export.graph_signature import InputKind

from isobit.ir.graph import Graph
from isobit.ir.layout import Layout, contiguous
from isobit.runtime.engine import Engine, EngineOptions
from isobit.torch.dtypes import dtype_of
from isobit.torch.graphs import GraphCompiler
from isobit.torch.holes import HoleMonitor
from isobit.torch.layer import tracing
from isobit.torch.operators import table
from isobit.torch.segments import CompiledStep, HostStep, Program, Register


class ExportError(ValueError):
    """The model cannot become an artifact; the message says what is in the way."""


@dataclass(frozen=True)
class Weight:
    """A parameter, buffer or constant, contiguous."""

    name: str
    array: np.ndarray[Any, Any]


@dataclass(frozen=True)
class TracedModel:
    """`graph` takes the inputs, then the weights, all contiguous. `single`: the model returned one tensor."""

    graph: Graph
    inputs: tuple[tuple[str, Layout], ...]
    weights: tuple[Weight, ...]
    outputs: tuple[Layout, ...]
    single: bool

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """Layouts of all the graph's inputs."""
        kept = [layout for _, layout in self.inputs]
        return (*kept, *(contiguous(dtype_of(torch.from_numpy(w.array).dtype), w.array.shape) for w in self.weights))


def trace_model(model: torch.nn.Module, example_inputs: Sequence[Any]) -> TracedModel:
    """The model's computation for inputs shaped like `example_inputs` (tensors).

    Raises ExportError for a model in training mode, for operators outside the arithmetic, for arguments or results
    that are not tensors, and for a model that changes its own buffers.
    """
    if model.training:
        raise ExportError("the model is in training mode; call model.eval() before exporting it")
    with tracing() as decompositions, torch.no_grad():
        exported = torch.export.export(model, tuple(example_inputs))
        exported = exported.run_decompositions({**_composites(), **decompositions})
    _refuse_mutation(exported)
    names = _placeholders(exported)
    engine = Engine(EngineOptions(reference=True))  # nothing is run: only the graph is wanted
    compiler = GraphCompiler(engine, table(), HoleMonitor, host_steps=False)
    program = compiler.program(exported.graph_module)
    step = _only_step(program)
    return _assembled(exported, program, step, names)


def _composites() -> dict[Any, Any]:
    """PyTorch's operators that are only made of others; torch.export keeps them whole unless told to open them."""
    kind = torch._C.DispatchKey.CompositeImplicitAutograd
    every = torch.export.default_decompositions().materialize()
    return {op: open_up for op, open_up in every.items() if op.has_kernel_for_dispatch_key(kind)}


def _refuse_mutation(exported: Any) -> None:
    kinds = sorted({s.kind.name for s in exported.graph_signature.output_specs if s.kind.name.endswith("MUTATION")})
    if kinds:
        raise ExportError(f"the model changes its own state or inputs when it runs: {', '.join(kinds)}")


def _placeholders(exported: Any) -> list[fx.Node]:
    return [n for n in exported.graph_module.graph.nodes if n.op == "placeholder"]


def _only_step(program: Program) -> CompiledStep:
    """The one compiled piece. Steps on PyTorch cannot leave with the model."""
    host = [s for s in program.steps if isinstance(s, HostStep)]
    if host:
        names = sorted({getattr(s.function, "__qualname__", str(s.function)) for s in host})
        raise ExportError(f"operators outside the arithmetic (holes) cannot be exported: {', '.join(names)}")
    compiled = [s for s in program.steps if isinstance(s, CompiledStep)]
    if len(compiled) != 1:
        raise ExportError(f"the model computes nothing that can be compiled ({len(compiled)} compiled pieces)")
    return compiled[0]


def _assembled(exported: Any, program: Program, step: CompiledStep, placeholders: Sequence[fx.Node]) -> TracedModel:
    specs = exported.graph_signature.input_specs
    values = dict(program.constants)
    sources: list[tuple[str, torch.Tensor | None, Layout | None]] = []
    for register in step.inputs:
        if register < len(specs):
            sources.append(_source(exported, specs[register], placeholders[register]))
        else:
            sources.append((f"constant{register}", values[register], None))
    return _ordered(exported, program, step, sources, placeholders)


def _source(exported: Any, spec: Any, node: fx.Node) -> tuple[str, torch.Tensor | None, Layout | None]:
    if spec.kind is InputKind.USER_INPUT:
        return node.name, None, _layout(node)
    if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
        held = exported.state_dict.get(spec.target)
        return spec.target, exported.constants[spec.target] if held is None else held, None
    return str(spec.target), exported.constants[spec.target], None


def _layout(node: fx.Node) -> Layout:
    meta = node.meta["val"]
    if not isinstance(meta, torch.Tensor):
        raise ExportError(f"argument {node.name} is a {type(meta).__name__}; an exported model takes tensors only")
    return contiguous(dtype_of(meta.dtype), tuple(meta.shape))


def _ordered(
    exported: Any,
    program: Program,
    step: CompiledStep,
    sources: Sequence[tuple[str, torch.Tensor | None, Layout | None]],
    placeholders: Sequence[fx.Node],
) -> TracedModel:
    """Renumber the graph's inputs: what the caller passes first, in its order, then the weights."""
    specs = exported.graph_signature.input_specs
    wanted = [n for n, s in zip(placeholders, specs, strict=True) if s.kind is InputKind.USER_INPUT]
    position = {n.name: k for k, n in enumerate(wanted)}
    weights: list[Weight] = []
    order = []
    for name, tensor, _ in sources:
        if tensor is None:
            order.append(position[name])
        else:
            order.append(len(wanted) + len(weights))
            weights.append(Weight(name, tensor.detach().contiguous().numpy()))
    graph = step.graph.with_inputs(order, len(wanted) + len(weights))
    results, single = _results(program, step)
    graph.outputs = [step.graph.outputs[k] for k in results]
    outputs = tuple(contiguous(graph.nodes[i].dtype, graph.nodes[i].shape) for i in graph.outputs)
    inputs = tuple((n.name, _layout(n)) for n in wanted)
    return TracedModel(graph, inputs, tuple(weights), outputs, single)


def _results(program: Program, step: CompiledStep) -> tuple[list[int], bool]:
    """Which outputs of the compiled piece are the model's results, in order."""
    found = []
    for r in program.outputs:
        if not isinstance(r, Register) or r.number not in step.outputs:
            raise ExportError("the model returns something that is not a computed tensor")
        found.append(step.outputs.index(r.number))
    return found, len(found) == 1
