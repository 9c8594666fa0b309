"""One view per use of an input, so that a compiled region's gradients add up in eager autograd's order.

Eager autograd adds the gradients of a tensor one use after the other, from the last use to the first. A region that
returned their sum would change that order for a tensor that is used outside of it, too: (a + b) + c is not a + (b + c).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx


def with_a_view_per_use(
    module: fx.GraphModule, inputs: Sequence[Any]
) -> tuple[fx.GraphModule, tuple[int, ...], list[Any]]:
    """A module where every use but the last of a differentiable input of `module` has an input of its own.

    Returns it, which inputs the new ones are views of, and `inputs` with them.
    """
    chosen = [k for k, (n, x) in enumerate(zip(_placeholders(module), inputs, strict=True)) if _splits(n, x)]
    if not chosen:
        return module, (), list(inputs)
    copy = _copy(module)
    nodes = _placeholders(copy)
    end, origins = nodes[-1], []
    for k in chosen:
        made = _split(copy.graph, nodes[k], end)
        end = made[-1]
        origins += [k] * len(made)
    copy.recompile()
    return copy, tuple(origins), [*inputs, *(_stand_in(nodes[k], inputs[k]) for k in origins)]


def _placeholders(module: fx.GraphModule) -> list[fx.Node]:
    return list(module.graph.find_nodes(op="placeholder"))


def _splits(node: fx.Node, x: object) -> bool:
    """Whether the input is differentiable, used more than once, and left as it is."""
    differentiable = isinstance(x, torch.Tensor) and x.requires_grad and torch.is_grad_enabled()
    return differentiable and sum(_count(u, node) for u in node.users) > 1 and not _is_overwritten(node)


def _copy(module: fx.GraphModule) -> fx.GraphModule:
    """A copy with what Dynamo has noted; Dynamo goes on using its own graph."""
    graph = fx.Graph()
    known: dict[fx.Node, fx.Node] = {}
    graph.output(graph.graph_copy(module.graph, known))
    copy = fx.GraphModule(module, graph)
    copy.meta = module.meta
    copy._param_name_to_source = getattr(module, "_param_name_to_source", {})  # type: ignore[assignment]
    for old, new in known.items():
        if hasattr(old, "_dynamo_source"):
            new._dynamo_source = old._dynamo_source
    return copy


def with_views(function: Callable[..., Any], origins: Sequence[int]) -> Callable[..., Any]:
    """`function` called with its arguments and the views."""
    if not origins:
        return function

    def run(*args: Any) -> Any:
        return function(*args, *[_view(args[k]) for k in origins])

    return run


def _view(x: torch.Tensor) -> torch.Tensor:
    return x.view_as(x)


def _stand_in(node: fx.Node, x: torch.Tensor) -> torch.Tensor:
    """What a view looks like to the tracer, which takes its own fake tensors as they are."""
    known: torch.Tensor = node.meta.get("example_value", x)
    return known.detach().requires_grad_()


def _split(graph: fx.Graph, node: fx.Node, end: fx.Node) -> list[fx.Node]:
    """New placeholders behind `end` for all uses of `node` but the one whose gradient eager autograd takes first."""
    uses = [user for user in graph.nodes if user in node.users for _ in range(_count(user, node))]
    made: list[fx.Node] = []
    for user in dict.fromkeys(uses):
        n = uses.count(user) - (user is uses[-1])  # the last one's gradient comes first, and needs no view
        new: list[fx.Node] = []
        for _ in range(n):
            with graph.inserting_after(made[-1] if made else end):
                made.append(graph.placeholder(f"{node.name}_use_{len(made)}"))
            made[-1]._dynamo_source = None  # it comes from no name of the user's
            made[-1].meta = {k: v for k, v in node.meta.items() if k in ("val", "example_value")}
            new.append(made[-1])
        _replace(user, node, ([node] if user is uses[-1] else []) + new[::-1])
    return made


def _count(user: fx.Node, node: fx.Node) -> int:
    found: list[fx.Node] = []
    fx.map_arg((user.args, user.kwargs), lambda n: found.append(n) if n is node else None)
    return len(found)


def _replace(user: fx.Node, node: fx.Node, by: Sequence[fx.Node]) -> None:
    """The uses of `node` in `user`, in order, become those of `by`."""
    turn = iter(by)
    args, kwargs = fx.map_arg((user.args, user.kwargs), lambda n: next(turn) if n is node else n)
    user.args, user.kwargs = args, kwargs


def _is_overwritten(node: fx.Node) -> bool:
    """Whether something may write into the input: then its views must stay one tensor."""
    return any(map(_may_write, node.users))


def _may_write(user: fx.Node) -> bool:
    name = user.target if isinstance(user.target, str) else getattr(user.target, "__name__", "")
    if name.endswith("_") and not name.endswith("__"):
        return True
    return name in ("setitem", "iadd", "isub", "imul", "itruediv") or user.kwargs.get("out") is not None
