"""`isobit.Checkpoint`: stop at any step, go on later, and the result is that of a run that never stopped."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from weakref import finalize

from isobit.torch.checkpoint_file import CheckpointError, read, write
from isobit.torch.checkpoint_parts import LoaderPart, part
from isobit.torch.checkpoint_values import Encoder, decode
from isobit.torch.checkpoint_watch import saved, to_load
from isobit.torch.generators import set_shared_states, shared_states
from isobit.torch.loader import LOADER_LAW


class Checkpoint:
    """Saves and restores all that the next step depends on, in one file.

    Each part, under a name of your choice, is a model (or an average of one), an optimizer, a scheduler, a GradScaler
    or another object with `state_dict` and `load_state_dict`, a random generator, or a `DataLoader`. The states of
    torch, NumPy's legacy generator and `random` always belong to it; so do `values`, a dict for your own plain values
    and tensors. As long as a loader lives that is a part, loaders give the same samples with any number of workers,
    with or without `isobit.exact()`::

        checkpoint = isobit.Checkpoint(model=model, optimizer=optimizer, loader=loader)
        checkpoint.load("run.ckpt")
        for epoch in checkpoint.epochs(10):
            for x, y in loader:
                ...
                checkpoint.save("run.ckpt")

    Saved inside the loop over the loader, the run goes on with the next batch of that epoch; the batches before are not
    fetched again. Outside that loop, save last in the epoch's body: then the next epoch follows.
    """

    def __init__(self, **parts: Any) -> None:
        self.values: dict[str, Any] = {}
        self._parts = {name: part(name, owner, LOADER_LAW) for name, owner in parts.items()}
        self._loaders = [p for p in self._parts.values() if isinstance(p, LoaderPart)]
        self._epoch = 0
        self._begun: list[int] | None = None  # iterations of the loaders before this epoch
        for loader in (owner for name, owner in parts.items() if isinstance(self._parts[name], LoaderPart)):
            LOADER_LAW.install()
            finalize(loader, LOADER_LAW.remove).atexit = False  # nobody need keep a checkpoint that has been loaded

    def epochs(self, count: int) -> Iterator[int]:
        """The numbers of the epochs that are left of `count`, the one that was interrupted first."""
        if not self._loaders:
            raise CheckpointError(
                "epochs() needs a DataLoader among the parts, to know whether an epoch is finished; "
                "without one keep the epoch in checkpoint.values"
            )
        return self._epochs(count)

    def _epochs(self, count: int) -> Iterator[int]:
        while self._epoch < count:
            self._begun = [loader.begun for loader in self._loaders]
            yield self._epoch
            if self._begun is not None:  # otherwise load() has said inside the epoch which one is next
                self._begun = None
                self._epoch += 1

    def _next_epoch(self) -> int:
        """The epoch that the next step belongs to."""
        begun = self._begun is not None and self._begun != [loader.begun for loader in self._loaders]
        return self._epoch + int(begun and not any(loader.in_the_middle for loader in self._loaders))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file, or raises CheckpointError and leaves what was there; a kill leaves the old or the new."""
        encoder = Encoder()
        content = {
            "parts": {name: encoder.encode(p.state(), name) for name, p in self._parts.items()},
            "values": encoder.encode(self.values, "values"),
            "random": encoder.encode(shared_states(LOADER_LAW.sources), "random"),
            "epoch": self._next_epoch(),
        }
        saved(Path(path), write(Path(path), content, encoder.tensors))

    def load(self, path: str | os.PathLike[str]) -> bool:
        """Restores all parts; False where there is no such file, which is how a run begins.

        Raises CheckpointError, before any part is touched, where the file is damaged or does not belong to these parts.
        """
        file = to_load(Path(path))
        if file is None:
            return False
        try:
            content, tensors = read(file)
        except FileNotFoundError:
            return False
        states = {name: decode(tree, tensors) for name, tree in content["parts"].items()}
        values, shared = decode(content["values"], tensors), decode(content["random"], tensors)
        self._check(file, states, shared)
        for name, p in self._parts.items():
            try:
                p.restore(states[name])
            except Exception as error:
                raise CheckpointError(f"{file}: {name} refused its state; others may have theirs: {error}") from error
        self.values.clear()
        self.values.update(values)
        self._epoch, self._begun = content["epoch"], None
        set_shared_states(LOADER_LAW.sources, shared)
        return True

    def _check(self, file: Path, states: Mapping[str, Any], shared: Mapping[str, Any]) -> None:
        """Whether all of it can be restored."""
        if self._parts.keys() != states.keys():
            there, here = ", ".join(sorted(states)), ", ".join(sorted(self._parts))
            raise CheckpointError(f"{file}: the file has the parts {there}; this Checkpoint has {here}")
        for name, p in self._parts.items():
            problem = p.problem(states[name])
            if problem is not None:
                raise CheckpointError(f"{file}: {name}: {problem}")
        for source in LOADER_LAW.sources:
            if source.name not in shared:
                raise CheckpointError(f"{file}: holds no random state of {source.name}")
