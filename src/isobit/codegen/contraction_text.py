"""Text of LLVM IR functions: named values, structured loops and branches. No arithmetic meaning of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class Body:
    """The body of one LLVM function under construction; `let` names values, `loop` and `when` open blocks."""

    def __init__(self) -> None:
        self._allocas: list[str] = []
        self._lines: list[str] = []
        self._count = 0
        self.block = "entry"

    def _fresh(self, stem: str) -> str:
        self._count += 1
        return f"{stem}{self._count}"

    def do(self, line: str) -> None:
        """An instruction without a result."""
        self._lines.append(f"  {line}")

    def let(self, rhs: str) -> str:
        """An instruction with a result; returns its name."""
        name = self._fresh("%v")
        self._lines.append(f"  {name} = {rhs}")
        return name

    def alloca(self, kind: str, align: int = 8) -> str:
        """A stack cell in the entry block."""
        name = self._fresh("%s")
        self._allocas.append(f"  {name} = alloca {kind}, align {align}")
        return name

    def label(self, name: str) -> None:
        self._lines.append(f"{name}:")
        self.block = name

    @contextmanager
    def loop(self, count: str, start: str = "0", step: int | str = 1) -> Iterator[str]:
        """for index in range(start, count, step); yields the index (i64)."""
        head, inside, latch, done = (self._fresh(s) for s in ("head", "body", "latch", "done"))
        index, before, after = self._fresh("%i"), self.block, self._fresh("%n")
        self.do(f"br label %{head}")
        self.label(head)
        self.do(f"{index} = phi i64 [ {start}, %{before} ], [ {after}, %{latch} ]")
        more = self.let(f"icmp slt i64 {index}, {count}")
        self.do(f"br i1 {more}, label %{inside}, label %{done}")
        self.label(inside)
        yield index
        self.do(f"br label %{latch}")
        self.label(latch)
        self.do(f"{after} = add i64 {index}, {step}")
        self.do(f"br label %{head}")
        self.label(done)

    @contextmanager
    def repeat(self) -> Iterator[str]:
        """An endless loop; yields the label to branch to when it is over (see `leave`)."""
        head, done = self._fresh("again"), self._fresh("over")
        self.do(f"br label %{head}")
        self.label(head)
        yield done
        self.do(f"br label %{head}")
        self.label(done)

    def leave(self, condition: str, target: str) -> None:
        """Branch to `target` if `condition`, else go on."""
        on = self._fresh("on")
        self.do(f"br i1 {condition}, label %{target}, label %{on}")
        self.label(on)

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """Run the block only if `condition` holds."""
        then, done = self._fresh("then"), self._fresh("endif")
        self.do(f"br i1 {condition}, label %{then}, label %{done}")
        self.label(then)
        yield
        self.do(f"br label %{done}")
        self.label(done)

    @contextmanager
    def either(self, condition: str) -> Iterator[Otherwise]:
        """`with body.either(c) as other: …; with other: …` is if/else."""
        then, orelse, done = (self._fresh(s) for s in ("then", "else", "endif"))
        self.do(f"br i1 {condition}, label %{then}, label %{orelse}")
        self.label(then)
        other = Otherwise(self, orelse, done)
        yield other
        if not other.used:
            raise RuntimeError("either() without an else part; use when()")
        self.do(f"br label %{done}")
        self.label(done)

    # Shorthands for what index arithmetic needs.
    def add(self, a: str, b: str | int) -> str:
        return a if b in (0, "0") else self.let(f"add i64 {a}, {b}")

    def sub(self, a: str, b: str | int) -> str:
        return self.let(f"sub i64 {a}, {b}")

    def mul(self, a: str, b: str | int) -> str:
        return a if b in (1, "1") else self.let(f"mul i64 {a}, {b}")

    def least(self, a: str, b: str | int) -> str:
        smaller = self.let(f"icmp slt i64 {a}, {b}")
        return self.let(f"select i1 {smaller}, i64 {a}, i64 {b}")

    def ceil_div(self, a: str, b: int) -> str:
        return self.let(f"udiv i64 {self.add(a, b - 1)}, {b}")

    def at(self, pointer: str, offset: str | int) -> str:
        """`pointer` moved by bytes."""
        return pointer if offset in (0, "0") else self.let(f"getelementptr i8, ptr {pointer}, i64 {offset}")

    def word(self, pointer: str, index: str | int) -> str:
        """Address of the i64 at `index`."""
        return pointer if index in (0, "0") else self.let(f"getelementptr i64, ptr {pointer}, i64 {index}")

    def load(self, kind: str, pointer: str, align: int) -> str:
        return self.let(f"load {kind}, ptr {pointer}, align {align}")

    def load_word(self, pointer: str, index: str | int = 0) -> str:
        return self.load("i64", self.word(pointer, index), 8)

    def store(self, kind: str, value: str, pointer: str, align: int) -> None:
        self.do(f"store {kind} {value}, ptr {pointer}, align {align}")

    def function(self, name: str, parameters: Sequence[str], attributes: str = "", linkage: str = "internal ") -> str:
        """The finished text; the body must not have returned yet."""
        head = f"define {linkage}void @{name}({', '.join(parameters)}) {attributes} {{"
        return "\n".join([head, "entry:", *self._allocas, *self._lines, "  ret void", "}", ""])


class Otherwise:
    """The else part of `Body.either`."""

    def __init__(self, body: Body, label: str, done: str) -> None:
        self._body, self._label, self._done, self.used = body, label, done, False

    def __enter__(self) -> None:
        self.used = True
        self._body.do(f"br label %{self._done}")
        self._body.label(self._label)

    def __exit__(self, *_: object) -> None:
        pass


def splat(scalar: str, value: str, lanes: int, body: Body) -> str:
    """A vector that holds `value` in every lane."""
    first = body.let(f"insertelement <{lanes} x {scalar}> poison, {scalar} {value}, i64 0")
    zeros = f"<{lanes} x i32> zeroinitializer"
    return body.let(f"shufflevector <{lanes} x {scalar}> {first}, <{lanes} x {scalar}> poison, {zeros}")


def shuffle(kind: str, a: str, b: str, lanes: Sequence[int], body: Body) -> str:
    """Lanes of the concatenation of two vectors of type `kind`."""
    mask = ", ".join(f"i32 {lane}" for lane in lanes)
    return body.let(f"shufflevector {kind} {a}, {kind} {b}, <{len(lanes)} x i32> <{mask}>")
