"""The eager override: variants, strides, overlap, integers, autograd, and that it goes when it is told to."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import Tensor

import isobit
from isobit.runtime.engine import Engine
from isobit.torch.layer import ExactLayer, ExactOptions, active


def bits(x: Tensor) -> Tensor:
    return x.contiguous().view({4: torch.int32, 8: torch.int64, 2: torch.int16}.get(x.element_size(), x.dtype))


def same(x: Tensor, y: Tensor) -> bool:
    """Equal shape, dtype and bits."""
    return x.dtype == y.dtype and x.shape == y.shape and torch.equal(bits(x), bits(y))


def exact_kernels() -> int:
    """How many kernels PyTorch's dispatcher holds for `add` on the CPU that were registered from Python."""
    return torch._C._dispatch_dump("aten::add.Tensor").count("layer.py")


def test_kernels_go_in_and_out() -> None:
    assert exact_kernels() == 0
    with isobit.exact():
        assert exact_kernels() > 0
        with isobit.exact(strict=True):
            assert active() is not None and active().options.strict
        assert active() is not None and not active().options.strict
    assert exact_kernels() == 0 and active() is None


def test_enable_and_disable_nest() -> None:
    isobit.enable()
    isobit.enable(strict=True)
    isobit.disable()
    assert exact_kernels() > 0
    isobit.disable()
    assert exact_kernels() == 0
    with pytest.raises(RuntimeError, match=r"without isobit\.enable"):
        isobit.disable()


def test_kernels_go_when_the_body_raises() -> None:
    with pytest.raises(KeyError), isobit.exact():
        raise KeyError
    assert exact_kernels() == 0


def test_forward_and_backward_are_ours(reference: ExactLayer) -> None:
    # 2^24 + 1 + 1 is 2^24 one by one, in f32; by lanes (ARITHMETIC.md §3) the ones meet first.
    x = torch.zeros(64)
    x[0], x[1], x[33] = 2.0**24, 1.0, 1.0
    x.requires_grad_()
    y = x.sum()
    assert y.item() == 2.0**24 + 2
    y.backward()
    assert same(x.grad, torch.ones(64))


def test_fma_chain_of_a_product(reference: ExactLayer) -> None:
    a = torch.tensor([[1 + 2.0**-12, -1.0]])
    b = torch.tensor([[1 + 2.0**-12], [1 + 2.0**-11]])
    # (1 + 2^-12)² = 1 + 2^-11 + 2^-24: the last term is lost in f32; −1·(1 + 2^-11) is then added by fma
    assert (a @ b).item() == 0.0
    assert (torch.flip(a, [1]) @ torch.flip(b, [0])).item() == 2.0**-24


VARIANTS = [
    ("add", (torch.ones(3, 4) / 3,), {"alpha": 0.7}),
    ("mul", (2.5,), {}),
    ("sub", (torch.ones(4) / 7,), {"alpha": 2}),
    ("div", (torch.full((3, 1), 3.0),), {}),
    ("exp", (), {}),
    ("clamp", (-0.5, 0.5), {}),
    ("lerp", (torch.ones(3, 4), 0.3), {}),
    ("addcmul", (torch.ones(3, 4) / 3, torch.ones(3, 4) / 7), {"value": -0.1}),
    ("masked_fill", (torch.tensor([True, False, True, False]), 0.1), {}),
]


@pytest.mark.parametrize(("name", "args", "kwargs"), VARIANTS, ids=[v[0] for v in VARIANTS])
def test_variants_agree(reference: ExactLayer, name: str, args: tuple, kwargs: dict) -> None:
    x = torch.randn(3, 4)
    want = getattr(torch, name)(x, *args, **kwargs)
    if hasattr(x, name + "_"):
        assert same(getattr(x.clone(), name + "_")(*args, **kwargs), want)
    for x_of in (_transposed, _sliced, _expanded_sum):
        strided = x_of(x)
        assert same(strided, x)
        assert same(getattr(torch, name)(strided, *args, **kwargs), want), x_of.__name__
    if name not in ("masked_fill", "lerp"):
        out = torch.empty(4, 3).t()
        assert getattr(torch, name)(x, *args, **kwargs, out=out) is out
        assert same(out, want) and out.stride() == (1, 3)


