"""Contractions on NumPy views: compiled and run in this process, and the reference that they must equal."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from ctypes import CFUNCTYPE, c_int64, c_void_p
from dataclasses import dataclass
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import numpy.typing as npt

from isobit.arithmetic import orders
from isobit.arithmetic.dtypes import DType
from isobit.codegen.contraction import contraction_args, contraction_needs, lower_contraction
from isobit.codegen.objects import compile_object
from isobit.codegen.target import Target
from isobit.ir.kernel import Contraction, ContractionCall, Operand, Place, Store, Temp

Array = npt.NDArray[Any]
Entry = Any
_Kernel = CFUNCTYPE(None, c_void_p, c_void_p, c_int64, c_int64)
_ENGINES: list[Any] = []
_DTYPES = {np.dtype(np.float32): DType.F32, np.dtype(np.float64): DType.F64}


@cache
def compiled(c: Contraction, target: Target) -> tuple[Entry, ...]:
    """The entry points of a contraction's kernels."""
    return tuple(_load(compile_object(s.text, target, s.symbol), s.symbol) for s in lower_contraction(c, target))


def _load(code: bytes, symbol: str) -> Entry:
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _ENGINES.append(engine)
    return _Kernel(engine.get_function_address(symbol))


def address(x: Array) -> int:
    """Where a view starts; `moved` (bytes) shifts it to where its element 0 would be."""
    return int(x.__array_interface__["data"][0]) + int(getattr(x, "moved", 0))


@dataclass(frozen=True)
class Call:
    """lhs over (b, m, k) axes, rhs over (b, k, n), operands over (b, m, n): views with any strides."""

    contraction: Contraction
    lhs: Array
    rhs: Array
    operands: tuple[Array, ...]
    linears: tuple[tuple[int, tuple[int, ...]], ...] = ()
    bounds: tuple[int, ...] = ()
    dynamics: tuple[tuple[int, int], ...] = ()

    @property
    def sizes(self) -> tuple[int, ...]:
        b, m, _, _ = self.contraction.n_axes
        k = self.lhs.shape[b + m :]
        return (*self.lhs.shape[: b + m], *self.rhs.shape[b + len(k) :], *k)

    def prepare(self, target: Target, threads: int = 1) -> Prepared:
        return Prepared(self, target, threads)

    def reference(self) -> Array:
        """Temp(0) over the flattened (b, m, n), in the order of ARITHMETIC.md §4."""
        b, m, n, k = (int(np.prod(part)) for part in self.parts())
        return contract(self.lhs.reshape(b, m, k), self.rhs.reshape(b, k, n))

    def parts(self) -> list[tuple[int, ...]]:
        """The sizes of each class: b, m, n, k."""
        ends = np.cumsum(self.contraction.n_axes)
        return [self.sizes[end - count : end] for end, count in zip(ends, self.contraction.n_axes, strict=True)]


class Prepared:
    """A call with its scratch and argument arrays, ready to run again and again."""

    def __init__(self, call: Call, target: Target, threads: int) -> None:
        shared, own = contraction_needs(call.contraction, call.sizes, target, threads)
        own = -(-own // 64) * 64
        self._memory = np.full(shared + own * threads + 64, 0xFF, np.uint8)  # NaN: nothing may be assumed of it
        arena = -(-address(self._memory) // 64) * 64
        tensors = (call.lhs, call.rhs, *call.operands)
        self._slots = np.array([*(address(t) for t in tensors), arena], np.int64)
        places = [Place(i, 0, t.strides) for i, t in enumerate(tensors)]
        workspace, scratch = (len(tensors), 0), (len(tensors), shared, own)
        numbers = ContractionCall(
            call.contraction, call.sizes, places[0], places[1], tuple(places[2:]),
            call.linears, call.bounds, call.dynamics, workspace, scratch,
        )  # fmt: skip
        self._args = [np.array(a, np.int64) for a in contraction_args(numbers, target, threads)]
        self._entries, self._threads, self._call = compiled(call.contraction, target), threads, call
        self._pointers = [(address(self._slots), address(a)) for a in self._args]

    def run(self) -> None:
        for entry, (slots, args) in zip(self._entries, self._pointers, strict=True):
            if self._threads == 1:
                entry(slots, args, 0, 1)
                continue
            team = [threading.Thread(target=entry, args=(slots, args, t, self._threads)) for t in range(self._threads)]
            for thread in team:
                thread.start()
            for thread in team:
                thread.join()


def contract(lhs: Array, rhs: Array) -> Array:
    """Σ_k lhs[b, m, k]·rhs[b, k, n] by the reference."""
    return orders.contract(lhs[..., :, None, :], rhs.swapaxes(-1, -2)[..., None, :, :])


def plain(dtype: DType, n_axes: tuple[int, int, int, int]) -> Contraction:
    """A contraction that stores its result."""
    steps: tuple[Any, ...] = ("s",) * sum(n_axes[:3])
    return Contraction(dtype, n_axes, "k", "n", (Operand(dtype, steps),), (Store(0, Temp(dtype, 0)),))


def plain_call(n_axes: tuple[int, int, int, int], lhs: Array, rhs: Array, out: Array) -> Call:
    return Call(plain(_DTYPES[lhs.dtype], n_axes), lhs, rhs, (out,))


def matmul(lhs: Array, rhs: Array, out: Array) -> Call:
    """[..., m, k] × [..., k, n] with equal leading dimensions."""
    return plain_call((lhs.ndim - 2, 1, 1, 1), lhs, rhs, out)


def same_bits(x: Array, y: Array) -> bool:
    """Equal bit for bit, all NaNs being one value."""
    if x.shape != y.shape or x.dtype != y.dtype:
        return False
    if x.dtype.kind != "f":
        return bool(np.array_equal(x, y))
    raw = np.dtype(f"u{x.itemsize}")
    equal = np.ascontiguousarray(x).view(raw) == np.ascontiguousarray(y).view(raw)
    return bool(np.all(equal | (np.isnan(x) & np.isnan(y)).reshape(equal.shape)))


def windows(x: Array, kernel: Sequence[int], stride: int = 1) -> Array:
    """[n, c, h, w] as [n, c, oh, ow, kh, kw]: a view."""
    view = np.lib.stride_tricks.sliding_window_view(x, tuple(kernel), axis=(2, 3))
    return view[:, :, ::stride, ::stride]


def convolution(x: Array, w: Array, out: Array, stride: int = 1) -> Call:
    """out[n, co, oh, ow] of a padded image: m = co, n = (n, oh, ow), k = (ci, kh, kw)."""
    patches = windows(x, w.shape[2:], stride).transpose(1, 4, 5, 0, 2, 3)
    return plain_call((0, 1, 3, 3), w, patches, out.transpose(1, 0, 2, 3))


def weight_gradient(x: Array, dy: Array, out: Array) -> Call:
    """out[co, ci, kh, kw]: m = co, n = (ci, kh, kw), k = (n, oh, ow)."""
    patches = windows(x, out.shape[2:]).transpose(0, 2, 3, 1, 4, 5)
    return plain_call((0, 1, 3, 3), dy.transpose(1, 0, 2, 3), patches, out)


def input_gradient(w: Array, dy: Array, out: Array) -> Call:
    """out[n, ci, h, w] from dy padded by kernel − 1: m = ci, n = (n, h, w), k = (co, kh, kw) with taps turned round."""
    patches = windows(dy, w.shape[2:]).transpose(1, 4, 5, 0, 2, 3)
    turned = w.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1]
    return plain_call((0, 1, 3, 3), turned, patches, out.transpose(1, 0, 2, 3))
