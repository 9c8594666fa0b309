"""The loader's law: one order and the same samples with any number of workers, however they are started.

The programs of pytorch#138989 and lightning#20679 in our own words: see the first tests.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
    random_split,
)
from torch.utils.data._utils.fetch import _MapDatasetFetcher

import isobit
from isobit.torch.generators import SOURCES, same_state, shared_states
from isobit.torch.layer import active
from isobit.torch.loader import LOADER_LAW
from isobit.torch.loader_order import COLLATION, SAMPLE, seed_words

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.fixture
def law() -> Iterator[None]:
    LOADER_LAW.install()
    yield
    LOADER_LAW.remove()


def draws() -> list[float]:
    """One number from each of the process's generators, and one more that leaves half a pair of normals behind."""
    return [float(torch.rand(())), float(torch.randn(3)[0]), np.random.rand(), np.random.randn(), random.random(), random.gauss(0, 1)]  # fmt: skip


class Augmented(Dataset[Tensor]):
    """Every sample draws from all generators."""

    def __len__(self) -> int:
        return 22

    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor([float(index), *draws()], dtype=torch.float64)


class Batched(Augmented):
    """Takes a batch at once."""

    def __getitems__(self, indices: list[int]) -> list[Tensor]:
        return [torch.tensor([float(i), *draws()], dtype=torch.float64) for i in indices]


class Lazy(Sampler[int]):
    """Draws every index from a global generator when it is asked."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __len__(self) -> int:
        return 22

    def __iter__(self) -> Iterator[int]:
        for _ in range(22):
            yield {"torch": lambda: int(torch.randint(22, ())), "numpy": lambda: np.random.randint(22), "random": lambda: random.randrange(22)}[self.kind]()  # fmt: skip


class Eager(Sampler[int]):
    """Draws in `__iter__`, not in `next`: PyTorch calls that twice if there are workers."""

    def __len__(self) -> int:
        return 22

    def __iter__(self) -> Iterator[int]:
        return iter(np.random.permutation(22).tolist())


class Private(Sampler[int]):
    """Draws every index from a generator of its own."""

    def __init__(self, rng: Any) -> None:
        self.rng = rng

    def __len__(self) -> int:
        return 22

    def __iter__(self) -> Iterator[int]:
        return (int(self.rng.integers(22)) for _ in range(22))


def noisy_collate(samples: list[Any]) -> Tensor:
    return torch.stack([torch.as_tensor(s[0] if isinstance(s, tuple) else s) for s in samples]).double() + sum(draws())


def generator(seed: int = 7) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


LOADERS: dict[str, Callable[..., DataLoader[Any]]] = {
    "in order": lambda **kw: DataLoader(Augmented(), 4, **kw),
    "shuffled": lambda **kw: DataLoader(Augmented(), 4, shuffle=True, **kw),
    "last dropped": lambda **kw: DataLoader(Augmented(), 4, shuffle=True, drop_last=True, **kw),
    "generator": lambda **kw: DataLoader(Augmented(), 4, shuffle=True, generator=generator(), **kw),
    "generator of the process": lambda **kw: DataLoader(
        Augmented(), 4, sampler=RandomSampler(range(22), True, 70, torch.default_generator), **kw
    ),
    "replacement": lambda **kw: DataLoader(Augmented(), 4, sampler=RandomSampler(range(22), True, 70), **kw),
    "replacement, generator": lambda **kw: DataLoader(
        Augmented(), 4, sampler=RandomSampler(range(22), True, 70, generator()), **kw
    ),
    "weighted": lambda **kw: DataLoader(Augmented(), 4, sampler=WeightedRandomSampler([1.0, 2.0] * 11, 22), **kw),
    "subset": lambda **kw: DataLoader(Augmented(), 4, sampler=SubsetRandomSampler(range(3, 20)), **kw),
    "split": lambda **kw: DataLoader(random_split(Augmented(), [15, 7], generator())[0], 4, shuffle=True, **kw),
    "batches at once": lambda **kw: DataLoader(Batched(), 4, shuffle=True, **kw),
    "no batches": lambda **kw: DataLoader(Augmented(), None, shuffle=True, **kw),
    "batch sampler": lambda **kw: DataLoader(Augmented(), batch_sampler=BatchSampler(Lazy("torch"), 5, False), **kw),
    "lazy torch": lambda **kw: DataLoader(Augmented(), 4, sampler=Lazy("torch"), **kw),
    "lazy numpy": lambda **kw: DataLoader(Augmented(), 4, sampler=Lazy("numpy"), **kw),
    "lazy random": lambda **kw: DataLoader(Augmented(), 4, sampler=Lazy("random"), **kw),
    "eager": lambda **kw: DataLoader(Augmented(), 4, sampler=Eager(), **kw),
    "eager, no batches": lambda **kw: DataLoader(Augmented(), None, sampler=Eager(), **kw),
    "private": lambda **kw: DataLoader(Augmented(), 4, sampler=Private(np.random.default_rng(3)), **kw),
    "collation": lambda **kw: DataLoader(Augmented(), 4, shuffle=True, collate_fn=noisy_collate, **kw),
    "collation alone": lambda **kw: DataLoader(TensorDataset(torch.arange(22)), 4, collate_fn=noisy_collate, **kw),
}  # fmt: skip


def run(make: Callable[..., DataLoader[Any]], epochs: int = 3, leave: int = -1, **how: Any) -> list[float]:
    """All numbers of some epochs, with draws of the loop's own between the batches; the first epoch may be left early."""
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    loader, seen = make(**how), []
    for epoch in range(epochs):
        for k, batch in enumerate(loader):
            seen += [*batch.reshape(-1).tolist(), *draws()]
            if epoch == 0 and k == leave:
                break
    own = [loader.generator, getattr(loader.sampler, "generator", None)]
    return seen + draws() + [float(torch.rand((), generator=g)) for g in own if g is not None]


