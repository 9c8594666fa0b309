"""Tensors for the laws: values that are hard on arithmetic, places in memory, and what "the same bits" means."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

KINDS = ("normal", "spread", "special", "tiny")
PLACES = ("transposed", "sliced", "offset", "channels_last", "expanded")
# Around the 32 lanes, the chunks of 256 and the blocks of 1024 of docs/arithmetic.md, and primes.
SIZES = (1, 2, 7, 31, 32, 33, 97, 255, 256, 257, 1023, 1024, 1025, 2053)
_EXTREMES = (0.0, -0.0, float("inf"), float("-inf"), float("nan"))


def draw(rng: np.random.Generator, shape: Sequence[int], dtype: torch.dtype, kind: str) -> torch.Tensor:
    """A contiguous tensor of one of KINDS.

    spread: magnitudes over most of the exponent range; tiny: subnormals and their neighbours; special: zeros of both
    signs, infinities, NaN, subnormals and the greatest numbers among plain ones.
    """
    if 0 in shape:
        return torch.empty(tuple(shape), dtype=dtype)
    array = np.asarray(rng.standard_normal(tuple(shape)))
    single = dtype is torch.float32
    if kind == "spread":
        array = array * 2.0 ** rng.integers(*((-60, 60) if single else (-400, 400)), array.shape)
    elif kind == "tiny":
        array = array * 2.0 ** (-130 if single else -1030)
    elif kind == "special":
        info = np.finfo(np.float32 if single else np.float64)
        pool = np.array([*_EXTREMES, info.smallest_subnormal, -info.tiny, info.tiny / 2, info.max, 1.0])
        array = np.where(rng.random(array.shape) < 0.2, rng.choice(pool, array.shape), array)
    return torch.from_numpy(np.asarray(array, np.float32 if single else np.float64, order="C"))


def place(x: torch.Tensor, where: str) -> torch.Tensor:
    """x's values elsewhere in memory; `expanded` repeats x's first row and so changes them."""
    with torch.no_grad():
        moved = _placed(x.detach(), where)
    return moved.requires_grad_(x.requires_grad)


def _placed(x: torch.Tensor, where: str) -> torch.Tensor:
    if where == "expanded":
        return x[:1].expand(x.shape) if x.dim() and x.shape[0] else x
    if where == "channels_last" and x.dim() == 4:
        return x.contiguous(memory_format=torch.channels_last)
    if where in ("transposed", "channels_last"):
        return x.permute(*reversed(range(x.dim()))).contiguous().permute(*reversed(range(x.dim())))
    if where == "sliced":
        wide = torch.full([2 * n for n in x.shape], float("nan")).to(x.dtype)
        wide[tuple(slice(None, None, 2) for _ in x.shape)] = x
        return wide[tuple(slice(None, None, 2) for _ in x.shape)]
    flat = torch.empty(x.numel() + 3, dtype=x.dtype)  # offset: no alignment but the element's own
    flat[3:] = x.reshape(-1)
    return flat[3:].view(x.shape)


def contiguous(x: torch.Tensor) -> torch.Tensor:
    """A copy of x with row-major strides."""
    copy = torch.empty(x.shape, dtype=x.dtype)
    copy.copy_(x.detach())
    return copy.requires_grad_(x.requires_grad)


def bits(x: torch.Tensor) -> np.ndarray:
    """The bits of x's elements as integers, all NaNs being one."""
    array = x.detach().contiguous().numpy()
    if not x.is_floating_point():
        return array
    whole = array.view(np.int32 if array.itemsize == 4 else np.int64)
    return np.where(np.isnan(array), np.iinfo(whole.dtype).max, whole)


def assert_same(found: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor], about: object = "") -> None:
    """The same dtypes, shapes and bits."""
    assert len(found) == len(wanted), about
    for k, (a, b) in enumerate(zip(found, wanted, strict=True)):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), f"{about}: result {k}"
        differing = np.flatnonzero(bits(a).ravel() != bits(b).ravel())
        if differing.size:
            at = int(differing[0])
            values = (x.detach().contiguous().numpy().ravel()[at] for x in (a, b))
            raise AssertionError(
                f"{about}: result {k} {tuple(a.shape)} differs in {differing.size} elements, "
                f"first at {at}: {' and '.join(map(repr, values))}"
            )
