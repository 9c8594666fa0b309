"""A small typed emitter for LLVM IR text: values, blocks, loops, functions, modules.

The text is deterministic (it is a cache key): names are counted per function, helpers named by what they do.
Opaque pointers; no fast-math flag can be asked for.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from isobit.codegen.target import Target

_MANGLED = {"float": "f32", "double": "f64", "half": "f16", "ptr": "p0"}
_BITS = {"float": 32, "double": 64, "half": 16, "ptr": 64}
# Loops that copy or clear must stay loops: a call of memcpy or memset would need a C library beside the kernel.
FUNCTION_ATTRIBUTES = 'nounwind "no-builtins"'


def vector(element: str, lanes: int) -> str:
    """The LLVM type of `lanes` elements; one lane is the element itself."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


def bits_of(element: str) -> int:
    """Width of an element type in bits."""
    return _BITS[element] if element in _BITS else int(element[1:])


def mangle(element: str, lanes: int = 1) -> str:
    """The suffix of an overloaded intrinsic: v8f32 for <8 x float>."""
    name = _MANGLED.get(element, element)
    return name if lanes == 1 else f"v{lanes}{name}"


@dataclass(frozen=True, slots=True)
class Value:
    """An SSA value or a constant of type vector(element, lanes)."""

    ref: str
    element: str
    lanes: int = 1

    @property
    def type(self) -> str:
        return vector(self.element, self.lanes)

    @property
    def typed(self) -> str:
        return f"{vector(self.element, self.lanes)} {self.ref}"


def hex_float(value: float) -> str:
    """A float or double literal (LLVM writes both by the bits of the double)."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def const(value: float | int | bool, element: str, lanes: int = 1) -> Value:
    """A constant, the same in every lane; `value` is exact in the element type."""
    if element in ("float", "double"):
        text = hex_float(float(value))
    elif element == "i1":
        text = "true" if value else "false"
    else:
        text = str(int(value))
    return Value(text if lanes == 1 else f"splat ({element} {text})", element, lanes)


def i64(value: int) -> Value:
    return Value(str(value), "i64")


def const_vector(values: Sequence[float | int | bool], element: str) -> Value:
    """A constant with one value per lane."""
    if len(values) == 1:
        return const(values[0], element)
    inner = ", ".join(const(v, element).typed for v in values)
    return Value(f"<{inner}>", element, len(values))


def zero(element: str, lanes: int = 1) -> Value:
    return const(0, element, lanes) if lanes == 1 else Value("zeroinitializer", element, lanes)


def poison(element: str, lanes: int) -> Value:
    return Value("poison", element, lanes)


class Module:
    """Declarations, constants and functions, each once; `text()` lists them in order of first use."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._declarations: dict[str, str] = {}
        self._constants: dict[str, str] = {}
        self._functions: dict[str, str] = {}
        self._loops = 0

    def tame_loop(self) -> str:
        """Metadata of a loop that LLVM leaves as it is."""
        self._loops += 1
        return f"!{self._loops + 1}"

    def declare(self, name: str, result: str, params: Sequence[str]) -> None:
        """An external function or intrinsic."""
        if name not in self._declarations:
            self._declarations[name] = f"declare {result} @{name}({', '.join(params)})"

    def constant(self, name: str, type_: str, text: str, align: int = 64) -> Value:
        """A private constant; returns its address."""
        self._constants.setdefault(name, f"@{name} = private unnamed_addr constant {type_} {text}, align {align}")
        return Value(f"@{name}", "ptr")

    def has(self, name: str) -> bool:
        return name in self._functions

    def define(self, name: str, text: str) -> None:
        """Add the text of a function (helpers: only if not `has(name)`)."""
        self._functions[name] = text

    def helper(self, name: str, build: Callable[[], str]) -> None:
        """Define an internal function on first use; `build` returns its text."""
        if name not in self._functions:
            self._functions[name] = ""
            self._functions[name] = build()

    def text(self) -> str:
        parts = [*self._constants.values(), *self._declarations.values(), *self._functions.values(), *self._metadata()]
        return "\n".join(parts) + "\n"

    def _metadata(self) -> list[str]:
        if not self._loops:
            return []
        kinds = ['!0 = !{!"llvm.loop.unroll.disable"}', '!1 = !{!"llvm.loop.vectorize.enable", i1 false}']
        return kinds + [f"!{n} = distinct !{{!{n}, !0, !1}}" for n in range(2, self._loops + 2)]


