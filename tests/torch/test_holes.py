"""What lies outside the arithmetic is named once per kind, counted, reported, and an error in strict mode."""

from __future__ import annotations

import pytest
import torch

import isobit
from isobit.torch.compile_default import NOTE
from isobit.torch.events import Event, HoleEvent, NoteEvent
from isobit.torch.holes import HoleError
from isobit.torch.operators import table
from isobit.torch.original import cpu_kernels
from isobit.torch.signature import has_overload


def test_a_hole_is_named_once_and_counted(capfd: pytest.CaptureFixture[str]) -> None:
    events: list[Event] = []
    plain = torch.erfinv(torch.tensor([0.5]))
    with isobit.exact(sink=events.append) as layer:
        for _ in range(3):
            assert torch.equal(torch.erfinv(torch.tensor([0.5])), plain)
        assert layer.monitor.counts == {"aten::erfinv": 3}
    assert capfd.readouterr().err.count("aten::erfinv") == 1
    assert [(e.operator, e.count) for e in events if isinstance(e, HoleEvent)] == [
        ("aten::erfinv", 1),
        ("aten::erfinv", 2),
    ]


def test_strict_raises_before_anything_runs() -> None:
    x = torch.tensor([0.5])
    with isobit.exact(strict=True), pytest.raises(HoleError, match="aten::erfinv_"):
        x.erfinv_()
    assert x.item() == 0.5


def test_strict_lets_the_table_run() -> None:
    with isobit.exact(strict=True):
        layer = torch.nn.Linear(4, 3)
        torch.nn.functional.cross_entropy(layer(torch.randn(5, 4)), torch.tensor([0, 1, 2, 0, 1])).backward()
        assert layer.weight.grad is not None


def test_operators_inside_a_hole_are_part_of_it() -> None:
    with isobit.exact() as layer:
        torch.linalg.matrix_exp(torch.randn(3, 3))
        assert set(layer.monitor.counts) <= {"aten::linalg_matrix_exp"}


def test_integers_are_no_holes_where_floats_are() -> None:
    with isobit.exact() as layer:
        torch.arange(5).cumsum(0)
        torch.tensor([3, 1, 2]).sort()
        assert not layer.monitor.counts
        torch.ones(5).cumsum(0)
        assert layer.monitor.counts == {"aten::cumsum": 1}


def test_complex_numbers_and_unknown_dtypes_are_holes() -> None:
    with isobit.exact() as layer:
        x = torch.tensor([1 + 2j])
        assert (x * x).item() == (1 + 2j) ** 2
        assert layer.monitor.counts == {"aten::mul.Tensor": 1}


@pytest.mark.parametrize("name", ["add.Tensor", "erfinv", "cumsum", "special_i1"])
def test_python_numbers_reach_the_original(name: str) -> None:
    op = getattr(torch, name.partition(".")[0]) if "special" not in name else torch.special.i1
    with isobit.exact():
        args = (torch.arange(3), 2) if name == "add.Tensor" else (torch.tensor([0.25]), 0)[: 1 + (name == "cumsum")]
        assert op(*args) is not None


def test_every_cpu_kernel_is_named_or_loud() -> None:
    with isobit.exact() as layer:
        assert layer is not None
        for name in sorted(cpu_kernels()["aten"]):
            if has_overload(name):
                dump = torch._C._dispatch_dump(name)
                assert "layer.py" in dump or table().get(name) is not None, name


def test_no_entry_names_an_operator_that_pytorch_lacks() -> None:
    with isobit.exact():
        pass  # which defines Isobit's own operators
    assert [name for name, _ in table() if not has_overload(name)] == []


def test_the_record_says_where_isobit_stands_in_for_inductor() -> None:
    before, events = torch.compile, list[Event]()
    with isobit.exact(sink=events.append) as layer:
        torch.compile(torch.sin, backend="inductor")
        torch.compile(torch.sin, backend="aot_eager")
    assert events == [NoteEvent(NOTE)] and not layer.monitor.counts
    assert torch.compile is before


def test_a_hole_runs_on_one_thread_of_pytorchs() -> None:
    """MKL's QR of this matrix has other bits on two threads, which every init.orthogonal_ would show."""
    matrix, before = torch.randn(64, 64), torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            with isobit.exact() as layer:
                found.append(torch.linalg.qr(matrix).Q)
                assert layer.monitor.counts == {"aten::linalg_qr": 1}
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)
