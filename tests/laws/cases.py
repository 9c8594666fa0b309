"""The operators that the laws are shown on: each with generated inputs, run forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from hypothesis import strategies as st

from tests.laws.values import KINDS, SIZES, draw

DTYPES = {"f32": torch.float32, "f64": torch.float64}


@dataclass(frozen=True)
class Work:
    """`function` of `inputs`, those of which require gradients that have one. The inputs in `batch` hold samples along
    dim 0, and so does each output; what reaches one sample's output, and its gradient, is that sample alone.
    """

    function: Callable[..., Any]
    inputs: tuple[torch.Tensor, ...]
    batch: tuple[int, ...] = ()


@dataclass(frozen=True)
class Case:
    """One call: everything in it follows from these five."""

    operator: str
    n: int
    dtype: str = "f32"
    kind: str = "normal"
    seed: int = 0

    def work(self) -> Work:
        return OPERATORS[self.operator](Maker(self))

    def cotangents(self, outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """What the backward pass starts from; plain numbers, so that it shows the operator's own."""
        rng = np.random.default_rng((self.seed, 1))
        return [draw(rng, y.shape, y.dtype, "normal") for y in outputs]


class Maker:
    """Inputs of a case."""

    def __init__(self, case: Case) -> None:
        self.n = case.n
        self.kind = case.kind
        self.dtype = DTYPES[case.dtype]
        self.rng = np.random.default_rng((case.seed, 0))

    def pick(self, *options: Any) -> Any:
        return options[self.rng.integers(len(options))]

    def constant(self, *shape: int) -> torch.Tensor:
        return draw(self.rng, shape, self.dtype, self.kind)

    def tensor(self, *shape: int) -> torch.Tensor:
        return self.constant(*shape).requires_grad_()

    def variance(self, *shape: int) -> torch.Tensor:
        return draw(self.rng, shape, self.dtype, "normal").square()

    def targets(self, classes: int, *shape: int) -> torch.Tensor:
        return torch.from_numpy(self.rng.integers(0, classes, shape))


OPERATORS: dict[str, Callable[[Maker], Work]] = {}


def operator(build: Callable[[Maker], Work]) -> Callable[[Maker], Work]:
    OPERATORS[build.__name__] = build
    return build


def results(case: Case, work: Work | None = None, pull: Sequence[torch.Tensor] | None = None) -> list[torch.Tensor]:
    """The outputs, then the gradients of all inputs that have one."""
    work = work or case.work()
    outputs = as_list(work.function(*work.inputs))
    inputs = [x for x in work.inputs if x.requires_grad]
    reached = [y for y in outputs if y.requires_grad]
    if not inputs or not reached:
        return outputs
    pull = case.cotangents(reached) if pull is None else pull
    gradients = torch.autograd.grad(reached, inputs, pull, allow_unused=True)
    return [y.detach() for y in outputs] + [g for g in gradients if g is not None]


def differentiable(work: Work) -> list[torch.Tensor]:
    """The outputs that a backward pass starts from."""
    return [y for y in as_list(work.function(*work.inputs)) if y.requires_grad]


def as_list(outputs: Any) -> list[torch.Tensor]:
    return list(outputs) if isinstance(outputs, tuple | list) else [outputs]


@st.composite
def cases(
    pick: st.DrawFn,
    names: Sequence[str] | None = None,
    sizes: Sequence[int] = (0, *SIZES),
    kinds: Sequence[str] = KINDS,
) -> Case:
    """Cases over operators, sizes, dtypes, values and seeds."""
    return Case(
        pick(st.sampled_from(sorted(names or OPERATORS))),
        pick(st.sampled_from(sizes)),
        pick(st.sampled_from(sorted(DTYPES))),
        pick(st.sampled_from(kinds)),
        pick(st.integers(0, 9)),
    )


# Products --------------------------------------------------------------------------------------------------------


@operator
def mm(m: Maker) -> Work:
    return Work(torch.mm, (m.tensor(3, m.n), m.tensor(m.n, 5)))


@operator
def addmm(m: Maker) -> Work:
    beta, alpha = m.pick((1, 1), (0.3, 1.7))
    rows = m.pick(1, 4)
    return Work(
        lambda c, a, b: torch.addmm(c, a, b, beta=beta, alpha=alpha),
        (m.tensor(5), m.tensor(rows, m.n), m.tensor(m.n, 5)),
    )


@operator
def bmm(m: Maker) -> Work:
    return Work(torch.bmm, (m.tensor(3, 2, m.n), m.tensor(3, m.n, 4)), (0, 1))


