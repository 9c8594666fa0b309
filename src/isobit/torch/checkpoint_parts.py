"""What a checkpoint can keep: each kind of part with its state, the check of one and the return to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from isobit.torch.generators import KINDS, Generator, generator_state, set_generator_state
from isobit.torch.loader import LoaderLaw


class Part(Protocol):
    """One part of a checkpoint."""

    def state(self) -> Any:
        """All that decides what the part does next."""

    def problem(self, state: Any) -> str | None:
        """Why this part cannot take on `state`, if it cannot."""

    def restore(self, state: Any) -> None:
        """Takes on `state`."""


class ModulePart:
    """A model; one that is compiled and one that is not have the same state."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module: torch.nn.Module = getattr(module, "_orig_mod", module)

    def state(self) -> Any:
        return self._module.state_dict()

    def problem(self, state: Mapping[str, Any]) -> str | None:
        here = self._module.state_dict()
        lacking, surplus = sorted(here.keys() - state.keys()), sorted(state.keys() - here.keys())
        if lacking or surplus:
            return f"the model is another: the file lacks {_some(lacking)} and has beyond it {_some(surplus)}"
        for name, tensor in here.items():
            if isinstance(tensor, torch.Tensor) and (saved := _kind(state[name])) != _kind(tensor):
                return f"{name} was saved as {saved} and is now {_kind(tensor)}"
        return None

    def restore(self, state: Any) -> None:
        self._module.load_state_dict(state)


class StatefulPart:
    """Anything with `state_dict` and `load_state_dict`: a scheduler, a GradScaler, a class of the script's own."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner

    def state(self) -> Any:
        return {"class": type(self._owner).__qualname__, "state": self._owner.state_dict()}

    def problem(self, state: Mapping[str, Any]) -> str | None:
        return _other_class(self._owner, state)

    def restore(self, state: Mapping[str, Any]) -> None:
        self._owner.load_state_dict(state["state"])


class OptimizerPart:
    """An optimizer, with the shapes of its parameters, by which another model shows."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer

    def state(self) -> Any:
        return {
            "class": type(self._optimizer).__qualname__,
            "shapes": self._shapes(),
            "stepped": getattr(self._optimizer, "_opt_called", False),
            "state": self._optimizer.state_dict(),
        }

    def _shapes(self) -> list[list[list[int]]]:
        return [[list(p.shape) for p in group["params"]] for group in self._optimizer.param_groups]

    def problem(self, state: Mapping[str, Any]) -> str | None:
        if state["shapes"] != self._shapes():
            return f"it was saved with parameters of the shapes {state['shapes']}, which now are {self._shapes()}"
        return _other_class(self._optimizer, state)

    def restore(self, state: Mapping[str, Any]) -> None:
        self._optimizer.load_state_dict(state["state"])
        if state["stepped"]:  # schedulers warn if they step first
            self._optimizer._opt_called = True  # type: ignore[attr-defined]


class GeneratorPart:
    """A random generator."""

    def __init__(self, generator: Generator) -> None:
        self._generator = generator

    def state(self) -> Any:
        return {"class": self._class(), "state": generator_state(self._generator)}

    def _class(self) -> str:
        inner = getattr(self._generator, "bit_generator", self._generator)
        return f"{type(self._generator).__qualname__} of {type(inner).__qualname__}"

    def problem(self, state: Mapping[str, Any]) -> str | None:
        return None if state["class"] == self._class() else f"it was a {state['class']} and is now a {self._class()}"

    def restore(self, state: Mapping[str, Any]) -> None:
        set_generator_state(self._generator, state["state"])


class LoaderPart:
    """A DataLoader: where it is in which epoch."""

    def __init__(self, loader: DataLoader[Any], law: LoaderLaw) -> None:
        self._loader = loader
        self._place = law.place(loader)

    @property
    def in_the_middle(self) -> bool:
        """Whether the next batch belongs to an iteration that has begun."""
        return self._place.in_the_middle

    @property
    def begun(self) -> int:
        """How many iterations have begun."""
        return self._place.begun

    def state(self) -> Any:
        return self._place.state(self._loader)

    def problem(self, state: Any) -> str | None:
        return self._place.problem(self._loader, state)

    def restore(self, state: Any) -> None:
        self._place.resume(self._loader, state)


def part(name: str, owner: Any, law: LoaderLaw) -> Part:
    """The part for an object. Raises TypeError for one that has no state to be kept."""
    stateful = hasattr(owner, "state_dict") and hasattr(owner, "load_state_dict")
    if isinstance(owner, DataLoader) and not stateful:
        return LoaderPart(owner, law)
    if isinstance(owner, torch.nn.Module):
        return ModulePart(owner)
    if isinstance(owner, Optimizer):
        return OptimizerPart(owner)
    if isinstance(owner, KINDS):
        return GeneratorPart(owner)
    if not stateful:
        raise TypeError(
            f"Checkpoint({name}=…): a {type(owner).__qualname__} has no state_dict and load_state_dict; "
            "plain values belong into checkpoint.values"
        )
    return StatefulPart(owner)


def _other_class(owner: Any, state: Mapping[str, Any]) -> str | None:
    now = type(owner).__qualname__
    return None if state["class"] == now else f"it was a {state['class']} and is now a {now}"


def _kind(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return type(value).__qualname__
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:3]) or "nothing"
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown
