"""What a step is told with beside its losses and parameters, and what the script says itself; reading changes nothing."""

from __future__ import annotations

import dataclasses
import gc
import math
import os
import random
import threading
from collections import UserDict, namedtuple
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from blake3 import blake3
from torch.utils.data import DataLoader, TensorDataset

import isobit
from isobit.arithmetic.digests import digest as blake3_of
from isobit.arithmetic.dtypes import DType
from isobit.record.trace import number
from isobit.torch.batches import batch_digest
from isobit.torch.events import DigestEvent, Event, LogEvent, NoteEvent, Sampling, StepEvent
from isobit.torch.generators import random_digest
from isobit.torch.log import logging_to
from isobit.torch.steps import StepHooks


def quiet(text: str) -> None:
    raise AssertionError(text)


ALL = Sampling(every=1)


def train(
    steps: int,
    data: Any = None,
    change: Callable[[int, torch.optim.Optimizer], None] = lambda i, update: None,
    sampling: Sampling = ALL,
) -> list[Event]:
    """The events of a small training; `change` is called before each step."""
    events: list[Event] = []
    with StepHooks(events.append, sampling):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 1)
        update = torch.optim.Adam(model.parameters(), lr=0.1)
        batches = iter(data if data is not None else [(torch.ones(2, 3),)] * steps)
        for i, (x, *_) in zip(range(steps), batches, strict=False):
            model(x).sum().backward()
            change(i, update)
            update.step()
            update.zero_grad()
    return events


def steps_of(events: list[Event]) -> list[StepEvent]:
    return [event for event in events if isinstance(event, StepEvent)]


Pair = namedtuple("Pair", "x y")


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    name: str


class Own:
    def __init__(self, x: torch.Tensor) -> None:
        self.x = x


CONTAINERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "tensor": lambda x: x,
    "list": lambda x: [x, 1],
    "tuple": lambda x: (1, (x, "a")),
    "named": lambda x: Pair(x, 2.0),
    "dict": lambda x: {"a": [{"b": x}]},
    "userdict": lambda x: UserDict(input_ids=x),
    "dataclass": lambda x: Batch(x, "n"),
    "own": lambda x: Own(x),
    "numpy": lambda x: {"a": x.numpy()},
    "numpy objects": lambda x: np.array([x, None], dtype=object),
    "uint16": lambda x: x.view(torch.int32).to(torch.uint16),
    "complex": lambda x: torch.complex(x, x),
    "strided": lambda x: torch.stack([x, x], 1)[:, 0],
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_every_element_of_a_batch_counts_wherever_it_is(name: str) -> None:
    x = torch.arange(1.0, 6.0)
    make = CONTAINERS[name]
    first = batch_digest(make(x.clone()), quiet)
    assert batch_digest(make(x.clone()), quiet) == first
    for i in range(5):
        other = x.clone()
        other.view(torch.int32)[i] ^= 1 << 4
        assert batch_digest(make(other), quiet) != first


def test_batches_of_another_shape_or_kind_differ() -> None:
    batches: list[Any] = [
        [1, 2], [12], [[1], 2], (), {}, {1: 2}, "12", b"12", 12, 12.0, True, 1, None, -0.0, 0.0, ["1", "2"], [""], ["", ""],
        torch.ones(2), torch.ones(2, 1), torch.ones(2, dtype=torch.float64), np.ones(2), np.float64(1), {"a": 1}, {"b": 1},
    ]  # fmt: skip
    assert len({batch_digest(b, quiet) for b in batches}) == len(batches)


def test_a_batch_that_holds_itself_ends() -> None:
    batch: list[Any] = [1]
    batch.append(batch)
    assert batch_digest(batch, quiet) == batch_digest(batch, quiet)


def test_a_tensor_that_cannot_be_read_is_said() -> None:
    said: list[str] = []
    x = torch.zeros(2, dtype=torch.complex128)
    assert batch_digest([x], said.append) == batch_digest([x + 1], said.append)
    assert "complex128" in said[0]


def loader(values: torch.Tensor, workers: int = 0) -> DataLoader[Any]:
    return DataLoader(TensorDataset(values, values[:, 0]), batch_size=2, num_workers=workers)


def test_a_step_tells_what_the_loader_gave() -> None:
    x = torch.arange(18.0).reshape(6, 3)
    first = [s.batch for s in steps_of(train(3, loader(x)))]
    assert len(set(first)) == 3 and all(len(digest) == 32 for digest in first)
    assert [s.batch for s in steps_of(train(3, loader(x, workers=1)))] == first
    x[3, 1] += 1
    assert [a == b for a, b in zip([s.batch for s in steps_of(train(3, loader(x)))], first, strict=True)] == [
        True,
        False,
        True,
    ]


def test_all_that_was_given_since_the_step_before_counts() -> None:
    x = torch.arange(18.0).reshape(6, 3)
    given = iter(loader(x))
    first = steps_of(train(1, given, change=lambda i, update: next(given)))
    plain = steps_of(train(1, loader(x)))
    assert first[0].batch != plain[0].batch and first[0].parameters == plain[0].parameters


