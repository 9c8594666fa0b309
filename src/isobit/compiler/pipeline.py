"""The compiler: graph and layouts in, kernel calls out, through one visible list of passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from isobit.compiler.contractions import lower_contraction_group
from isobit.compiler.fuse import Group, fuse
from isobit.compiler.in_place import in_place_pairs
from isobit.compiler.lower import Context, Launch, Lowered, lower_nest
from isobit.compiler.outputs import settle
from isobit.compiler.simplify import (
    Program,
    drop_dead,
    drop_unit_axes,
    read_through_views,
    reshapes_to_views,
    start,
)
from isobit.compiler.storage import plan, stored_members
from isobit.ir.graph import Graph
from isobit.ir.layout import Layout

PASSES: tuple[Callable[[Program], Program], ...] = (
    drop_dead,
    drop_unit_axes,
    reshapes_to_views,
    drop_unit_axes,
    read_through_views,
    drop_dead,
)
"""Graph to graph, in order; then `settle`, `fuse`, `plan` and `lower`."""


@dataclass(frozen=True)
class Plan:
    """Launches in order, a barrier between them. Slots: inputs, outputs, the arena.

    The arena holds `arena_bytes` of planned temporaries and then `workspace_bytes` that launches use in turn. For the
    pairs (input, output) in `in_place` one piece of memory may be both.
    """

    launches: tuple[Launch, ...]
    n_inputs: int
    n_outputs: int
    arena_bytes: int
    workspace_bytes: int
    in_place: frozenset[tuple[int, int]]

    @property
    def arena_slot(self) -> int:
        return self.n_inputs + self.n_outputs


def compile_graph(graph: Graph, inputs: tuple[Layout, ...], outputs: tuple[Layout, ...]) -> Plan:
    """The kernel calls that compute `graph` for tensors that lie in memory as `inputs` and `outputs` say.

    Raises ValueError if the layouts do not fit the graph.
    """
    _check(graph, inputs, outputs)
    program = start(graph)
    for transform in PASSES:
        program = transform(program)
    program = settle(program, inputs, outputs)
    groups = fuse(program)
    storage, arena = plan(program, groups, inputs, outputs)
    context = Context(program, storage, stored_members(program, groups), len(inputs) + len(outputs), arena)
    lowered = [_lower(g, context) for g in groups]
    launches = tuple(launch for low in lowered for launch in low.launches)
    workspace = max((low.workspace for low in lowered), default=0)
    pairs = in_place_pairs(launches, inputs, outputs)
    return Plan(launches, len(inputs), len(outputs), arena, workspace, pairs)


def _lower(group: Group, context: Context) -> Lowered:
    return lower_contraction_group(group, context) if group.contract else lower_nest(group, context)


def _check(graph: Graph, inputs: tuple[Layout, ...], outputs: tuple[Layout, ...]) -> None:
    if len(inputs) != graph.n_inputs or len(outputs) != len(graph.outputs):
        raise ValueError(
            f"the graph has {graph.n_inputs} inputs and {len(graph.outputs)} outputs; "
            f"layouts were given for {len(inputs)} and {len(outputs)}"
        )
    for k, (i, layout) in enumerate(zip(graph.outputs, outputs, strict=True)):
        node = graph.nodes[i]
        if (node.dtype, node.shape) != (layout.dtype, layout.shape):
            raise ValueError(f"output {k} ({node.origin}) is {node.dtype}{node.shape}, its layout {layout}")
