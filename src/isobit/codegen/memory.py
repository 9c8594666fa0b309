"""Loads and stores of lanes: contiguous, strided, or anywhere; the last few of a row; guarded ones that touch nothing.

A vector that sticks out of a row by some lanes holds only its first `rest` lanes. Where the CPU has no masked
instruction for an element type, small internal functions go through the stack instead of a branch per lane.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from isobit.arithmetic.dtypes import DType
from isobit.codegen.convert import from_memory, memory_element, to_memory
from isobit.codegen.emit import Builder, Value, bits_of, const_vector, i64, vector, zero
from isobit.codegen.target import Target
from isobit.ir.kernel import Step


@dataclass(frozen=True, slots=True)
class Moving:
    """An address (or an integer) of lane 0 and how it changes from lane to lane.

    `stride` belongs to step "s": an i64 scalar, per lane; or a vector, what each lane adds to `base`.
    """

    base: Value
    step: Step
    stride: Value | None = None

    def offsets(self, b: Builder, unit: int, lanes: int) -> Value:
        """What each lane adds to `base`; `unit` is the size of step "1"."""
        if self.stride is not None and self.stride.lanes > 1:
            return self.stride
        if self.step == "s" and self.stride is not None:
            return b.binary("mul", b.splat(self.stride, lanes), const_vector(range(lanes), "i64"))
        return const_vector([lane * unit if self.step == "1" else 0 for lane in range(lanes)], "i64")


@dataclass(frozen=True, slots=True)
class Guard:
    """Which lanes may touch memory: all if `every` (i1, None: seldom known), else those of `mask()` (None: no lane)."""

    every: Value | None
    mask: Callable[[], Value] | None


class Memory:
    """Loads and stores of `lanes` lanes, of which only the first `rest` (i64, 1 … lanes) exist, if given.

    `dummy` is 8 bytes of readable memory that takes the place of an address that must not be touched.
    """

    def __init__(self, b: Builder, lanes: int, dummy: Value, rest: Value | None = None) -> None:
        self.b, self.lanes, self.dummy, self.rest = b, lanes, dummy, rest
        self.present = None if rest is None else _prefix(b, lanes, rest)

    def load_scalar(
        self, address: Value, dtype: DType, allowed: Value | None = None, fill: Value | None = None
    ) -> Value:
        """One element; `fill` where `allowed` (i1) is false."""
        b = self.b
        if allowed is None or fill is None:
            return from_memory(b, b.load(address, memory_element(dtype)), dtype)
        safe = b.select(allowed, address, self.dummy)
        return b.select(allowed, from_memory(b, b.load(safe, memory_element(dtype)), dtype), fill)

    def load(self, at: Moving, dtype: DType, guard: Guard | None = None, fill: Value | None = None) -> Value:
        """All lanes; lanes that do not exist hold anything, lanes that the guard forbids hold `fill` (a vector)."""
        b = self.b
        if guard is None or fill is None:
            return self._plain(at, dtype)
        mask = guard.mask
        if guard.every is None:
            assert mask is not None
            return self._careful(at, dtype, mask(), fill)
        other = (lambda: fill) if mask is None else (lambda: self._careful(at, dtype, mask(), fill))
        return b.choose(guard.every, lambda: self._plain(at, dtype), other)

    def store(self, value: Value, at: Moving, dtype: DType) -> None:
        """All lanes that exist. Step "0" stores lane 0."""
        b = self.b
        x = to_memory(b, value, dtype)
        if x.lanes == 1 or at.step == "0":
            b.store(b.extract(x, 0), at.base)
        elif at.step == "1":
            self._store_contiguous(x, at.base)
        else:
            self._store_scattered(x, at, dtype.itemsize)

    def _plain(self, at: Moving, dtype: DType) -> Value:
        b, element = self.b, memory_element(dtype)
        if self.lanes == 1:
            return self.load_scalar(at.base, dtype)
        if at.step == "0":
            return b.splat(self.load_scalar(at.base, dtype), self.lanes)
        if at.step == "s":
            return from_memory(b, self._gather(at, element), dtype)
        raw = b.load(at.base, element, self.lanes) if self.rest is None else self._load_prefix(at.base, element)
        return from_memory(b, raw, dtype)

    def _careful(self, at: Moving, dtype: DType, mask: Value, fill: Value) -> Value:
        b, element = self.b, memory_element(dtype)
        if self.present is not None:
            mask = b.binary("and", mask, self.present)
        if at.step == "1" and _has_masked(b.target, element):
            raw = self._masked_load(at.base, element, mask)
        else:
            raw = self._pick(self._safe(at, dtype.itemsize, mask), element)
        return b.select(mask, from_memory(b, raw, dtype), fill)

    def _safe(self, at: Moving, size: int, mask: Value) -> Value:
        b = self.b
        addresses = b.offset(at.base, at.offsets(b, size, self.lanes))
        if addresses.lanes == 1:
            addresses = b.splat(addresses, self.lanes)
        return b.select(mask, addresses, b.splat(self.dummy, self.lanes))

    def _gather(self, at: Moving, element: str) -> Value:
        """Lane by lane; absent lanes read the last one that exists."""
        b, stride = self.b, at.stride
        assert stride is not None
        if stride.lanes > 1:
            addresses = b.offset(at.base, stride)
            if self.present is not None:
                addresses = b.select(self.present, addresses, b.splat(self.dummy, self.lanes))
            return self._pick(addresses, element)
        last = None if self.rest is None else b.sub(self.rest, 1)
        parts = []
        for lane in range(self.lanes):
            index = i64(lane) if last is None else b.minimum(i64(lane), last)
            parts.append(b.load(b.offset(at.base, b.mul(index, stride)), element))
        return b.gather(parts)

    def _pick(self, addresses: Value, element: str) -> Value:
        b = self.b
        return b.gather([b.load(b.extract(addresses, lane), element) for lane in range(self.lanes)])

    def _load_prefix(self, address: Value, element: str) -> Value:
        b, n = self.b, self.lanes
        assert self.rest is not None and self.present is not None
        if _has_masked(b.target, element):
            return self._masked_load(address, element, self.present)
        name = f"load_first_{element}_{n}"
        b.module.helper(name, lambda: _define_load_first(b, name, element, n))
        return b.call(name, element, n, [address, self.rest])

    def _masked_load(self, address: Value, element: str, mask: Value) -> Value:
        b, n = self.b, self.lanes
        name = f"llvm.masked.load.{_suffix(element, n)}.p0"
        kind = vector(element, n)
        b.module.declare(name, kind, ["ptr", "i32", f"<{n} x i1>", kind])
        return b.call(name, element, n, [address, _align(element), mask, zero(element, n)])

    def _store_contiguous(self, x: Value, address: Value) -> None:
        b = self.b
        if self.rest is None or self.present is None:
            b.store(x, address)
        elif _has_masked(b.target, x.element):
            name = f"llvm.masked.store.{_suffix(x.element, x.lanes)}.p0"
            b.module.declare(name, "void", [x.type, "ptr", "i32", f"<{x.lanes} x i1>"])
            b.call_void(name, [x, address, _align(x.element), self.present])
        else:
            self._store_some(x, address, i64(bits_of(x.element) // 8), self.rest)

    def _store_scattered(self, x: Value, at: Moving, size: int) -> None:
        b, stride = self.b, at.stride
        assert stride is not None
        if stride.lanes > 1:
            self._store_anywhere(x, b.offset(at.base, stride))
        elif self.rest is not None:
            self._store_some(x, at.base, stride, self.rest)
        else:
            for lane in range(self.lanes):
                b.store(b.extract(x, lane), b.offset(at.base, b.mul(i64(lane), stride)))

    def _store_anywhere(self, x: Value, addresses: Value) -> None:
        """Lanes that do not exist write to the dummy."""
        b = self.b
        if self.present is not None:
            addresses = b.select(self.present, addresses, b.splat(self.dummy, self.lanes))
        for lane in range(self.lanes):
            b.store(b.extract(x, lane), b.extract(addresses, lane))

    def _store_some(self, x: Value, address: Value, stride: Value, rest: Value) -> None:
        b = self.b
        name = f"store_first_{x.element}_{x.lanes}"
        b.module.helper(name, lambda: _define_store_first(b, name, x.element, x.lanes))
        b.call_void(name, [x, address, stride, rest])


def _prefix(b: Builder, lanes: int, rest: Value) -> Value:
    """Lanes below `rest`."""
    count = b.splat(b.convert("trunc", rest, "i32"), lanes)
    return b.compare("ult", const_vector(range(lanes), "i32"), count)


def _has_masked(target: Target, element: str) -> bool:
    """Whether masked loads and stores of the element are instructions: LLVM makes a branch per lane otherwise."""
    if target.arch != "x86_64":
        return False
    return target.vector_bytes == 64 or (target.vector_bytes == 32 and bits_of(element) >= 32)


def _align(element: str) -> Value:
    return Value(str(bits_of(element) // 8), "i32")


def _suffix(element: str, lanes: int) -> str:
    return f"v{lanes}" + {"float": "f32", "double": "f64"}.get(element, element)


def _define_load_first(caller: Builder, name: str, element: str, lanes: int) -> str:
    b = Builder(caller.module, name, vector(element, lanes), [("ptr", "from"), ("i64", "count")], tame=True)
    size = bits_of(element) // 8
    cell = b.alloca(vector(element, lanes))
    b.store(zero(element, lanes), cell)
    with b.loop(0, b.params[1]) as i:
        at = b.mul(i, size)
        b.store(b.load(b.offset(b.params[0], at), element), b.offset(cell, at))
    b.ret(b.load(cell, element, lanes))
    return b.finish()


def _define_store_first(caller: Builder, name: str, element: str, lanes: int) -> str:
    params = [(vector(element, lanes), "x"), ("ptr", "to"), ("i64", "stride"), ("i64", "count")]
    b = Builder(caller.module, name, "void", params, tame=True)
    size = bits_of(element) // 8
    cell = b.alloca(vector(element, lanes))
    b.store(Value("%x", element, lanes), cell)
    with b.loop(0, b.params[3]) as i:
        x = b.load(b.offset(cell, b.mul(i, size)), element)
        b.store(x, b.offset(b.params[1], b.mul(i, b.params[2])))
    b.ret()
    return b.finish()