def test_without_a_loader_the_call_of_the_model_tells() -> None:
    """Not through StepHooks, which let modules alone where torch.compile has been imported, as it may have been here."""
    from isobit.torch import batches

    found = batches.Batches(lambda: True, quiet)
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
    call = found._wrap_call(torch.nn.Module._call_impl)

    def told(*calls: torch.Tensor) -> str:
        for x in calls:
            call(model, x)
        return found.take()

    x, y = torch.ones(2, 3), torch.zeros(2, 3)
    assert told() == "" and told(x) == told(x.clone()) != told(y)
    assert told(x, y) == told(x)  # what comes after the first may depend on it
    call(model, x)
    found.passed()
    assert told(y) not in (told(x), told(y))  # two passes of one step
    assert told(x.clone().requires_grad_()) == told(y.clone().requires_grad_())


def test_gradients_and_state_are_sampled_and_settings_told_when_they_change() -> None:
    def change(i: int, update: torch.optim.Optimizer) -> None:
        if i == 6:
            update.param_groups[0]["lr"] = 0.2

    events = train(10, change=change, sampling=Sampling(first=2, every=4, blake3_every=5))
    steps = steps_of(events)
    assert [s.index for s in steps if s.gradients] == [s.index for s in steps if s.state] == [0, 1, 4, 8]
    assert (0, "lr", "0.1") in steps[0].changes and (0, "betas", "(0.9, 0.999)") in steps[0].changes
    assert {s.index: s.changes for s in steps[1:] if s.changes} == {6: ((0, "lr", "0.2"),)}
    assert len({s.settings for s in steps[:6]}) == len({s.settings for s in steps[6:]}) == 1
    assert steps[5].settings != steps[6].settings
    assert [type(e) for e in events].count(DigestEvent) == 2  # after 5 and 10 steps, so not once more at the end


def test_one_bit_of_a_gradient_or_of_state_counts() -> None:
    def flip(what: str) -> Callable[[int, torch.optim.Optimizer], None]:
        def change(i: int, update: torch.optim.Optimizer) -> None:
            weight = update.param_groups[0]["params"][0]
            if i == 2:
                x = weight.grad if what == "grad" else update.state[weight][what]
                x.view(torch.int32).view(-1)[0] ^= 1

        return change

    plain = steps_of(train(3))
    assert [s.gradients for s in steps_of(train(3))] == [s.gradients for s in plain]
    assert steps_of(train(3, change=flip("grad")))[2].gradients != plain[2].gradients
    other = steps_of(train(3, change=flip("exp_avg")))[2]
    assert (other.gradients, other.state == plain[2].state) == (plain[2].gradients, False)


def test_a_tensor_valued_setting_that_changes_in_place_is_told() -> None:
    rate = torch.tensor(0.5)
    weight = torch.nn.Parameter(torch.ones(2))
    update = torch.optim.SGD([weight], lr=rate)
    events: list[Event] = []
    with StepHooks(events.append):
        for _ in range(3):
            weight.sum().backward()
            update.step()
            rate *= 0.5
    assert [[c[2] for c in s.changes if c[1] == "lr"] for s in steps_of(events)] == [
        ["f32:3f000000"], ["f32:3e800000"], ["f32:3e000000"],
    ]  # fmt: skip


def test_the_last_digest_is_blake3_of_the_parameters() -> None:
    kept: list[torch.optim.Optimizer] = []
    events = train(3, change=lambda i, update: kept.append(update))
    digests = [event for event in events if isinstance(event, DigestEvent)]
    parameters = [p.detach().numpy() for p in kept[0].param_groups[0]["params"]]
    parts = b"".join(bytes.fromhex(blake3_of(p, DType.F32)) for p in parameters)
    assert digests == [DigestEvent(0, blake3(parts).hexdigest())]


def test_an_optimizer_that_goes_tells_its_last_digest_and_is_not_kept() -> None:
    events: list[Event] = []
    with StepHooks(events.append):
        weight = torch.nn.Parameter(torch.ones(2))
        update = torch.optim.SGD([weight], lr=0.1)
        weight.sum().backward()
        update.step()
        del update
        gc.collect()
        assert isinstance(events[-1], DigestEvent)
    assert [type(event) for event in events].count(DigestEvent) == 1


def numpy_draw() -> None:
    np.random.rand()


@pytest.mark.parametrize("draw", [lambda: torch.rand(1), random.random, numpy_draw, lambda: random.gauss(0, 1)])
def test_each_generator_counts_and_is_left_alone(draw: Callable[[], object]) -> None:
    def states() -> tuple[Any, ...]:
        return torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state())

    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    before = states()
    first = random_digest()
    assert random_digest() == first and states() == before
    draw()
    assert random_digest() != first
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    assert random_digest() == first


def test_a_twister_that_is_set_back_reads_as_before() -> None:
    random.seed(3)
    state, first = random.getstate(), random_digest()
    for _ in range(1000):
        random.random()
    assert random_digest() != first
    random.setstate(state)
    assert random_digest() == first


@pytest.fixture
def said() -> Iterator[list[Event]]:
    events: list[Event] = []
    with logging_to(events.append):
        yield events


