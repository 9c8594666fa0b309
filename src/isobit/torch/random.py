"""Keys: what random operators draw from PyTorch's generator, and the operators that graphs hold in their stead.

`isobit::draw_key` has a side effect, so a graph never loses, merges or moves a draw. Beside it stands, for each random
aten operator X, a pure `isobit::X(key, …)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import fx
from torch.fx.node import has_side_effect

from isobit.torch.signature import Kind, Signature, overload_of, signature

_LOWEST = -(2**63)


def draw_key(generator: torch.Generator | None = None) -> torch.Tensor:
    """64 bits from the generator (the default one, if none is given), as a 0-d i64 tensor."""
    key: torch.Tensor = _operators().draw_key(generator)
    return key


def _draw(generator: torch.Generator | None = None) -> torch.Tensor:
    return torch.empty((), dtype=torch.int64).random_(_LOWEST, None, generator=generator)


@cache
def _library() -> torch.library.Library:
    """The `isobit` operators' library; it stays for the life of the process, as compiled graphs call into it."""
    library = torch.library.Library("isobit", "FRAGMENT")
    library.define("draw_key(Generator? generator=None) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))
    library.impl("draw_key", _draw, "CompositeExplicitAutograd")
    library.define("words(Tensor key, SymInt n) -> Tensor")
    torch.library.register_fake("isobit::draw_key", lambda generator=None: _fake(()), lib=library)
    torch.library.register_fake("isobit::words", lambda key, n: _fake((n,)), lib=library)
    has_side_effect(torch.ops.isobit.draw_key.default)
    return library


def _fake(shape: Sequence[int]) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.int64)


def prepare() -> None:
    """Defines `isobit::draw_key` and `isobit::words`, once."""
    _library()


def _operators() -> Any:
    _library()
    return torch.ops.isobit


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
    overload = overload_of(name)
    library = _library()
    short = pure_name(name).removeprefix("isobit::")
    library.define(f"{short}({_pure_arguments(overload)}) -> {_returns(overload)}")
    pure = overload_of(f"isobit::{short}")

    def fake(key: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return overload(*args, **kwargs)

    torch.library.register_fake(f"isobit::{short}", fake, lib=library)
    return pure


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
        if node.target is _operators().draw_key.default and not node.users:
            graph.erase_node(node)