def test_plain_pytorch_gives_other_samples_with_other_numbers_of_workers() -> None:
    found = [tuple(run(LOADERS["in order"], 1, num_workers=n)) for n in (0, 1, 2)]
    assert len(set(found)) == 3


def test_plain_pytorch_shuffles_otherwise_if_workers_persist() -> None:
    """The second epoch's order: no base seed is drawn before it."""

    def order(**how: Any) -> list[Any]:
        torch.manual_seed(0)
        loader = DataLoader(range(22), 4, shuffle=True, num_workers=1, **how)  # type: ignore[arg-type]
        return [b.tolist() for _ in range(2) for b in loader]

    assert order() != order(persistent_workers=True)
    LOADER_LAW.install()
    try:
        assert order() == order(persistent_workers=True)
    finally:
        LOADER_LAW.remove()


@pytest.mark.parametrize("name", LOADERS)
def test_the_number_of_workers_never_enters(law: None, name: str) -> None:
    wanted = run(LOADERS[name], 2, 1)
    for workers in (1, 2, 4) if name == "shuffled" else (2,):
        assert run(LOADERS[name], 2, 1, num_workers=workers, persistent_workers=workers == 4) == wanted, workers


@pytest.mark.parametrize(
    "how", [{"prefetch_factor": 5}, {"persistent_workers": True, "prefetch_factor": 1}, {"in_order": False}, {"timeout": 60}], ids=str
)  # fmt: skip
def test_nor_how_workers_run_ahead(law: None, how: dict[str, Any]) -> None:
    assert run(LOADERS["generator"], num_workers=3, **how) == run(LOADERS["generator"])


@pytest.mark.parametrize("name", ["in order", "shuffled", "generator", "replacement", "replacement, generator", "weighted", "subset"])  # fmt: skip
def test_the_order_is_plain_pytorchs(name: str) -> None:
    def order() -> list[float]:
        torch.manual_seed(3)
        loader = LOADERS[name]()
        object.__setattr__(loader, "dataset", range(22))
        return [i for _ in range(3) for batch in loader for i in batch.tolist()]

    plain = order()
    LOADER_LAW.install()
    try:
        assert order() == plain
    finally:
        LOADER_LAW.remove()


