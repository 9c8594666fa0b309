"""The rooms of docs/design.md: who may import whom, found by reading every module's syntax tree."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "isobit"
ROOMS = (
    "arithmetic", "ir", "operators", "compiler", "codegen", "runtime", "torch", "record", "artifact", "cli",
)  # fmt: skip
MAX_LINES = 500

# Which room may import a package from outside; a package that is not named here needs a line of its own.
OUTSIDE: dict[str, frozenset[str]] = {
    "numpy": frozenset(ROOMS) - {"cli"},
    "blake3": frozenset({"arithmetic", "codegen", "runtime", "torch", "record", "artifact"}),
    "xxhash": frozenset({"arithmetic", "torch", "record", "artifact"}),
    "llvmlite": frozenset({"codegen", "runtime"}),
    "torch": frozenset({"torch"}),
    "typer": frozenset({"cli"}),
    "click": frozenset({"cli"}),
    "rich": frozenset({"cli"}),
    "jinja2": frozenset({"cli"}),
    "mlflow": frozenset({"cli"}),
    "tensorboard": frozenset({"cli"}),
    "safetensors": frozenset({"torch", "record", "artifact"}),
    "ziglang": frozenset({"codegen", "artifact"}),
}

# Modules that run before any room: the package itself, and the hook that a worker process starts with.
STARTUP = frozenset({"isobit", "isobit.startup", "isobit.hook.sitecustomize"})
# The standard library alone, for the processes that a script starts: every room may use it.
NO_ROOM = frozenset({"isobit.seeds"})

# Rooms that must not be reached from a room that could reach them by order alone.
FORBIDDEN = {
    "record": frozenset({"codegen", "runtime", "torch"}),  # reads events and files: neither torch nor LLVM
}

# (module, imported): an import inside a function, with the reason it must stand there.
LATE_IMPORTS: dict[tuple[str, str], str] = {
    ("isobit.startup", "isobit.seeds"): "a process that imports no generator need not pay for it",
    ("isobit.startup", "isobit.cli.subprocesses"): "it imports PyTorch, so only where the process has done so",
    (
        "isobit.cli.groups",
        "import_module",
    ): "a command's own module, when it is asked for: the others need NumPy, Jinja2",
    ("isobit.cli.main", "importlib.metadata"): "it imports a mail parser, which only --version needs",
    ("isobit.cli.listing", "isobit.cli.painted"): "Rich, which a list that goes to another program does without",
    ("isobit.cli.commands_records", "isobit.cli.steps_view"): "NumPy doubles the start of every other view of a record",
}


@dataclass(frozen=True)
class Import:
    """One imported module, by its absolute name, and the line where it stands."""

    target: str
    line: int
    in_function: bool
    members: tuple[str, ...] = ()  # what `from target import …` names: submodules, perhaps
    for_types: bool = False  # under `if TYPE_CHECKING`: a tie between rooms, though it does not run


def absolute(module: str, node: ast.ImportFrom, is_package: bool) -> str:
    """The absolute name behind ``from ..a import b`` in `module`."""
    if node.level == 0:
        return node.module or ""
    parts = module.split(".")
    base = parts[: len(parts) - node.level + (1 if is_package else 0)]
    return ".".join([*base, *([node.module] if node.module else [])])


def imports(module: str, tree: ast.Module, is_package: bool) -> Iterator[Import]:
    """Every import, wherever it stands."""
    functions = within(tree, lambda n: isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))
    typing_only = within(tree, lambda n: isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n.test))
    for node in ast.walk(tree):
        where = (id(node) in functions, id(node) in typing_only)
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, where[0], (), where[1])
        elif isinstance(node, ast.ImportFrom):
            base = absolute(module, node, is_package)
            members = tuple(f"{base}.{alias.name}" for alias in node.names)
            for name in named(base, node):
                yield Import(name, node.lineno, where[0], members, where[1])


def within(tree: ast.Module, chosen: Callable[[ast.AST], bool]) -> set[int]:
    """The ids of all nodes at or below a node that `chosen` picks."""
    return {id(child) for node in ast.walk(tree) if chosen(node) for child in ast.walk(node)}


def named(base: str, node: ast.ImportFrom) -> Iterator[str]:
    """``from isobit import torch`` names a room; ``from isobit.ir import Graph`` a member of one."""
    if base == "isobit":
        yield from (f"isobit.{alias.name}" for alias in node.names)
    else:
        yield base


def room_of(name: str) -> str | None:
    """The room that a module of this package lies in; None for the package's own top modules."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ROOMS else None