LOGGED: list[tuple[Any, str]] = [
    (1.5, "f64:3ff8000000000000"), (-0.0, "f64:8000000000000000"), (-math.nan, "f64:7ff8000000000000"),
    (math.inf, "f64:7ff0000000000000"), (3, "i64:0000000000000003"), (-(2**63), "i64:8000000000000000"),
    (2**63 - 1, "i64:7fffffffffffffff"), (True, "bool:01"), (False, "bool:00"),
    (np.float32(1), "f32:3f800000"), (np.float16(-2), "f16:c000"), (np.float64(1.5), "f64:3ff8000000000000"),
    (np.int8(-1), "i8:ff"), (np.uint8(255), "u8:ff"), (np.uint32(7), "i64:0000000000000007"), (np.bool_(True), "bool:01"),
    (np.array([[2.0]], ">f4"), "f32:40000000"), (np.int16(-2), "i16:fffe"),
    (torch.tensor(1.0, dtype=torch.bfloat16), "bf16:3f80"), (torch.tensor([2.0], dtype=torch.float16), "f16:4000"),
    (torch.tensor(1.0, requires_grad=True), "f32:3f800000"), (torch.tensor(5), "i64:0000000000000005"),
    (torch.tensor(0xFFC00001 - 2**32, dtype=torch.int32).view(torch.float32), "f32:7fc00000"),
    (torch.tensor(True), "bool:01"), (torch.ones(3)[1], "f32:3f800000"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "bits"), LOGGED, ids=[bits for _, bits in LOGGED])
def test_a_number_is_logged_by_its_bits(said: list[Event], value: Any, bits: str) -> None:
    isobit.log(x=value)
    assert said == [LogEvent("x", bits, "")]
    plain = float(np.asarray(value.detach().float() if isinstance(value, torch.Tensor) else value).reshape(()))
    assert str(number(bits)) == str(abs(plain) if math.isnan(plain) else plain)


def test_texts_and_large_integers_are_logged_as_text(said: list[Event]) -> None:
    isobit.log(a="hello ü", b=2**63, c=np.uint64(2**64 - 1), **{"val/loss": 1})
    assert said == [
        LogEvent("a", "", "hello ü"), LogEvent("b", "", str(2**63)), LogEvent("c", "", str(2**64 - 1)),
        LogEvent("val/loss", "i64:0000000000000001", ""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "error", "says"),
    [
        ({"x": [1]}, TypeError, "x cannot be recorded: builtins.list is neither a number"),
        ({"x": torch.ones(2)}, TypeError, r"shape \[2\] has not one element"),
        ({"x": np.ones(2)}, TypeError, "has not one element"),
        ({"x": 1j}, TypeError, "builtins.complex"),
        ({"x": torch.tensor(1j)}, TypeError, "complex64"),
        ({"x": np.longdouble(1)}, TypeError, "outside the arithmetic"),
        ({"": 1}, ValueError, "is no name"),
        ({"a\n": 1}, ValueError, "is no name"),
        ({"a" * 201: 1}, ValueError, "is no name"),
    ],
)
def test_what_cannot_be_logged_is_an_error_with_and_without_a_run(
    values: dict[str, Any], error: type[Exception], says: str
) -> None:
    for events in ([], None):
        with pytest.raises(error, match=says):
            if events is None:
                isobit.log(first=1, **values)
            else:
                with logging_to(events.append):
                    isobit.log(first=1, **values)
        assert not events  # all or nothing


def test_any_thread_may_log_and_without_a_run_nothing_happens(said: list[Event]) -> None:
    thread = threading.Thread(target=lambda: isobit.log(x=1))
    thread.start()
    thread.join()
    assert len(said) == 1
    with logging_to(said.append):
        pass
    isobit.log(x=2)
    assert len(said) == 2


def test_nothing_is_put_between_the_script_and_its_generators() -> None:
    """The same numbers are drawn, the same operators called, with and without."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Names(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self.names: list[str] = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            self.names.append(str(func))
            return func(*args, **(kwargs or {}))

    def work() -> tuple[list[str], float, float, list[float]]:
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.5), torch.nn.Linear(3, 1))
        update = torch.optim.AdamW(model.parameters(), lr=0.1, amsgrad=True)
        with Names() as seen:
            for x, y in DataLoader(TensorDataset(torch.rand(8, 3), torch.rand(8)), batch_size=2, shuffle=True):
                update.zero_grad()
                (model(x)[:, 0] - y).square().mean().backward()
                update.step()
                isobit.log(loss=y[0])
        return seen.names, random.random(), np.random.rand(), [p.sum().item() for p in model.parameters()]

    alone = work()
    events: list[Event] = []
    with StepHooks(events.append, Sampling(every=1, blake3_every=2)), logging_to(events.append):
        watched = work()
    assert watched == alone
    assert not [event for event in events if isinstance(event, NoteEvent)]


def test_a_forked_child_tells_nothing() -> None:
    events: list[Event] = []
    with StepHooks(events.append):
        child = os.fork()
        if child == 0:
            list(loader(torch.ones(4, 3)))
            os._exit(len(events))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
