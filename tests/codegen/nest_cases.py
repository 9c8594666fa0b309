"""Nests on NumPy views: compiled and run in this process, and a slow evaluator of `NestCall` that they must equal."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import numpy.typing as npt

from isobit.arithmetic import orders
from isobit.arithmetic.dtypes import DType
from isobit.codegen.nest import nest_kernel, row_lanes
from isobit.codegen.objects import compile_object
from isobit.codegen.target import Target
from isobit.ir import numeric
from isobit.ir.expr import Const, Expr, Op
from isobit.ir.kernel import (
    Fetch,
    Fold,
    Linear,
    Loop,
    Nest,
    NestCall,
    Operand,
    Place,
    Point,
    Position,
    RowElement,
    Step,
    Store,
    Temp,
)

Array = npt.NDArray[Any]
_Kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_ENGINES: list[Any] = []
_COMPILED: dict[tuple[str, Target], Any] = {}
_NARROW = (DType.F16, DType.BF16)


def compiled(nest: Nest, target: Target) -> Any:
    """The entry point of a nest's kernel."""
    source = nest_kernel(nest, target)
    key = (source.symbol, target)
    if key not in _COMPILED:
        code = compile_object(source.text, target, source.symbol)
        machine = llvm.Target.from_default_triple().create_target_machine()
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        _ENGINES.append(engine)
        _COMPILED[key] = _Kernel(engine.get_function_address(source.symbol))
    return _COMPILED[key]


@dataclass(frozen=True)
class Window:
    """Where an operand lies, without NumPy's guarantee that it lies inside `base`: byte offset and strides."""

    base: Array
    offset: int
    strides: tuple[int, ...]


@dataclass
class Case:
    """A nest over `views`: (array or window, dtype) with axes (outer, inner); an array's stride 0 is step "0"."""

    n_outer: int
    sizes: tuple[int, ...]
    vector: str
    views: list[tuple[Array | Window, DType]]
    stages: tuple[Loop | Point, ...]
    linears: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    guards: list[tuple[int, int]] = field(default_factory=list)
    dynamics: list[tuple[int, int]] = field(default_factory=list)
    rows: tuple[DType, ...] = ()
    segment: int | None = None
    segment_length: int = 0

    def nest(self) -> Nest:
        return Nest(
            self.n_outer, len(self.sizes) - self.n_outer, self.vector,  # type: ignore[arg-type]
            tuple(Operand(d, _steps(window(v).strides, d.itemsize)) for v, d in self.views),
            tuple(Linear(_steps(c, 1)) for _, c in self.linears),
            tuple(g for g, _ in self.guards), len(self.dynamics), self.rows, self.stages, self.segment,
        )  # fmt: skip

    def call(self, width: int) -> tuple[NestCall, list[Array]]:
        """The launch, and the arrays whose addresses fill its slots (the last is scratch)."""
        bases: list[Array] = []
        places = []
        for view in map(window, (v for v, _ in self.views)):
            slot = next((i for i, b in enumerate(bases) if b is view.base), len(bases))
            if slot == len(bases):
                bases.append(view.base)
            places.append(Place(slot, view.offset, view.strides))
        per_row = int(np.prod(self.sizes[self.n_outer :], dtype=np.int64)) * width
        offsets = list(itertools.accumulate((per_row * d.itemsize + 64 for d in self.rows), initial=0))
        scratch = np.full(offsets[-1] * 4 + 64, 0x5A, np.uint8)
        call = NestCall(
            self.nest(), self.sizes, tuple(places), tuple(self.linears), tuple(b for _, b in self.guards),
            tuple(self.dynamics), (len(bases), 0, offsets[-1]), tuple(offsets[:-1]), self.segment_length,
        )  # fmt: skip
        return call, [*bases, scratch]

    def run(self, target: Target, threads: int = 1) -> None:
        """Execute on the views' memory, thread after thread."""
        nest = self.nest()
        call, bases = self.call(row_lanes(nest, target))
        args = np.array(call.args(), np.int64)
        slots = np.array([_address(b) for b in bases], np.int64)
        entry = compiled(nest, target)
        for tid in range(threads):
            entry(_address(slots), _address(args), tid, threads)

    def evaluate(self) -> None:
        """Execute by the reference, on the views' memory."""
        n = self.n_outer
        if self.segment is None:
            _Grid(self, [range(s) for s in self.sizes]).run()
            return
        for s in range(self.sizes[self.segment]):
            low, total = s * self.segment_length, self.sizes[-1]
            axes = [range(k) for k in self.sizes]
            axes[self.segment] = range(s, s + 1)
            axes[n] = range(min(low, total), min(low + self.segment_length, total))
            _Grid(self, axes).run()


