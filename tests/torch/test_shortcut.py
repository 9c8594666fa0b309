"""Calls that native code answers give what the Python kernel gives, and other calls reach the Python kernel."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import isobit
import isobit.torch.shortcut as shortcut
from isobit.codegen.objects import compile_object
from isobit.codegen.target import level_target
from isobit.runtime.entry import RUN_SYMBOL
from isobit.torch.kernels import StatementKernel
from isobit.torch.layer import ExactOptions, override_for
from isobit.torch.shortcut_code import PYTHON_FUNCTIONS, SYMBOL, TORCH_FUNCTIONS, shortcut_text


@pytest.fixture(autouse=True)
def on() -> Iterator[None]:
    with isobit.exact(threads=2, strict=True):
        yield


@pytest.fixture
def python_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the calls that went through the Python kernel."""
    seen: list[str] = []
    call = StatementKernel.__call__

    def counting(self: StatementKernel, *args: Any, **kwargs: Any) -> Any:
        seen.append(self.signature.name)
        return call(self, *args, **kwargs)

    monkeypatch.setattr(StatementKernel, "__call__", counting)
    return seen


def kernel(name: str) -> Any:
    """The function that PyTorch's dispatcher calls for an operator."""
    options = ExactOptions(threads=2).engine
    return next(r.kernel for r in override_for(options).registrations if r.name == name)


X = torch.linspace(-2, 2, 24).reshape(4, 6)
Y = torch.linspace(1, 3, 24).reshape(4, 6)
IMAGE = torch.linspace(-1, 1, 2 * 3 * 5 * 5).reshape(2, 3, 5, 5)
CALLS: dict[str, Callable[[], Any]] = {
    "two tensors": lambda: X + Y,
    "broadcast": lambda: X + Y[0],
    "transposed": lambda: X.t() * Y.t(),
    "a factor": lambda: X * 2.5,
    "an integer factor": lambda: X * 3,
    "a keyword": lambda: torch.add(X, Y, alpha=0.5),
    "attributes": lambda: torch.nn.functional.conv2d(IMAGE, IMAGE, padding=2, stride=[2, 1]),
    "dims": lambda: X.sum([0, 1], keepdim=True),
    "a string": lambda: torch.nn.functional.gelu(X, approximate="tanh"),
    "several results": lambda: torch.max(X, 1),
    "absent results": lambda: torch.ops.aten.native_layer_norm_backward(
        Y, X, [6], X[:, :1].clone(), Y[:, :1].clone(), None, None, [True, False, False]
    ),
    "in place": lambda: X.clone().mul_(Y),
    "into": lambda: torch.mul(X, Y, out=torch.empty(4, 6)),
    "a list": lambda: torch.cat([X, Y, X]),
    "a parameter": lambda: torch.nn.Parameter(X).detach().exp(),
    "empty": lambda: X[:0] + Y[:0],
}


def flat(result: Any) -> list[Any]:
    return [result] if isinstance(result, Tensor) or result is None else list(result)