def test_the_loop_sees_its_own_draws_only(law: None) -> None:
    """After the epoch has begun, the loop's generators go on as if no loader were there."""
    iterator = iter(LOADERS["collation"]())
    before = shared_states(SOURCES)
    next(iterator)
    next(iterator)
    assert same_state(shared_states(SOURCES), before)


def test_a_loop_may_draw_from_the_loaders_generator(law: None) -> None:
    """It then has it for itself: nothing that it draws comes twice, and no worker takes anything from it."""
    found = []
    for workers in (0, 2):
        loader = LOADERS["replacement, generator"](num_workers=workers)
        found.append([float(torch.rand((), generator=loader.sampler.generator)) for _ in loader])  # type: ignore[union-attr]
    assert found[0] == found[1] and len(set(found[0])) == len(found[0])


def test_a_sample_does_not_depend_on_its_batch(law: None) -> None:
    found = []
    for size in (1, 4, 22, None):
        torch.manual_seed(1)
        batches = list(DataLoader(Augmented(), size, shuffle=True))
        found.append(torch.cat([b.reshape(-1, 7) for b in batches]))
    assert all(torch.equal(f, found[0]) for f in found)


def test_samples_differ_and_epochs_differ_but_one_state_gives_one_epoch(law: None) -> None:
    loader = DataLoader(Augmented(), 22, generator=(g := generator()))
    first, second = next(iter(loader)), next(iter(loader))
    for column in range(1, 7):
        assert len(set(torch.cat([first, second])[:, column].tolist())) == 44
    g.manual_seed(7)
    assert torch.equal(next(iter(loader)), first)


def test_the_seeds_are_those_of_the_arithmetic(law: None) -> None:
    """Words that never change: they are part of docs/arithmetic.md."""
    assert seed_words(0x0123456789ABCDEF, SAMPLE, 0, 1000) == GOLDEN

    class Seeds(Dataset[Any]):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> Any:
            return torch.initial_seed(), np.random.get_state(legacy=False)["state"]["key"], random.random()

    loader = DataLoader(Seeds(), 3, collate_fn=lambda found: [*found, torch.initial_seed()], generator=generator())
    base = int(torch.empty((), dtype=torch.int64).random_(generator=generator()))
    *samples, collation = next(iter(loader))
    w = seed_words(base, COLLATION, 0, 0)
    assert collation % 2**64 == w[0] + w[1] * 2**32
    for position, (torchs, numpys, pythons) in enumerate(samples):
        w = seed_words(base, SAMPLE, 0, position)
        assert torchs % 2**64 == w[0] + w[1] * 2**32
        assert (numpys == np.random.RandomState(w[2]).get_state(legacy=False)["state"]["key"]).all()  # type: ignore[call-overload, index]
        assert pythons == random.Random(w[3]).random()


GOLDEN = (2792595865, 2080675393, 2658357297, 3376954235)


class Stream(IterableDataset[Tensor]):
    """Draws when it begins and for each sample."""

    def __init__(self, eager: bool) -> None:
        self.eager = eager

    def __iter__(self) -> Iterator[Tensor]:
        first = draws()
        return iter([torch.tensor([*first, *draws()]) for _ in range(3)]) if self.eager else self.lazily()

    def lazily(self) -> Iterator[Tensor]:
        start = draws()
        for i in range(10):
            yield torch.tensor([i, *start, *draws()])


@pytest.mark.parametrize(("eager", "size"), [(False, 3), (True, None)])
def test_an_iterable_dataset_has_one_stream_for_none_and_for_one_worker(
    law: None, eager: bool, size: int | None
) -> None:
    def make(**how: Any) -> DataLoader[Any]:
        return DataLoader(Stream(eager), size, collate_fn=None if size is None else noisy_collate, **how)

    wanted = run(make, 2)
    assert run(make, 2, num_workers=1) == wanted
    assert run(make, 2, num_workers=1, persistent_workers=True) == wanted
    assert run(make, 1, num_workers=2) == run(make, 1, num_workers=2, prefetch_factor=4) != run(make, 1)


