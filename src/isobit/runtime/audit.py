"""Python's audit events, filtered by native code before Python code hears of them.

A hook added by ``sys.addaudithook`` runs Python code for every event, and `id()` and many an attribute are events.
Python also takes hooks of native code; ours compares the event's name with a few and calls a Python function for those
alone. Python never lets go of a hook, so this one reads a switch, and its code stays in memory for good.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from isobit.codegen.objects import compile_object
from isobit.codegen.target import Target
from isobit.runtime.cache import ObjectCache, object_key
from isobit.runtime.entry import python_symbols
from isobit.runtime.loader import Loader, process_symbols

SYMBOL = "isobit_audit"

# state: 0 switch   1 interpreter   2 function   3 number of names   4 1: called while off   5 … their addresses
# Tracing is off while the function runs, as it is for hooks of Python code: no debugger or profiler shall see it. An
# exception in it ends the operation that is being announced, except where the stack had no room for the call.
AUDIT_TEXT = f"""
@PyExc_RecursionError = external global ptr

declare i32 @strcmp(ptr, ptr) nounwind
declare ptr @PyInterpreterState_Get() nounwind
declare ptr @PyThreadState_Get() nounwind
declare void @PyThreadState_EnterTracing(ptr) nounwind
declare void @PyThreadState_LeaveTracing(ptr) nounwind
declare ptr @PyObject_CallFunctionObjArgs(ptr, ...) nounwind
declare ptr @PyUnicode_FromString(ptr) nounwind
declare i32 @PyErr_ExceptionMatches(ptr) nounwind
declare void @PyErr_Clear() nounwind
declare void @Py_DecRef(ptr) nounwind

define i32 @{SYMBOL}(ptr %event, ptr %args, ptr %state) nounwind {{
entry:
  %switch = load atomic i64, ptr %state monotonic, align 8
  %off = icmp eq i64 %switch, 0
  br i1 %off, label %idle, label %start
idle:
  %calledp = getelementptr i8, ptr %state, i64 32
  store i64 1, ptr %calledp
  br label %done
start:
  %first = load i8, ptr %event
  %countp = getelementptr i8, ptr %state, i64 24
  %count = load i64, ptr %countp
  %names = getelementptr i8, ptr %state, i64 40
  br label %next
next:
  %i = phi i64 [ 0, %start ], [ %i2, %other ]
  %end = icmp eq i64 %i, %count
  br i1 %end, label %done, label %compare
compare:
  %i2 = add i64 %i, 1
  %namep = getelementptr ptr, ptr %names, i64 %i
  %name = load ptr, ptr %namep
  %letter = load i8, ptr %name
  %alike = icmp eq i8 %letter, %first
  br i1 %alike, label %full, label %other
other:
  br label %next
full:
  %order = call i32 @strcmp(ptr %name, ptr %event)
  %same = icmp eq i32 %order, 0
  br i1 %same, label %found, label %other
found:
  %here = call ptr @PyInterpreterState_Get()
  %homep = getelementptr i8, ptr %state, i64 8
  %home = load ptr, ptr %homep
  %ours = icmp eq ptr %here, %home
  br i1 %ours, label %call, label %done
call:
  %text = call ptr @PyUnicode_FromString(ptr %event)
  %none = icmp eq ptr %text, null
  br i1 %none, label %drop, label %announce
announce:
  %functionp = getelementptr i8, ptr %state, i64 16
  %function = load ptr, ptr %functionp
  %thread = call ptr @PyThreadState_Get()
  call void @PyThreadState_EnterTracing(ptr %thread)
  %result = call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr %function, ptr %text, ptr %args, ptr null)
  call void @PyThreadState_LeaveTracing(ptr %thread)
  call void @Py_DecRef(ptr %text)
  %failed = icmp eq ptr %result, null
  br i1 %failed, label %raised, label %release
release:
  call void @Py_DecRef(ptr %result)
  br label %done
raised:
  %recursion = load ptr, ptr @PyExc_RecursionError
  %deep = call i32 @PyErr_ExceptionMatches(ptr %recursion)
  %pass = icmp eq i32 %deep, 0
  br i1 %pass, label %refuse, label %drop
drop:
  call void @PyErr_Clear()
  br label %done
refuse:
  ret i32 -1
done:
  ret i32 0
}}
"""

_FUNCTIONS = (
    "PyInterpreterState_Get", "PyThreadState_Get", "PyThreadState_EnterTracing", "PyThreadState_LeaveTracing",
    "PyObject_CallFunctionObjArgs", "PyUnicode_FromString", "PyErr_ExceptionMatches", "PyErr_Clear", "Py_DecRef",
)  # fmt: skip
Listener = Callable[[str, tuple[Any, ...]], None]


class AuditError(RuntimeError):
    """The hook could not be set; the message says why."""


class AuditHook:
    """Calls ``listener(event, arguments)`` for the named events while it is on, in whatever thread they happen.

    There is one for each call, for the rest of the process; a forked child has it, too. The listener must not raise:
    what it raises comes out of the operation that was announced.
    """

    def __init__(self, events: Sequence[str], listener: Listener, target: Target, cache_dir: Path | None) -> None:
        self._listener = listener
        names = [ctypes.create_string_buffer(name.encode()) for name in events]
        words = [0, _interpreter(), id(listener), len(names), 0, *map(ctypes.addressof, names)]
        self._state = (ctypes.c_uint64 * len(words))(*words)
        loader = Loader(target)
        _keep_for_good((self, names, loader))
        add = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(
            ("PySys_AddAuditHook", ctypes.pythonapi)
        )
        if add(_code(loader, target, cache_dir), ctypes.addressof(self._state)) != 0:
            raise AuditError("Python takes no audit hook")
        sys.audit("isobit.audit")
        if not self._state[4]:  # an earlier hook refuses others, which Python does not say
            raise AuditError("another audit hook keeps new ones out")

    def switch(self, on: bool) -> None:
        """From now on, the listener is called or is not."""
        self._state[0] = int(on)


def _code(loader: Loader, target: Target, cache_dir: Path | None) -> int:
    imports = python_symbols(_FUNCTIONS, ("PyExc_RecursionError",)) | process_symbols(("strcmp",))
    cache, key = ObjectCache(cache_dir), object_key(AUDIT_TEXT, target)
    code = cache.get(key)
    if code is None:
        code = compile_object(AUDIT_TEXT, target, SYMBOL, imports)
        cache.put(key, code)
    return loader.link(code, [SYMBOL], imports, SYMBOL)[0]


def _interpreter() -> int:
    address: int = ctypes.PYFUNCTYPE(ctypes.c_size_t)(("PyInterpreterState_Get", ctypes.pythonapi))()
    return address


def _keep_for_good(thing: object) -> None:
    """Let it never be freed, not even when the interpreter ends: the hook is called until the very last moment."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
