"""One row or more for every operator: a call and its inputs. Every backend runs these rows (reference, compiled, …)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from isobit.arithmetic.dtypes import DType
from isobit.arithmetic.functions import FUNCTIONS
from isobit.ir.graph import Graph, Value
from isobit.ir.numeric import cast
from isobit.ir.ops import ELEMENTARY
from isobit.operators import activations as act
from isobit.operators import convolution as conv
from isobit.operators import linear as lin
from isobit.operators import losses, norms, pooling, softmax, views
from isobit.operators import optimizers as opt
from isobit.operators import pointwise as pw
from isobit.operators import random as rnd
from isobit.operators import reductions as red


@dataclass(frozen=True)
class Tensor:
    """An input. `kind`: wild (all of f32 with its corners), normal, unit (0 to 1), index (0 to `below`), flag, key,
    scalar (0-d f64) or int."""

    shape: tuple[int, ...]
    kind: str = "wild"
    below: int = 0

    def dtype(self, under_test: DType) -> DType:
        fixed = {"index": DType.I64, "key": DType.I64, "int": DType.I64, "flag": DType.BOOL, "scalar": DType.F64}
        return fixed.get(self.kind, under_test)

    def array(self, rng: np.random.Generator, under_test: DType) -> Any:
        dtype = self.dtype(under_test)
        if self.kind == "index":
            return rng.integers(0, self.below, self.shape)
        if self.kind in ("int", "key"):
            return np.asarray(rng.integers(-(2**40), 2**40, self.shape))
        if self.kind == "flag":
            return np.asarray(rng.random(self.shape) < 0.5)
        if self.kind == "scalar":
            return np.array(0.3)
        values = rng.random(self.shape) if self.kind == "unit" else rng.standard_normal(self.shape)
        with np.errstate(over="ignore"):
            return cast(np.asarray(wild(rng, values) if self.kind == "wild" else values), DType.F64, dtype)


CORNERS = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-42, -1e-42, 1.5e-38, 3e38, -3e38, 88.7, -104.0]


def wild(rng: np.random.Generator, values: Any) -> Any:
    """Spreads the magnitudes and puts corners into a tenth of the places."""
    values = np.asarray(values * 10.0 ** rng.integers(-5, 6, values.shape))
    return np.where(rng.random(values.shape) < 0.1, rng.choice(CORNERS, values.shape), values)


@dataclass(frozen=True)
class Case:
    """A call of operator `name`; `label` tells the rows of one operator apart."""

    name: str
    fn: Callable[..., Any]
    inputs: tuple[Tensor, ...]
    label: str = ""

    def __str__(self) -> str:
        return f"{self.name}-{self.label}" if self.label else self.name

    def graph(self, under_test: DType) -> Graph:
        """A graph of the call with all results as outputs."""
        g = Graph()
        result = self.fn(*(g.input(t.dtype(under_test), t.shape) for t in self.inputs))
        outs: list[Value | None] = list(result) if isinstance(result, tuple) else [result]
        g.outputs = [v.id for v in outs if v is not None]
        return g

    def arrays(self, rng: np.random.Generator, under_test: DType) -> list[Any]:
        return [t.array(rng, under_test) for t in self.inputs]


def T(*shape: int, kind: str = "wild", below: int = 0) -> Tensor:
    return Tensor(shape, kind, below)


def N(*shape: int) -> Tensor:
    return Tensor(shape, "normal")


def U(*shape: int) -> Tensor:
    return Tensor(shape, "unit")


KEY = Tensor((), "key")
X, Y = T(5, 67), T(67)
ROWS: list[Case] = []


def after(fn: Callable[..., Any], *attributes: Any, **named: Any) -> Callable[..., Any]:
    """fn with attributes after its tensors."""
    return lambda *tensors: fn(*tensors, *attributes, **named)


def row(name: str, fn: Callable[..., Any], *inputs: Tensor, label: str = "") -> None:
    ROWS.append(Case(name, fn, inputs, label))


for unary in ("neg", "abs", "sqrt", "floor", "ceil", "trunc", *sorted(ELEMENTARY & set(FUNCTIONS) - {"pow"})):
    row(unary, getattr(pw, {"abs": "absolute"}.get(unary, unary)), T(1037))
for unary in ("reciprocal", "square", "sign", "isnan", "isinf", "isfinite", "signbit", "nan_to_num", "logical_not"):
    row(unary, getattr(pw, unary), X)
for binary in (
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "add",
    "sub",
    "rsub",
    "mul",
    "div",
    "maximum",
    "minimum",
    "copysign",
):
    row(binary, getattr(pw, binary), X, Y)
for binary in ("logical_and", "logical_or", "logical_xor"):
    row(binary, getattr(pw, binary), X, Y)
for binary in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    row(binary, getattr(pw, binary), T(5, 67, kind="int"), T(67, kind="int"))
    row(binary, getattr(pw, binary), T(70, kind="flag"), T(70, kind="flag"), label="bool")
for binary in ("shift_left", "shift_right"):
    row(binary, getattr(pw, binary), T(70, kind="int"), T(70, kind="index", below=20))
row("bitwise_not", pw.bitwise_not, T(70, kind="int"))
row("remainder", pw.remainder, T(70, kind="int"), T(70, kind="index", below=9))
row("round", pw.round_, X)
row("round", lambda x: pw.round_(x, 2), X, label="decimals")
for mode in ("floor", "trunc"):
    row("div", lambda x, y, m=mode: pw.div(x, y, m), X, Y, label=mode)
    row(
        "div",
        lambda x, y, m=mode: pw.div(x, y, m),
        T(70, kind="int"),
        T(70, kind="index", below=9),
        label=mode + "-int",
    )
row("add", lambda x, y, k: pw.add(x, y, k), X, Y, T(kind="scalar"), label="alpha")
row("add", pw.add, T(), T(), label="0d")
row("mul", lambda x: pw.mul(x, 0.1), T(0, 3), label="empty")
for k in (0.5, -0.5, 2, -1) + ((3, 1.7) if "pow" in FUNCTIONS else ()):
    row("pow", lambda x, k=k: pw.pow_(x, k), X, label=str(k))
row("pow", lambda x: pw.pow_(x, 5), T(70, kind="int"), label="int")
row("fma", pw.fma, X, Y, T(5, 1))
row("addcmul", lambda x, y, z: pw.addcmul(x, y, z, 0.3), X, Y, T(5, 1))
row("addcdiv", lambda x, y, z: pw.addcdiv(x, y, z, 0.3), X, Y, T(5, 1))
row("lerp", lambda x, y: pw.lerp(x, y, 0.3), X, Y)
row("lerp", pw.lerp, X, Y, U(5, 67), label="tensor")
row("clamp", lambda x: pw.clamp(x, -0.5, 2), X)
row("where", pw.where, T(5, 67, kind="flag"), X, Y)
for dtype in (DType.F64, DType.F32, DType.I64, DType.I32, DType.I8, DType.U8, DType.BOOL, DType.F16, DType.BF16):
    row("cast", lambda x, d=dtype: pw.cast(x, d), T(300), label=dtype)
    row("cast", lambda x, d=dtype: pw.cast(x, d), T(300, kind="int"), label="i64-" + dtype)
row("full", lambda k: pw.full(k.graph, (3, 40), k, DType.F32), T(kind="scalar"))

row("relu", act.relu, X)
row("threshold", lambda x: act.threshold(x, 0.1, 20), X)
row("threshold_backward", lambda g, x: act.threshold_backward(g, x, 0), X, X)
for name in ("leaky_relu", "softplus", "logsigmoid", "hardtanh", "hardsigmoid", "hardswish", "silu", "gelu"):
    row(name, getattr(act, name), X)
    row(name + "_backward", getattr(act, name + "_backward"), X, X)
row("gelu", lambda x: act.gelu(x, "tanh"), X, label="tanh")
row("gelu_backward", lambda g, x: act.gelu_backward(g, x, "tanh"), X, X, label="tanh")
row("elu", lambda x: act.elu(x, 1.3, 1.1, 0.7), X)
for is_result in (False, True):
    row("elu_backward", lambda g, x, r=is_result: act.elu_backward(g, 1.3, 1.1, 0.7, r, x), X, X, label=str(is_result))
row("sigmoid", act.sigmoid, X)
row("sigmoid_backward", act.sigmoid_backward, X, X)
row("tanh_backward", act.tanh_backward, X, X)

R = (T(3, 33, 41), T(1), T(1025), T(2, 1030, 3), T(0, 4))
for name in ("sum", "prod", "mean", "var", "std", "any", "all", "norm"):
    fn = getattr(red, name, None) or getattr(red, name + "_")
    for i, x in enumerate(R):
        row(name, fn, x, label=f"all{i}")
    for dims in ((0,), (1,), (2,), (0, 2), (1, 2)):
        row(name, after(fn, dims=dims), R[0], label=str(dims))
    row(name, after(fn, dims=1, keepdim=True), R[3], label="middle")
row("var_mean", lambda x: red.var_mean(x, (0, 2)), R[0])
for name in ("amax", "amin", "argmax", "argmin"):
    row(name, getattr(red, name), R[0], label="all")
for name in ("amax", "amin", "argmax", "argmin", "max_", "min_", "logsumexp"):
    for d in (0, 1, 2):
        row(name.rstrip("_"), after(getattr(red, name), d), R[0], label=str(d))
for p in (1, float("inf"), -float("inf"), 0):
    row("norm", lambda x, p=p: red.norm(x, p, 1), R[0], label=f"p{p}")

row("mm", lin.mm, N(33, 300), N(300, 17))
row("mm", lin.mm, T(5, 7), T(7, 3), label="wild")
row("mm", lin.mm, T(5, 0), T(0, 3), label="empty")
row("bmm", lin.bmm, N(3, 5, 40), N(3, 40, 7))
row("mv", lin.mv, N(9, 300), N(300))
row("dot", lin.dot, N(700), N(700))
row("outer", lin.outer, T(9), T(11))
row("addmm", lambda c, a, b: lin.addmm(c, a, b, 0.3, 0.7), N(17), N(9, 40), N(40, 17))
row("addmv", lin.addmv, N(9), N(9, 40), N(40))
row("baddbmm", lin.baddbmm, N(3, 5, 7), N(3, 5, 40), N(3, 40, 7))
row("linear", lin.linear, N(2, 5, 40), N(17, 40), N(17))
row("linear", lin.linear, N(5, 40), N(40), label="vector")

for label, dims, s, p, d, k, g, t in (
    ("plain", 2, 1, 0, 1, 3, 1, False), ("same", 2, 1, 1, 1, 3, 1, False), ("stride", 2, 2, 1, 1, 3, 1, False),
    ("1x1", 2, 1, 0, 1, 1, 1, False), ("1x1-stride", 2, 2, 0, 1, 1, 1, False), ("dilated", 2, 2, 1, 2, 3, 1, False),
    ("groups", 2, 2, 1, 1, 3, 2, False), ("depthwise", 2, 1, 1, 1, 3, 4, False), ("1d", 1, 3, 1, 1, 2, 1, False),
    ("3d", 3, 2, 1, 1, 3, 1, False), ("transposed", 2, 2, 1, 1, 3, 1, True),
    ("transposed-groups", 1, 2, 0, 1, 3, 2, True),
):  # fmt: skip
    spatial = (9, 10, 5)[:dims]
    x = N(2, 4, *spatial)
    w = N(4, 8 // g, *(k,) * dims) if t else N(8, 4 // g, *(k,) * dims)
    call = after(conv.convolution, [s], [p], [d], t, [0], g)
    row("convolution", call, x, w, N(8), label=label)
    y = Case("", call, (x, w, N(8))).graph(DType.F32)
    dy = N(*y.nodes[y.outputs[0]].shape)
    row(
        "convolution_backward",
        after(conv.convolution_backward, [s], [p], [d], t, g),
        dy, x, w, label=label,
    )  # fmt: skip

P = T(2, 3, 9, 11)
for label, k, s, p, d, ceil in (
    ("2", 2, 2, 0, 1, False), ("3", 3, 3, 1, 1, False), ("3s2p1", 3, 2, 1, 1, False), ("3s1p1", 3, 1, 1, 1, False),
    ("ceil", 3, 2, 1, 1, True),
    ("dilated", 2, 1, 0, 2, False),
):  # fmt: skip
    out = pooling.uniform_windows(P.shape[-2:], [k], [s], [p], [d], ceil)
    dy = T(2, 3, *(o.outputs for o in out))
    geometry = ([k, k], [s], [p], [d], ceil)
    row("max_pool", after(pooling.max_pool, *geometry), P, label=label)
    row(
        "max_pool_backward",
        after(pooling.max_pool_backward, *geometry),
        dy, P, T(*dy.shape, kind="index", below=99), label=label,
    )  # fmt: skip
    if d == 1:
        average = ([k, k], [s], [p], ceil, False)
        row("avg_pool", after(pooling.avg_pool, *average), P, label=label)
        row("avg_pool_backward", after(pooling.avg_pool_backward, *average), dy, P, label=label)
for size in (1, 3, 4):
    dy = T(2, 3, size, size)
    row("adaptive_avg_pool", after(pooling.adaptive_avg_pool, [size, size]), P, label=str(size))
    row("adaptive_max_pool", after(pooling.adaptive_max_pool, [size, size]), P, label=str(size))
    row("adaptive_avg_pool_backward", after(pooling.adaptive_avg_pool_backward, 2), dy, P, label=str(size))
    row(
        "adaptive_max_pool_backward",
        after(pooling.adaptive_max_pool_backward, 2),
        dy, P, T(*dy.shape, kind="index", below=99), label=str(size),
    )  # fmt: skip

for name in ("softmax", "log_softmax", "safe_softmax"):
    for d in (0, 1):
        row(name, after(getattr(softmax, name), d), T(33, 70), label=str(d))
for name in ("softmax_backward", "log_softmax_backward"):
    for d in (0, 1):
        row(name, after(getattr(softmax, name), d), N(33, 70), U(33, 70), label=str(d))

EPS = 1e-5
for label, n, x in (("row", 1, N(6, 1030)), ("block", 2, N(4, 5, 7))):
    w = N(*x.shape[-n:])
    m = N(*x.shape[:-n], *(1,) * n)
    row("layer_norm", lambda x, w, b, n=n: norms.layer_norm(x, n, w, b, EPS), x, w, w, label=label)
    row(
        "layer_norm_backward",
        lambda g, x, m, r, w, n=n: norms.layer_norm_backward(g, x, n, m, r, w), x, x, m, m, w, label=label,
    )  # fmt: skip
for label, x in (("2d", N(4, 3, 5, 7)), ("1d", N(40, 5))):
    c = N(x.shape[1])
    row("batch_norm", after(norms.batch_norm, 0.1, EPS), x, c, c, c, c, label=label)
    row("batch_norm_backward", norms.batch_norm_backward, x, x, c, c, c, label=label)
    row(
        "batch_norm_inference",
        after(norms.batch_norm_inference, EPS),
        x,
        c,
        c,
        c,
        U(*c.shape),
        label=label,
    )
    row(
        "batch_norm_inference_backward",
        after(norms.batch_norm_inference_backward, EPS), x, x, c, c, U(*c.shape), label=label,
    )  # fmt: skip
row("group_norm", after(norms.group_norm, 3, EPS), N(2, 6, 4, 5), N(6), N(6))
row(
    "group_norm_backward",
    after(norms.group_norm_backward, 3), N(2, 6, 4, 5), N(2, 6, 4, 5), N(2, 3), N(2, 3), N(6),
)  # fmt: skip

for reduction in ("none", "mean", "sum"):
    S = T(5, 67) if reduction == "none" else T()
    for name in ("mse_loss", "smooth_l1_loss", "huber_loss"):
        row(name, after(getattr(losses, name), reduction), X, X, label=reduction)
        back = getattr(losses, name + "_backward")
        row(name + "_backward", after(back, reduction), S, X, X, label=reduction)
    for name in ("bce_loss", "bce_with_logits_loss"):
        extra = (None,) if name == "bce_loss" else (None, None)
        fn, back = getattr(losses, name), getattr(losses, name + "_backward")
        row(name, after(fn, *extra, reduction), U(5, 67), U(5, 67), label=reduction)
        row(
            name + "_backward",
            after(back, *extra, reduction), S, U(5, 67), U(5, 67), label=reduction,
        )  # fmt: skip
    S = N(40, 3) if reduction == "none" else N()
    nll = (N(40, 10, 3), T(40, 3, kind="index", below=11), U(10))  # one target in eleven is no class
    row("nll_loss", after(losses.nll_loss, reduction, 4), *nll, label=reduction)
    row(
        "nll_loss_backward",
        lambda g, x, t, w, s, r=reduction: losses.nll_loss_backward(g, x, t, w, r, 4, s), S, *nll, N(), label=reduction,
    )  # fmt: skip

for dtype in (DType.F32, DType.F64, DType.F16, DType.BF16):
    row("uniform", lambda k, d=dtype: rnd.uniform(k, (7, 41), d, -0.1, 0.2), KEY, label=dtype)
    row("normal", lambda k, d=dtype: rnd.normal(k, (7, 41), d, 0.5, 2.0), KEY, label=dtype)
    row("exponential", lambda k, d=dtype: rnd.exponential(k, (41,), 1.5, d), KEY, label=dtype)
row("bernoulli", lambda k, p: rnd.bernoulli(k, (7, 41), p), KEY, U(7, 41))
row("dropout", lambda k, x: rnd.dropout(k, x, 0.25), KEY, T(7, 41))
row("dropout_backward", lambda g, m: rnd.dropout_backward(g, m, 1 / 0.75), T(7, 41), T(7, 41, kind="flag"))
row("randint", lambda k: rnd.randint(k, (300,), -5, 2**41), KEY)

for label, decoupled, amsgrad in (("adam", False, True), ("adamw", True, False)):
    settings = opt.AdamSettings(0.01, 0.9, 0.999, 1e-8, 0.1, decoupled)
    moments = (N(300), U(300), *((U(300),) if amsgrad else ()))
    row(
        "adam_step",
        lambda w, g, t, m, v, *most, s=settings: opt.adam_step(w, g, m, v, most[0] if most else None, t, s),
        N(300), N(300), T(kind="index", below=20), *moments, label=label,
    )  # fmt: skip
row("sgd_step", lambda w, g, b: opt.sgd_step(w, g, b, -0.1, 0.1, 0.9, 0.2, False), N(300), N(300), N(300))

V = T(3, 4, 5)
row("view", lambda x: views.view(x, (4, -1)), V)
row("expand", lambda x: views.expand(x, (2, -1, 4, 5)), T(3, 1, 5))
row("permute", lambda x: views.permute(x, (2, 0, 1)), V)
row("slice", lambda x: views.slice_(x, 1, 1, 9, 2), V)
row("select", lambda x: views.select_(x, 1, -1), V)
row("flip", lambda x: views.flip(x, (0, 2)), V)
row("cat", lambda x, y: views.cat([x, y, x], 1), V, T(3, 2, 5))
row("stack", lambda x: views.stack([x, x], -1), V)
row("pad", lambda x: views.pad(x, (1, 2, 0, -1), 7), V)
row("roll", lambda x: views.roll(x, (2, -1), (0, 2)), V)
row("tril", lambda x: views.tril(x, 1), V)
row("triu", lambda x: views.triu(x, -1), V)
row("index_select", lambda x, i: views.index_select(x, 1, i), V, T(7, kind="index", below=5))
row("gather", lambda x, i: views.gather(x, 2, i), V, T(3, 4, 2, kind="index", below=6))
row("embedding", views.embedding, T(9, 33), T(4, 5, kind="index", below=10))
row("arange", lambda k: views.arange(k.graph, 70, 3, -2, DType.F32), KEY)
row("one_hot", lambda i: views.one_hot(i, 5), T(3, 4, kind="index", below=6))

NONE = N(0, 4, 8, 8)  # a batch without samples
row("convolution", after(conv.convolution, [2], [1]), NONE, N(6, 4, 3, 3), N(6), label="none")
row(
    "convolution_backward", after(conv.convolution_backward, [2], [1]), N(0, 6, 4, 4), NONE, N(6, 4, 3, 3), label="none"
)
row("max_pool", after(pooling.max_pool, [2, 2]), NONE, label="none")
row("avg_pool_backward", after(pooling.avg_pool_backward, [3, 3], [2], [1]), N(0, 4, 4, 4), NONE, label="none")
row("softmax", after(softmax.softmax, 1), NONE, label="none")
row("layer_norm", after(norms.layer_norm, 1, None, None, EPS), NONE, label="none")
row("mse_loss", losses.mse_loss, NONE, NONE, label="none")
row("mm", lin.mm, N(0, 3), N(3, 2), label="none")
