"""Native code behind `shortcut`: matches a call against the records of earlier ones and runs the one that fits.

Everything is 64-bit words.

    table    0 number of entries   1 most tensors, 2 most numbers of an entry   3 … addresses of the entries
    entry    0 positional arguments   1 tuple of keywords, or 0   2 descriptors   3 their address
             4 program   5 starter of its workers   6 inputs   7 numbers   8 results   9 their `Fresh` tuples' address
             10 targets   11 their address   12 address of the inputs' spans   13 returned   14 1: not in a tuple
             15 address of the returned items   16 number of slots   (program 0: 5 is called with the arguments)
    descriptor   0 kind   1 the list that holds the value, as an argument's position, or -1   2 position there, then
             TENSOR dtype, dims, sizes, strides     OBJECT the object      LITERAL a float's bits
             NUMBER the type                        LIST the length
    target   0 position among the tensors   1 span in bytes   2 address of a byte per input: may it lie right under it?
    item     0 kind: RESULT, ARGUMENT or NOTHING   1 position

Tensors are read through libtorch's C interface for ahead-of-time compiled models (`aoti_torch_*`), whose handle is the
address of an `at::Tensor`; where that lies in the Python object is found out when the process starts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from isobit.codegen.emit import Builder, Module, Value, i64
from isobit.codegen.target import Target
from isobit.runtime.entry import RUN_SYMBOL

SYMBOL = "isobit_shortcut"
TENSOR, OBJECT, LITERAL, NUMBER, LIST = range(5)
RESULT, ARGUMENT, NOTHING = range(3)

TORCH_FUNCTIONS = (
    "aoti_torch_get_dtype", "aoti_torch_get_dim", "aoti_torch_get_sizes", "aoti_torch_get_strides",
    "aoti_torch_get_data_ptr",
)  # fmt: skip
PYTHON_FUNCTIONS = {
    "PyTuple_GetItem": ("ptr", ("ptr", "i64")), "PyLong_AsVoidPtr": ("ptr", ("ptr",)),
    "PyTuple_New": ("ptr", ("i64",)), "PyTuple_SetItem": ("i32", ("ptr", "i64", "ptr")),
    "PyTuple_Size": ("i64", ("ptr",)), "PyList_Size": ("i64", ("ptr",)), "PyList_GetItem": ("ptr", ("ptr", "i64")),
    "PyObject_RichCompareBool": ("i32", ("ptr", "ptr", "i32")), "PyObject_Call": ("ptr", ("ptr", "ptr", "ptr")),
    "PyObject_Vectorcall": ("ptr", ("ptr", "ptr", "i64", "ptr")), "PyFloat_AsDouble": ("double", ("ptr",)),
    "PyErr_Clear": ("void", ()), "PyErr_Occurred": ("ptr", ()), "Py_IncRef": ("void", ("ptr",)),
    "Py_DecRef": ("void", ("ptr",)),
}  # fmt: skip
PYTHON_OBJECTS = ("_Py_NoneStruct",)


@dataclass(frozen=True)
class ObjectLayout:
    """Where things lie in this process: the type in an object, the `at::Tensor` in a tensor (bytes); the types of
    plain tensors, of lists and of floats, and the function that makes an empty tensor (addresses).
    """

    type_offset: int
    tensor_offset: int
    tensor_types: tuple[int, int]
    list_type: int
    float_type: int
    empty: int


def shortcut_text(target: Target) -> str:
    """The LLVM IR of ``SYMBOL``, a METH_FASTCALL | METH_KEYWORDS function; `self` is (address of the table, fallback,
    address of an ObjectLayout's words in the order of its fields, …).
    """
    module = Module(target)
    for name in TORCH_FUNCTIONS:
        module.declare(name, "i32", ["ptr", "ptr"])
    for name, (result, params) in PYTHON_FUNCTIONS.items():
        module.declare(name, result, params)
    module.declare(RUN_SYMBOL, "i32", ["ptr", "ptr", "ptr"])
    module.define("none", "@_Py_NoneStruct = external global i8")
    for write in (_same, _tensor, _match, _apart, _results, _answer, _run, _entry):
        write(module)
    return module.text()


NULL = Value("null", "ptr")
NONE = Value("@_Py_NoneStruct", "ptr")


class _Function(Builder):
    """A function that reads words and gives up early."""

    def word(self, base: Value, index: int | Value, element: str = "i64") -> Value:
        at = self.mul(index, 8) if isinstance(index, Value) else i64(8 * index)
        return self.load(self.offset(base, at), element)

    def require(self, condition: Value) -> None:
        """Go on if the condition holds, else to the block `fail`, which `end` writes."""
        ok = self.fresh("ok")
        self.branch_if(condition, ok, "fail")
        self.block(ok)

    def end(self, success: Value | None, failure: Value | None) -> None:
        self.ret(success)
        self.block("fail")
        self.ret(failure)
        self.module.define(self.name, self.finish())

    def is_null(self, pointer: Value) -> Value:
        return self.compare("eq", pointer, NULL)

    def is_type(self, item: Value, layout: Value, *fields: int) -> Value:
        """Whether the object's type is one of those in the layout's words `fields`."""
        kind = self.load(self.offset(item, self.word(layout, 0)), "i64")
        found = [self.compare("eq", kind, self.word(layout, f)) for f in fields]
        return found[0] if len(found) == 1 else self.binary("or", *found)

    def handle(self, tensor: Value, layout: Value) -> Value:
        return self.offset(tensor, self.word(layout, 1))

    def ask(self, name: str, handle: Value, cell: Value, element: str) -> Value:
        """What a function of TORCH_FUNCTIONS says of a tensor; fails where it does."""
        self.require(self.compare("eq", self.call(name, "i32", 1, [handle, cell]), 0))
        return self.load(cell, element)


_TYPES = (2, 3)
_LIST_TYPE, _FLOAT_TYPE, _EMPTY = 4, 5, 6
TRUE, FALSE = Value("true", "i1"), Value("false", "i1")


def _same(module: Module) -> None:
    """i1 same(a, b, n): whether n words are equal."""
    f = _Function(module, "same", "i1", [("ptr", "a"), ("ptr", "b"), ("i64", "n")])
    a, b, n = f.params
    with f.loop(0, n) as i:
        f.require(f.compare("eq", f.word(a, i), f.word(b, i)))
    f.end(TRUE, FALSE)


def _tensor(module: Module) -> None:
    """i1 tensor(object, d, out, layout): whether the object is a tensor as descriptor d says; its address to out."""
    f = _Function(module, "tensor", "i1", [("ptr", "x"), ("ptr", "d"), ("ptr", "out"), ("ptr", "layout")])
    x, d, out, layout = f.params
    f.require(f.is_type(x, layout, *_TYPES))
    handle, cell = f.handle(x, layout), f.alloca("i64", 8)
    dtype = f.ask("aoti_torch_get_dtype", handle, cell, "i32")
    f.require(f.compare("eq", dtype, f.convert("trunc", f.word(d, 3), "i32")))
    dims = f.word(d, 4)
    f.require(f.compare("eq", f.ask("aoti_torch_get_dim", handle, cell, "i64"), dims))
    known = f.offset(d, 40)
    for what in ("sizes", "strides"):
        found = f.ask(f"aoti_torch_get_{what}", handle, cell, "ptr")
        f.require(f.call("same", "i1", 1, [found, known, dims]))
        known = f.offset(known, f.mul(dims, 8))
    f.store(f.ask("aoti_torch_get_data_ptr", handle, cell, "i64"), out)
    f.end(TRUE, FALSE)


def _match(module: Module) -> None:
    """i1 match(entry, args, tensors, numbers, layout): whether the arguments are those of the entry; fills in the
    tensors' addresses and the numbers.
    """
    params = [("ptr", p) for p in ("record", "args", "tensors", "numbers", "layout")]
    f = _Function(module, "match", "i1", params)
    entry, args, tensors, numbers, layout = f.params
    at = f.variable(f.word(entry, 3, "ptr"))
    tensor, number = f.variable(tensors), f.variable(numbers)
    with f.loop(0, f.word(entry, 2)):
        d = at.get()
        kind, holder, index = (f.word(d, k) for k in range(3))
        x = f.choose(
            f.compare("slt", holder, 0),
            lambda index=index: f.word(args, index, "ptr"),  # type: ignore[misc]
            lambda h=holder, k=index: f.call("PyList_GetItem", "ptr", 1, [f.word(args, h, "ptr"), k]),  # type: ignore[misc]
        )

        def a_tensor(x: Value = x, d: Value = d) -> None:
            f.require(f.call("tensor", "i1", 1, [x, d, tensor.get(), layout]))
            tensor.set(f.offset(tensor.get(), 8))
            at.set(f.offset(d, f.add(f.mul(f.word(d, 4), 16), 40)))

        def another(x: Value = x, d: Value = d, kind: Value = kind) -> None:
            _other(f, x, d, kind, number, layout)
            at.set(f.offset(d, 32))

        f.either(f.compare("eq", kind, TENSOR), a_tensor, another)
    f.end(TRUE, FALSE)


def _other(f: _Function, x: Value, d: Value, kind: Value, number: object, layout: Value) -> None:
    """The part of `match` for what is not a tensor."""

    def is_object() -> None:
        wanted = f.word(d, 3, "ptr")

        def equal() -> None:
            offset = f.word(layout, 0)
            types = [f.load(f.offset(y, offset), "i64") for y in (x, wanted)]
            f.require(f.compare("eq", *types))
            same = f.call("PyObject_RichCompareBool", "i32", 1, [x, wanted, Value("2", "i32")])
            with f.when(f.compare("slt", same, 0)):
                f.call_void("PyErr_Clear", [])
            f.require(f.compare("sgt", same, 0))

        with f.when(f.compare("ne", x, wanted)):
            equal()

    def is_list() -> None:
        f.require(f.is_type(x, layout, _LIST_TYPE))
        f.require(f.compare("eq", f.call("PyList_Size", "i64", 1, [x]), f.word(d, 3)))

    def is_float() -> None:
        literal = f.compare("eq", kind, LITERAL)
        wanted = f.select(literal, f.word(layout, _FLOAT_TYPE), f.word(d, 3))
        f.require(f.compare("eq", f.load(f.offset(x, f.word(layout, 0)), "i64"), wanted))
        value = f.call("PyFloat_AsDouble", "double", 1, [x])
        with f.when(f.compare("oeq", value, Value("-1.0", "double"))):  # an integer may be too large
            raised = f.call("PyErr_Occurred", "ptr", 1, [])
            with f.when(f.compare("ne", raised, NULL)):
                f.call_void("PyErr_Clear", [])
                f.branch("fail")
                f.block(f.fresh("unreached"))
        f.either(literal, lambda: same_bits(value), lambda: a_number(value))

    def same_bits(value: Value) -> None:
        f.require(f.compare("eq", f.bitcast(value, "i64"), f.word(d, 3)))

    def a_number(value: Value) -> None:
        for special in (0.0, 1.0):  # they have plans of their own
            f.require(f.compare("une", value, Value(f"{special:e}", "double")))
        f.store(value, number.get())  # type: ignore[attr-defined]
        number.set(f.offset(number.get(), 8))  # type: ignore[attr-defined]

    def neither() -> None:
        f.either(f.compare("eq", kind, LIST), is_list, is_float)

    f.either(f.compare("eq", kind, OBJECT), is_object, neither)


def _apart(module: Module) -> None:
    """i1 apart(entry, tensors): whether no input lies where a target is written, but for those that may."""
    f = _Function(module, "apart", "i1", [("ptr", "record"), ("ptr", "tensors")])
    entry, tensors = f.params
    spans, inputs = f.word(entry, 12, "ptr"), f.word(entry, 6)
    with f.loop(0, f.word(entry, 10)) as t:
        target = f.offset(f.word(entry, 11, "ptr"), f.mul(t, 24))
        low, span, shared = f.word(tensors, f.word(target, 0)), f.word(target, 1), f.word(target, 2, "ptr")
        high = f.add(low, span)
        with f.loop(0, inputs) as k:
            start = f.word(tensors, k)
            end = f.add(start, f.word(spans, k))
            right_under = f.binary(
                "and", f.compare("eq", start, low), f.compare("ne", f.load(f.offset(shared, k), "i8"), 0)
            )
            misses = f.binary("or", f.compare("uge", start, high), f.compare("uge", low, end))
            f.require(f.binary("or", right_under, misses))
    f.end(TRUE, FALSE)


def _results(module: Module) -> None:
    """i1 results(entry, made, slots, layout): makes the fresh tensors (null: one that does not exist) and files their
    addresses; false with an exception set, and nothing made.
    """
    f = _Function(module, "results", "i1", [("ptr", "record"), ("ptr", "made"), ("ptr", "slots"), ("ptr", "layout")])
    entry, made, slots, layout = f.params
    slot, cell = f.variable(slots), f.alloca("i64", 8)
    done = f.variable(i64(0))
    with f.loop(0, f.word(entry, 8)) as i:
        wanted, place = f.word(f.word(entry, 9, "ptr"), i, "ptr"), f.offset(made, f.mul(i, 8))
        f.store(NULL, place)
        with f.when(f.compare("ne", wanted, NULL)):
            tensor = f.call("PyObject_Call", "ptr", 1, [f.word(layout, _EMPTY, "ptr"), wanted, NULL])
            f.require(f.compare("ne", tensor, NULL))
            f.store(tensor, place)
            f.call("aoti_torch_get_data_ptr", "i32", 1, [f.handle(tensor, layout), cell])
            f.store(f.load(cell, "i64"), slot.get())
            slot.set(f.offset(slot.get(), 8))
        done.set(f.add(done.get(), 1))
    f.ret(TRUE)
    f.block("fail")
    f.call_void("drop", [made, done.get()])
    f.ret(FALSE)
    module.define("results", f.finish())
    drop = _Function(module, "drop", "void", [("ptr", "made"), ("i64", "n")])
    with drop.loop(0, drop.params[1]) as i:
        tensor = drop.word(drop.params[0], i, "ptr")
        with drop.when(drop.compare("ne", tensor, NULL)):
            drop.call_void("Py_DecRef", [tensor])
    drop.ret()
    module.define("drop", drop.finish())


def _answer(module: Module) -> None:
    """ptr item(item, made, args) and ptr answer(entry, made, args): what the call returns, owned."""
    f = _Function(module, "item", "ptr", [("ptr", "at"), ("ptr", "made"), ("ptr", "args")])
    at, made, args = f.params
    kind, position = f.word(at, 0), f.word(at, 1)

    def kept(x: Value) -> Value:
        f.call_void("Py_IncRef", [x])
        return x

    def other() -> Value:
        argument = f.compare("eq", kind, ARGUMENT)
        return f.choose(argument, lambda: kept(f.word(args, position, "ptr")), lambda: kept(NONE))

    f.ret(f.choose(f.compare("eq", kind, RESULT), lambda: f.word(made, position, "ptr"), other))
    module.define("item", f.finish())

    f = _Function(module, "answer", "ptr", [("ptr", "record"), ("ptr", "made"), ("ptr", "args")])
    entry, made, args = f.params
    items, count = f.word(entry, 15, "ptr"), f.word(entry, 13)

    def many() -> Value:
        out = f.call("PyTuple_New", "ptr", 1, [count])
        f.require(f.compare("ne", out, NULL))
        with f.loop(0, count) as i:
            x = f.call("item", "ptr", 1, [f.offset(items, f.mul(i, 16)), made, args])
            f.call("PyTuple_SetItem", "i32", 1, [out, i, x])
        return out

    def single() -> Value:
        return f.call("item", "ptr", 1, [items, made, args])

    result = f.choose(f.compare("ne", f.word(entry, 14), 0), single, many)
    f.end(result, NULL)


def _run(module: Module) -> None:
    """ptr run(entry, args, tensors, numbers, layout): runs the entry's program; null with an exception set."""
    params = [("ptr", p) for p in ("record", "args", "tensors", "numbers", "layout")]
    f = _Function(module, "run", "ptr", params)
    entry, args, tensors, numbers, layout = f.params
    inputs, given, results, targets = (f.word(entry, k) for k in (6, 7, 8, 10))
    total = f.add(f.add(f.add(f.add(inputs, given), results), targets), 1)  # and the arena
    slots = f.emit(f"alloca i64, {total.typed}", "ptr")
    made = f.emit(f"alloca i64, {f.add(results, 1).typed}", "ptr")
    with f.loop(0, inputs) as i:
        f.store(f.word(tensors, i), f.offset(slots, f.mul(i, 8)))
    behind = f.offset(slots, f.mul(inputs, 8))
    with f.loop(0, given) as i:
        f.store(f.offset(numbers, f.mul(i, 8)), f.offset(behind, f.mul(i, 8)))
    behind = f.offset(behind, f.mul(given, 8))
    f.require(f.call("results", "i1", 1, [entry, made, behind, layout]))
    behind = f.offset(slots, f.mul(f.sub(f.word(entry, 16), targets), 8))
    with f.loop(0, targets) as i:
        target = f.offset(f.word(entry, 11, "ptr"), f.mul(i, 24))
        f.store(f.word(tensors, f.word(target, 0)), f.offset(behind, f.mul(i, 8)))
    code = f.call(RUN_SYMBOL, "i32", 1, [f.word(entry, 4, "ptr"), slots, f.word(entry, 5, "ptr")])
    with f.when(f.compare("ne", code, 0)):
        f.call_void("drop", [made, results])
        f.branch("fail")
        f.block(f.fresh("unreached"))
    f.end(f.call("answer", "ptr", 1, [entry, made, args]), NULL)


def _entry(module: Module) -> None:
    """The built-in function: the first entry that matches is run, and moves one place forward."""
    params = [("ptr", "self"), ("ptr", "args"), ("i64", "given"), ("ptr", "keywords")]
    f = _Function(module, SYMBOL, "ptr", params, attributes="")
    held, args, given, keywords = f.params
    keywords = f.call("named", "ptr", 1, [keywords])
    table, layout = (
        f.call("PyLong_AsVoidPtr", "ptr", 1, [f.call("PyTuple_GetItem", "ptr", 1, [held, i64(k)])]) for k in (0, 2)
    )
    tensors = f.emit(f"alloca i64, {f.word(table, 1).typed}", "ptr")
    numbers = f.emit(f"alloca double, {f.word(table, 2).typed}", "ptr")
    with f.loop(0, f.word(table, 0)) as i:
        place = f.offset(f.offset(table, 24), f.mul(i, 8))
        entry = f.load(place, "ptr")
        alike = f.call("alike", "i1", 1, [entry, given, keywords])
        with f.when(alike), f.when(f.call("match", "i1", 1, [entry, args, tensors, numbers, layout])):
            with f.when(f.compare("sgt", i, 0)):
                before = f.offset(place, -8)
                f.store(f.load(before, "ptr"), place)
                f.store(entry, before)
            _take(f, entry, (args, given, keywords), tensors, numbers, layout)
    fallback = f.call("PyTuple_GetItem", "ptr", 1, [held, i64(1)])
    f.ret(f.call("PyObject_Vectorcall", "ptr", 1, [fallback, args, given, keywords]))
    module.define(SYMBOL, f.finish())
    _alike(module)
    _named(module)


def _take(
    f: _Function, entry: Value, arguments: tuple[Value, Value, Value], tensors: Value, numbers: Value, layout: Value
) -> None:
    """The call is the entry's: run its program, if nothing is in the way, or call its function."""
    args, given, keywords = arguments

    def leave(value: Callable[[], Value]) -> Callable[[], None]:
        def go() -> None:
            f.ret(value())
            f.block(f.fresh("unreached"))

        return go

    def program() -> None:
        with f.when(f.call("apart", "i1", 1, [entry, tensors])):
            leave(lambda: f.call("run", "ptr", 1, [entry, args, tensors, numbers, layout]))()

    function = f.word(entry, 5, "ptr")
    f.either(
        f.compare("eq", f.word(entry, 4), 0),
        leave(lambda: f.call("PyObject_Vectorcall", "ptr", 1, [function, args, given, keywords])),
        program,
    )


def _alike(module: Module) -> None:
    """i1 alike(entry, given, keywords): whether the call has the entry's number of arguments and keywords."""
    f = _Function(module, "alike", "i1", [("ptr", "record"), ("i64", "given"), ("ptr", "keywords")])
    entry, given, keywords = f.params
    f.require(f.compare("eq", f.word(entry, 0), given))
    wanted = f.word(entry, 1, "ptr")

    def compared() -> None:
        f.require(f.compare("ne", wanted, NULL))
        f.require(f.compare("ne", keywords, NULL))
        same = f.call("PyObject_RichCompareBool", "i32", 1, [keywords, wanted, Value("2", "i32")])
        f.require(f.compare("sgt", same, 0))

    with f.when(f.compare("ne", wanted, keywords)):
        compared()
    f.end(TRUE, FALSE)


def _named(module: Module) -> None:
    """ptr named(keywords): the tuple of keywords, or null where it is empty: PyTorch calls with an empty dictionary."""
    f = _Function(module, "named", "ptr", [("ptr", "keywords")])
    (keywords,) = f.params
    f.require(f.compare("ne", keywords, NULL))
    f.require(f.compare("ne", f.call("PyTuple_Size", "i64", 1, [keywords]), 0))
    f.end(keywords, NULL)
