"""Where plain PyTorch's own ways would let inexactness in: routing by strides and flags, random draws, gradients that
accumulate, optimizers in several forms, variants of operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import isobit
from tests.laws.values import assert_same, place


@pytest.fixture(autouse=True)
def exact() -> Any:
    torch.manual_seed(0)
    torch._dynamo.reset()
    with isobit.exact(threads=1, strict=True):
        yield


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return torch.compile(function, backend="isobit", **options)


def test_a_scripts_own_compile() -> None:
    """torch.compile goes to Inductor, past every override, unless isobit stands in for it."""
    x = torch.randn(3, 1000)

    def function(x: Tensor) -> Tensor:
        return x.exp().sum(1) @ x

    @torch.compile(mode="max-autotune", fullgraph=True)
    def decorated(x: Tensor) -> Tensor:
        return function(x)

    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return function(x)

    model = Model()
    model.compile()
    others = [torch.compile(function, backend=name) for name in (None, "inductor", "aot_eager")]
    for other in (*others, decorated, model):
        assert_same([function(x)], [other(x)])


# Random draws ------------------------------------------------------------------------------------------------------


def _with_an_unused_draw(x: Tensor) -> tuple[Tensor, Tensor]:
    torch.rand(7)
    kept = torch.rand(5)
    torch.randn(3, 3)
    return kept + x, torch.randn(6)


def test_an_unused_draw_still_advances_the_generator() -> None:
    """AOTAutograd drops what nobody reads; later draws, in the graph and after it, must not shift."""
    found = []
    for function in (_with_an_unused_draw, compiled(_with_an_unused_draw, fullgraph=True)):
        torch.manual_seed(3)
        found.append([*function(torch.zeros(5)), torch.rand(4)])
    assert_same(found[1], found[0])


class Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(20, 30)

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(self.layer(F.dropout(x, 0.2, self.training)), 0.5, self.training)


def test_dropout_is_one_mask_for_one_seed() -> None:
    """Eager PyTorch draws with bernoulli_, its graphs with native_dropout."""
    model = Dropping()
    found = []
    for network in (model, compiled(model)):
        torch.manual_seed(3)
        x = torch.ones(11, 20, requires_grad=True)
        y = network(x)
        found.append([y.detach(), *torch.autograd.grad(y.square().sum(), [x, *model.parameters()]), torch.rand(3)])
    assert_same(found[1], found[0])
    assert 0.3 < (found[0][0] == 0).float().mean() < 0.7


def test_a_seed_gives_the_same_draws_whatever_holds_them() -> None:
    """Functional, in-place, and into a strided tensor."""
    torch.manual_seed(9)
    wanted = torch.rand(6, 5)
    torch.manual_seed(9)
    assert_same([torch.empty(5, 6).t().uniform_()], [wanted])
    torch.manual_seed(9)
    assert_same([torch.rand_like(wanted)], [wanted])


def test_a_generator_gives_the_draws_of_its_seed() -> None:
    torch.manual_seed(9)
    wanted = [torch.rand(6, 5), torch.randn(4), torch.randint(9, (5,))]
    own = torch.Generator().manual_seed(9)
    found = [torch.rand(6, 5, generator=own), torch.randn(4, generator=own), torch.randint(9, (5,), generator=own)]
    assert_same(found, wanted)


# Optimizers --------------------------------------------------------------------------------------------------------


def _adamw(compile_step: bool, **options: bool) -> list[Tensor]:
    torch.manual_seed(1)
    params = [nn.Parameter(torch.randn(7, 5)), nn.Parameter(torch.randn(33))]
    optimizer = torch.optim.AdamW(params, lr=0.01, weight_decay=0.1, **options)
    step = compiled(optimizer.step) if compile_step else optimizer.step
    for k in range(3):
        for p in params:
            p.grad = torch.randn_like(p) * 10.0**k
        step()
    return [p.detach() for p in params]


@pytest.mark.parametrize("options", [{"foreach": True}, {"foreach": False}, {"fused": True}], ids=str)
def test_adamw_is_one_update(options: dict[str, bool]) -> None:
    assert_same(_adamw(False, **options), _adamw(False))


@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # what Dynamo imports for optimizers
@pytest.mark.parametrize("options", [{"foreach": True}, {"foreach": False}, {"fused": True}], ids=str)
def test_a_compiled_adamw_step_is_the_eager_one(options: dict[str, bool]) -> None:
    """Where Dynamo keeps the step a tensor, bias corrections would be computed in f32."""
    assert_same(_adamw(True, **options), _adamw(False))


# Routing by strides ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["transposed", "sliced", "offset"])
@pytest.mark.parametrize("bias", [True, False])
def test_linear_is_one_product_whatever_the_strides(where: str, bias: bool) -> None:
    """PyTorch makes one addmm of a contiguous 3-D input, mm and add_ of a strided one."""
    layer = nn.Linear(300, 17, bias=bias)
    plain, flowing = torch.randn(4, 9, 300), torch.randn(4, 9, 17)
    found = []
    for x in (plain, place(plain, where)):
        x = x.clone().requires_grad_() if x is plain else x.requires_grad_()
        y = layer(x)
        pulls = torch.autograd.grad(y, [x, *layer.parameters()], flowing)
        found.append([y.detach(), *pulls])
    assert_same(found[1], found[0])


def test_attention_is_one_formula_whatever_the_strides() -> None:
    """PyTorch chooses flash or math by strides, dropout and who requires a gradient."""
    q, k, v = (torch.randn(2, 3, 9, 16) for _ in range(3))
    mask = torch.randn(9, 9)
    wanted = F.scaled_dot_product_attention(q, k, v, mask)
    with torch.no_grad():
        moved = [place(x, "transposed") for x in (q, k, v)]
        assert_same([F.scaled_dot_product_attention(*moved, mask)], [wanted])
    learned = F.scaled_dot_product_attention(q, k, v, mask.clone().requires_grad_())
    assert_same([learned.detach()], [wanted])


def test_a_transformer_layer_has_no_fast_path_of_its_own() -> None:
    """Without gradients PyTorch runs a fused kernel."""
    layer = nn.TransformerEncoderLayer(16, 2, 24, batch_first=True).eval()
    x = torch.randn(3, 5, 16)
    with torch.no_grad():
        fast = layer(x)
    assert_same([fast], [layer(x).detach()])


def test_a_recurrent_layer_has_no_kernel_of_its_own() -> None:
    """PyTorch's LSTM is one oneDNN kernel; here it is the cell, step by step."""
    whole, cell = nn.LSTM(7, 5), nn.LSTMCell(7, 5)
    for name, p in cell.named_parameters():
        p.data = getattr(whole, f"{name}_l0").data
    x = torch.randn(6, 2, 7)
    with torch.no_grad():
        wanted, _ = whole(x)
        state, found = None, []
        for step in x:
            state = cell(step, state)
            found.append(state[0])
    assert_same([torch.stack(found)], [wanted])