def _transposed(x: Tensor) -> Tensor:
    return x.t().contiguous().t()


def _sliced(x: Tensor) -> Tensor:
    wide = torch.zeros(2 * x.shape[0], 3 * x.shape[1] + 1)
    wide[::2, 1::3] = x
    return wide[::2, 1::3]


def _expanded_sum(x: Tensor) -> Tensor:
    return x.unsqueeze(0).expand(2, *x.shape)[1]


def test_in_place_on_a_strided_tensor_writes_only_its_elements(reference: ExactLayer) -> None:
    base = torch.zeros(4, 6)
    base[::2, ::3].add_(torch.ones(2, 2) / 3)
    assert base.count_nonzero() == 4
    assert same(base[::2, ::3].contiguous(), torch.full((2, 2), 1.0) / 3)


def test_reading_what_is_overwritten(reference: ExactLayer) -> None:
    x = torch.arange(9.0).reshape(3, 3)
    want = x + x.t().clone()
    assert same(x.add_(x.t()), want)
    y = torch.arange(5.0)
    want = y[1:] + y[:-1].clone()
    assert same(y[1:].add_(y[:-1]), want)
    z = torch.arange(4.0)
    assert same(z.mul_(z), torch.tensor([0.0, 1.0, 4.0, 9.0]))
    m = torch.randn(3, 3)
    want = m @ m
    assert same(torch.mm(m, m, out=m), want)


def test_a_target_that_overlaps_itself_is_an_error(reference: ExactLayer) -> None:
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        torch.ones(1).expand(3).add_(1.0)


def test_of_two_results_for_one_tensor_the_last_stands(compiled: ExactLayer) -> None:
    x, variance, one = torch.randn(5, 3), torch.zeros(3), torch.zeros(3)
    torch.nn.functional.batch_norm(x, torch.zeros(3), variance, training=True)
    torch.nn.functional.batch_norm(x, one, one, training=True)
    assert torch.equal(one, variance)


def test_errors_are_pytorchs_own(reference: ExactLayer) -> None:
    with pytest.raises(RuntimeError, match="must match the size"):
        torch.ones(3) + torch.ones(4)
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        torch.ones(3).add_(torch.ones(2, 3))
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.arange(3).add_(0.5)


def test_out_is_resized_with_a_warning(reference: ExactLayer) -> None:
    out = torch.empty(7)
    with pytest.warns(UserWarning, match="resized"):
        torch.add(torch.ones(3), torch.ones(3), out=out)
    assert same(out, torch.full((3,), 2.0))
    empty = torch.empty(0)
    torch.exp(torch.zeros(2), out=empty)
    assert same(empty, torch.ones(2))


def test_empty_and_scalar_tensors(reference: ExactLayer) -> None:
    assert (torch.ones(0, 3) + 1).shape == (0, 3)
    assert torch.ones(0).sum().item() == 0.0
    assert (torch.ones(2, 0) @ torch.ones(0, 3)).tolist() == [[0.0] * 3] * 2
    assert (torch.tensor(1.5) + torch.tensor(2.0, dtype=torch.float64)).dtype == torch.float64
    assert (torch.ones(2) + torch.tensor(2.0, dtype=torch.float64)).dtype == torch.float32


def test_promotion_follows_pytorch(reference: ExactLayer) -> None:
    i = torch.arange(1, 4)
    assert same(i / 2, torch.tensor([0.5, 1.0, 1.5]))
    assert (i * 0.5).dtype == torch.float32 and (i + 1).dtype == torch.int64
    assert (i + torch.ones(3, dtype=torch.float16)).dtype == torch.float16
    torch.set_default_dtype(torch.float64)
    try:
        assert (i / 2).dtype == torch.float64 and (i * 0.5).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert (i / 2).dtype == torch.float32


