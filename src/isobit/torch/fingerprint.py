"""Bits and digests of tensors, read from memory without calling PyTorch's operators.

Reading must not change a run: no random numbers, nothing for autograd to see, nothing for dispatch modes to
count. So a dense CPU tensor's memory is looked at through NumPy. Anything else is first copied by PyTorch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
import xxhash
from numpy.typing import NDArray

_NAMES = {
    torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16",
    torch.int64: "i64", torch.int32: "i32", torch.int16: "i16", torch.int8: "i8",
    torch.uint8: "u8", torch.bool: "bool",
}  # fmt: skip
_INFINITY = {"f64": 0x7FF0000000000000, "f32": 0x7F800000, "f16": 0x7C00, "bf16": 0x7F80}
_NAN = {"f64": 0x7FF8000000000000, "f32": 0x7FC00000, "f16": 0x7E00, "bf16": 0x7FC0}  # ARITHMETIC.md §1
_CHUNK = 1 << 20  # bytes that are searched for NaN and hashed while they are in the cache

Bits = NDArray[np.unsignedinteger[Any]]


def scalar_bits(tensor: torch.Tensor) -> str:
    """``f32:3f800000`` for a tensor of one element; ``xxh3:`` and the digest for any other.

    Raises TypeError for an element type that is outside the arithmetic.
    """
    name, bits = _bits(tensor)
    if bits.size != 1:
        return f"xxh3:{digest([tensor])}"
    value = int(_canonical(name, bits.reshape(1))[0])
    return f"{name}:{value:0{2 * bits.itemsize}x}"


def digest(tensors: Iterable[torch.Tensor]) -> str:
    """XXH3-128, in hexadecimal, over dtype, shape and canonical bytes of each tensor (ARITHMETIC.md §7), in
    order.

    Raises TypeError for an element type that is outside the arithmetic.
    """
    state = xxhash.xxh3_128()
    for tensor in tensors:
        name, bits = _bits(tensor)
        state.update(f"{name}[{','.join(map(str, bits.shape))}]".encode("ascii"))
        for chunk in _chunks(bits):
            state.update(_canonical(name, chunk).data)
    return state.hexdigest()


def _chunks(bits: Bits) -> Iterator[Bits]:
    """The elements in row-major order, in pieces."""
    flat = np.ascontiguousarray(bits).reshape(-1)
    step = _CHUNK // flat.itemsize
    return (flat[start : start + step] for start in range(0, flat.size, step))


def _canonical(name: str, bits: Bits) -> Bits:
    """`bits`, not empty, with every NaN replaced by the one canonical NaN; the same array where there is
    none.

    As integers the positive NaNs are the largest signed values and the negative ones the largest unsigned
    values, so two maxima find them, whatever the floating-point environment is.
    """
    if name not in _INFINITY:
        return bits
    infinity, sign = _INFINITY[name], 1 << (8 * bits.itemsize - 1)
    if bits.view(f"i{bits.itemsize}").max() <= infinity and bits.max() <= infinity | sign:
        return bits
    return np.where((bits & (sign - 1)) > infinity, bits.dtype.type(_NAN[name]), bits)


def _bits(tensor: torch.Tensor) -> tuple[str, Bits]:
    """The element type's name and the tensor's memory as unsigned integers, in its logical shape."""
    name = _NAMES.get(tensor.dtype)
    if name is None:
        raise TypeError(f"{tensor.dtype} is outside the arithmetic (f64, f32, f16, bf16, integers, bool)")
    if not _is_plain(tensor):
        tensor = _copied(tensor)
    size = tensor.element_size()
    strides = [stride * size for stride in tensor.stride()]
    if tensor.numel() == 0:
        return name, np.empty(tensor.shape, f"u{size}")
    extent = size + sum(stride * (n - 1) for stride, n in zip(strides, tensor.shape, strict=True))
    memory = memoryview((ctypes.c_char * extent).from_address(tensor.data_ptr()))
    return name, np.ndarray(tensor.shape, f"u{size}", memory, 0, strides)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether the tensor is memory of this process that holds its values as they are."""
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and not tensor.is_neg()
    )


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        dense = tensor.detach().to("cpu")
        dense = dense.to_dense() if dense.layout is not torch.strided else dense
        copy = torch.empty(dense.shape, dtype=dense.dtype)
        return copy.copy_(dense)
