"""Elementary functions as vectors: each operation of the protocol, and each function, against the NumPy reference."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from isobit.arithmetic.dtypes import DType
from isobit.arithmetic.functions import FUNCTIONS
from isobit.arithmetic.ops import NumpyOps
from isobit.codegen.elementary import VectorOps
from isobit.codegen.emit import Builder, Module, Value, i64
from isobit.codegen.objects import compile_object
from isobit.codegen.target import Target, host_levels, host_target
from isobit.ir import ops
from isobit.ir.expr import Op
from isobit.ir.kernel import Fetch, Loop, Store
from tests.codegen.nest_cases import Array, Case, same

N = 4096


@pytest.fixture(params=host_levels())
def target(request: pytest.FixtureRequest) -> Target:
    return host_target(request.param)


def patterns(seed: int, dtype: DType) -> Array:
    """Random bit patterns, so that every exponent comes up, and plainer values; special ones first."""
    rng = np.random.default_rng(seed)
    bits = np.dtype(f"u{dtype.itemsize}")
    x = rng.integers(0, np.iinfo(bits).max, N, dtype=bits, endpoint=True).view(dtype.numpy)
    plain = (rng.standard_normal(N) * 10.0 ** rng.integers(-2, 3, N)).astype(dtype.numpy)
    x = np.where(rng.random(N) < 0.5, x, plain)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 1e-40, -1e-310, 88.8, -104.0, 710.0, 1e30, 3e38]
    with np.errstate(all="ignore"):
        x[: len(special)] = np.array(special).astype(dtype.numpy)
    return x


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_functions(name: str, target: Target) -> None:
    """f32 and f64 in one kernel, on thousands of bit patterns."""
    arity = ops.TABLE[name].arity
    views: list[tuple[Array, DType]] = []
    stores, wanted = [], []
    for dtype in (DType.F32, DType.F64):
        args = [patterns(k, dtype) for k in range(arity)]
        first = len(views)
        views += [(a, dtype) for a in args]
        stores.append((dtype, Op(dtype, name, tuple(Fetch(dtype, first + k) for k in range(arity)))))
        with np.errstate(all="ignore"):
            wanted.append(FUNCTIONS[name](*args))
    outputs = [np.zeros(N, d.numpy) for d, _ in stores]
    stage = Loop(tuple(Store(len(views) + k, e) for k, (_, e) in enumerate(stores)))
    results = [(o, d) for o, (d, _) in zip(outputs, stores, strict=True)]
    Case(0, (N,), "inner", [*views, *results], (stage,)).run(target)
    for (dtype, _), got, want in zip(stores, outputs, wanted, strict=True):
        wrong = np.flatnonzero(~same(got, want, dtype))
        assert wrong.size == 0, f"{dtype}: {wrong.size} differ, first {views[0][0][wrong[0]]!r}: {got[wrong[0]]!r}"


Make = Callable[[Any, Sequence[Any]], Any]
FLOATS: dict[str, Make] = {
    "add": lambda o, a: o.add(a[0], a[1]), "sub": lambda o, a: o.sub(a[0], a[1]), "mul": lambda o, a: o.mul(a[0], a[1]),
    "div": lambda o, a: o.div(a[0], a[1]), "sqrt": lambda o, a: o.sqrt(a[0]), "neg": lambda o, a: o.neg(a[0]),
    "fabs": lambda o, a: o.fabs(a[0]), "fma": lambda o, a: o.fma(a[0], a[1], a[2]),
    "rare": lambda o, a: o.rare(o.gt(a[0], o.f(1e300)), lambda: o.mul(a[1], a[2]), a[0]),
    "i2f": lambda o, a: o.i2f(o.ashr(o.bits(a[0]), o.i(11))), "constant": lambda o, a: o.add(a[0], o.f(-0.1)),
    **{n: lambda o, a, n=n: o.select(getattr(o, n)(a[0], a[1]), a[1], a[2])
       for n in ("lt", "le", "eq", "ne", "gt", "ge")},
    "masks": lambda o, a: o.select(o.mor(o.mand(o.lt(a[0], a[1]), o.mnot(o.lt(a[1], a[2]))), o.eq(a[0], a[2])),
                                   a[0], a[1]),
}  # fmt: skip
TABLE = tuple(range(3, 3 + 64 * 7, 7))
INTEGERS: dict[str, Make] = {
    **{n: lambda o, a, n=n: getattr(o, n)(o.bits(a[0]), o.bits(a[1]))
       for n in ("iadd", "isub", "imul", "iand", "ior", "ixor", "umulhi")},
    **{n: lambda o, a, n=n: getattr(o, n)(o.bits(a[0]), o.iand(o.bits(a[1]), o.i(63)))
       for n in ("shl", "lshr", "ashr")},
    **{n: lambda o, a, n=n: o.iselect(getattr(o, n)(o.bits(a[0]), o.bits(a[1])), o.bits(a[1]), o.i(-5))
       for n in ("ilt", "ieq", "iult")},
    "f2i": lambda o, a: o.f2i(o.select(o.lt(o.fabs(a[0]), o.f(2.0**51)), a[0], o.f(-7.9))),
    "table": lambda o, a: o.table(TABLE, o.lshr(o.bits(a[0]), o.i(58))),
    "wide constant": lambda o, a: o.ixor(o.bits(a[0]), o.i(0xDEADBEEF12345678)),
}  # fmt: skip


@pytest.mark.parametrize("lanes", [1, 4, 8])
def test_protocol(lanes: int, target: Target) -> None:
    """Every operation of `Ops`, all in one function."""
    x = [patterns(k, DType.F64) for k in range(3)]
    x[1][100:200] = x[0][100:200]
    makes = {**FLOATS, **INTEGERS}
    out = np.zeros((len(makes), N), np.int64)
    _run(_function(makes, lanes, target), target, [*x, out])
    for k, (name, make) in enumerate(makes.items()):
        with np.errstate(all="ignore"):
            want = np.broadcast_to(make(NumpyOps(), x), N).astype(np.float64 if name in FLOATS else np.int64)
        got = out[k].view(want.dtype)
        assert same(got, want, DType.F64 if name in FLOATS else DType.I64).all(), name


def _function(makes: dict[str, Make], lanes: int, target: Target) -> str:
    module = Module(target)
    b = Builder(module, "all", "void", [("ptr", "x"), ("ptr", "y"), ("ptr", "z"), ("ptr", "out")], "")
    with b.loop(0, N, lanes) as i:
        at = b.mul(i, 8)
        args = [b.load(b.offset(p, at), "double", lanes) for p in b.params[:3]]
        for k, make in enumerate(makes.values()):
            result: Value = make(VectorOps(b, lanes), args)
            b.store(result, b.offset(b.params[3], b.add(at, i64(8 * N * k))))
    b.ret()
    module.define("all", b.finish())
    return module.text()


def _run(text: str, target: Target, arrays: Sequence[Array]) -> None:
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(compile_object(text, target)))
    engine.finalize_object()
    entry = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(arrays))(engine.get_function_address("all"))
    entry(*(a.ctypes.data for a in arrays))