class Builder:
    """Emits one function, block after block. Methods append an instruction and return its value.

    Loops of a `tame` function run as they are written: LLVM neither unrolls nor vectorises them, which costs it much
    time and gains nothing where the text is vectors already.
    """

    def __init__(
        self,
        module: Module,
        name: str,
        result: str,
        params: Sequence[tuple[str, str]],
        attributes: str = "internal",
        tame: bool = False,
    ) -> None:
        self.module = module
        self.target = module.target
        self.name = name
        self._tame = tame
        self.params = [Value(f"%{p}", t) for t, p in params]
        signature = ", ".join(f"{t} %{p}" for t, p in params)
        linkage = f"{attributes} " if attributes else ""
        self._head = f"define {linkage}{result} @{name}({signature}) {FUNCTION_ATTRIBUTES} {{"
        self._allocas: list[str] = []
        self._lines: list[str] = []
        self._serial = 0
        self.label = "entry"

    # -- text ---------------------------------------------------------------------------------------------------

    def finish(self) -> str:
        """The function's text; the last block must have ended with a terminator."""
        return "\n".join([self._head, "entry:", *self._allocas, *self._lines, "}"])

    def raw(self, line: str) -> None:
        """An instruction without a result."""
        self._lines.append(line)

    def fresh(self, stem: str = "v") -> str:
        self._serial += 1
        return f"{stem}{self._serial}"

    def emit(self, instruction: str, element: str, lanes: int = 1) -> Value:
        """`%new = instruction`, of the given type."""
        self._serial += 1
        name = f"%v{self._serial}"
        self._lines.append(f"  {name} = {instruction}")
        return Value(name, element, lanes)

    # -- arithmetic ----------------------------------------------------------------------------------------------

    def binary(self, opcode: str, a: Value, b: Value) -> Value:
        """An instruction on two operands of one type, which is also the result's (fadd, mul, shl, …)."""
        return self.emit(f"{opcode} {a.type} {a.ref}, {b.ref}", a.element, a.lanes)

    def add(self, a: Value, b: Value | int) -> Value:
        b = self._like(a, b)
        return a if b.ref == "0" else b if a.ref == "0" else self.binary("add", a, b)

    def sub(self, a: Value, b: Value | int) -> Value:
        b = self._like(a, b)
        return a if b.ref == "0" else self.binary("sub", a, b)

    def mul(self, a: Value, b: Value | int) -> Value:
        b = self._like(a, b)
        return a if b.ref == "1" else b if a.ref == "1" else self.binary("mul", a, b)

    def _like(self, a: Value, b: Value | int) -> Value:
        return b if isinstance(b, Value) else const(b, a.element, a.lanes)

    def compare(self, predicate: str, a: Value, b: Value | int) -> Value:
        """icmp for integers and pointers, fcmp for floats."""
        b = self._like(a, b)
        opcode = "fcmp" if a.element in ("float", "double", "half") else "icmp"
        return self.emit(f"{opcode} {predicate} {a.type} {a.ref}, {b.ref}", "i1", a.lanes)

    def select(self, mask: Value, a: Value, b: Value) -> Value:
        """a where the mask is set, else b; a scalar mask may choose between vectors."""
        return self.emit(f"select {mask.typed}, {a.typed}, {b.typed}", a.element, a.lanes)

    def convert(self, opcode: str, a: Value, element: str) -> Value:
        """zext, sext, trunc, sitofp, fptrunc, fpext, … lane by lane."""
        return self.emit(f"{opcode} {a.typed} to {vector(element, a.lanes)}", element, a.lanes)

    def bitcast(self, a: Value, element: str, lanes: int | None = None) -> Value:
        n = a.lanes if lanes is None else lanes
        return self.emit(f"bitcast {a.typed} to {vector(element, n)}", element, n)

    def call(self, name: str, element: str, lanes: int, args: Sequence[Value]) -> Value:
        listed = ", ".join(a.typed for a in args)
        return self.emit(f"call {vector(element, lanes)} @{name}({listed})", element, lanes)

    def call_void(self, name: str, args: Sequence[Value]) -> None:
        self.raw(f"  call void @{name}({', '.join(a.typed for a in args)})")

    def intrinsic(self, base: str, args: Sequence[Value], extra: Sequence[Value] = ()) -> Value:
        """llvm.`base`, overloaded on the first argument's type, which is the result's; `extra` have fixed types."""
        a = args[0]
        name = f"llvm.{base}.{mangle(a.element, a.lanes)}"
        self.module.declare(name, a.type, [x.type for x in (*args, *extra)])
        return self.call(name, a.element, a.lanes, [*args, *extra])

    def minimum(self, a: Value, b: Value | int) -> Value:
        """Signed integer minimum."""
        return self.intrinsic("smin", [a, self._like(a, b)])

    # -- lanes ---------------------------------------------------------------------------------------------------

    def splat(self, a: Value, lanes: int) -> Value:
        """The scalar in every lane."""
        if lanes == a.lanes:
            return a
        if not a.ref.startswith(("%", "@")):
            return Value(f"splat ({a.element} {a.ref})", a.element, lanes)
        one = self.emit(f"insertelement {vector(a.element, lanes)} poison, {a.typed}, i64 0", a.element, lanes)
        return self.emit(
            f"shufflevector {one.typed}, {one.type} poison, <{lanes} x i32> zeroinitializer", a.element, lanes
        )

    def extract(self, a: Value, lane: int | Value) -> Value:
        if a.lanes == 1:
            return a
        index = lane.ref if isinstance(lane, Value) else str(lane)
        return self.emit(f"extractelement {a.typed}, i64 {index}", a.element)

    def insert(self, a: Value, x: Value, lane: int) -> Value:
        if a.lanes == 1:
            return x
        return self.emit(f"insertelement {a.typed}, {x.typed}, i64 {lane}", a.element, a.lanes)

    def gather(self, parts: Sequence[Value]) -> Value:
        """A vector of scalars."""
        out = poison(parts[0].element, len(parts))
        for lane, part in enumerate(parts):
            out = self.insert(out, part, lane)
        return out

    def shuffle(self, a: Value, b: Value | None, picks: Sequence[int]) -> Value:
        """Lanes `picks` of a and b (b's lanes count on from a's). One pick gives a scalar."""
        if len(picks) == 1:
            return self.extract(a, picks[0])
        mask = ", ".join(f"i32 {p}" for p in picks)
        other = b.ref if b is not None else "poison"
        return self.emit(
            f"shufflevector {a.typed}, {a.type} {other}, <{len(picks)} x i32> <{mask}>", a.element, len(picks)
        )

    def part(self, a: Value, start: int, lanes: int) -> Value:
        """Lanes start … start + lanes."""
        return a if lanes == a.lanes else self.shuffle(a, None, range(start, start + lanes))

    def concat(self, parts: Sequence[Value]) -> Value:
        """The lanes of all parts in order; there are 2^j parts of 2^k lanes each."""
        if parts[0].lanes == 1:
            return parts[0] if len(parts) == 1 else self.gather(parts)
        level = list(parts)
        while len(level) > 1:
            level = [self.shuffle(a, b, range(2 * a.lanes)) for a, b in zip(level[::2], level[1::2], strict=True)]
        return level[0]

    def any_lane(self, mask: Value) -> Value:
        """i1: whether some lane is set."""
        if mask.lanes == 1:
            return mask
        return self.compare("ne", self.bitcast(mask, f"i{mask.lanes}", 1), 0)

    def all_lanes(self, mask: Value) -> Value:
        if mask.lanes == 1:
            return mask
        return self.compare("eq", self.bitcast(mask, f"i{mask.lanes}", 1), -1)

    # -- memory --------------------------------------------------------------------------------------------------

    def alloca(self, type_: str, align: int = 64) -> Value:
        """Stack memory, allocated once on entry."""
        name = f"%{self.fresh('stack')}"
        self._allocas.append(f"  {name} = alloca {type_}, align {align}")
        return Value(name, "ptr")

    def offset(self, pointer: Value, nbytes: Value | int) -> Value:
        """pointer + bytes (a vector of offsets gives a vector of pointers)."""
        n = nbytes if isinstance(nbytes, Value) else i64(nbytes)
        if n.ref == "0":
            return pointer
        return self.emit(f"getelementptr i8, {pointer.typed}, {n.typed}", "ptr", max(n.lanes, pointer.lanes))

    def load(self, pointer: Value, element: str, lanes: int = 1, align: int | None = None) -> Value:
        """Aligned to the element only, unless told."""
        a = _align(element) if align is None else align
        return self.emit(f"load {vector(element, lanes)}, {pointer.typed}, align {a}", element, lanes)

    def store(self, value: Value, pointer: Value, align: int | None = None) -> None:
        a = _align(value.element) if align is None else align
        self.raw(f"  store {value.typed}, {pointer.typed}, align {a}")

    def variable(self, initial: Value) -> Variable:
        """A mutable local (a stack cell that LLVM turns into registers), set here to `initial`."""
        cell = Variable(self, self.alloca(initial.type, _natural(initial)), initial.element, initial.lanes)
        cell.set(initial)
        return cell

    # -- control -------------------------------------------------------------------------------------------------

    def block(self, label: str) -> None:
        """Start a block; what comes before must have branched."""
        self._lines.append(f"{label}:")
        self.label = label

    def branch(self, label: str) -> None:
        self.raw(f"  br label %{label}")

    def branch_if(self, condition: Value, yes: str, no: str) -> None:
        self.raw(f"  br i1 {condition.ref}, label %{yes}, label %{no}")

    def ret(self, value: Value | None = None) -> None:
        self.raw(f"  ret {value.typed}" if value else "  ret void")

    def phi(self, incoming: Sequence[tuple[Value, str]]) -> Value:
        """At the start of a block: the value that belongs to the block we came from."""
        a = incoming[0][0]
        listed = ", ".join(f"[ {v.ref}, %{label} ]" for v, label in incoming)
        return self.emit(f"phi {a.type} {listed}", a.element, a.lanes)

    @contextmanager
    def loop(self, low: Value | int, high: Value | int, step: Value | int = 1) -> Iterator[Value]:
        """for (i64 i = low; i < high; i += step): yields i; afterwards we stand behind the loop."""
        lo, hi = (x if isinstance(x, Value) else i64(x) for x in (low, high))
        before, head, body, after = self.label, self.fresh("head"), self.fresh("body"), self.fresh("after")
        self.branch(head)
        self.block(head)
        place = len(self._lines)
        index = self.emit("", "i64")
        self.branch_if(self.compare("slt", index, hi), body, after)
        self.block(body)
        yield index
        following = self.emit(f"add nsw i64 {index.ref}, {step.ref if isinstance(step, Value) else step}", "i64")
        self._lines[place] = f"  {index.ref} = phi i64 [ {lo.ref}, %{before} ], [ {following.ref}, %{self.label} ]"
        self._again(head)
        self.block(after)

    @contextmanager
    def repeat_while(self, condition: Callable[[], Value]) -> Iterator[None]:
        """while (condition()): …; what changes lives in variables."""
        head, body, after = self.fresh("while"), self.fresh("body"), self.fresh("after")
        self.branch(head)
        self.block(head)
        self.branch_if(condition(), body, after)
        self.block(body)
        yield
        self._again(head)
        self.block(after)

    def _again(self, head: str) -> None:
        """The jump back of a loop."""
        self.raw(f"  br label %{head}" + (f", !llvm.loop {self.module.tame_loop()}" if self._tame else ""))

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """if (condition) { … }; what changes lives in variables."""
        then, after = self.fresh("then"), self.fresh("after")
        self.branch_if(condition, then, after)
        self.block(then)
        yield
        self.branch(after)
        self.block(after)

    def either(self, condition: Value, yes: Callable[[], None], no: Callable[[], None]) -> None:
        """if (condition) yes() else no()."""
        then, other, after = self.fresh("then"), self.fresh("else"), self.fresh("after")
        self.branch_if(condition, then, other)
        self.block(then)
        yes()
        self.branch(after)
        self.block(other)
        no()
        self.branch(after)
        self.block(after)

    def choose(self, condition: Value, yes: Callable[[], Value], no: Callable[[], Value]) -> Value:
        """condition ? yes() : no(), evaluating only one of them."""
        then, other, after = self.fresh("then"), self.fresh("else"), self.fresh("after")
        self.branch_if(condition, then, other)
        self.block(then)
        a, from_a = yes(), self.label
        self.branch(after)
        self.block(other)
        b, from_b = no(), self.label
        self.branch(after)
        self.block(after)
        return self.phi([(a, from_a), (b, from_b)])


def _align(element: str) -> int:
    return max(1, bits_of(element) // 8)


def _natural(value: Value) -> int:
    return max(1, bits_of(value.element) * value.lanes // 8)


@dataclass(frozen=True, slots=True)
class Variable:
    """A mutable local of a Builder."""

    builder: Builder
    cell: Value
    element: str
    lanes: int

    def get(self) -> Value:
        return self.builder.load(self.cell, self.element, self.lanes)

    def set(self, value: Value) -> None:
        self.builder.store(value, self.cell)