def violations(module: str, source: str, is_package: bool = False) -> list[str]:
    """All that the module `module` breaks, one line each."""
    tree = ast.parse(source)
    found = [f"{module}: {n} lines (at most {MAX_LINES - 1})"] if (n := source.count("\n")) >= MAX_LINES else []
    for item in imports(module, tree, is_package):
        found += [f"{module}:{item.line}: {why}" for why in judge(module, item)]
    calls = [*environment_reads(module, tree), *dynamic_imports(module, tree)]
    return found + [f"{module}:{line}: {why}" for line, why in calls]


def judge(module: str, item: Import) -> Iterator[str]:
    """Why this import may not stand in this module."""
    if item.in_function and (module, item.target) not in LATE_IMPORTS:
        yield f"imports {item.target} inside a function"
    top = item.target.split(".")[0]
    room = room_of(module)
    if top == "isobit":
        yield from judge_inside(module, room, room_of(item.target), item.target)
    elif top not in sys.stdlib_module_names and room not in OUTSIDE.get(top, frozenset()):
        yield f"{room or module} may not import {top}"


def judge_inside(module: str, room: str | None, target: str | None, name: str) -> Iterator[str]:
    """The import order of the rooms."""
    if module in STARTUP:
        return
    if room is None:
        yield f"stands in no room and imports {name}"
    elif target is None and name not in {"isobit.__version__", *NO_ROOM}:
        yield f"imports {name}, which is in no room (the version: from isobit import __version__)"
    elif target in FORBIDDEN.get(room, frozenset()):
        yield f"{room} may not import {target}"
    elif target is not None and ROOMS.index(target) > ROOMS.index(room):
        yield f"{room} comes before {target} and may not import it"


