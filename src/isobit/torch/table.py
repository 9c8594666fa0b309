"""The one table of aten operators. It says for each overload what Isobit makes of it.

    Statement       written through isobit.operators: compiled, in eager code and in graphs
    Decomposition   a Python function over other aten operators
    Pass            exact by nature (ARITHMETIC.md §1): PyTorch's own kernel runs
    Composite       PyTorch's kernel only calls other operators of this table

Everything that is not named is a hole. The in-place and `out=` variants follow from the functional entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from isobit.ir.graph import Value

Builder = Callable[..., Any]


@dataclass(frozen=True)
class Result:
    """What a statement gives back: the operator's results, and new contents of arguments it mutates, by name."""

    outputs: tuple[Value | None, ...]
    writes: Mapping[str, Value | tuple[Value | None, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    """`function(values, tensor)` raises where the tensor in slot `slot` holds what the operator must refuse.

    `values` are the arguments in schema order, tensors among them perhaps without data.
    """

    slot: int
    function: Callable[[Sequence[Any], Any], None]


@dataclass(frozen=True)
class Statement:
    """`build(call, *slots)` writes the graph; slots come in schema order, see lowering.Call.

    `static`: number slots that shape the graph. `uniform`: exact on PyTorch's kernel where all dtypes are one.
    `mutates`: arguments that the functional form overwrites. `in_place`: the in-place operator's name where it is
    not the functional one and an underscore. `random`: the first slot is the key, see random.py. `check` runs before.
    """

    name: str
    build: Builder
    static: frozenset[str] = frozenset()
    uniform: bool = False
    mutates: tuple[str, ...] = ()
    in_place: str | None = None
    random: bool = False
    check: Check | None = None

    @property
    def own(self) -> bool:
        """Whether the operator is Isobit's own: PyTorch has no kernel for it, so callers handle Unowned themselves."""
        return self.name.startswith("isobit::")


@dataclass(frozen=True)
class Decomposition:
    """`function` takes the operator's own arguments.

    `composite`: it holds above autograd, which differentiates it. `traced`: in graphs its parts stand in its place;
    otherwise the graph calls `function`.
    """

    name: str
    function: Callable[..., Any]
    composite: bool = False
    traced: bool = False


@dataclass(frozen=True)
class Pass:
    """Exact by nature, or a composite of other operators. `build` writes it as a statement in compiled graphs."""

    name: str
    build: Builder | None = None


Entry = Statement | Decomposition | Pass


class Family:
    """A part of the table under construction: decorators that file functions under overload names."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def statement(
        self, *names: str, static: Iterable[str] = (), uniform: bool = False, mutates: Iterable[str] = (),
        in_place: str | None = None, random: bool = False, check: Check | None = None,
    ) -> Callable[[Builder], Builder]:  # fmt: skip
        """Files the decorated builder as the statement of every overload in `names`."""

        def file(build: Builder) -> Builder:
            for name in names:
                entry = Statement(name, build, frozenset(static), uniform, tuple(mutates), in_place, random, check)
                self.entries.append(entry)
            return build

        return file

    def decomposition(self, *names: str, composite: bool = False, traced: bool = False) -> Callable[[Builder], Builder]:
        """Files the decorated function as the decomposition of every overload in `names`; composites are traced."""

        def file(function: Builder) -> Builder:
            self.entries += [Decomposition(n, function, composite, traced or composite) for n in names]
            return function

        return file

    def passes(self, names: str) -> None:
        """Files every overload in the white-space separated `names` as exact by nature."""
        self.entries += [Pass(n) for n in names.split()]

    def moves(self, *names: str) -> Callable[[Builder], Builder]:
        """Files the overloads as exact by nature, and the decorated builder as what they are in compiled graphs."""

        def file(build: Builder) -> Builder:
            self.entries += [Pass(n, build) for n in names]
            return build

        return file


class Table:
    """Entries by full overload name ("aten::add.Tensor")."""

    def __init__(self, families: Iterable[Family]) -> None:
        self.entries: dict[str, Entry] = {}
        for family in families:
            for entry in family.entries:
                self._file(full_name(entry.name), entry)

    def _file(self, name: str, entry: Entry) -> None:
        if name in self.entries:
            raise ValueError(f"two entries for {name}")
        self.entries[name] = entry

    def get(self, name: str) -> Entry | None:
        return self.entries.get(name)

    def __iter__(self) -> Iterator[tuple[str, Entry]]:
        return iter(self.entries.items())


def full_name(name: str) -> str:
    """`add.Tensor` → `aten::add.Tensor`; a trailing `.default` is dropped, as in PyTorch's registrations."""
    name = name.removesuffix(".default")
    return name if "::" in name else f"aten::{name}"
