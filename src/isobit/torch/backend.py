"""`torch.compile(model, backend="isobit")`: forward and backward through AOTAutograd and the one table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import default_partition
from torch.utils.checkpoint import CheckpointPolicy

from isobit.runtime.engine import Engine
from isobit.torch.graphs import GraphCompiler
from isobit.torch.holes import HoleMonitor
from isobit.torch.layer import ExactOptions, active, override_for, tracing
from isobit.torch.operators import table
from isobit.torch.random import drop_unread_draws
from isobit.torch.uses import with_a_view_per_use, with_views


def isobit_backend(module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compiles what Dynamo traced. Symbolic sizes are made concrete: one program per shape, the kernels shared."""
    module, origins, inputs = with_a_view_per_use(module, example_inputs)
    if any(isinstance(x, (torch.SymInt, torch.SymFloat, torch.SymBool)) for x in inputs):
        return with_views(PerShape(module), origins)
    return with_views(compile_module(module, inputs), origins)


def compile_module(module: torch.nn.Module, inputs: Sequence[Any]) -> Callable[..., Any]:
    """A function that runs `module` on tensors shaped like `inputs`, differentiable, on the engine in force now."""
    compiler = GraphCompiler(_engine(), table(), _monitor)
    with tracing() as decompositions:
        compiled: Callable[..., Any] = aot_autograd(
            fw_compiler=compiler,
            bw_compiler=_backward(compiler),
            inference_compiler=compiler,
            decompositions=decompositions,
            partition_fn=_partition,
        )(module, inputs)  # type: ignore[arg-type]
    return compiled


def _partition(joint: fx.GraphModule, inputs: Sequence[Any], **options: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Forward and backward. What a checkpoint computes again takes its keys from the forward: none is drawn twice."""
    for node in joint.graph.find_nodes(op="call_function", target=torch.ops.isobit.draw_key.default):
        node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    return default_partition(joint, inputs, **options)


def _backward(compiler: GraphCompiler) -> Callable[..., Any]:
    """The partitioner copies every draw into the backward graph; one that nothing there reads is not its own."""

    def compile_backward(module: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        drop_unread_draws(module.graph)
        return compiler(module, example_inputs)

    return compile_backward


class PerShape:
    """A module that Dynamo traced with symbolic sizes, compiled anew for each set of sizes that it is called with."""

    def __init__(self, module: fx.GraphModule) -> None:
        self.module = module
        self.compiled: dict[Any, Callable[..., Any]] = {}

    def __call__(self, *args: Any) -> Any:
        key = tuple(_layout_key(a) for a in args)
        if key not in self.compiled:
            tensors = [a for a in args if isinstance(a, torch.Tensor)]
            self.compiled[key] = compile_module(_Concrete(self.module, args), tensors)
        return self.compiled[key](*(a for a in args if isinstance(a, torch.Tensor)))


class _Concrete(torch.nn.Module):
    """`module` with the arguments that are not tensors fixed to the values they have in `args`."""

    def __init__(self, module: torch.nn.Module, args: Sequence[Any]) -> None:
        super().__init__()
        self.module = module
        self.fixed = [None if isinstance(a, torch.Tensor) else a for a in args]

    def forward(self, *tensors: torch.Tensor) -> Any:
        given = iter(tensors)
        return self.module(*(next(given) if f is None else f for f in self.fixed))


def _layout_key(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return x.dtype, x.shape, x.stride(), x.requires_grad
    return x


def _engine() -> Engine:
    layer = active()
    options = layer.options if layer else ExactOptions()
    return override_for(options.engine).engine


_OUTSIDE = HoleMonitor()  # holes of compiled code that runs while the eager layer is off


def _monitor() -> HoleMonitor:
    layer = active()
    return layer.monitor if layer else _OUTSIDE
