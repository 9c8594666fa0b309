"""`isobit.Checkpoint`: interrupted at any step and resumed is never interrupted.

Mid-epoch resumption in plain PyTorch (lightning#17543, transformers#17032 and #11323 in our own words) is the first test.
"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import isobit
from isobit.torch import checkpoint_file
from isobit.torch.checkpoint_file import CheckpointError
from isobit.torch.checkpoint_values import Encoder, decode
from isobit.torch.fingerprint import digest
from isobit.torch.generators import SOURCES, same_state, shared_states
from isobit.torch.loader import LOADER_LAW
from tests.torch.test_loader import LOADERS, draws

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")
EPOCHS, SIZE, BATCH = 3, 22, 4


class Augmented(Dataset[tuple[Tensor, Tensor]]):
    """Noise from torch, NumPy and `random`. `fetched` counts in the process it lies in."""

    def __init__(self) -> None:
        self.x = torch.linspace(-1, 1, SIZE * 6).reshape(SIZE, 6)
        self.fetched: list[int] = []

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        self.fetched.append(index)
        x = self.x[index] + 0.1 * torch.randn(6) * np.random.rand() + random.gauss(0, 0.1)
        return x, x.sum().sin()[None]


class Run:
    """A training script: its objects, all that they would be in a new process."""

    def __init__(self, path: Path, seed: int, workers: int = 0, **loader: Any) -> None:
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        self.path = path
        self.model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Dropout(0.3), nn.Linear(8, 1))
        self.average = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.MultiStepLR(self.optimizer, [1, 2], gamma=0.3)
        self.loader = DataLoader(Augmented(), BATCH, shuffle=True, num_workers=workers, **loader)
        self.checkpoint = isobit.Checkpoint(
            model=self.model,
            average=self.average,
            optimizer=self.optimizer,
            scheduler=self.scheduler,
            loader=self.loader,
        )

    def steps(self) -> Iterator[tuple[int, str]]:
        """Trains; the number of each step and the digest of all weights after it. Draws outside the steps, too."""
        values = self.checkpoint.values
        values.setdefault("step", 0)
        for _ in self.checkpoint.epochs(EPOCHS):
            torch.rand(3)
            for x, y in self.loader:
                if self.loader.generator is not None:
                    x = x + torch.rand((), generator=self.loader.generator)
                self.optimizer.zero_grad()
                loss = (self.model(x) - y).square().mean()
                loss.backward()
                self.optimizer.step()
                self.average.update_parameters(self.model)
                values["step"] += 1
                yield values["step"], digest([*self.model.state_dict().values(), *self.average.state_dict().values()])
            with torch.no_grad():
                values["held out"] = [float(self.model(x).sum()) for x, _ in DataLoader(Augmented(), 11)]
            random.random()
            self.scheduler.step()
        yield values["step"] + 1, f"{values['held out']} {draws()}"


def uninterrupted(tmp_path: Path, **how: Any) -> dict[int, str]:
    return dict(Run(tmp_path / "none", 0, **how).steps())


def in_a_child(work: Callable[[], None]) -> int:
    """Runs `work` in a forked process; gives how that ended, as `os.waitstatus_to_exitcode`."""
    child = os.fork()
    if not child:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(9)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def train(path: Path, log: Path, seed: int, workers: int, last: int, when: str) -> None:
    """Goes on to step `last` of the run and is killed there: before, while or after it is saved."""
    with isobit.exact(threads=1, strict=True):
        run = Run(path, seed, workers)
        run.checkpoint.load(path)
        for step, found in run.steps():
            with log.open("a") as file:
                file.write(f"{step} {found}\n")
            if step == last and when == "before":
                die()
            if step == last and when == "while":
                os.replace = die  # type: ignore[assignment]
            run.checkpoint.save(path)
            if step == last:
                die()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_killed_at_any_step_and_resumed_is_never_interrupted(tmp_path: Path) -> None:
    """Three epochs of six batches, killed five times, with another number of workers each time."""
    with isobit.exact(threads=1, strict=True):
        wanted = uninterrupted(tmp_path)
    path, log = tmp_path / "run.ckpt", tmp_path / "log"
    ends = [(2, "after", 0), (6, "before", 2), (7, "while", 1), (12, "after", 4), (15, "before", 2)]
    for seed, (last, when, workers) in enumerate(ends):
        assert in_a_child(lambda: train(path, log, seed, workers, last, when)) == -signal.SIGKILL  # noqa: B023
    assert in_a_child(lambda: train(path, log, 9, 0, -1, "after")) == 0
    lines = [line.split(" ", 1) for line in log.read_text().splitlines()]
    assert {int(step) for step, _ in lines} == set(wanted)
    for step, found in lines:
        assert found == wanted[int(step)], f"step {step}"
    assert {p.name for p in tmp_path.iterdir()} == {"run.ckpt", "log"}


@pytest.mark.parametrize("how", [{}, {"generator": True}], ids=str)
def test_stopped_after_each_step(tmp_path: Path, how: dict[str, Any]) -> None:
    def options() -> dict[str, Any]:
        return {"generator": torch.Generator().manual_seed(4)} if how else {}

    wanted = uninterrupted(tmp_path, **options())
    found: dict[int, str] = {}
    for turn in range(len(wanted)):
        run = Run(tmp_path / "c", 100 + turn, **options()) if turn else Run(tmp_path / "c", 0, **options())
        assert run.checkpoint.load(run.path) is bool(turn)
        steps = run.steps()
        step, value = next(steps)
        found[step] = value
        run.checkpoint.save(run.path)
    assert found == wanted


@pytest.mark.parametrize(
    "name", ["replacement, generator", "no batches", "batch sampler", "lazy numpy", "eager", "private", "collation"]
)
def test_every_kind_of_loader_goes_on_with_another_number_of_workers(tmp_path: Path, name: str) -> None:
    path = tmp_path / "c"

    def rest(loader: DataLoader[Any], checkpoint: isobit.Checkpoint, seen: list[float], stop: int = -1) -> list[float]:
        for _ in checkpoint.epochs(2):
            for k, batch in enumerate(loader):
                seen += [*batch.reshape(-1).tolist(), *draws()]
                if k == stop:
                    checkpoint.save(path)
                    return seen
        return seen

    torch.manual_seed(0), random.seed(0), np.random.seed(0)
    loader = LOADERS[name]()
    first = rest(loader, isobit.Checkpoint(loader=loader), [], stop=2)
    torch.manual_seed(0), random.seed(0), np.random.seed(0)
    loader = LOADERS[name]()
    wanted = rest(loader, isobit.Checkpoint(loader=loader), [])
    for how in ({}, {"num_workers": 2}, {"num_workers": 1, "persistent_workers": True}):
        torch.manual_seed(5)
        loader = LOADERS[name](**how)
        checkpoint = isobit.Checkpoint(loader=loader)
        assert checkpoint.load(path)
        assert rest(loader, checkpoint, list(first)) == wanted, how


def test_plain_pytorch_does_not_go_on_in_the_middle_of_an_epoch() -> None:
    """The usual way, model and all random states saved: the epoch begins again, in another order."""
    torch.manual_seed(0)
    loader = DataLoader(range(SIZE), BATCH, shuffle=True)  # type: ignore[arg-type]
    batches = [b.tolist() for b in loader]
    torch.manual_seed(0)
    iterator = iter(loader)
    next(iterator)
    states = shared_states(SOURCES)
    for source in SOURCES:
        source.set_state(states[source.name])
    again = [b.tolist() for b in loader]
    assert again[:5] != batches[1:] and again != batches


def test_batches_before_are_not_fetched_again(tmp_path: Path) -> None:
    run = Run(tmp_path / "c", 0)
    steps = run.steps()
    for _ in range(4):
        next(steps)
    run.checkpoint.save(run.path)
    resumed = Run(tmp_path / "c", 1)
    resumed.checkpoint.load(run.path)
    next(resumed.steps())
    assert len(resumed.loader.dataset.fetched) == BATCH  # type: ignore[attr-defined]


def loader_of(*, size: int = 2, batch: int = 1) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.arange(size)), batch)


@pytest.mark.parametrize(("where", "seen"), [("last batch", [1]), ("after the loop", [2]), ("left early", [2]), ("at the start", [0, 0, 1])])  # fmt: skip
def test_which_epoch_follows(tmp_path: Path, where: str, seen: list[int]) -> None:
    """Inside the loop over the loader: this epoch, even with no batch left. After it: the next."""
    loader = loader_of()
    checkpoint = isobit.Checkpoint(loader=loader)
    for epoch in checkpoint.epochs(3):
        if where == "at the start" and epoch == 0:
            checkpoint.save(tmp_path / "c")
        for k, _ in enumerate(loader):
            if where == "last batch" and epoch == 1 and k == 1:
                checkpoint.save(tmp_path / "c")
            if where == "left early":
                break
        if where in ("after the loop", "left early") and epoch == 1:
            checkpoint.save(tmp_path / "c")
    loader = loader_of()
    resumed = isobit.Checkpoint(loader=loader)
    resumed.load(tmp_path / "c")
    epochs = resumed.epochs(3)
    first = next(epochs)
    assert first == seen[0]
    assert len(list(loader)) == (0 if where == "last batch" else 2)
    assert list(epochs) == list(range(first + 1, 3))


def test_saved_again_before_the_next_batch(tmp_path: Path) -> None:
    run = Run(tmp_path / "c", 0)
    wanted = list(run.steps())
    run = Run(tmp_path / "c", 0)
    steps = run.steps()
    next(steps), next(steps)
    run.checkpoint.save(run.path)
    for seed in (1, 2):
        run = Run(tmp_path / "c", seed)
        run.checkpoint.load(run.path)
        torch.rand(5)
        run.checkpoint.save(run.path)
    assert list(run.steps()) == wanted[2:]


def test_a_persistent_loader_that_was_left_early_is_between_epochs(tmp_path: Path) -> None:
    loader = DataLoader(range(8), 2, shuffle=True, num_workers=1, persistent_workers=True)  # type: ignore[arg-type]
    checkpoint = isobit.Checkpoint(loader=loader)
    for _ in loader:
        break
    checkpoint.save(tmp_path / "c")
    wanted = [b.tolist() for b in loader]
    again = DataLoader(range(8), 2, shuffle=True)  # type: ignore[arg-type]
    isobit.Checkpoint(loader=again).load(tmp_path / "c")
    assert [b.tolist() for b in again] == wanted


class Count(IterableDataset[Tensor]):
    def __iter__(self) -> Iterator[Tensor]:
        return (torch.tensor([i, float(torch.rand(()))]) for i in range(6))


def test_an_iterable_dataset_goes_on_if_its_workers_are_as_many(tmp_path: Path) -> None:
    loader = DataLoader(Count(), 2)
    checkpoint = isobit.Checkpoint(loader=loader)
    iterator = iter(loader)
    next(iterator)
    checkpoint.save(tmp_path / "c")
    wanted = [b.tolist() for b in iterator]
    for workers in (0, 1):
        loader = DataLoader(Count(), 2, num_workers=workers)
        isobit.Checkpoint(loader=loader).load(tmp_path / "c")
        assert [b.tolist() for b in loader] == wanted
    with pytest.raises(CheckpointError, match=r"loader: .* workers \(of an iterable dataset\) 1, which is now 2"):
        isobit.Checkpoint(loader=DataLoader(Count(), 2, num_workers=2)).load(tmp_path / "c")


L = torch.optim.lr_scheduler
SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "StepLR": lambda o: L.StepLR(o, 2),
    "MultiStepLR": lambda o: L.MultiStepLR(o, [1, 4]),
    "LambdaLR": lambda o: L.LambdaLR(o, lambda n: 0.9**n),
    "OneCycleLR": lambda o: L.OneCycleLR(o, 0.1, total_steps=20),
    "CosineAnnealingWarmRestarts": lambda o: L.CosineAnnealingWarmRestarts(o, 3),
    "ReduceLROnPlateau": lambda o: L.ReduceLROnPlateau(o, patience=1),
    "SequentialLR": lambda o: L.SequentialLR(o, [L.ConstantLR(o, 0.5, 2), L.ExponentialLR(o, 0.8)], [3]),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_and_scalers_go_on(tmp_path: Path, name: str) -> None:
    """No warning either that a scheduler steps first: the optimizer has stepped, in the process before."""

    def parts() -> dict[str, Any]:
        model = nn.Linear(2, 2)
        optimizer = sgd(model)
        scaler = torch.amp.GradScaler("cpu", init_scale=3.0, growth_interval=2)
        return {"model": model, "optimizer": optimizer, "scheduler": SCHEDULERS[name](optimizer), "scaler": scaler}

    def schedule(p: dict[str, Any], steps: int) -> Iterator[tuple[float, float]]:
        for _ in range(steps):
            p["scheduler"].step(*[1.0] * (name == "ReduceLROnPlateau"))
            p["scaler"].scale(p["model"](torch.ones(1, 2)).sum()).backward()
            p["scaler"].step(p["optimizer"])
            p["scaler"].update()
            yield p["optimizer"].param_groups[0]["lr"], p["scaler"].get_scale()

    first, second = parts(), parts()
    first["optimizer"].step()
    isobit.Checkpoint(**first).save(tmp_path / "start")
    list(schedule(first, 4))
    isobit.Checkpoint(**first).save(tmp_path / "c")
    isobit.Checkpoint(**second).load(tmp_path / "c")
    assert list(schedule(second, 5)) == list(schedule(first, 5))
    third = parts()
    isobit.Checkpoint(**third).load(tmp_path / "start")
    third["scheduler"].step(*[1.0] * (name == "ReduceLROnPlateau"))


def test_no_file_is_a_fresh_start_and_a_folder_is_made(tmp_path: Path) -> None:
    checkpoint = isobit.Checkpoint(model=nn.Linear(2, 2))
    assert checkpoint.load(tmp_path / "new" / "c") is False
    checkpoint.save(str(tmp_path / "new" / "c"))
    assert checkpoint.load(str(tmp_path / "new" / "c")) is True


def all_state(run: Run) -> dict[str, Any]:
    parts = {k: getattr(run, k).state_dict() for k in ("model", "average", "optimizer", "scheduler")}
    return {**parts, "random": shared_states(SOURCES), "values": dict(run.checkpoint.values)}


def test_a_damaged_file_is_refused_and_nothing_is_touched(tmp_path: Path) -> None:
    """A flipped bit or an end that is missing, anywhere."""
    run = Run(tmp_path / "c", 0)
    next(run.steps())
    run.checkpoint.save(run.path)
    whole = run.path.read_bytes()
    other = Run(tmp_path / "c", 1)
    before = all_state(other)
    places = random.Random(3).sample(range(len(whole)), 60) + [0, 8, 9, len(whole) - 1]
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        run.path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match="/c: "):
            other.checkpoint.load(run.path)
    for size in [0, 5, 8, 100, len(whole) // 2, len(whole) - 1]:
        run.path.write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match="/c: "):
            other.checkpoint.load(run.path)
    assert same_state(all_state(other), before)
    run.path.write_bytes(whole)
    other.checkpoint.load(run.path)
    assert same_state(all_state(other), all_state(run))


def test_the_damaged_tensor_is_named(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    checkpoint = isobit.Checkpoint(model=model)
    checkpoint.save(tmp_path / "c")
    data = bytearray((tmp_path / "c").read_bytes())
    at = data.rindex(model.weight.detach().numpy().tobytes())
    data[at] ^= 1
    (tmp_path / "c").write_bytes(data)
    with pytest.raises(CheckpointError, match=r"c: damaged: model\.weight does not have its digest"):
        checkpoint.load(tmp_path / "c")


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


SMALL, WIDE = nn.Linear(3, 2), nn.Linear(4, 2)
WRONG: list[tuple[Callable[[], dict[str, Any]], str]] = [
    (lambda: {"model": WIDE, "optimizer": sgd(SMALL), "loader": loader_of()}, r"model: weight was saved as float32\[2, 3\] and is now float32\[2, 4\]"),
    (lambda: {"model": nn.Linear(3, 2).double(), "optimizer": sgd(SMALL), "loader": loader_of()}, r"model: weight was saved as float32\[2, 3\] and is now float64\[2, 3\]"),
    (lambda: {"model": nn.Sequential(SMALL), "optimizer": sgd(SMALL), "loader": loader_of()}, "model: the model is another: the file lacks 0.bias, 0.weight and has beyond it bias, weight"),
    (lambda: {"model": SMALL, "optimizer": sgd(WIDE), "loader": loader_of()}, "optimizer: it was saved with parameters of the shapes"),
    (lambda: {"model": SMALL, "optimizer": torch.optim.Adam(SMALL.parameters()), "loader": loader_of()}, "optimizer: it was a SGD and is now a Adam"),
    (lambda: {"model": SMALL, "optimizer": sgd(SMALL)}, "the file has the parts loader, model, optimizer; this Checkpoint has model, optimizer"),
    (lambda: {"model": SMALL, "optimizer": sgd(SMALL), "loader": loader_of(batch=2)}, "loader: saved in the middle of an epoch with batch_size 1, which is now 2"),
    (lambda: {"model": SMALL, "optimizer": sgd(SMALL), "loader": loader_of(size=3)}, "loader: saved in the middle of an epoch with batches 2, which is now 3"),
    (lambda: {"model": SMALL, "optimizer": sgd(SMALL), "loader": DataLoader(TensorDataset(torch.arange(2)), shuffle=True)}, r"loader: .*SequentialSampler.*RandomSampler"),
    (lambda: {"model": SMALL, "optimizer": sgd(SMALL), "loader": DataLoader(TensorDataset(torch.arange(2)), generator=torch.Generator())}, "loader: it had 0 generators, now it has 1"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "words"), WRONG, ids=range(len(WRONG)))
def test_what_does_not_fit_is_named_and_nothing_is_touched(
    tmp_path: Path, make: Callable[[], dict[str, Any]], words: str
) -> None:
    parts, saved, loader = make(), nn.Linear(3, 2), loader_of()
    checkpoint = isobit.Checkpoint(model=saved, optimizer=sgd(saved), loader=loader)
    iterator = iter(loader)
    next(iterator)
    checkpoint.save(tmp_path / "c")
    before = {k: v.clone() for k, v in parts["model"].state_dict().items()}
    with pytest.raises(CheckpointError, match=words):
        isobit.Checkpoint(**parts).load(tmp_path / "c")
    assert same_state(dict(parts["model"].state_dict()), before)


def test_what_has_no_state_is_no_part() -> None:
    with pytest.raises(TypeError, match=r"Checkpoint\(epoch=…\): a int has no state_dict .*checkpoint\.values"):
        isobit.Checkpoint(epoch=3)
    with pytest.raises(CheckpointError, match=r"epochs\(\) needs a DataLoader"):
        isobit.Checkpoint(model=SMALL).epochs(3)


def test_a_save_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = isobit.Checkpoint(model=SMALL)
    checkpoint.save(tmp_path / "c")
    old = (tmp_path / "c").read_bytes()
    checkpoint.values["f"] = draws
    with pytest.raises(CheckpointError, match=r"values\.f is a builtins\.function, which a checkpoint cannot hold"):
        checkpoint.save(tmp_path / "c")
    checkpoint.values.clear()

    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint_file, "_to_disk", full)
    with pytest.raises(CheckpointError, match=r"c: could not be written: .*No space left"):
        checkpoint.save(tmp_path / "c")
    assert [p.name for p in tmp_path.iterdir()] == ["c"]
    assert (tmp_path / "c").read_bytes() == old


VALUES: list[Any] = [
    None, True, 1, -(2**127), 0.1, float("inf"), -0.0, "é\n", b"\0\xff", 1 + 2j, [1, (2, {3})], {"a": {1: (0.5,)}, (1, 2): []},
    OrderedDict(b=1, a=2), Counter("aab"), frozenset({1}), torch.Size([2, 3]), torch.bfloat16, torch.device("cpu"),
    np.float32(0.1), np.int64(-3), np.arange(6, dtype=np.uint32).reshape(2, 3), random.Random(3).getstate(),
    torch.tensor([float("nan"), 1.5]), torch.arange(3), torch.tensor(True), torch.zeros(0, 3), torch.ones(2, dtype=torch.bfloat16),
    torch.arange(12.0).reshape(3, 4).T, torch.arange(9)[2:5], torch.tensor([1 + 2j]), torch.ones(2, dtype=torch.float8_e4m3fn),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_values_come_back_as_they_were(tmp_path: Path, value: Any) -> None:
    checkpoint = isobit.Checkpoint()
    checkpoint.values["x"] = value
    checkpoint.save(tmp_path / "c")
    checkpoint.values = {}
    checkpoint.load(tmp_path / "c")
    found = checkpoint.values["x"]
    assert type(found) is type(value)
    if isinstance(value, Tensor):
        assert found.shape == value.shape and found.dtype == value.dtype
        assert (
            found.contiguous().view(-1).view(torch.uint8).tolist()
            == value.contiguous().view(-1).view(torch.uint8).tolist()
        )
    elif isinstance(value, np.ndarray):
        assert found.dtype == value.dtype and np.array_equal(found, value)
    else:
        assert repr(found) == repr(value)


def test_nans_keep_their_bits(tmp_path: Path) -> None:
    strange = torch.tensor([-(2**31) + 0x7F812345 - 2**31 + 2**32 - 2**31], dtype=torch.int64).int().view(torch.float32)
    encoder = Encoder()
    tree = encoder.encode(strange, "x")
    assert decode(tree, encoder.tensors).view(torch.int32).equal(strange.view(torch.int32))


def test_tied_weights_are_stored_once_and_the_file_is_safetensors(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5, bias=False))
    model[1].weight = model[0].weight
    isobit.Checkpoint(model=model).save(tmp_path / "c")
    with safe_open(tmp_path / "c", "pt") as file:
        names = [name for name in file.keys() if name.startswith("model")]  # noqa: SIM118
        assert names == ["model.0.weight"]
        assert torch.equal(file.get_tensor("model.0.weight"), model[0].weight)


def test_a_compiled_model_has_the_state_of_the_model(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    isobit.Checkpoint(model=torch.compile(model, backend="eager")).save(tmp_path / "c")
    other = nn.Linear(3, 2)
    isobit.Checkpoint(model=other).load(tmp_path / "c")
    assert torch.equal(other.weight, model.weight)


@pytest.mark.parametrize(
    "generator", [torch.Generator(), np.random.default_rng(), np.random.Generator(np.random.MT19937()), np.random.RandomState(), random.Random()], ids=["torch", "numpy", "numpy MT19937", "numpy legacy", "random"]
)  # fmt: skip
def test_generators_as_parts(tmp_path: Path, generator: Any) -> None:
    def draw() -> float:
        if isinstance(generator, torch.Generator):
            return float(torch.rand((), generator=generator))
        return float(generator.normal() if hasattr(generator, "normal") else generator.gauss(0, 1))

    draw()
    checkpoint = isobit.Checkpoint(rng=generator)
    checkpoint.save(tmp_path / "c")
    wanted = [draw() for _ in range(3)]
    checkpoint.load(tmp_path / "c")
    assert [draw() for _ in range(3)] == wanted
    with pytest.raises(CheckpointError, match="rng: it was a"):
        isobit.Checkpoint(rng=np.random.Generator(np.random.Philox())).load(tmp_path / "c")


def test_the_law_holds_while_a_loader_that_was_a_part_lives(tmp_path: Path) -> None:
    loader = loader_of(size=4)
    before = LOADER_LAW._installed
    for _ in loader:
        isobit.Checkpoint(loader=loader).save(tmp_path / "none")
    assert LOADER_LAW._installed == before + 4
    iterator = iter(loader)
    next(iterator)
    isobit.Checkpoint(loader=loader).save(tmp_path / "c")
    again = loader_of(size=4)
    isobit.Checkpoint(loader=again).load(tmp_path / "c")
    assert [int(b[0]) for b in again] == [1, 2, 3]
    del loader, again
    assert LOADER_LAW._installed == before
