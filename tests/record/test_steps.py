"""Steps and fingerprints: what is reported, and that reporting changes nothing."""

from __future__ import annotations

import os
import signal
import struct

import numpy as np
import pytest
import torch
from torch.optim.optimizer import _global_optimizer_post_hooks

from isobit.arithmetic.digests import trace_digest
from isobit.arithmetic.dtypes import DType
from isobit.torch.events import Event, NoteEvent, StepEvent
from isobit.torch.fingerprint import digest, scalar_bits, tensor_digest
from isobit.torch.steps import StepHooks


def train(steps: int, hooks: StepHooks | None = None, optimizer: str = "SGD") -> list[bytes]:
    """A small training; the parameters' bytes after every step."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Dropout(0.5), torch.nn.Linear(5, 1))
    update = getattr(torch.optim, optimizer)(model.parameters(), lr=0.1)
    seen = []
    for _ in range(steps):
        update.zero_grad()
        (model(torch.randn(6, 4)) ** 2).mean().backward()
        update.step()
        seen.append(b"".join(p.detach().numpy().tobytes() for p in model.parameters()))
    return seen


def steps_of(events: list[Event]) -> list[StepEvent]:
    return [event for event in events if isinstance(event, StepEvent)]


def test_every_step_is_reported_with_its_loss_and_a_new_digest() -> None:
    events: list[Event] = []
    with StepHooks(events.append):
        train(4)
    steps = steps_of(events)
    assert [s.index for s in steps] == [0, 1, 2, 3]
    assert {s.optimizer for s in steps} == {0}
    assert all(len(s.losses) == 1 and s.losses[0].startswith("f32:") for s in steps)
    assert len({s.parameters for s in steps}) == 4


def test_reporting_changes_nothing() -> None:
    alone = train(4, optimizer="Adam")
    with StepHooks(lambda event: None):
        watched = train(4, optimizer="Adam")
    assert watched == alone


def test_no_operator_is_called_for_plain_tensors() -> None:
    """A dispatch mode sees every operator; it must see those of the script alone."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.names: list[str] = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            self.names.append(str(func))
            return func(*args, **(kwargs or {}))

    with Count() as alone:
        train(2)
    with StepHooks(lambda event: None), Count() as watched:
        train(2)
    assert watched.names == alone.names


def test_accumulated_and_separate_losses() -> None:
    w = torch.nn.Parameter(torch.tensor([2.0]))
    v = torch.nn.Parameter(torch.tensor([4.0]))
    a, b = torch.optim.SGD([w], lr=0.0), torch.optim.SGD([v], lr=0.0)
    events: list[Event] = []
    with StepHooks(events.append):
        w.sum().backward()
        torch.autograd.backward([v.sum(), (2 * v).sum()])
        b.step()
        a.step()
        b.step()
    steps = steps_of(events)
    assert [s.losses for s in steps] == [("f32:40000000", "f32:40800000", "f32:41000000"), (), ()]
    assert [s.optimizer for s in steps] == [0, 1, 0]  # numbered by their first step
    assert steps[0].parameters == steps[2].parameters != steps[1].parameters


def test_a_recomputed_checkpoint_is_no_loss() -> None:
    from torch.utils.checkpoint import checkpoint

    w = torch.nn.Parameter(torch.ones(3))
    update = torch.optim.SGD([w], lr=0.1)
    events: list[Event] = []
    with StepHooks(events.append):
        checkpoint(lambda x: (x * x).sum(), w, use_reentrant=True).backward()
        update.step()
    assert [s.losses for s in steps_of(events)] == [("f32:40400000",)]


def test_a_closure_reports_all_its_losses() -> None:
    w = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    update = torch.optim.LBFGS([w], max_iter=3)
    events: list[Event] = []

    def closure() -> torch.Tensor:
        update.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        return loss

    with StepHooks(events.append):
        update.step(closure)
    assert len(steps_of(events)[0].losses) > 1


def test_all_is_put_back() -> None:
    before, hooks = torch.autograd.backward, len(_global_optimizer_post_hooks)
    with StepHooks(lambda event: None):
        assert torch.autograd.backward is not before
    assert torch.autograd.backward is before
    assert len(_global_optimizer_post_hooks) == hooks


def test_a_forked_child_reports_no_step_but_that_it_made_some() -> None:
    events: list[Event] = []
    with StepHooks(events.append):
        child = os.fork()
        if child == 0:
            train(2)
            os._exit(not (len(events) == 1 and "made optimizer steps" in str(events[0])))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        train(1)
    assert len(steps_of(events)) == 1


