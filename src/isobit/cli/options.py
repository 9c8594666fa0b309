"""Options and arguments that several commands take, and what they mean."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from isobit.record.store import Store

SCRIPT_FIRST: dict[Any, Any] = {"allow_interspersed_args": False}  # what follows SCRIPT is the script's

STORE = "ISOBIT_STORE"  # names the store, as `isobit --store` does: for scripts that start isobit themselves, too
_BRACES = re.compile(r"\{(.+)\}(\.\.\.)?")


class Command(TyperCommand):
    """A command whose usage line names what must be given without braces: ``isobit run [OPTIONS] SCRIPT [ARGS]...``."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The words after the command's name."""
        return [_BRACES.sub(r"\1\2", piece) for piece in super().collect_usage_pieces(ctx)]


def _run_names(incomplete: str) -> list[str]:
    """What the shell offers for RUN: ids, newest first. Reads names alone, so it is quick in a store of any size."""
    ids = store_here().ids()[::-1]
    return [name for name in (*(["latest"] if ids else []), *ids) if name.startswith(incomplete)]


Threads = Annotated[int | None, typer.Option(min=1, help="Threads to compute with; never changes a bit.")]
Cpu = Annotated[str | None, typer.Option(help="CPU level, such as x86-64-v3; never changes a bit.")]
Plain = Annotated[bool, typer.Option("--plain", hidden=True, help="PyTorch's own kernels.")]
Strict = Annotated[bool, typer.Option("--strict", help="A hole in the arithmetic is an error.")]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seeds every generator before the script's first line.")]
Script = Annotated[str, typer.Argument(metavar="SCRIPT", help="The Python file to run, unchanged.")]
Module = Annotated[bool, typer.Option("-m", help="SCRIPT is the name of a module, as after `python -m`.")]
Args = Annotated[list[str] | None, typer.Argument(metavar="ARGS", help="Passed to the script as they are.")]
RunName = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="An id, a unique prefix, latest, latest~1, a bundle file.", autocompletion=_run_names
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on stdout, for programs.")]


def store_here() -> Store:
    """The store that `isobit --store` names, or the one at or above the current folder."""
    named = os.environ.get(STORE)
    return Store(Path(os.path.abspath(named))) if named else Store.find(Path.cwd())