class Nested(Dataset[Tensor]):
    """A sample that runs a loader of its own and goes on drawing."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Tensor:
        inner = torch.cat(list(DataLoader(Augmented(), 11)))
        return torch.cat([inner.reshape(-1), torch.tensor(draws(), dtype=torch.float64)])


def test_a_loader_inside_a_sample(law: None) -> None:
    def make(**how: Any) -> DataLoader[Any]:
        return DataLoader(Nested(), 2, **how)

    assert run(make, num_workers=2) == run(make)


class Informed(Dataset[Any]):
    """What a worker knows."""

    told: int | None = None

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        return index, info.id, info.num_workers, info.dataset is self, self.told, float(torch.rand(()))


def tell(worker: int) -> None:
    get_worker_info().dataset.told = worker  # type: ignore[union-attr]
    torch.manual_seed(worker)


def test_a_scripts_worker_init_fn_runs_and_workers_know_who_they_are(law: None) -> None:
    loader = DataLoader(Informed(), 2, num_workers=2, worker_init_fn=tell, collate_fn=list)
    samples = [s for batch in loader for s in batch]
    assert [s[:5] for s in samples] == [(i, i // 2 % 2, 2, True, i // 2 % 2) for i in range(8)]
    assert len({s[5] for s in samples}) == 8
    assert loader.worker_init_fn is tell


class Failing(Augmented):
    def __getitem__(self, index: int) -> Tensor:
        if index == 5:
            raise KeyError("five")
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_of_a_sample_comes_through_and_leaves_the_generators(law: None, workers: int) -> None:
    iterator = iter(DataLoader(Failing(), 4, num_workers=workers))
    next(iterator)
    before = shared_states(SOURCES)
    with pytest.raises(KeyError, match="five"):
        next(iterator)
    assert same_state(shared_states(SOURCES), before)
    assert next(iterator)[0, 0] == 8


def test_workers_from_before_the_law_are_let_go() -> None:
    loader = DataLoader(Augmented(), 22, num_workers=1, persistent_workers=True)
    list(loader)
    LOADER_LAW.install()
    try:
        torch.manual_seed(0)
        kept = next(iter(loader))
        torch.manual_seed(0)
        assert torch.equal(next(iter(DataLoader(Augmented(), 22))), kept)
    finally:
        LOADER_LAW.remove()
    assert len(list(loader)) == 1


def test_what_is_removed_is_gone() -> None:
    with isobit.exact(threads=1):
        inside = _MapDatasetFetcher.fetch
    assert not LOADER_LAW._installed
    assert _MapDatasetFetcher.fetch is not inside
    assert _MapDatasetFetcher.fetch.__code__.co_filename == inspect.getfile(_MapDatasetFetcher)


class Exact(Augmented):
    """Also says whether the exact arithmetic is on: dropout's mask and a long sum."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Tensor:
        mask = torch.nn.functional.dropout(torch.ones(9)).double()
        long = torch.linspace(-3, 3, 5000).exp().sum().double()
        return torch.cat([super().__getitem__(index), mask, long[None], torch.tensor([float(active() is not None)])])


def exact_loader(**how: Any) -> DataLoader[Any]:
    return DataLoader(Exact(), 2, shuffle=True, **how)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_exact_workers_however_they_are_started(method: str) -> None:
    with isobit.exact(threads=1, strict=True):
        wanted = run(exact_loader, epochs=1)
        assert run(exact_loader, epochs=1, num_workers=1, multiprocessing_context=method) == wanted


@pytest.mark.slow
def test_workers_started_afresh_keep_the_law_without_the_arithmetic(law: None) -> None:
    make = LOADERS["shuffled"]
    assert run(make, epochs=1, num_workers=1, multiprocessing_context="spawn") == run(make, epochs=1)
