"""Bits and digests of tensors, read from memory without calling PyTorch's operators.

Reading must not change a run: no random numbers, nothing for autograd to see, nothing for dispatch modes to count. So a
dense CPU tensor's memory is looked at through NumPy. Anything else is first copied by PyTorch.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from typing import Any

import numpy as np
import torch
import xxhash
from blake3 import blake3
from numpy.typing import NDArray

from isobit.arithmetic.digests import canonical_bytes, header
from isobit.arithmetic.dtypes import DType
from isobit.ir.layout import contiguous_strides
from isobit.torch.dtypes import FROM_TORCH, is_plain

_INFINITY = {DType.F16: 0x7C00, DType.BF16: 0x7F80}
_FLOATS: dict[DType, Any] = {DType.F32: np.dtype(np.float32), DType.F64: np.dtype(np.float64)}
_CHUNK = 1 << 20  # bytes that are searched for NaN and hashed while they are in the cache
_WORTH_THREADS = 1 << 22  # bytes below which handing work to threads costs more than it saves
_MOST_THREADS = 4

Bits = NDArray[np.unsignedinteger[Any]]


def scalar_bits(tensor: torch.Tensor) -> str:
    """``f32:3f800000`` for a tensor of one element; ``xxh3:`` and the digest for any other.

    Raises TypeError for an element type that is outside the arithmetic.
    """
    dtype, bits = _bits(tensor)
    if bits.size != 1:
        return f"xxh3:{tensor_digest(tensor).hex()}"
    with np.errstate(invalid="ignore"):
        value = int(_canonical(dtype, bits.reshape(1))[0])
    return f"{dtype}:{value:0{2 * bits.itemsize}x}"


def tensor_digest(tensor: torch.Tensor) -> bytes:
    """XXH3-128 of one tensor, 16 bytes: what `arithmetic.digests.trace_digest` gives in hexadecimal.

    Raises TypeError for an element type that is outside the arithmetic.
    """
    with np.errstate(invalid="ignore"):  # of signalling NaNs
        return _digest(tensor)


def raw_digest(tensor: torch.Tensor) -> bytes:
    """XXH3-128 of the dtype's name, the shape and the elements as they lie in memory, for any dtype whose elements take
    1, 2, 4 or 8 bytes; raises TypeError for others.
    """
    if not _is_ours(tensor) or tensor.element_size() > 8:
        raise TypeError(f"{tensor.dtype} ({tensor.layout}, {tensor.device}) cannot be read")
    state = xxhash.xxh3_128(f"{tensor.dtype}{list(tensor.shape)}".encode())
    for chunk in _chunks(_memory(tensor)):
        state.update(chunk.data)
    return state.digest()


def blake3_digest(tensors: Sequence[torch.Tensor]) -> str:
    """BLAKE3 over the digests that `arithmetic.digests.digest` gives of each tensor, 32 bytes each, in order."""
    whole = blake3()
    with np.errstate(invalid="ignore"):
        for tensor in tensors:
            dtype, chunks = _pieces(tensor)
            state = blake3(_header(dtype, tensor.shape))
            for chunk in chunks:
                state.update(_canonical(dtype, chunk).view(np.uint8).data)
            whole.update(state.digest())
    return whole.hexdigest()


def _digest(tensor: torch.Tensor) -> bytes:
    dtype, chunks = _pieces(tensor)
    state = xxhash.xxh3_128(_header(dtype, tensor.shape))
    for chunk in chunks:
        state.update(_canonical(dtype, chunk).data)
    return state.digest()


def _pieces(tensor: torch.Tensor) -> tuple[DType, Iterable[Bits]]:
    """The element type, and the elements in row-major order, in pieces."""
    if _is_ours(tensor) and tensor.is_contiguous():
        return _dtype(tensor), _held_chunks(tensor.data_ptr(), tensor.element_size(), tensor.shape)
    dtype, bits = _bits(tensor)
    return dtype, _chunks(bits)


_header = lru_cache(1024)(header)


def digest(tensors: Sequence[torch.Tensor]) -> str:
    """One digest of several tensors, in hexadecimal: XXH3-128 over the digest of each, in order.

    Large ones are hashed on as many threads as PyTorch uses, up to four. Raises TypeError for an element type that is
    outside the arithmetic.
    """
    sizes = [t.numel() * t.element_size() for t in tensors]
    threads = min(torch.get_num_threads(), _MOST_THREADS) if sum(sizes) >= _WORTH_THREADS else 1
    if threads == 1:
        with np.errstate(invalid="ignore"):
            return xxhash.xxh3_128_hexdigest(b"".join(map(_digest, tensors)))
    mine, *others = _shares(sizes, threads)
    waiting = [_pool(os.getpid()).submit(_digests, tensors, share) for share in others]
    parts = _digests(tensors, mine)
    for share in waiting:
        parts |= share.result()
    return xxhash.xxh3_128_hexdigest(b"".join(parts[i] for i in range(len(tensors))))


def _digests(tensors: Sequence[torch.Tensor], share: Sequence[int]) -> dict[int, bytes]:
    with np.errstate(invalid="ignore"):
        return {i: _digest(tensors[i]) for i in share}


def _shares(sizes: Sequence[int], threads: int) -> list[list[int]]:
    """Positions in `sizes` for each thread, of nearly equal sums: the largest first, each to whoever has least."""
    shares: list[list[int]] = [[] for _ in range(threads)]
    loads = [0] * threads
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        least = loads.index(min(loads))
        shares[least].append(i)
        loads[least] += sizes[i]
    return shares


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """Helpers of one process: a fork does not take threads along."""
    return ThreadPoolExecutor(_MOST_THREADS - 1, "isobit-digest")


def _chunks(bits: Bits) -> Iterator[Bits]:
    """The elements in row-major order, in pieces."""
    flat = np.ascontiguousarray(bits).reshape(-1)
    step = _CHUNK // flat.itemsize
    return (flat[start : start + step] for start in range(0, flat.size, step))


def _canonical(dtype: DType, bits: Bits) -> Bits:
    """`bits`, not empty, with every NaN replaced by the canonical NaN; the same array where there is none.

    A maximum of floats is NaN if one of them is. For the narrow dtypes NumPy is slow at it; there, as integers, the
    positive NaNs are the largest signed values and the negative ones the largest unsigned values, so two maxima find
    them. Neither depends on the floating-point environment.
    """
    if not dtype.is_float:
        return bits
    if dtype in _FLOATS:
        top = np.maximum.reduce(bits.view(_FLOATS[dtype]))
        return bits if top == top else _with_canonical_nans(dtype, bits)
    infinity, sign = _INFINITY[dtype], 1 << (8 * bits.itemsize - 1)
    if bits.view(f"i{bits.itemsize}").max() <= infinity and bits.max() <= infinity | sign:
        return bits
    return _with_canonical_nans(dtype, bits)


def _with_canonical_nans(dtype: DType, bits: Bits) -> Bits:
    return np.frombuffer(canonical_bytes(bits.view(dtype.numpy), dtype), bits.dtype)


def _bits(tensor: torch.Tensor) -> tuple[DType, Bits]:
    """The element type and the tensor's memory as unsigned integers, in its logical shape."""
    dtype = _dtype(tensor)
    if _is_ours(tensor):
        return dtype, _memory(tensor)
    copied = _copied(tensor)
    return dtype, _memory(copied).copy()  # outlives the tensor