@pytest.mark.parametrize("what", CALLS)
def test_a_second_call_skips_python_and_gives_the_same(what: str, python_calls: list[str]) -> None:
    first = flat(CALLS[what]())
    assert python_calls or first
    python_calls.clear()
    second = flat(CALLS[what]())
    assert python_calls == []
    assert len(first) == len(second)
    for a, b in zip(first, second, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
            assert torch.equal(a, b)


def test_other_layouts_dtypes_and_numbers_are_other_calls() -> None:
    results = [
        X + Y, X.t() + Y.t(), X.double() + Y, X[:2] + Y[:2], X[::2] + Y[::2], X + 1, X + 1.0, X + 0.0, X + -0.0,
        X + 2, X + 2.0, X + float("nan"), X + float("inf"),
    ]  # fmt: skip
    wide = X.double()
    expected = [
        wide + Y, (wide + Y).t(), wide + Y, (wide + Y)[:2], (wide + Y)[::2], wide + 1, wide + 1.0, wide, wide, wide + 2,
        wide + 2.0, wide + float("nan"), wide + float("inf"),
    ]  # fmt: skip
    for got, want in zip(results, expected, strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-6, atol=1e-6, equal_nan=True)


def test_signed_zero_as_a_number() -> None:
    x = torch.tensor([-0.0, 0.0])
    for _ in range(2):
        assert torch.signbit(x + -0.0).tolist() == [True, False]
        assert torch.signbit(x + 0.0).tolist() == [False, False]
        assert torch.signbit(x * -1.0).tolist() == [False, True]


def test_numbers_that_are_no_doubles() -> None:
    for _ in range(2):
        assert torch.equal(torch.add(X, Y, alpha=2), X + 2 * Y)
        with pytest.raises((OverflowError, RuntimeError)):
            torch.add(X, Y, alpha=10**400)
        assert torch.equal(torch.add(X, Y, alpha=True), X + Y)


def test_keywords_are_compared() -> None:
    for _ in range(2):
        assert torch.equal(torch.add(X, Y, alpha=0.5), X + 0.5 * Y)
        assert torch.equal(torch.add(X, Y), X + Y)
        exact = torch.nn.functional.gelu(X.double(), approximate="none").float()
        torch.testing.assert_close(torch.nn.functional.gelu(X, approximate="none"), exact)


def test_overlapping_memory_goes_the_safe_way() -> None:
    for shift in (0, 1, 3):
        for _ in range(3):
            memory = torch.arange(40.0)
            target, source = memory[shift : shift + 24], memory[:24]
            want = target + source
            target.add_(source)
            assert torch.equal(target, want)
    for _ in range(3):
        x = torch.arange(24.0)
        assert torch.equal(torch.mul(x, x, out=x), torch.arange(24.0) ** 2)


def test_a_target_that_shares_a_line_with_a_source_of_another_layout() -> None:
    for _ in range(3):
        x = torch.arange(16.0).reshape(4, 4)
        want = x + x.t()
        x.add_(x.t())
        assert torch.equal(x, want)


def test_more_layouts_than_records() -> None:
    for _ in range(2):
        for n in range(80):
            a = torch.full((n,), 2.0)
            assert torch.equal(a.sqrt(), torch.full((n,), 2.0).double().sqrt().float())


def test_subclasses_reach_the_python_kernel(python_calls: list[str]) -> None:
    class Mine(Tensor):
        pass

    x = X.as_subclass(Mine)
    for _ in range(3):
        python_calls.clear()
        assert torch.equal((x + Y).as_subclass(Tensor), X + Y)
        assert "aten::add.Tensor" in python_calls


def test_a_call_with_nothing_right_is_pytorchs_error() -> None:
    for _ in range(2):
        with pytest.raises(RuntimeError, match="must match"):
            torch.empty(3) + torch.empty(4)


def test_results_are_owned_once() -> None:
    x, y = torch.randn(10), torch.randn(10)
    dims = [0]
    for _ in range(3):
        torch.max(x, 0)
        x.add_(0.5)
        torch.sum(x, dims)
        torch.ops.aten.native_layer_norm(X, [6], None, None, 1e-5)
    gc.collect()
    before = [sys.getrefcount(v) for v in (x, y, dims, None)]
    results = []
    for _ in range(500):
        results.append(weakref.ref(x + y))
        torch.max(x, 0)
        torch.sum(x, dims)
        x.add_(0.5)
        torch.ops.aten.native_layer_norm(X, [6], None, None, 1e-5)
    gc.collect()
    after = [sys.getrefcount(v) for v in (x, y, dims, None)]
    assert all(abs(b - a) < 50 for a, b in zip(before, after, strict=True))
    assert not any(r() is not None for r in results)


def test_in_place_results_are_the_tensor_itself() -> None:
    x = torch.randn(5)
    for _ in range(3):
        assert x.add_(1.5) is x
        out = torch.empty(5)
        assert torch.exp(x, out=out) is out


def test_autograd_sees_the_same_call() -> None:
    for _ in range(3):
        w = torch.nn.Parameter(X.clone())
        version = w._version
        with torch.no_grad():
            w.mul_(0.5)
        assert w._version == version + 1
        (w * Y).sum().backward()
        assert w.grad is not None and torch.equal(w.grad, Y)


def test_many_threads_at_once() -> None:
    wanted = [torch.full((n,), 1.5).double().exp().float() for n in range(40)]
    wrong: list[int] = []

    def work() -> None:
        for _ in range(20):
            wrong.extend(n for n in range(40) if not torch.equal(torch.full((n,), 1.5).exp(), wanted[n]))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_where_the_interpreter_looks_otherwise_python_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortcut, "_object_layout", lambda: None)
    engine = override_for(ExactOptions(threads=2).engine).engine
    assert shortcut.shortcut_factory.__wrapped__(engine) is None
    assert kernel("aten::add.Tensor")(X, Y).equal(X + Y)


@pytest.mark.parametrize(("level", "triple"), [("aarch64", "aarch64-unknown-linux-gnu"), ("x86-64-v2", None)])
def test_the_code_compiles_for_every_architecture(level: str, triple: str | None) -> None:
    target = level_target(level, triple or "x86_64-unknown-linux-gnu")
    imports = [*TORCH_FUNCTIONS, *PYTHON_FUNCTIONS, RUN_SYMBOL]
    assert compile_object(shortcut_text(target), target, SYMBOL, imports).startswith(b"\x7fELF")
