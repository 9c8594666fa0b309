"""What a process that a script starts does first: it waits. When PyTorch is imported, and only then, the exact
arithmetic is switched on; the generators of `random` and NumPy are seeded when these are imported.

A process that imports none of them pays for this module alone, so it needs no more of the standard library than Python
itself has loaded by then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Then = Callable[[ModuleType], None]


def wait_for_imports(config: str) -> None:
    """From now on, importing PyTorch, `random` or NumPy does what `config` says (cli/subprocesses.py)."""
    found: list[Any] = []

    def seeds() -> Any:
        if not found:
            from isobit.seeds import seeds_of_child

            found.append(seeds_of_child(config))
        return found[0]

    def torch_imported(module: ModuleType) -> None:
        from isobit.cli.subprocesses import begin

        begin(config)

    modules: dict[str, Then] = {
        "random": lambda module: seeds().seed_random(module),
        "numpy.random.bit_generator": lambda module: seeds().seed_bit_generators(module),
        "numpy.random.mtrand": lambda module: seeds().seed_legacy_numpy(module),
        "torch": torch_imported,
    }
    for name in modules.keys() & sys.modules.keys():
        modules.pop(name)(sys.modules[name])
    sys.meta_path.insert(0, _Waiting(modules))


class _Waiting:
    """In `sys.meta_path`: once a module in `modules` has been imported, calls what waits for it."""

    def __init__(self, modules: dict[str, Then]) -> None:
        self._modules = modules

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        then = self._modules.pop(name, None)
        if then is None:
            return None
        others = (finder.find_spec(name, path, target) for finder in list(sys.meta_path) if finder is not self)
        spec: Any = next((spec for spec in others if spec is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Then(spec.loader, then)
        found: ModuleSpec | None = spec
        return found


class _Then:
    """A loader that calls `then` once its module has run. The module has its own loader again by then."""

    def __init__(self, loader: Any, then: Then) -> None:
        self._loader = loader
        self._then = then

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._then(module)
