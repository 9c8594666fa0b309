"""What graphs hold in place of PyTorch's random operators.

For each random aten operator X there is a pure `isobit::X(key, …)`, a function of its arguments alone; the key comes
from `isobit::draw_key`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import fx

from isobit.torch.library import draw_key, library
from isobit.torch.signature import Kind, Signature, overload_of, signature


def key_slots(full: Signature) -> tuple[int, ...]:
    """The slots of a random operator that its pure form keeps: all but the generator and `out=`."""
    return tuple(k for k, s in enumerate(full.slots) if s.kind is not Kind.GENERATOR and not s.is_out)


def pure_name(name: str) -> str:
    """`aten::rand.generator` → `isobit::rand__generator`."""
    return name.replace("aten::", "isobit::", 1).replace(".", "__")


def random_name(pure: str) -> str:
    """The inverse of `pure_name`; another name stays as it is."""
    return pure.replace("isobit::", "aten::", 1).replace("__", ".")


@cache
def pure_overload(name: str) -> Any:
    """`isobit::X(Tensor key, …)`, defined on first use, for the random operator `aten::X`."""
    overload, pure = overload_of(name), pure_name(name)
    short = pure.removeprefix("isobit::")
    library().define(f"{short}({_pure_arguments(overload)}) -> {_returns(overload)}")

    none = {s.name: None for s in signature(overload).slots if s.kind is Kind.GENERATOR}

    def fake(key: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return overload(*args, **kwargs, **none)

    torch.library.register_fake(pure, fake, lib=library())
    return overload_of(pure)


def _pure_arguments(overload: Any) -> str:
    text = str(overload._schema)
    inside = text[text.index("(") + 1 : text.rindex(") -> ")]
    parts = [p for p in _split(inside) if not p.startswith("Generator")]
    if parts and parts[-1] == "*":
        parts.pop()
    return ", ".join(["Tensor key", *parts])


def _split(arguments: str) -> list[str]:
    """Top-level commas only: defaults such as [0, 1] hold some, too."""
    parts, depth, start = [], 0, 0
    for k, char in enumerate(arguments + ","):
        depth += (char in "[(") - (char in "])")
        if char == "," and not depth:
            parts.append(arguments[start:k].strip())
            start = k + 1
    return [p for p in parts if p]


def _returns(overload: Any) -> str:
    text = str(overload._schema)
    return text[text.rindex(" -> ") + 4 :]


def decomposition(name: str) -> Callable[..., Any]:
    """What a tracer puts in place of the random operator `name`: a draw and the pure operator."""
    full, pure = signature(overload_of(name)), pure_overload(name)
    kept = key_slots(full)

    def decomposed(*args: Any, **kwargs: Any) -> Any:
        values = full.bind(args, kwargs)
        generator = next((v for s, v in zip(full.slots, values, strict=True) if s.kind is Kind.GENERATOR), None)
        given, named = signature(pure).unbind([draw_key(generator), *(values[k] for k in kept)])
        return pure(*given, **named)

    return decomposed


def drop_unread_draws(graph: fx.Graph) -> None:
    """Removes the draws whose key nothing in `graph` reads."""
    for node in list(graph.nodes):
        if node.target is torch.ops.isobit.draw_key.default and not node.users:
            graph.erase_node(node)