def test_numbers_are_rounded_once(reference: ExactLayer) -> None:
    x = torch.ones(3)
    assert same(x * 0.1, torch.full((3,), 0.1))
    assert same(x.mul(-0.0), torch.full((3,), -0.0))
    assert same(x.mul(0.0), torch.zeros(3))
    assert same(torch.full((2,), 0.1), torch.tensor([0.1, 0.1]))


def test_a_changed_number_needs_no_new_plan(reference: ExactLayer, monkeypatch: pytest.MonkeyPatch) -> None:
    x, made = torch.ones(3), []
    compile_graph = Engine.compile
    monkeypatch.setattr(Engine, "compile", lambda *a: made.append(1) or compile_graph(*a))
    results = [x.mul(1 + 0.1 * k).add_(1, alpha=0.3 * k)[0].item() for k in range(1, 5)]
    assert len(set(results)) == 4 and len(made) <= 2


def test_a_number_that_is_the_default(reference: ExactLayer) -> None:
    """PyTorch's dispatcher leaves it out of the call."""
    x = torch.randn(2, 3, 4)
    assert torch.equal(torch.nn.Hardtanh(inplace=True)(x.clone()), x.clamp(-1, 1))
    assert 400 < torch.ones(1000).bernoulli_(0.5).sum() < 600
    y = torch.nn.Dropout1d()(x)
    assert torch.equal(y, torch.where(y == 0, y, 2 * x))


def test_an_integer_before_the_first_float_tensor(reference: ExactLayer) -> None:
    x = torch.rand(3) + 1
    for n in (0, 1, 2, 3):
        assert torch.equal(torch.xlogy(n, x), torch.xlogy(torch.full((3,), float(n)), x))
        assert torch.bucketize(n, x.sort()[0]) == torch.bucketize(float(n), x.sort()[0])
        assert torch.isin(n, x) == (n in x.tolist())


def test_casts_saturate(reference: ExactLayer) -> None:
    x = torch.tensor([float("nan"), 3e9, -3e9, 1.9, -1.9])
    assert x.to(torch.int32).tolist() == [0, 2**31 - 1, -(2**31), 1, -1]
    assert x.to(torch.bool).tolist() == [True] * 5
    out = torch.zeros(5, dtype=torch.int64)
    assert out.copy_(x).tolist()[0] == 0


def test_signed_zero_and_nan(reference: ExactLayer) -> None:
    x = torch.tensor([-0.0, 0.0])
    assert same(torch.relu(x), torch.zeros(2))
    assert torch.signbit(x.amin()).item() and not torch.signbit(x.amax()).item()
    assert torch.tensor([1.0, float("nan")]).max().isnan().item()


def test_other_threads_are_covered(reference: ExactLayer) -> None:
    x = torch.zeros(64)
    x[0], x[1], x[33] = 2.0**24, 1.0, 1.0
    found: list[float] = []
    worker = threading.Thread(target=lambda: found.append(x.sum().item()))
    worker.start()
    worker.join()
    assert found == [2.0**24 + 2]


def test_reference_and_compiled_give_the_same_bits() -> None:
    x, w = torch.randn(17, 33), torch.randn(33, 5)

    def everything() -> list[Tensor]:
        y = x @ w
        return [y, torch.softmax(y, 1), y.sum(0), torch.nn.functional.gelu(y), y.var(1), y.exp().log1p()]

    with ExactLayer(ExactOptions(reference=True)):
        want = everything()
    for threads in (1, 2):
        with ExactLayer(ExactOptions(threads=threads)):
            assert all(same(a, b) for a, b in zip(everything(), want, strict=True))