@operator
def mv(m: Maker) -> Work:
    return Work(torch.mv, (m.tensor(6, m.n), m.tensor(m.n)), (0,))


@operator
def linear(m: Maker) -> Work:
    return Work(F.linear, (m.tensor(m.pick(1, 5, 33), m.n), m.tensor(17, m.n), m.tensor(17)), (0,))


@operator
def linear_3d(m: Maker) -> Work:
    return Work(F.linear, (m.tensor(2, 3, m.n), m.tensor(5, m.n), m.tensor(5)), (0,))


@operator
def matmul_4d(m: Maker) -> Work:
    return Work(torch.matmul, (m.tensor(2, 2, 3, m.n), m.tensor(2, 1, m.n, 4)), (0, 1))


@operator
def conv2d(m: Maker) -> Work:
    stride, padding, dilation, groups = m.pick((1, 1, 1, 1), (2, 1, 1, 1), (1, 2, 2, 1), (1, 0, 1, 2), (2, 1, 1, 4))
    channels, side = 4, 5 + m.n % 7

    def call(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, w, b, stride, padding, dilation, groups)

    return Work(call, (m.tensor(3, channels, side, 6), m.tensor(8, channels // groups, 3, 2), m.tensor(8)), (0,))


@operator
def conv1d(m: Maker) -> Work:
    return Work(
        lambda x, w: F.conv1d(x, w, stride=2, padding=1), (m.tensor(2, 3, m.n % 97 + 3), m.tensor(4, 3, 3)), (0,)
    )


@operator
def conv_transpose2d(m: Maker) -> Work:
    return Work(
        lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1),
        (m.tensor(2, 3, m.n % 5 + 2, 4), m.tensor(3, 4, 3, 3), m.tensor(4)),
        (0,),
    )


# Reductions ------------------------------------------------------------------------------------------------------


@operator
def sums(m: Maker) -> Work:
    dims = m.pick(None, (0,), (1,), (2,), (0, 2), (1, 2), (0, 1))
    shape = m.pick((2, 3, m.n), (m.n, 2, 3), (2, m.n, 3))
    return Work(lambda x: x.sum() if dims is None else x.sum(dims), (m.tensor(*shape),))


@operator
def mean(m: Maker) -> Work:
    return Work(lambda x: x.mean(-1), (m.tensor(3, m.n),), (0,))


@operator
def variance(m: Maker) -> Work:
    correction = m.pick(0, 1)
    return Work(lambda x: torch.var_mean(x, 1, correction=correction), (m.tensor(3, m.n),), (0,))


@operator
def prod(m: Maker) -> Work:
    return Work(lambda x: x.detach().prod(1), (m.tensor(3, m.n),), (0,))


@operator
def extrema(m: Maker) -> Work:
    return Work(lambda x: (*x.max(1), *x.min(1)), (m.tensor(3, max(m.n, 1)),), (0,))


@operator
def amax_argmax(m: Maker) -> Work:
    return Work(lambda x: (x.amax(1), x.argmax(1), x.argmin(1)), (m.tensor(3, max(m.n, 1)),), (0,))


@operator
def logsumexp(m: Maker) -> Work:
    return Work(lambda x: torch.logsumexp(x, 1), (m.tensor(3, m.n),), (0,))


@operator
def norm2(m: Maker) -> Work:
    return Work(lambda x: torch.linalg.vector_norm(x, 2, 1), (m.tensor(3, m.n),), (0,))


@operator
def softmax(m: Maker) -> Work:
    return Work(lambda x: x.softmax(-1), (m.tensor(3, m.n),), (0,))


@operator
def softmax_inner(m: Maker) -> Work:
    return Work(lambda x: x.softmax(1), (m.tensor(2, m.n, 3),), (0,))


@operator
def log_softmax(m: Maker) -> Work:
    return Work(lambda x: x.log_softmax(-1), (m.tensor(3, m.n),), (0,))


# Norms, pooling, losses --------------------------------------------------------------------------------------------


@operator
def layer_norm(m: Maker) -> Work:
    n = max(m.n, 1)
    return Work(lambda x, w, b: F.layer_norm(x, (n,), w, b), (m.tensor(3, n), m.tensor(n), m.tensor(n)), (0,))


@operator
def batch_norm_train(m: Maker) -> Work:
    def call(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> Any:
        mean, var = mean.clone(), var.clone()
        return F.batch_norm(x, mean, var, w, b, training=True), mean, var

    tail = m.pick((m.n + 2,), (m.n % 9 + 1, 5))
    inputs = (m.tensor(2, 3, *tail), m.tensor(3), m.tensor(3), m.constant(3), m.variance(3))
    return Work(call, inputs)


@operator
def batch_norm_eval(m: Maker) -> Work:
    inputs = (m.tensor(3, 4, m.n), m.constant(4), m.variance(4), m.tensor(4), m.tensor(4))
    return Work(F.batch_norm, inputs, (0,))


@operator
def group_norm(m: Maker) -> Work:
    x = m.tensor(6, 4, max(m.n, 1))
    return Work(lambda x, w, b: F.group_norm(x, 2, w, b), (x, m.tensor(4), m.tensor(4)), (0,))


@operator
def max_pool2d(m: Maker) -> Work:
    stride, padding = m.pick((2, 0), (1, 1), (3, 1))
    return Work(lambda x: F.max_pool2d(x, 3, stride, padding), (m.tensor(2, 3, m.n % 31 + 4, 6),), (0,))


@operator
def avg_pool2d(m: Maker) -> Work:
    stride, padding, count = m.pick((2, 0, True), (1, 1, False), (3, 1, True))
    return Work(
        lambda x: F.avg_pool2d(x, 3, stride, padding, count_include_pad=count), (m.tensor(2, 3, m.n % 31 + 4, 6),), (0,)
    )


@operator
def adaptive_avg_pool2d(m: Maker) -> Work:
    return Work(lambda x: F.adaptive_avg_pool2d(x, (3, 2)), (m.tensor(2, 3, m.n % 31 + 1, 5),), (0,))


@operator
def adaptive_max_pool2d(m: Maker) -> Work:
    return Work(lambda x: F.adaptive_max_pool2d(x, (3, 2)), (m.tensor(2, 3, m.n % 31 + 3, 5),), (0,))


@operator
def cross_entropy(m: Maker) -> Work:
    reduction, smoothing = m.pick(("mean", 0.0), ("sum", 0.1), ("mean", 0.1))
    targets = m.targets(7, max(m.n, 1))
    targets[targets == 3] = -100

    def call(x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x, targets, weights, reduction=reduction, label_smoothing=smoothing)

    return Work(call, (m.tensor(max(m.n, 1), 7), m.variance(7)))


@operator
def nll_each(m: Maker) -> Work:
    return Work(
        lambda x, t: F.cross_entropy(x, t, reduction="none"),
        (m.tensor(5, max(m.n, 1)), m.targets(max(m.n, 1), 5)),
        (0, 1),
    )


@operator
def mse_loss(m: Maker) -> Work:
    return Work(F.mse_loss, (m.tensor(3, m.n), m.constant(3, m.n)))


@operator
def smooth_l1_loss(m: Maker) -> Work:
    return Work(F.smooth_l1_loss, (m.tensor(3, max(m.n, 1)), m.constant(3, max(m.n, 1))))


@operator
def bce_with_logits(m: Maker) -> Work:
    return Work(F.binary_cross_entropy_with_logits, (m.tensor(3, m.n), m.variance(3, m.n)))


# Pointwise -------------------------------------------------------------------------------------------------------

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": F.relu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu,
    "sigmoid": torch.sigmoid, "tanh": torch.tanh, "softplus": F.softplus, "logsigmoid": F.logsigmoid, "elu": F.elu,
    "leaky_relu": F.leaky_relu, "hardtanh": F.hardtanh, "hardswish": F.hardswish, "mish": F.mish,
    "selu": F.selu, "hardshrink": F.hardshrink, "softshrink": F.softshrink,
}  # fmt: skip
FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "exp": torch.exp, "log": torch.log, "log1p": torch.log1p, "expm1": torch.expm1, "erf": torch.erf, "sin": torch.sin,
    "cos": torch.cos, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "reciprocal": torch.reciprocal, "square": torch.square,
    "abs": torch.abs, "cube": lambda x: x**3,
}  # fmt: skip


def _file_pointwise(name: str, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    def build(m: Maker) -> Work:
        return Work(function, (m.tensor(3, m.n),), (0,))

    OPERATORS[name] = build


for _name, _function in (ACTIVATIONS | FUNCTIONS).items():
    _file_pointwise(_name, _function)


@operator
def arithmetic(m: Maker) -> Work:
    def call(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x + y, x - 2.5 * y, x * y, x / y, torch.maximum(x, y), torch.where(x > y, x, y), x.lerp(y, 0.3)

    return Work(call, (m.tensor(3, m.n), m.tensor(3, m.n)), (0, 1))


@operator
def comparisons(m: Maker) -> Work:
    def call(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x < y, x == y, x != 0, x.isnan(), x.sign(), x.clamp(-0.5, 0.5), x.to(torch.int32), x.bool()

    return Work(call, (m.constant(3, m.n), m.constant(3, m.n)), (0, 1))
