"""A model as one graph: torch.export, the one table, no PyTorch left."""

from __future__ import annotations

import warnings
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
    """`graph` takes the inputs, then the weights, all contiguous. `result`: what the model returns, as artifact.format
    describes it.
    """

    graph: Graph
    inputs: tuple[tuple[str, Layout], ...]
    weights: tuple[Weight, ...]
    outputs: tuple[Layout, ...]
    result: Any

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """Layouts of all the graph's inputs."""
        kept = [layout for _, layout in self.inputs]
        return (*kept, *(contiguous(dtype_of(torch.from_numpy(w.array).dtype), w.array.shape) for w in self.weights))


def trace_model(model: torch.nn.Module, example_inputs: Sequence[Any]) -> TracedModel:
    """The model's computation for inputs shaped like `example_inputs` (tensors).

    Raises ExportError for what is no module, a model in training mode, what torch.export cannot trace, operators
    outside the arithmetic, dtypes that NumPy lacks, arguments that are not tensors, results that are not tensors in
    tuples, lists and dicts, and for a model that changes its own buffers.
    """
    _check(model, example_inputs)
    exported = _exported(model, tuple(example_inputs))
    _refuse_mutation(exported)
    names = _placeholders(exported)
    engine = Engine(EngineOptions(reference=True))  # nothing is run: only the graph is wanted
    compiler = GraphCompiler(engine, table(), HoleMonitor, host_steps=False)
    program = compiler.program(exported.graph_module)
    step = _only_step(program)
    return _assembled(exported, program, step, names)


def _check(model: Any, example_inputs: Any) -> None:
    if not isinstance(model, torch.nn.Module):
        raise ExportError(f"only a torch.nn.Module can be exported, not a {type(model).__name__}; wrap it in a module")
    if not isinstance(example_inputs, (tuple, list)):
        raise ExportError(f"the example inputs are a tuple of tensors, not a {type(example_inputs).__name__}: (x,)")
    training = [name for name, part in model.named_modules() if part.training]
    if training:
        named = ", ".join(name or type(model).__name__ for name in training[:3])
        raise ExportError(f"the model is in training mode ({named}); call model.eval() before exporting it")
    tensors = [*enumerate(example_inputs), *model.named_parameters(), *model.named_buffers()]
    for name, x in tensors:
        if isinstance(x, torch.Tensor) and x.dtype not in _NUMPY:
            what = f"input {name}" if isinstance(name, int) else name
            raise ExportError(f"{what} is {str(x.dtype).removeprefix('torch.')}, which NumPy lacks; convert the model")


_NUMPY = frozenset({
    torch.float16, torch.float32, torch.float64, torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32,
    torch.int64,
})  # fmt: skip


def _exported(model: torch.nn.Module, example_inputs: tuple[Any, ...]) -> Any:
    with tracing() as decompositions, torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*LeafSpec.*", FutureWarning)  # torch.export's use of its own class
        try:
            exported = torch.export.export(model, example_inputs)
        except Exception as error:
            raise ExportError(f"torch.export cannot trace the model: {error}") from error
        return exported.run_decompositions({**_composites(), **decompositions})


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
    results = _results(program, step)
    graph.outputs = [step.graph.outputs[k] for k in results]
    outputs = tuple(contiguous(graph.nodes[i].dtype, graph.nodes[i].shape) for i in graph.outputs)
    inputs = tuple((n.name, _layout(n)) for n in wanted)
    return TracedModel(graph, inputs, tuple(weights), outputs, _structure(exported, len(results)))


def _structure(exported: Any, count: int) -> Any:
    """How the model returns its `count` results."""

    def describe(tree: Any) -> Any:
        if type(tree) is int:
            return tree
        if type(tree) in (tuple, list):
            return {type(tree).__name__: [describe(x) for x in tree]}
        if type(tree) is dict and all(type(k) is str for k in tree):
            return {"dict": {k: describe(x) for k, x in tree.items()}}
        raise ExportError(f"the model returns a {type(tree).__name__}; tuples, lists and dicts by name can be exported")

    return describe(torch.utils._pytree.tree_unflatten(range(count), exported.call_spec.out_spec))


def _results(program: Program, step: CompiledStep) -> list[int]:
    """Which outputs of the compiled piece are the model's results, in order."""
    found = []
    for r in program.outputs:
        if not isinstance(r, Register) or r.number not in step.outputs:
            raise ExportError("the model returns something that is not a computed tensor")
        found.append(step.outputs.index(r.number))
    return found