def window(view: Array | Window) -> Window:
    """A view by the array that owns its memory."""
    if isinstance(view, Window):
        return view
    base = view
    while isinstance(base.base, np.ndarray):
        base = base.base
    return Window(base, _address(view) - _address(base), view.strides)


def _address(x: Array) -> int:
    return int(x.__array_interface__["data"][0])


def _steps(strides: Sequence[int], unit: int) -> tuple[Step, ...]:
    return tuple("0" if s == 0 else "1" if s == unit else "s" for s in strides)


class _Grid:
    """Stages over a rectangle of the axes, every expression as an array that broadcasts to it."""

    def __init__(self, case: Case, axes: list[range]) -> None:
        self.case = case
        self.shape = tuple(len(a) for a in axes)
        n = len(axes)
        self.index = [
            np.arange(a.start, a.stop, dtype=np.int64).reshape([-1 if i == k else 1 for i in range(n)])
            for k, a in enumerate(axes)
        ]
        self.start = axes[case.n_outer].start if n > case.n_outer else 0
        self.temps: dict[int, Array] = {}
        self.rows: dict[int, Array] = {}

    def run(self) -> None:
        with np.errstate(all="ignore"):
            for stage in self.case.stages:
                if isinstance(stage, Point):
                    for temp, value in stage.lets:
                        self.temps[temp] = self.value(value)
                self._stage(stage.stores, stage.folds if isinstance(stage, Loop) else ())

    def _stage(self, stores: Sequence[Store], folds: Sequence[Fold]) -> None:
        pending = []
        for store in stores:
            if store.row:
                self.rows[store.target] = np.broadcast_to(self.value(store.value), self.shape)
            else:
                pending.append((store, self.value(store.value).copy()))
        results = [(f, self._fold(f)) for f in folds]
        for store, value in pending:
            self._write(store.target, value)
        for fold, result in results:
            self.temps[fold.temp] = result

    def _write(self, target: int, value: Array) -> None:
        """Into the operand's memory; along axes that it does not move on, the first value."""
        view, dtype = window(self.case.views[target][0]), self.case.views[target][1]
        offset = self._offset(view)
        if 0 in self.shape[: self.case.n_outer] or offset.size == 0 or view.base.nbytes == 0:
            return
        value = np.broadcast_to(value, np.broadcast_shapes(value.shape, offset.shape))
        first = value[tuple(slice(0, n) for n in offset.shape)]
        self._raw(view.base, dtype)[offset // dtype.itemsize] = first

    def _offset(self, view: Window) -> Array:
        offset = np.full((1,) * len(self.shape), view.offset, np.int64)
        for s, i in zip(view.strides, self.index, strict=True):
            offset = offset + (s * i if s else 0)
        return offset

    def _raw(self, base: Array, dtype: DType) -> Array:
        return np.frombuffer((ctypes.c_char * base.nbytes).from_address(_address(base)), dtype.numpy)

    def value(self, e: Expr) -> Array:
        match e:
            case Const(dtype, value):
                if dtype == DType.BF16:
                    return numeric.cast(np.full((1,) * len(self.shape), value, np.float32), DType.F32, dtype)
                return np.full((1,) * len(self.shape), value, dtype.numpy)
            case Op(dtype, name, args):
                return numeric.apply(name, dtype, tuple(map(self.value, args)), args[-1].dtype)
            case Position(_, linear):
                return self._linear(linear)
            case Temp(_, index):
                return self.temps[index]
            case RowElement(_, index):
                return self.rows[index]
            case Fetch():
                return self._fetch(e)
        raise TypeError(e)

    def _linear(self, index: int) -> Array:
        constant, coefficients = self.case.linears[index]
        total = np.full((1,) * len(self.shape), constant, np.int64)
        for c, i in zip(coefficients, self.index, strict=True):
            total = total + (c * i if c else 0)
        return total

    def _fetch(self, e: Fetch) -> Array:
        view, dtype = window(self.case.views[e.operand][0]), e.dtype
        base = view.base
        offset = self._offset(view)
        inside = np.full((1,) * len(self.shape), True)
        for g in e.guards:
            linear, bound = self.case.guards[g]
            p = self._linear(linear)
            inside = inside & (p >= 0) & (p < bound)
        for position, d in e.dynamic:
            stride, extent = self.case.dynamics[d]
            p = self.value(position)
            inside = inside & (p >= 0) & (p < extent)
            offset = offset + np.where((p >= 0) & (p < extent), p, 0) * stride
        if e.fill is None:
            return self._read(base, offset, dtype)
        offset, inside = np.broadcast_arrays(offset, inside)
        flat = (
            self._read(base, np.where(inside, offset, 0), dtype) if base.size else np.zeros(offset.shape, dtype.numpy)
        )
        return np.where(inside, flat, self.value(e.fill))

    def _read(self, base: Array, offset: Array, dtype: DType) -> Array:
        size = dtype.itemsize
        if 0 in self.shape:
            return np.zeros(offset.shape, dtype.numpy)
        span = (offset.max() // size + 1) if offset.size else 0
        inside = offset.size == 0 or (offset.min() >= 0 and span * size <= base.nbytes)
        assert inside and (offset % size == 0).all()
        return self._raw(base, dtype)[offset // size]

    def _fold(self, f: Fold) -> Array:
        n = self.case.n_outer
        if 0 in self.shape[:n]:
            return np.zeros((*self.shape[:n], *(1 for _ in self.shape[n:])))
        x = np.broadcast_to(self.value(f.value), self.shape)
        x = numeric.widen(x.reshape(*self.shape[:n], int(np.prod(self.shape[n:], dtype=np.int64))), f.value.dtype)
        if f.aux is not None:
            aux = numeric.widen(
                np.broadcast_to(self.value(f.aux).reshape(self._outer(f.aux)), self.shape[:n]), f.value.dtype
            )
            out = orders.squared_deviations(x, aux)
        else:
            out = _KINDS[f.kind](x)
        if f.kind in ("argmax", "argmin"):
            out = out + self.start
        if f.value.dtype in _NARROW and f.kind not in ("argmax", "argmin"):
            out = numeric.cast(out, DType.F32, f.value.dtype)
        return np.asarray(out).reshape(*self.shape[:n], *(1 for _ in self.shape[n:]))

    def _outer(self, e: Expr) -> tuple[int, ...]:
        return self.value(e).shape[: self.case.n_outer]


_KINDS = {
    "sum": orders.sum_run, "prod": orders.prod_run, "max": orders.max_run, "min": orders.min_run,
    "argmax": orders.argmax, "argmin": orders.argmin, "tree_sum": orders.tree_sum, "tree_prod": orders.tree_prod,
    "any": lambda x: x.any(-1), "all": lambda x: x.all(-1),
}  # fmt: skip


def same(x: Array, y: Array, dtype: DType) -> Array:
    """Where the bits agree, all NaNs being one."""
    bits = np.dtype(f"u{dtype.itemsize}")
    a, b = np.ascontiguousarray(x).view(bits), np.ascontiguousarray(y).view(bits)
    if not dtype.is_float:
        return np.asarray(a == b)
    nan = np.isnan(numeric.widen(np.ascontiguousarray(x), dtype)) & np.isnan(
        numeric.widen(np.ascontiguousarray(y), dtype)
    )
    return np.asarray((a == b) | nan)


def check(case: Case, target: Target, outputs: Sequence[int], threads: int = 1) -> None:
    """Run by both on the same memory and compare every byte of the outputs' bases."""
    bases = []
    for k in outputs:
        bases.append((window(case.views[k][0]).base, case.views[k][1]))
    before = [b.copy() for b, _ in bases]
    case.evaluate()
    wanted = [b.copy() for b, _ in bases]
    for (base, _), old in zip(bases, before, strict=True):
        base[...] = old
    case.run(target, threads)
    for (base, dtype), want in zip(bases, wanted, strict=True):
        got = same(base, want, dtype)
        if not got.all():
            at = np.argwhere(~got)[0]
            values = f"{base[tuple(at)]!r}, should be {want[tuple(at)]!r}"
            raise AssertionError(f"{(~got).sum()} of {got.size} differ, first at {at}: {values}")


def interesting(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Values of a dtype's representation with all the special ones among them."""
    n = int(np.prod(shape, dtype=np.int64))
    if dtype == DType.BOOL:
        return rng.integers(0, 2, n).astype(bool).reshape(shape)
    if dtype.is_int:
        info = np.iinfo(dtype.numpy)
        x = rng.integers(info.min, info.max, n, endpoint=True, dtype=dtype.numpy)
        special = np.array([0, 1, info.min, info.max, 2, 3], dtype.numpy)
        return np.where(rng.random(n) < 0.3, rng.choice(special, n), x).reshape(shape)
    wide = rng.standard_normal(n) * 10.0 ** rng.integers(-3, 4, n)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-310, 3e38, 1.0, -1.0, 65504.0, 6e-8, 0.5])
    wide = np.where(rng.random(n) < 0.2, rng.choice(special, n), wide)
    with np.errstate(all="ignore"):
        return numeric.cast(wide.reshape(shape), DType.F64, dtype)
