"""Loader workers: what a worker computes is exact, too."""

from __future__ import annotations

from multiprocessing.process import BaseProcess
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

import isobit
from isobit.torch.eager import exact
from isobit.torch.layer import active
from tests.laws.values import assert_same


class Features(Dataset[Tensor]):
    """Each sample is a long sum and a product, which PyTorch's own kernels order otherwise."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Tensor:
        x = torch.linspace(-3, 3, 5000).roll(index * 37)
        return torch.stack([x.exp().sum(), (x * 1.7).sin().sum(), x @ x, torch.tensor(float(active() is not None))])


def loaded(workers: int, method: str | None = None) -> list[Tensor]:
    loader = DataLoader(Features(), batch_size=2, num_workers=workers, multiprocessing_context=method)
    return list(loader)


def test_the_features_show_whether_a_worker_is_exact() -> None:
    plain = torch.cat(list(DataLoader(Features(), batch_size=2)))
    with isobit.exact(threads=1, strict=True):
        assert not torch.equal(torch.cat(loaded(0))[:, :3], plain[:, :3])


def test_forked_workers_keep_the_overrides() -> None:
    """A forked child has none of its parent's threads; the pool must be made anew."""
    with exact(threads=2, strict=True):
        wanted = loaded(0)
        assert_same(loaded(2, "fork"), wanted)
        assert_same(loaded(0), wanted)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_started_afresh_keep_the_overrides(method: str) -> None:
    with exact(threads=2, strict=True):
        assert_same(loaded(1, method), loaded(0))


def _power(q: Any) -> None:
    q.put((active() is not None, float(torch.linspace(-3, 3, 5000).exp().sum())))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_of_a_scripts_own(method: str) -> None:
    context = torch.multiprocessing.get_context(method)
    with exact(threads=1):
        q = context.Queue()
        child = context.Process(target=_power, args=(q,))
        child.start()
        found = q.get(timeout=60)
        child.join()
        assert found == (True, float(torch.linspace(-3, 3, 5000).exp().sum()))
    assert "__reduce__" not in vars(BaseProcess)