def _dtype(tensor: torch.Tensor) -> DType:
    dtype = FROM_TORCH.get(tensor.dtype)
    if dtype is None:
        raise TypeError(f"{tensor.dtype} is outside the arithmetic (f64, f32, f16, bf16, integers, bool)")
    return dtype


def _is_ours(tensor: torch.Tensor) -> bool:
    """Whether the tensor's memory holds its values and nobody overrides what it is."""
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and is_plain(tensor)


def _memory(tensor: torch.Tensor) -> Bits:
    """A view of a plain tensor's memory, valid while the tensor is."""
    return _view(tensor.data_ptr(), tensor.element_size(), tensor.shape, tensor.stride())


@lru_cache(1024)
def _held_chunks(address: int, size: int, shape: tuple[int, ...]) -> tuple[Bits, ...]:
    """The chunks of a contiguous tensor; as _view."""
    return tuple(_chunks(_view(address, size, shape, contiguous_strides(shape))))


@lru_cache(1024)
def _view(address: int, size: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Bits:
    """Whatever lies at the address when it is read: the same for every tensor that is there in this layout."""
    if 0 in shape:
        return np.empty(shape, f"u{size}")
    steps = [stride * size for stride in strides]
    extent = size + sum(stride * (n - 1) for stride, n in zip(steps, shape, strict=True))
    memory = memoryview((ctypes.c_char * extent).from_address(address))
    return np.ndarray(shape, f"u{size}", memory, 0, steps)


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """A plain tensor with the values of any tensor."""
    with torch.no_grad():
        dense = tensor.detach().to("cpu")
        dense = dense.to_dense() if dense.layout is not torch.strided else dense
        copy = torch.empty(dense.shape, dtype=dense.dtype)
        return copy.copy_(dense)