# Gradients that accumulate -----------------------------------------------------------------------------------------


class Twice(nn.Module):
    """Uses its input twice."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(101, 101))

    def forward(self, h: Tensor) -> Tensor:
        return (h @ self.weight).tanh() + h.sin() * 0.7


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # Dynamo of itself
def test_gradients_accumulate_in_one_order() -> None:
    """A compiled part reads h twice and h is read outside, too: (a + b) + c or a + (b + c)?"""
    part, x = Twice(), torch.randn(99, 101)
    found = []
    for call in (part, compiled(part)):
        leaf = x.clone().requires_grad_()
        h = leaf.exp()
        loss = (call(h) * h.cos()).sum() + h.square().sum()
        found.append([loss.detach(), *torch.autograd.grad(loss, [leaf, part.weight])])
    assert_same(found[1], found[0])


def test_gradients_accumulate_over_micro_batches_as_added_by_hand() -> None:
    layer, x = nn.Linear(33, 9), torch.randn(4, 8, 33)
    by_hand = torch.zeros(9, 33)
    for part in x:
        layer(part).square().sum().backward()
        by_hand = by_hand + torch.autograd.grad(layer(part).square().sum(), layer.weight)[0]
    assert_same([layer.weight.grad], [by_hand])


# Variants ----------------------------------------------------------------------------------------------------------


def test_out_variants_are_the_operator() -> None:
    x, y = torch.randn(9, 1031), torch.randn(9, 1031)
    calls: list[tuple[Callable[..., Tensor], tuple[Any, ...]]] = [
        (torch.sum, (x, 1)), (torch.mean, (x, 1)), (torch.mm, (x, y.t())), (torch.exp, (x,)), (torch.div, (x, y)),
        (torch.softmax, (x, 1)), (torch.logsumexp, (x, 1)), (torch.sigmoid, (x,)), (torch.bmm, (x[None], y.t()[None])),
        (torch.addmm, (x[0, :9], x, y.t())), (torch.amax, (x, 1)), (torch.lt, (x, y)),
    ]  # fmt: skip
    for function, args in calls:
        wanted = function(*args)
        out = torch.empty_like(wanted)
        function(*args, out=out)
        strided = torch.empty(*wanted.shape, 2, dtype=wanted.dtype)[..., 0]
        function(*args, out=strided)
        assert_same([out, strided], [wanted, wanted], function.__name__)


def test_python_numbers_where_a_tensor_may_stand() -> None:
    """Overrides get the bare number; it is binary64, rounded once to the tensor's dtype."""
    x = torch.randn(257)
    third = torch.tensor(1 / 3, dtype=torch.float32)
    assert_same([x * (1 / 3), x + 1 / 3, 1 / 3 - x, x / 3.7], [x * third, x + third, third - x, x / torch.tensor(3.7)])
    assert_same([torch.where(x > 0, x, 0.1)], [torch.where(x > 0, x, torch.tensor(0.1))])
    assert_same([x.gt(1 / 3), x.clamp(min=0.1)], [x > third, torch.maximum(x, torch.tensor(0.1))])
    wide = x.double() * (1 / 3)
    assert_same([wide], [x.double() * torch.tensor(1 / 3, dtype=torch.float64)])
    integers = torch.arange(5)
    assert_same([integers * 0.5, torch.add(integers, 1.5, alpha=2)], [integers.float() * 0.5, integers.float() + 3.0])
