"""Random operators, each a pure function of a key and the arguments (ARITHMETIC.md §6); the key is the first slot.

`random.py` draws the keys, in eager code as in graphs.
"""

from __future__ import annotations

from typing import Any

import torch

from isobit.ir.expr import axes, call, coord
from isobit.ir.graph import Value
from isobit.operators import random
from isobit.torch.library import draw_key
from isobit.torch.lowering import Call
from isobit.torch.table import Family

FAMILY = Family()


@FAMILY.statement("uniform", random=True)
def uniform(c: Call, key: Value, x: Value, low: Any, high: Any) -> Value:
    return random.uniform(key, c.shape, c.dtype, low, high)


@FAMILY.statement("rand", "rand.generator", random=True)
def rand(c: Call, key: Value, size: Any, *attributes: Any) -> Value:
    return random.uniform(key, c.shape, c.dtype)


@FAMILY.statement("rand_like", "rand_like.generator", random=True)
def rand_like(c: Call, key: Value, x: Value, *attributes: Any) -> Value:
    return random.uniform(key, c.shape, c.dtype)


@FAMILY.statement("normal_functional", random=True, in_place="normal_")
def normal(c: Call, key: Value, x: Value, mean: Any, std: Any) -> Value:
    return random.normal(key, c.shape, c.dtype, mean, std)


@FAMILY.statement("normal.Tensor_float", "normal.float_Tensor", "normal.Tensor_Tensor", random=True)
def normal_of(c: Call, key: Value, mean: Any, std: Any) -> Value:
    return random.normal(key, c.shape, c.dtype, *c.promote(mean, std))


@FAMILY.statement("normal.float_float", random=True)
def normal_sized(c: Call, key: Value, mean: Any, std: Any, size: Any, *attributes: Any) -> Value:
    return random.normal(key, c.shape, c.dtype, mean, std)


@FAMILY.statement("randn", "randn.generator", random=True)
def randn(c: Call, key: Value, size: Any, *attributes: Any) -> Value:
    return random.normal(key, c.shape, c.dtype)


@FAMILY.statement("randn_like", "randn_like.generator", random=True)
def randn_like(c: Call, key: Value, x: Value, *attributes: Any) -> Value:
    return random.normal(key, c.shape, c.dtype)


@FAMILY.statement("bernoulli.p", random=True)
def bernoulli_p(c: Call, key: Value, x: Value, p: Any) -> Value:
    return random.bernoulli(key, c.shape, p, c.dtype)


@FAMILY.statement("bernoulli.Tensor", random=True)
def bernoulli_tensor(c: Call, key: Value, x: Value, p: Value) -> Value:
    return random.bernoulli(key, c.shape, p, c.dtype)


@FAMILY.statement("bernoulli", random=True)
def bernoulli(c: Call, key: Value, p: Value) -> Value:
    return random.bernoulli(key, c.shape, p, c.dtype)


@FAMILY.statement("exponential", random=True)
def exponential(c: Call, key: Value, x: Value, rate: Any) -> Value:
    return random.exponential(key, c.shape, rate, c.dtype)


@FAMILY.statement("randint", "randint.generator", random=True)
def randint(c: Call, key: Value, high: int, size: Any, *attributes: Any) -> Value:
    return random.randint(key, c.shape, 0, high, c.dtype)


@FAMILY.statement("randint.low", "randint.low_generator", random=True)
def randint_low(c: Call, key: Value, low: int, high: int, size: Any, *attributes: Any) -> Value:
    return random.randint(key, c.shape, low, high, c.dtype)


@FAMILY.statement("randint_like", random=True)
def randint_like(c: Call, key: Value, x: Value, high: int, *attributes: Any) -> Value:
    return random.randint(key, c.shape, 0, high, c.dtype)


@FAMILY.statement("randint_like.low_dtype", random=True)
def randint_like_low(c: Call, key: Value, x: Value, low: int, high: int, *attributes: Any) -> Value:
    return random.randint(key, c.shape, low, high, c.dtype)


@FAMILY.statement("native_dropout", static=["p"], random=True)
def native_dropout(c: Call, key: Value, x: Value, p: float, train: bool | None) -> Any:
    return random.dropout(key, x, float(p) if train or train is None else 0.0)


@FAMILY.statement("native_dropout_backward", static=["scale"])
def native_dropout_backward(c: Call, dy: Value, mask: Value, scale: float) -> Value:
    return random.dropout_backward(dy, mask, scale)


@FAMILY.decomposition("dropout", composite=True)
def dropout(x: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    """Always native_dropout, which PyTorch takes in graphs but not in eager code on the CPU."""
    if not 0 <= p <= 1:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not train or p == 0 or x.numel() == 0:
        return x
    result: torch.Tensor = torch.ops.aten.native_dropout(x, p, True)[0]
    return result


@FAMILY.decomposition("dropout_", composite=True)
def dropout_(x: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    """dropout into x."""
    y = torch.ops.aten.dropout(x, p, train)
    return x if y is x else x.copy_(y)


@FAMILY.statement("isobit::words")
def words(c: Call, key: Value, n: int) -> Value:
    """n 64-bit words whose order as signed integers is that of the unsigned words of ARITHMETIC.md §6."""
    (i,) = axes(n)
    upper, lower = (call("philox", key[()], coord(i * 2 + half)) for half in (0, 1))
    word = call("shl", upper, upper.like(32)) | lower
    return c.graph.map((i,), call("xor", word, word.like(-(2**63))))


def _permutation(n: int, generator: torch.Generator | None, dtype: torch.dtype | None) -> torch.Tensor:
    """The stable order of n random words; integers alone, so PyTorch's sort is exact."""
    shuffled: torch.Tensor = torch.ops.isobit.words(draw_key(generator), n)
    return shuffled.sort(stable=True).indices.to(dtype or torch.int64)


@FAMILY.decomposition("randperm", traced=True)
def randperm(n: int, *, dtype: torch.dtype | None = None, **attributes: Any) -> torch.Tensor:
    return _permutation(n, None, dtype)


@FAMILY.decomposition("randperm.generator", traced=True)
def randperm_generator(
    n: int, *, generator: torch.Generator | None, dtype: torch.dtype | None = None, **attributes: Any
) -> torch.Tensor:
    return _permutation(n, generator, dtype)


@FAMILY.decomposition("randperm.out")
def randperm_out(n: int, *, out: torch.Tensor) -> torch.Tensor:
    return out.resize_(n).copy_(_permutation(n, None, out.dtype))


@FAMILY.decomposition("randperm.generator_out")
def randperm_generator_out(n: int, *, generator: torch.Generator | None, out: torch.Tensor) -> torch.Tensor:
    return out.resize_(n).copy_(_permutation(n, generator, out.dtype))
