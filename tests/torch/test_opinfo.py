"""PyTorch's own samples as an outside judge: values, gradients, dtypes, shapes and strides of what the table covers."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_leaves, tree_map

from isobit.torch.layer import ExactLayer, ExactOptions

COVERED = """
    abs add addcdiv addcmul addmm addmv all allclose amax amin aminmax any arange argmax argmin baddbmm
    bitwise_and bitwise_not bmm broadcast_tensors cat ceil chunk clamp clamp_max clamp_min clone constant_pad_nd
    cos count_nonzero cov diag diagonal diff div dot einsum eq equal erf erfc exp exp2 expand expm1 eye fill
    flatten flip float floor floor_divide fmax fmin frac full full_like ge gt hsplit inner isclose isfinite
    isinf isnan kron ldexp le lerp linalg.multi_dot linalg.vecdot linalg.vector_norm linspace log log10 log1p
    log2 log_softmax logical_and logical_not logical_or logical_xor logit logsumexp lt masked_fill masked_select
    matmul max maximum mean meshgrid min minimum mm movedim mul mv nan_to_num narrow native_batch_norm
    native_layer_norm ne neg nn.functional.adaptive_avg_pool1d nn.functional.adaptive_avg_pool2d
    nn.functional.adaptive_max_pool2d nn.functional.avg_pool1d nn.functional.avg_pool2d nn.functional.batch_norm
    nn.functional.bilinear nn.functional.binary_cross_entropy nn.functional.binary_cross_entropy_with_logits
    nn.functional.celu nn.functional.conv1d nn.functional.conv2d nn.functional.conv3d
    nn.functional.conv_transpose1d nn.functional.conv_transpose2d nn.functional.cosine_similarity
    nn.functional.cross_entropy nn.functional.elu nn.functional.gelu nn.functional.glu nn.functional.group_norm
    nn.functional.hardshrink nn.functional.hardsigmoid nn.functional.hardswish nn.functional.hardtanh
    nn.functional.huber_loss nn.functional.instance_norm nn.functional.kl_div nn.functional.l1_loss
    nn.functional.layer_norm nn.functional.leaky_relu nn.functional.linear nn.functional.logsigmoid
    nn.functional.max_pool1d nn.functional.max_pool2d nn.functional.max_pool3d nn.functional.mish
    nn.functional.mse_loss nn.functional.nll_loss nn.functional.normalize nn.functional.one_hot
    nn.functional.pad nn.functional.pixel_shuffle nn.functional.prelu nn.functional.relu nn.functional.relu6
    nn.functional.rms_norm nn.functional.selu nn.functional.silu nn.functional.smooth_l1_loss
    nn.functional.soft_margin_loss nn.functional.softmin nn.functional.softplus nn.functional.softshrink
    nn.functional.softsign nn.functional.tanhshrink nn.functional.threshold nonzero norm ones ones_like outer
    permute pow ravel reciprocal repeat reshape roll round rsqrt rsub scatter select sgn sigmoid sign signbit
    sin slice softmax split sort sqrt square topk argsort squeeze stack std std_mean sub sum t tan tanh tensor_split tile trace
    transpose tril triu trunc unbind unflatten unsqueeze var var_mean view vstack where zeros zeros_like
""".split()  # noqa: SIM905
HOLES = {"norm.nuc", "nn.functional.pad.reflect", "nn.functional.pad.replicate", "nn.functional.pad.replicate_negative"}
ULP = 2.0**-23
Found = tuple[list[Tensor], list[Tensor]]
LARGEST = 1000  # elements of a sample: the interpreter is slow


def named(op: OpInfo) -> str:
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


OPS = [op for op in op_db if op.name in COVERED and named(op) not in HOLES and op.supports_dtype(torch.float32, "cpu")]


def copied(tree: Any, dtype: torch.dtype | None = None) -> Any:
    """Fresh leaves that require gradients as the old ones do; floats in `dtype`."""

    def one(t: Any) -> Any:
        if not isinstance(t, Tensor):
            return t
        new = t.detach().clone(memory_format=torch.preserve_format)
        new = new.to(dtype) if dtype is not None and t.is_floating_point() else new
        return new.requires_grad_(t.requires_grad)

    return tree_map(one, tree)


def tensors(tree: Any) -> list[Tensor]:
    return [t for t in tree_leaves(tree) if isinstance(t, Tensor)]


def results(op: OpInfo, call: tuple[Any, ...]) -> tuple[list[Tensor], list[Tensor]]:
    """What the operator gives, and the gradients of a weighted sum of it."""
    x, args, kwargs = call
    outs = tensors(op(x, *args, **kwargs))
    leaves = [t for t in tensors(call) if t.requires_grad]
    roots = [t for t in outs if t.requires_grad]
    weights = [(1 + torch.arange(t.numel()).reshape(t.shape) / 7).to(t.dtype) for t in roots]
    grads = torch.autograd.grad(roots, leaves, weights, allow_unused=True) if roots and leaves else ()
    return [t.detach() for t in outs], [g for g in grads if g is not None]


def samples(op: OpInfo) -> Iterator[SampleInput]:
    """A few of PyTorch's samples, spread over all it has."""
    torch.manual_seed(zlib.crc32(named(op).encode()))
    given = op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd)
    found = list(itertools.islice(given, 40))
    small = [s for s in found if sum(t.numel() for t in tensors((s.input, s.args, s.kwargs))) <= LARGEST]
    yield from small[:: max(len(small) // 2, 1)][:2]


def error(x: Tensor, true: Tensor) -> float:
    """The largest error, relative to the larger of the true value and the root mean square of all true values.

    What should be about zero, the difference of large terms, is compared on a scale of 1e-3.
    """
    x, true = x.double(), true.double()
    if not torch.equal(x.isnan(), true.isnan()) or not torch.equal(x.isinf(), true.isinf()):
        return float("inf")
    x, true = x[true.isfinite()], true[true.isfinite()]
    if not x.numel():
        return 0.0
    scale = true.abs().clamp_min(max(true.square().mean().sqrt().item(), 1e-3))
    return ((x - true).abs() / scale).max().item()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("op", OPS, ids=map(named, OPS))
def test_operator(op: OpInfo) -> None:
    layer = ExactLayer(ExactOptions(reference=True))
    for sample in samples(op):
        call = (sample.input, sample.args, sample.kwargs)
        try:
            theirs, true = results(op, copied(call)), results(op, copied(call, torch.float64))
        except RuntimeError:
            continue  # a sample that PyTorch itself has no gradient, or no double precision, for
        with layer:  # the samples and the judge's values are plain PyTorch's
            ours = results(op, copied(call))
            assert not layer.monitor.counts
        check(ours, theirs, true)


def check(ours: Found, theirs: Found, true: Found) -> None:
    for mine, other in zip(ours[0], theirs[0], strict=True):
        assert mine.numel() <= 1 or mine.stride() == other.stride()
    for mine, other, judge in zip(ours[0] + ours[1], theirs[0] + theirs[1], true[0] + true[1], strict=True):
        assert (mine.dtype, mine.shape) == (other.dtype, other.shape)
        bound = 1.5 * error(other, judge) + 16 * ULP
        assert error(mine, judge) <= bound, f"{mine} instead of {judge} (PyTorch {other})"


def test_nothing_is_listed_that_pytorch_lacks() -> None:
    assert set(COVERED) - {op.name for op in op_db} == set()