def test_what_cannot_be_read_is_a_note_and_no_error() -> None:
    w = torch.nn.Parameter(torch.ones(2, dtype=torch.complex64))
    update = torch.optim.SGD([w], lr=0.1)
    events: list[Event] = []
    with StepHooks(events.append):
        (w.abs() ** 2).sum().backward()
        update.step()
    assert steps_of(events)[0].parameters == ""
    notes = [event.text for event in events if isinstance(event, NoteEvent)]
    assert [note.partition(" could")[0] for note in notes] == ["the gradients", "the parameters"]
    assert all("complex64" in note for note in notes)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # PyTorch has several of its own here
def test_a_compiled_step_is_reported_and_not_traced() -> None:
    """torch.compile would follow the hooks into NumPy and the hash."""

    def losses(compiled: bool) -> tuple[list[float], list[Event]]:
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 1)
        update = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x: torch.Tensor) -> torch.Tensor:
            update.zero_grad()
            loss = (model(x) ** 2).mean()
            torch.autograd.backward(loss)
            update.step()
            return loss.detach()

        run = torch.compile(step, backend="eager") if compiled else step
        events: list[Event] = []
        with StepHooks(events.append):
            return [run(torch.full((4, 3), float(i))).item() for i in range(3)], events

    eager, compiled = losses(False), losses(True)
    assert [event.index for event in steps_of(compiled[1])] == [0, 1, 2]
    assert compiled == eager


FLOATS = {torch.float64: DType.F64, torch.float32: DType.F32, torch.float16: DType.F16}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 4), (1 << 18, 3)], ids=str)
def test_a_tensor_has_the_digest_of_the_reference(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape).to(dtype)
    assert tensor_digest(x).hex() == trace_digest(x.numpy(), FLOATS[dtype])


def test_strides_do_not_enter_and_dtype_and_shape_do() -> None:
    x = torch.randn(6, 8)
    same = [x.clone(), x.t().contiguous().t(), torch.stack([x, x], 2)[..., 1], torch.nn.Parameter(x)]
    assert {digest([y]) for y in same} == {digest([x])}
    others = [x.reshape(8, 6), x.view(torch.int32), x.double(), x[:5], -x]
    assert len({digest([y]) for y in (x, *others)}) == 1 + len(others)


def test_lazy_negation_is_applied() -> None:
    x = torch.randn(4)
    lazy = torch._neg_view(x)
    assert lazy.is_neg()
    assert digest([lazy]) == digest([-x])


def test_all_nans_are_one_and_zeros_are_two() -> None:
    patterns = [0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF]
    nans = [torch.from_numpy(np.array([1, p], np.uint32).view(np.float32)) for p in patterns]
    assert len({digest([x]) for x in nans}) == 1
    infinities = torch.tensor([float("inf")]), torch.tensor([float("-inf")])
    assert len({digest([x]) for x in (*infinities, nans[0][1:])}) == 3
    assert digest([torch.tensor([0.0])]) != digest([torch.tensor([-0.0])])
    assert scalar_bits(nans[3][1]) == "f32:7fc00000"


@pytest.mark.parametrize("place", [0, 1, 5_000_000, 6_000_000 - 1])
def test_a_nan_is_found_wherever_it_is_and_one_bit_counts(place: int) -> None:
    x = torch.zeros(6_000_000)
    clean = digest([x])
    for bits in (0x7F800001, 0xFF800001):
        x.view(torch.int32)[place] = bits - (1 << 32 if bits >> 31 else 0)
        assert digest([x]) == digest([torch.where(x.isnan(), torch.nan, x)])
    x[place] = struct.unpack("f", struct.pack("I", 1))[0]  # the smallest subnormal
    assert digest([x]) != clean


def test_a_forked_process_has_helpers_of_its_own() -> None:
    tensors = [torch.ones(3_000_000), torch.ones(3_000_000)]
    expected = digest(tensors)
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # a wait for threads that were left behind would be for ever
        os._exit(int(digest(tensors) != expected))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_threads_do_not_change_a_digest() -> None:
    tensors = [torch.randn(n) for n in (5, 3_000_000, 0, 700_001)]
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = digest(tensors)
        torch.set_num_threads(3)
        assert digest(tensors) == one
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("shape", [(), (1,), (3, 1, 2), (700_000,)])
def test_a_digest_is_of_what_the_memory_holds_now(shape: tuple[int, ...]) -> None:
    x = torch.zeros(shape)
    before = tensor_digest(x)
    x += 1
    assert tensor_digest(x) == tensor_digest(torch.ones(shape)) != before
    assert tensor_digest(x).hex() == trace_digest(x.numpy(), DType.F32)
    x.view(-1)[-1] = float("nan")
    x.view(torch.int32).view(-1)[-1] ^= -(2**31)  # another NaN, with a sign
    assert tensor_digest(x).hex() == trace_digest(x.numpy(), DType.F32)
