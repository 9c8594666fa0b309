"""What an operator's schema says about each argument: tensor, run-time number, or attribute of the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any

import torch


class Kind(Enum):
    """TENSOR slots may also receive a Python number. NUMBER slots are run-time numbers; the rest shapes the graph."""

    TENSOR = "tensor"
    TENSORS = "tensors"
    NUMBER = "number"
    GENERATOR = "generator"
    ATTRIBUTE = "attribute"


_KINDS = {
    "Tensor": Kind.TENSOR,
    "Optional[Tensor]": Kind.TENSOR,
    "List[Tensor]": Kind.TENSORS,
    "List[Optional[Tensor]]": Kind.TENSORS,
    "Optional[List[Tensor]]": Kind.TENSORS,
    "number": Kind.NUMBER,
    "Optional[number]": Kind.NUMBER,
    "float": Kind.NUMBER,
    "Optional[float]": Kind.NUMBER,
    "Generator": Kind.GENERATOR,
    "Optional[Generator]": Kind.GENERATOR,
}


@dataclass(frozen=True)
class Slot:
    """One argument. `written` marks what the operator mutates, `is_out` an `out=` argument."""

    name: str
    kind: Kind
    type: str
    default: Any
    keyword: bool
    written: bool
    is_out: bool


@dataclass(frozen=True)
class Signature:
    """All arguments of an overload, in schema order."""

    overload: Any
    slots: tuple[Slot, ...]
    returns: int

    @property
    def name(self) -> str:
        """`aten::add.Tensor`, or `aten::mm` for a default overload."""
        return str(self.overload._schema.name) + (f".{o}" if (o := self.overload._schema.overload_name) else "")

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The value of every slot, defaults filled in."""
        values = list(args)
        for slot in self.slots[len(values) :]:
            values.append(kwargs.get(slot.name, slot.default))
        return values

    def unbind(self, values: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """(args, kwargs) that pass `values`, the inverse of `bind`."""
        pairs = list(zip(self.slots, values, strict=True))
        return tuple(v for s, v in pairs if not s.keyword), {s.name: v for s, v in pairs if s.keyword}

    def core(self) -> tuple[tuple[str, str], ...]:
        """Names and types of what goes in, `out=` aside: equal for the variants of one operator."""
        return tuple((s.name, s.type) for s in self.slots if not s.is_out)


@cache
def signature(overload: Any) -> Signature:
    """The signature of an OpOverload."""
    schema = overload._schema
    return Signature(overload, tuple(_slot(a) for a in schema.arguments), len(schema.returns))


def _slot(a: Any) -> Slot:
    type_name = str(a.type)
    written = a.alias_info is not None and a.alias_info.is_write
    default = a.default_value if a.has_default_value() else None
    kind = _KINDS.get(type_name, Kind.ATTRIBUTE)
    return Slot(a.name, kind, type_name, default, a.kwarg_only, written, written and a.is_out)


def overload_of(name: str) -> Any:
    """The OpOverload called `name` ("aten::add.Tensor", or "add.Tensor" for short)."""
    namespace, _, rest = name.rpartition("::")
    packet, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace or "aten"), packet), overload or "default")


def has_overload(name: str) -> bool:
    """Whether this version of PyTorch has the overload."""
    try:
        overload_of(name)
    except AttributeError:
        return False
    return True


def overloads(packet: str, namespace: str = "aten") -> list[Any]:
    """Every overload of an operator name; none where it does not exist."""
    found = getattr(getattr(torch.ops, namespace), packet, None)
    return [getattr(found, o) for o in found.overloads()] if found is not None else []


def variants(overload: Any, in_place: str | None = None) -> list[Any]:
    """The in-place and `out=` overloads that compute what the functional `overload` does.

    They are recognised by their arguments, as PyTorch's own code generator groups them. `in_place` names the
    in-place operator where it is not the functional name and an underscore.
    """
    mine = signature(overload)
    namespace, _, base = overload._schema.name.partition("::")
    candidates = overloads(base, namespace) + overloads(in_place or base + "_", namespace)
    return [o for o in candidates if o is not overload and _is_variant(signature(o), mine)]


def _is_variant(other: Signature, functional: Signature) -> bool:
    return any(s.written for s in other.slots) and other.core() == functional.core()
