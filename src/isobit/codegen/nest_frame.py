"""The numbers of a launch, and where operands are at a place in its loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from isobit.codegen.convert import memory_element
from isobit.codegen.emit import Builder, Value, Variable, bits_of, i64
from isobit.codegen.memory import Memory, Moving
from isobit.codegen.nest_plan import Plan
from isobit.ir.kernel import NestArgs, Step


class Launch:
    """The argument array of a nest, loaded at the kernel's entry."""

    def __init__(self, b: Builder, plan: Plan) -> None:
        self.b, self.plan, self.nest = b, plan, plan.nest
        nest, places = plan.nest, NestArgs(plan.nest)
        self.dummy = b.alloca("i64")
        b.store(i64(0), self.dummy)
        self.sizes = [self._arg(axis) for axis in range(nest.n_axes)]
        self.operands = [self._address(at) for at in places.operands]
        self.operand_strides = [
            self._strides(at + 2, o.steps) for at, o in zip(places.operands, nest.operands, strict=True)
        ]
        self.linears = [self._arg(at) for at in places.linears]
        self.linear_strides = [
            self._strides(at + 1, x.steps) for at, x in zip(places.linears, nest.linears, strict=True)
        ]
        self.bounds = [self._arg(places.bounds + i) for i in range(len(nest.guards))]
        self.dynamics = [
            (self._arg(places.dynamics + 2 * i), self._arg(places.dynamics + 2 * i + 1)) for i in range(nest.n_dynamic)
        ]
        self.rows = self._rows(places)
        self.segment_length = self._arg(places.segment_length)

    def _arg(self, index: int) -> Value:
        return self.b.load(self.b.offset(Value("%args", "ptr"), 8 * index), "i64")

    def _address(self, at: int) -> Value:
        b = self.b
        cell = b.offset(Value("%slots", "ptr"), b.mul(self._arg(at), 8))
        return b.offset(b.load(cell, "ptr"), self._arg(at + 1))

    def _strides(self, at: int, steps: Sequence[Step]) -> dict[int, Value]:
        moving = [axis for axis, step in enumerate(steps) if step == "s"]
        return {axis: self._arg(at + i) for i, axis in enumerate(moving)}

    def _rows(self, places: NestArgs) -> list[Value]:
        if not self.nest.rows:
            return []
        b = self.b
        mine = b.mul(Value("%tid", "i64"), self._arg(places.scratch + 2))
        base = b.offset(self._address(places.scratch), mine)
        return [b.offset(base, self._arg(places.rows + i)) for i in range(len(self.nest.rows))]


class NestFrame:
    """Addresses after moving to `indices` (axis → i64) from the parent's place.

    The pointers of the outer axes are made on creation, those of an inner body when first asked for.
    """

    def __init__(
        self,
        launch: Launch,
        memory: Memory,
        parent: NestFrame | None,
        indices: Mapping[int, Value],
        temps: dict[int, Value],
        row_position: Value | None = None,
        lane_offset: int = 0,
    ) -> None:
        self.launch, self.memory, self.parent, self.indices, self.temps = launch, memory, parent, indices, temps
        self.row_position, self.lane_offset = row_position, lane_offset
        nest = launch.nest
        self._axis = nest.n_outer if nest.vector == "inner" else nest.n_outer - 1
        self._operands: dict[int, Value] = {}
        self._linears: dict[int, Value] = {}

    def settle(self) -> None:
        """Make all addresses here and now, for use in blocks to come."""
        for k in range(len(self.launch.operands)):
            self._pointer(k)
        for k in range(len(self.launch.linears)):
            self._linear(k)

    def operand(self, index: int) -> Moving:
        step = self.launch.nest.operands[index].steps[self._axis]
        return Moving(self._pointer(index), step, self.launch.operand_strides[index].get(self._axis))

    def linear(self, index: int) -> Moving:
        step = self.launch.nest.linears[index].steps[self._axis]
        return Moving(self._linear(index), step, self.launch.linear_strides[index].get(self._axis))

    def guard(self, index: int) -> tuple[Moving, Value]:
        return self.linear(self.launch.nest.guards[index]), self.launch.bounds[index]

    def dynamic(self, index: int) -> tuple[Value, Value]:
        return self.launch.dynamics[index]

    def temp(self, index: int) -> Value:
        return self.temps[index]

    def row(self, index: int) -> Moving:
        assert self.row_position is not None, "row buffers are read and written along the inner axes"
        b = self.launch.b
        size = bits_of(memory_element(self.launch.nest.rows[index])) // 8
        return Moving(b.offset(self.launch.rows[index], b.mul(self.row_position, size)), "1")

    def _pointer(self, index: int) -> Value:
        if index not in self._operands:
            nest, b = self.launch.nest, self.launch.b
            operand = nest.operands[index]
            at = self.launch.operands[index] if self.parent is None else self.parent._pointer(index)
            strides = self.launch.operand_strides[index]
            for axis, i in self.indices.items():
                step = operand.steps[axis]
                if step != "0":
                    at = b.offset(at, b.mul(i, operand.dtype.itemsize if step == "1" else strides[axis]))
            self._operands[index] = at
        return self._operands[index]

    def _linear(self, index: int) -> Value:
        if index not in self._linears:
            b = self.launch.b
            steps = self.launch.nest.linears[index].steps
            at = self.launch.linears[index] if self.parent is None else self.parent._linear(index)
            strides = self.launch.linear_strides[index]
            for axis, i in self.indices.items():
                if steps[axis] != "0":
                    at = b.add(at, i if steps[axis] == "1" else b.mul(i, strides[axis]))
            self._linears[index] = at
        return self._linears[index]


def advance(b: Builder, digits: Sequence[Variable], sizes: Sequence[Value]) -> None:
    """Count the mixed-radix number `digits` (most significant first) up by one."""
    if not digits:
        return
    following = b.add(digits[-1].get(), 1)
    wraps = b.compare("eq", following, sizes[-1])
    digits[-1].set(b.select(wraps, i64(0), following))
    if len(digits) > 1:
        with b.when(wraps):
            advance(b, digits[:-1], sizes[:-1])


@contextmanager
def my_units(b: Builder, sizes: Sequence[Value]) -> Iterator[list[Value]]:
    """This thread's contiguous share of the units of work, in row-major order: yields the indices of each."""
    tid, threads = Value("%tid", "i64"), Value("%nthreads", "i64")
    total = i64(1)
    for n in sizes:
        total = b.mul(total, n)
    low = b.binary("udiv", b.mul(total, tid), threads)
    high = b.binary("udiv", b.mul(total, b.add(tid, 1)), threads)
    digits = [b.variable(i64(0)) for _ in sizes]
    with b.when(b.compare("slt", low, high)):
        rest = low
        for digit, n in zip(reversed(digits[1:]), reversed(sizes[1:]), strict=True):
            digit.set(b.binary("urem", rest, n))
            rest = b.binary("udiv", rest, n)
        if digits:
            digits[0].set(rest)
        with b.loop(low, high):
            yield [d.get() for d in digits]
            advance(b, digits, sizes)
