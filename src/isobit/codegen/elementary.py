"""Elementary functions: the reference's algorithms (`arithmetic.functions`) as LLVM functions on vectors.

A function on f32 widens to binary64, computes there and rounds once, which `arithmetic` has shown to be correct
rounding; on f64 the algorithm is the definition. Each is an internal function of the kernel's module, written once per
(name, dtype, lanes), so that LLVM decides what is worth inlining.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from isobit.arithmetic import functions
from isobit.arithmetic.dtypes import DType
from isobit.arithmetic.ops import Ops
from isobit.codegen.convert import integer_to_double
from isobit.codegen.emit import Builder, Value, const
from isobit.codegen.multiply_add import fma

_HALF = 0x4338000000000000  # 1.5·2^52: added to |x| < 2^51 it leaves the integer x in the low bits


def _signed(word: int) -> int:
    """The integer modulo 2^64, as two's complement."""
    return (word + (1 << 63)) % (1 << 64) - (1 << 63)


def call(b: Builder, name: str, dtype: DType, args: Sequence[Value]) -> Value:
    """`name` of ARITHMETIC.md §2 on f32 or f64 lanes."""
    most = max(1, b.target.vector_bytes // dtype.itemsize)
    lanes = args[0].lanes
    if lanes > most:
        parts = [call(b, name, dtype, [b.part(a, i, most) for a in args]) for i in range(0, lanes, most)]
        return b.concat(parts)
    symbol = f"{name}_{dtype}_{lanes}"
    b.module.helper(symbol, lambda: _define(b, symbol, name, dtype, lanes, len(args)))
    return b.call(symbol, args[0].element, lanes, args)


def _define(caller: Builder, symbol: str, name: str, dtype: DType, lanes: int, arity: int) -> str:
    element = "float" if dtype == DType.F32 else "double"
    kind = const(0, element, lanes).type
    b = Builder(caller.module, symbol, kind, [(kind, f"x{i}") for i in range(arity)])
    args = [Value(f"%x{i}", element, lanes) for i in range(arity)]
    if dtype == DType.F32:
        args = [b.convert("fpext", a, "double") for a in args]
    out = functions.algorithm(name, str(dtype))(VectorOps(b, lanes), *args)
    b.ret(b.convert("fptrunc", out, "float") if dtype == DType.F32 else out)
    return b.finish()


class VectorOps(Ops[Value, Value, Value]):
    """`arithmetic.ops.Ops` as instructions on `lanes` lanes."""

    def __init__(self, b: Builder, lanes: int) -> None:
        self.b = b
        self.lanes = lanes

    def f(self, c: float) -> Value:
        return const(c, "double", self.lanes)

    def i(self, c: int) -> Value:
        return const(_signed(c), "i64", self.lanes)

    def add(self, a: Value, b: Value) -> Value:
        return self.b.binary("fadd", a, b)

    def sub(self, a: Value, b: Value) -> Value:
        return self.b.binary("fsub", a, b)

    def mul(self, a: Value, b: Value) -> Value:
        return self.b.binary("fmul", a, b)

    def div(self, a: Value, b: Value) -> Value:
        return self.b.binary("fdiv", a, b)

    def sqrt(self, a: Value) -> Value:
        return self.b.intrinsic("sqrt", [a])

    def neg(self, a: Value) -> Value:
        return self.b.emit(f"fneg {a.typed}", a.element, a.lanes)

    def fabs(self, a: Value) -> Value:
        return self.b.intrinsic("fabs", [a])

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        return fma(self.b, a, b, c)

    def lt(self, a: Value, b: Value) -> Value:
        return self.b.compare("olt", a, b)

    def le(self, a: Value, b: Value) -> Value:
        return self.b.compare("ole", a, b)

    def eq(self, a: Value, b: Value) -> Value:
        return self.b.compare("oeq", a, b)

    def ne(self, a: Value, b: Value) -> Value:
        return self.b.compare("une", a, b)

    def gt(self, a: Value, b: Value) -> Value:
        return self.b.compare("ogt", a, b)

    def ge(self, a: Value, b: Value) -> Value:
        return self.b.compare("oge", a, b)

    def ilt(self, a: Value, b: Value) -> Value:
        return self.b.compare("slt", a, b)

    def ieq(self, a: Value, b: Value) -> Value:
        return self.b.compare("eq", a, b)

    def iult(self, a: Value, b: Value) -> Value:
        return self.b.compare("ult", a, b)

    def mand(self, a: Value, b: Value) -> Value:
        return self.b.binary("and", a, b)

    def mor(self, a: Value, b: Value) -> Value:
        return self.b.binary("or", a, b)

    def mnot(self, a: Value) -> Value:
        return self.b.binary("xor", a, const(True, "i1", a.lanes))

    def select(self, mask: Value, a: Value, b: Value) -> Value:
        return self.b.select(mask, a, b)

    def iselect(self, mask: Value, a: Value, b: Value) -> Value:
        return self.b.select(mask, a, b)

    def rare(self, mask: Value, expensive: Callable[[], Value], cheap: Value) -> Value:
        """A branch around `expensive`: most calls have no lane that needs it."""
        b = self.b
        return b.choose(b.any_lane(mask), lambda: b.select(mask, expensive(), cheap), lambda: cheap)

    def bits(self, a: Value) -> Value:
        return self.b.bitcast(a, "i64")

    def from_bits(self, a: Value) -> Value:
        return self.b.bitcast(a, "double")

    def iadd(self, a: Value, b: Value) -> Value:
        return self.b.binary("add", a, b)

    def isub(self, a: Value, b: Value) -> Value:
        return self.b.binary("sub", a, b)

    def imul(self, a: Value, b: Value) -> Value:
        return self.b.binary("mul", a, b)

    def iand(self, a: Value, b: Value) -> Value:
        return self.b.binary("and", a, b)

    def ior(self, a: Value, b: Value) -> Value:
        return self.b.binary("or", a, b)

    def ixor(self, a: Value, b: Value) -> Value:
        return self.b.binary("xor", a, b)

    def shl(self, a: Value, count: Value) -> Value:
        return self.b.binary("shl", a, count)

    def lshr(self, a: Value, count: Value) -> Value:
        return self.b.binary("lshr", a, count)

    def ashr(self, a: Value, count: Value) -> Value:
        return self.b.binary("ashr", a, count)

    def umulhi(self, a: Value, b: Value) -> Value:
        """Four 32-bit products: vectors have no wider multiplier."""
        low, half = self.i(0xFFFFFFFF), self.i(32)
        a0, a1 = self.iand(a, low), self.lshr(a, half)
        b0, b1 = self.iand(b, low), self.lshr(b, half)
        middle = self.iadd(self.imul(a1, b0), self.lshr(self.imul(a0, b0), half))
        other = self.iadd(self.imul(a0, b1), self.iand(middle, low))
        return self.iadd(self.iadd(self.imul(a1, b1), self.lshr(middle, half)), self.lshr(other, half))

    def i2f(self, a: Value) -> Value:
        return integer_to_double(self.b, a)

    def f2i(self, a: Value) -> Value:
        """By the bits of trunc(a) + 1.5·2^52, as SSE and AVX2 convert no vectors to i64."""
        b = self.b
        shifted = b.binary("fadd", b.intrinsic("trunc", [a]), self.from_bits(self.i(_HALF)))
        return b.binary("sub", b.bitcast(shifted, "i64"), self.i(_HALF))

    def table(self, values: tuple[int, ...], index: Value) -> Value:
        """One load per lane."""
        b = self.b
        text = "[" + ", ".join(f"i64 {_signed(v)}" for v in values) + "]"
        name = "table_" + hashlib.sha256(text.encode()).hexdigest()[:12]
        base = b.module.constant(name, f"[{len(values)} x i64]", text)
        where = b.offset(base, b.binary("shl", index, self.i(3)))
        return b.gather([b.load(b.extract(where, lane), "i64") for lane in range(self.lanes)])
