"""The f32 algorithms as vector code of this machine's best level, for tools/prove_functions.py:

PYTHONPATH=src:tools python tools/prove_functions.py exp --all --evaluator compiled_evaluator:compiled
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import numpy.typing as npt

from isobit.arithmetic import functions
from isobit.codegen.elementary import VectorOps
from isobit.codegen.emit import Builder, Module
from isobit.codegen.objects import compile_object
from isobit.codegen.target import Target, host_levels, host_target

F64Array = npt.NDArray[np.float64]


class Compiled:
    """out[i] = algorithm(x[i]) in binary64, for arrays whose length is a multiple of the lanes."""

    def __init__(self, name: str, target: Target) -> None:
        code = compile_object(_text(name, target), target)
        machine = llvm.Target.from_default_triple().create_target_machine()
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
        self._entry: Callable[..., Any] = kind(self._engine.get_function_address("evaluate"))

    def __call__(self, x: F64Array) -> F64Array:
        padded = np.ascontiguousarray(x) if x.size % 8 == 0 else np.append(x, np.zeros(-x.size % 8))
        out = np.empty_like(padded)
        self._entry(padded.ctypes.data, out.ctypes.data, padded.size)
        return out[: x.size]


def _text(name: str, target: Target) -> str:
    module, lanes = Module(target), target.lanes(8)
    b = Builder(module, "evaluate", "void", [("ptr", "x"), ("ptr", "out"), ("i64", "n")], "")
    x, out, n = b.params
    with b.loop(0, n, lanes) as i:
        at = b.mul(i, 8)
        argument = b.load(b.offset(x, at), "double", lanes)
        b.store(functions.algorithm(name, "f32")(VectorOps(b, lanes), argument), b.offset(out, at))
    b.ret()
    module.define("evaluate", b.finish())
    return module.text()


def compiled(name: str) -> Compiled:
    """The evaluator of a function."""
    return Compiled(name, host_target(host_levels()[0]))