def environment_reads(module: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Uses of os.environ and os.getenv outside cli/ and the start-up hook."""
    if room_of(module) == "cli" or module in STARTUP:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in {"environ", "environb", "getenv", "getenvb"}:
            if isinstance(node.value, ast.Name) and node.value.id == "os":
                yield node.lineno, f"touches os.{node.attr}: only cli/ reads the environment"
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            for alias in node.names:
                if alias.name in {"environ", "environb", "getenv", "getenvb"}:
                    yield node.lineno, f"imports os.{alias.name}: only cli/ reads the environment"


def dynamic_imports(module: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Calls of import_module and __import__, which would pass by every other rule."""
    if module == "isobit":
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in {"import_module", "__import__"} and (module, called) not in LATE_IMPORTS:
                yield node.lineno, f"calls {called}"


def reachable(start: str) -> dict[str, str]:
    """All modules that importing `start` imports, each with the module that asks for it first."""
    known = dict(modules())
    found, todo = {start: start}, [start]
    while todo:
        name = todo.pop()
        for target in runs(name, known) if name in known else ():
            if target not in found and target != "isobit":  # whose own imports wait for a name to be used
                found[target] = name
                todo.append(target)
    return found


def runs(name: str, known: dict[str, Path]) -> Iterator[str]:
    """The modules that importing `name` asks for, and the packages above each."""
    path = known[name]
    for item in imports(name, ast.parse(path.read_text("utf-8")), path.name == "__init__.py"):
        if not item.for_types:
            yield from (item.target, *packages_above(item.target))
            yield from (member for member in item.members if member in known)


def packages_above(name: str) -> list[str]:
    """Importing a.b.c runs a and a.b too."""
    parts = name.split(".")
    return [".".join(parts[:n]) for n in range(1, len(parts))]


@cache
def modules() -> list[tuple[str, Path]]:
    """Every module of the package by its dotted name."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        found.append((".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return found


@pytest.mark.parametrize(("module", "path"), modules(), ids=[name for name, _ in modules()])
def test_module_keeps_to_its_room(module: str, path: Path) -> None:
    assert violations(module, path.read_text("utf-8"), path.name == "__init__.py") == []


def test_every_room_is_there() -> None:
    folders = {p.parent.name for p in SOURCE.glob("*/__init__.py")}
    assert folders == set(ROOMS)


def test_the_public_names_are_what_the_package_says() -> None:
    import isobit

    assert set(isobit._HOME) | {"__version__"} == set(isobit.__all__)
    for name, home in isobit._HOME.items():
        assert home in {module for module, _ in modules()}, f"isobit.{name} should come from {home}"


def test_an_artifact_loads_with_numpy_alone() -> None:
    assert "isobit.artifact.load" in dict(modules())
    found = reachable("isobit.artifact.load")
    outside = {name.split(".")[0] for name in found} - set(sys.stdlib_module_names) - {"isobit"}
    reasons = {name: found[name] for name in found if name.split(".")[0] in outside}
    assert outside <= {"numpy"}, reasons


def test_importing_the_package_imports_neither_torch_nor_llvm() -> None:
    code = "import isobit, sys; print([m for m in ('torch', 'llvmlite', 'numpy') if m in sys.modules])"
    environment = {"PYTHONPATH": str(SOURCE.parent), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


BAD = [
    ("isobit.ir.graph", "from isobit.compiler import fuse\n", "ir comes before compiler"),
    ("isobit.ir.graph", "import isobit.compiler.fuse\n", "ir comes before compiler"),
    ("isobit.ir.graph", "from ..compiler import fuse\n", "ir comes before compiler"),
    ("isobit.ir.graph", "from isobit import compiler\n", "ir comes before compiler"),
    ("isobit.artifact.load", "import torch\n", "artifact may not import torch"),
    ("isobit.artifact.load", "from torch.nn import Module\n", "artifact may not import torch"),
    ("isobit.torch.eager", "import llvmlite.binding as llvm\n", "torch may not import llvmlite"),
    ("isobit.arithmetic.exp", "import gmpy2\n", "arithmetic may not import gmpy2"),
    ("isobit.record.store", "import numpy\nfrom isobit.torch import table\n", "record may not import torch"),
    ("isobit.record.store", "from isobit.runtime import program\n", "record may not import runtime"),
    ("isobit.compiler.fuse", "def f():\n    import isobit.ir\n", "inside a function"),
    ("isobit.compiler.fuse", "class A:\n    async def f(self):\n        import json\n", "inside a function"),
    ("isobit.runtime.cache", "import os\nx = os.environ['HOME']\n", "touches os.environ"),
    ("isobit.runtime.cache", "import os\nx = os.getenv('HOME')\n", "touches os.getenv"),
    ("isobit.runtime.cache", "from os import environ as e\n", "imports os.environ"),
    ("isobit.runtime.cache", "import importlib\nimportlib.import_module('torch')\n", "calls import_module"),
    ("isobit.helpers", "import isobit.ir\n", "stands in no room"),
    ("isobit.runtime.cache", "import isobit.helpers\n", "in no room"),
    ("isobit.ir.graph", "x = 0\n" * MAX_LINES, "lines (at most"),
]  # fmt: skip


@pytest.mark.parametrize(("module", "source", "reason"), BAD, ids=range(len(BAD)))
def test_a_bad_module_is_caught(module: str, source: str, reason: str) -> None:
    assert [v for v in violations(module, source) if reason in v], f"not caught: {source!r}"


GOOD = [
    ("isobit.compiler", True, "from .fuse import fuse\nfrom ..ir import graph\n"),
    ("isobit.compiler.fuse", False, "import os\nimport numpy\nfrom isobit.ir import graph\nx = os.sep\n"),
    ("isobit.torch.eager", False, "import torch.fx\nfrom torch import nn\nfrom isobit.runtime import p\n"),
    ("isobit.codegen.emit", False, "from llvmlite import ir\n"),
    ("isobit.artifact.export", False, "from isobit.torch import table\nfrom isobit import __version__\n"),
    ("isobit.cli.main", False, "import os\nimport typer\nx = os.environ.get('X')\n"),
    ("isobit.ir.graph", False, "x = 0\n" * (MAX_LINES - 1)),
]  # fmt: skip


@pytest.mark.parametrize(("module", "is_package", "source"), GOOD, ids=range(len(GOOD)))
def test_a_good_module_passes(module: str, is_package: bool, source: str) -> None:
    assert violations(module, source, is_package) == []
