"""A program as a Python built-in function: the cheapest way in from Python.

A ctypes call converts every argument through a Python object; ``METH_FASTCALL`` code of our own reads the addresses
from the interpreter's argument array, releases the GIL and runs. Only functions of Python's stable ABI are used.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from isobit.runtime.abi import IDLE

SYMBOL = "isobit_call"
RUN_SYMBOL = "isobit_run"
"""``i32 run(program, slots, starter)`` for built-in functions that have the addresses already; holds the GIL."""

ENTRY_TEXT = f"""
@isobit.count = private constant [44 x i8] c"the program takes %zd addresses, %zd given\\00\\00"
@PyExc_TypeError = external global ptr
@_Py_NoneStruct = external global i8

declare i32 @isobit_execute(ptr, ptr) nounwind
declare ptr @PyTuple_GetItem(ptr, i64) nounwind
declare ptr @PyLong_AsVoidPtr(ptr) nounwind
declare ptr @PyErr_Occurred() nounwind
declare ptr @PyErr_Format(ptr, ptr, ...) nounwind
declare ptr @PyErr_NoMemory() nounwind
declare ptr @PyObject_CallObject(ptr, ptr) nounwind
declare ptr @PyEval_SaveThread() nounwind
declare void @PyEval_RestoreThread(ptr) nounwind
declare void @Py_IncRef(ptr) nounwind
declare void @Py_DecRef(ptr) nounwind

; Runs with the GIL released and the workers started; 0, or -1 with an exception set.
define i32 @{RUN_SYMBOL}(ptr %program, ptr %slots, ptr %starter) nounwind {{
entry:
  %parallelp = getelementptr i8, ptr %program, i64 48
  %parallel = load i64, ptr %parallelp
  %pool = load ptr, ptr %program
  %statep = getelementptr i8, ptr %pool, i64 8
  %state = load atomic i32, ptr %statep seq_cst, align 4
  %idle = icmp eq i32 %state, {IDLE}
  %wanted = icmp ne i64 %parallel, 0
  %wake = and i1 %idle, %wanted
  br i1 %wake, label %workers, label %execute
workers:
  %started = call ptr @PyObject_CallObject(ptr %starter, ptr null)
  %failed = icmp eq ptr %started, null
  br i1 %failed, label %error, label %drop
drop:
  call void @Py_DecRef(ptr %started)
  br label %execute
execute:
  %thread = call ptr @PyEval_SaveThread()
  %code = call i32 @isobit_execute(ptr %program, ptr %slots)
  call void @PyEval_RestoreThread(ptr %thread)
  %ok = icmp eq i32 %code, 0
  br i1 %ok, label %done, label %memory
memory:
  %null = call ptr @PyErr_NoMemory()
  br label %error
error:
  ret i32 -1
done:
  ret i32 0
}}

define ptr @{SYMBOL}(ptr %self, ptr %args, i64 %given) nounwind {{
entry:
  %handle = call ptr @PyTuple_GetItem(ptr %self, i64 0)
  %program = call ptr @PyLong_AsVoidPtr(ptr %handle)
  %starter = call ptr @PyTuple_GetItem(ptr %self, i64 1)
  %countp = getelementptr i8, ptr %program, i64 24
  %count = load i64, ptr %countp
  %right = icmp eq i64 %count, %given
  br i1 %right, label %start, label %wrong
wrong:
  %type_error = load ptr, ptr @PyExc_TypeError
  %null = call ptr (ptr, ptr, ...) @PyErr_Format(ptr %type_error, ptr @isobit.count, i64 %count, i64 %given)
  ret ptr null
start:
  %room = add i64 %count, 1
  %slots = alloca i64, i64 %room
  %none = icmp eq i64 %count, 0
  br i1 %none, label %execute, label %convert
convert:
  %i = phi i64 [ 0, %start ], [ %i2, %store ]
  %argp = getelementptr ptr, ptr %args, i64 %i
  %arg = load ptr, ptr %argp
  %address = call ptr @PyLong_AsVoidPtr(ptr %arg)
  %zero = icmp eq ptr %address, null
  br i1 %zero, label %doubt, label %store
doubt:
  %raised = call ptr @PyErr_Occurred()
  %fine = icmp eq ptr %raised, null
  br i1 %fine, label %store, label %error
store:
  %slotp = getelementptr ptr, ptr %slots, i64 %i
  store ptr %address, ptr %slotp
  %i2 = add i64 %i, 1
  %more = icmp ult i64 %i2, %count
  br i1 %more, label %convert, label %execute
execute:
  %code = call i32 @{RUN_SYMBOL}(ptr %program, ptr %slots, ptr %starter)
  %ok = icmp eq i32 %code, 0
  br i1 %ok, label %done, label %error
error:
  ret ptr null
done:
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  ret ptr @_Py_NoneStruct
}}
"""

_FUNCTIONS = (
    "PyTuple_GetItem", "PyLong_AsVoidPtr", "PyErr_Occurred", "PyErr_Format", "PyErr_NoMemory", "PyObject_CallObject",
    "PyEval_SaveThread", "PyEval_RestoreThread", "Py_IncRef", "Py_DecRef",
)  # fmt: skip
_OBJECTS = ("PyExc_TypeError", "_Py_NoneStruct")
METH_FASTCALL, METH_KEYWORDS = 0x80, 0x02


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("ml_name", ctypes.c_char_p),
        ("ml_meth", ctypes.c_void_p),
        ("ml_flags", ctypes.c_int),
        ("ml_doc", ctypes.c_char_p),
    )


class BuiltinMaker:
    """Makes built-in functions of native code; must live as long as any of them."""

    def __init__(self, code_address: int, flags: int, name: bytes, doc: bytes) -> None:
        self._method = _MethodDef(name, code_address, flags, doc)
        self._new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
            ("PyCFunction_NewEx", ctypes.pythonapi)
        )

    def make(self, *held: Any) -> Callable[..., Any]:
        """A function whose code gets ``held`` (and this maker) as the tuple ``self``."""
        function: Callable[..., Any] = self._new(ctypes.addressof(self._method), (*held, self), None)
        return function


def python_symbols(functions: Sequence[str] = _FUNCTIONS, objects: Sequence[str] = _OBJECTS) -> dict[str, int]:
    """The addresses in this interpreter of what ENTRY_TEXT, or other native code, uses."""
    api = ctypes.pythonapi
    found = {name: _address(getattr(api, name)) for name in functions}
    return found | {name: ctypes.addressof(ctypes.c_char.in_dll(api, name)) for name in objects}


class EntryFactory:
    """Makes built-in functions around the compiled ENTRY_TEXT."""

    def __init__(self, code_address: int) -> None:
        doc = b"Run the program on the addresses of its inputs, then of its outputs."
        self._maker = BuiltinMaker(code_address, METH_FASTCALL, b"run", doc)

    def make(self, program: int, start: Callable[[], None], keep: tuple[Any, ...]) -> Callable[..., None]:
        """A function of addresses; calls ``start`` when the pool has no workers yet, and holds ``keep``."""
        return self._maker.make(program, start, keep)


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0
