"""Rounding mode and flush-to-zero of the process neither enter a result nor are changed by a call."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from isobit.codegen.objects import compile_object
from isobit.codegen.target import host_target
from isobit.runtime.loader import Loader
from isobit.runtime.program import Launch, ProgramSpec, Runtime
from tests.runtime.hand_kernels import Array, addresses, binary

_X86 = """
define i64 @get() noinline nounwind {
  %p = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %p)
  %x = load i32, ptr %p
  %y = zext i32 %x to i64
  ret i64 %y
}
define void @set(i64 %x) noinline nounwind {
  %p = alloca i32
  %y = trunc i64 %x to i32
  store i32 %y, ptr %p
  call void @llvm.x86.sse.ldmxcsr(ptr %p)
  ret void
}
"""
_ARM = """
define i64 @get() noinline nounwind {
  %x = call i64 @llvm.aarch64.get.fpcr()
  ret i64 %x
}
define void @set(i64 %x) noinline nounwind {
  call void @llvm.aarch64.set.fpcr(i64 %x)
  ret void
}
"""
# Modes to set over the register's neutral value. MXCSR: rounding is bits 13-14, FZ 15, DAZ 6; FPCR: 22-23, FZ 24.
_MODES = {
    "x86_64": {"up": 0x4000, "down": 0x2000, "to zero": 0x6000, "flush": 0x8040, "all": 0xE040},
    "aarch64": {"up": 1 << 22, "down": 2 << 22, "to zero": 3 << 22, "flush": 1 << 24, "all": 7 << 22},
}
_NEUTRAL = {"x86_64": 0x1F80, "aarch64": 0}
_STATUS = 0x3F  # the flags that MXCSR raises; FPCR has none
_ARCH = host_target().arch


@dataclass(frozen=True)
class ControlRegister:
    """The calling thread's floating-point control register."""

    loader: Loader
    get_address: int
    set_address: int

    def get(self) -> int:
        return int(ctypes.CFUNCTYPE(ctypes.c_int64)(self.get_address)())

    def set(self, value: int) -> None:
        ctypes.CFUNCTYPE(None, ctypes.c_int64)(self.set_address)(value)

    @contextmanager
    def holding(self, value: int) -> Iterator[None]:
        before = self.get()
        self.set(value)
        try:
            yield
        finally:
            self.set(before)


@pytest.fixture(scope="module")
def register() -> ControlRegister:
    target = host_target()
    loader = Loader(target)
    code = compile_object({"x86_64": _X86, "aarch64": _ARM}[_ARCH], target)
    return ControlRegister(loader, *loader.link(code, ["get", "set"], {}, "control register"))


def sensitive_inputs(op: str, dtype: type[np.floating]) -> tuple[Array, Array]:
    """Operands whose results differ between rounding modes, are subnormal, or stem from subnormals."""
    info = np.finfo(dtype)
    rng = np.random.default_rng(3)
    x = rng.standard_normal(4000).astype(dtype)
    y = rng.standard_normal(4000).astype(dtype)
    x[:1000] = info.smallest_subnormal * rng.integers(1, 1000, 1000)
    y[:500] = 1
    x[1000:2000] *= info.tiny
    y[1000:1500] = 0.25 if op == "fmul" else info.tiny
    return x, y


@pytest.mark.parametrize("mode", _MODES[_ARCH])
@pytest.mark.parametrize(("op", "dtype", "name"), [
    ("fadd", np.float32, "float"), ("fmul", np.float32, "float"), ("fdiv", np.float32, "float"),
    ("fadd", np.float64, "double"), ("fmul", np.float64, "double"), ("fdiv", np.float64, "double"),
])  # fmt: skip
def test_the_mode_of_the_process_does_not_enter(
    runtime: Runtime, register: ControlRegister, mode: str, op: str, dtype: type[np.floating], name: str
) -> None:
    x, y = sensitive_inputs(op, dtype)
    value = _NEUTRAL[_ARCH] | _MODES[_ARCH][mode]
    spec = ProgramSpec((Launch(binary(op, name), (len(x),)),), 2, 1)
    want, got, spoilt = (np.zeros_like(x) for _ in range(3))
    runtime.load(spec).run(addresses(x, y), addresses(want))
    with register.holding(value):
        fresh = runtime.with_threads(2).load(spec)  # its workers start under the mode and inherit it
        fresh.run(addresses(x, y), addresses(got))
        kept = register.get()
        raw = binary(op, name)
        call_unguarded(runtime, raw.symbol, runtime.code.addresses([raw])[raw], x, y, spoilt)
    assert kept & ~_STATUS == value, "Python's own arithmetic may have raised a flag, the call changed nothing"
    assert got.tobytes() == want.tobytes()
    assert spoilt.tobytes() != want.tobytes(), "the mode must matter"


def call_unguarded(runtime: Runtime, symbol: str, address: int, x: Array, y: Array, out: Array) -> None:
    """Call a kernel without the driver, to see that the mode in force does change its result."""
    slots = (ctypes.c_int64 * 3)(*addresses(x, y, out))
    args = (ctypes.c_int64 * 1)(len(x))
    kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)
    kernel(ctypes.addressof(slots), ctypes.addressof(args), 0, 1)


def test_raised_flags_do_not_reach_the_caller(runtime: Runtime, register: ControlRegister) -> None:
    x, y = np.float32([[1.0] * 10, [0.0] * 10])
    out = np.zeros(10, np.float32)
    program = runtime.load(ProgramSpec((Launch(binary("fdiv"), (10,)),), 2, 1, parallel=False))
    with register.holding(_NEUTRAL[_ARCH]):
        program.run(addresses(x, y), addresses(out))
        assert register.get() == _NEUTRAL[_ARCH]
    assert np.isinf(out).all()


def test_torch_set_flush_denormal(runtime: Runtime) -> None:
    x, y = sensitive_inputs("fmul", np.float32)
    want, got = np.zeros_like(x), np.zeros_like(x)
    spec = ProgramSpec((Launch(binary("fmul"), (len(x),)),), 2, 1)
    runtime.load(spec).run(addresses(x, y), addresses(want))
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU cannot flush denormals")
    try:
        runtime.load(spec).run(addresses(x, y), addresses(got))
        flushed = torch.full((1,), 1e-40) * 1
    finally:
        torch.set_flush_denormal(False)
    assert flushed.item() == 0
    assert got.tobytes() == want.tobytes()


def test_each_python_thread_keeps_its_own_mode(runtime: Runtime, register: ControlRegister) -> None:
    x, y = sensitive_inputs("fdiv", np.float32)
    spec = ProgramSpec((Launch(binary("fdiv"), (len(x),)),), 2, 1)
    program = runtime.load(spec)
    want = np.zeros_like(x)
    program.run(addresses(x, y), addresses(want))
    wrong: list[str] = []

    def work(mode: str, bits: int) -> None:
        got = np.zeros_like(x)
        with register.holding(_NEUTRAL[_ARCH] | bits):
            for _ in range(300):
                program.run(addresses(x, y), addresses(got))
                if register.get() & bits != bits or got.tobytes() != want.tobytes():
                    wrong.append(mode)

    callers = [threading.Thread(target=work, args=item) for item in _MODES[_ARCH].items()]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert wrong == []
