"""LLVM IR text to object code."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Collection
from functools import cache
from typing import Any

import llvmlite
import llvmlite.binding as llvm
from llvmlite.binding import ffi

from isobit.codegen.target import Target

MEMORY_FUNCTIONS = ("memcpy", "memmove", "memset")
"""What LLVM itself makes of loops that copy and fill: the only functions that a kernel may need from outside."""

_DECLARED = re.compile(r"^\s*declare\b[^@\n]*@\"?(?!llvm\.)([-\w.$]+)", re.MULTILINE)


class KernelError(RuntimeError):
    """LLVM IR that does not compile, or that would break the arithmetic; the message names the kernel."""


# Flags and attributes that let LLVM change bits, and intrinsics whose result it leaves to a library or to its mood.
_INEXACT = re.compile(
    r"^[^;\n]*\b(?:f(?:add|sub|mul|div|rem|neg|cmp)|fptrunc|fpext|select|phi|call)\s+(?:fast|nnan|ninf|nsz|arcp|contract|afn|reassoc)\s"
    r"|\"(?:unsafe-fp-math|no-(?:nans|infs|signed-zeros)-fp-math|approx-func-fp-math)\"=\"true\""
    r"|\"denormal-fp-math"
    r"|@llvm\.(?:fmuladd|sin|cos|tan|a?sinh?|a?cosh?|a?tanh?|atan2|exp|exp2|exp10|log|log2|log10|pow|powi)\.",
    re.MULTILINE,
)


PASSES = 2  # to be raised with every change of what _optimise does: it is part of the cache key


def compile_object(
    source_text: str, target: Target, name: str = "kernel", imports: Collection[str] = MEMORY_FUNCTIONS
) -> bytes:
    """Compile LLVM IR text to a position-independent object for ``target``, optimised at O3 without changing a bit.

    ``name`` stands in error messages. Raises KernelError if the text does not parse or verify, if it asks for
    fast-math, contraction or a library's elementary function, or if it declares a function that is not in ``imports``
    (LLVM would evaluate some of them, like ``expf``, with the compiling machine's C library).
    """
    reject_inexact(source_text, name)
    _reject_imports(source_text, name, imports)
    machine = target_machine(target)
    with llvm.create_context() as context, _parse(source_text, name, context) as module:
        module.triple = target.triple
        module.data_layout = str(machine.target_data)
        _verify(module, name)
        _optimise(module, machine)
        return _emit(module, machine)


def reject_inexact(source_text: str, name: str) -> None:
    """Raise KernelError at the first line that would let LLVM change the bits of a result."""
    found = _INEXACT.search(source_text)
    if found is not None:
        line = source_text.count("\n", 0, found.start()) + 1
        raise KernelError(f"kernel {name}, line {line}: {found.group().strip()!r} may change the bits of a result")


def _reject_imports(source_text: str, name: str, allowed: Collection[str]) -> None:
    for symbol in _DECLARED.findall(source_text):
        if symbol not in allowed:
            raise KernelError(f"kernel {name} calls {symbol}, which is not part of it")


def compiler_version() -> str:
    """What, besides text and target, decides the object code: the versions of LLVM and of its binding."""
    return f"llvm {'.'.join(map(str, llvm.llvm_version_info))} llvmlite {llvmlite.__version__} passes {PASSES}"


def _parse(text: str, name: str, context: llvm.ContextRef) -> llvm.ModuleRef:
    try:
        return llvm.parse_assembly(text, context)
    except RuntimeError as error:
        raise KernelError(f"kernel {name} does not parse: {error}") from None


def _verify(module: llvm.ModuleRef, name: str) -> None:
    try:
        module.verify()
    except RuntimeError as error:
        raise KernelError(f"kernel {name} is not valid LLVM IR: {error}") from None


def _optimise(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> None:
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    # Kernels are written as vectors: finding more of them takes half of the compile time and makes only tails longer.
    tuning.loop_vectorization = tuning.slp_vectorization = tuning.loop_interleaving = False
    builder = llvm.create_pass_builder(machine, tuning)
    _unlocked("LLVMPY_RunNewModulePassManager")(builder.getModulePassManager(), module, builder)


def _emit(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> bytes:
    with ffi.OutputString() as message:
        buffer = _unlocked("LLVMPY_TargetMachineEmitToMemory")(machine, module, 1, message)
        if not buffer:
            raise KernelError(f"LLVM cannot emit an object: {message}")
    try:
        return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


@cache
def _unlocked(name: str) -> Any:
    """A function of llvmlite's library without the lock that llvmlite holds around every call.

    The two calls that take nearly all the time, optimising and emitting, touch nothing but their own context and target
    machine, which LLVM allows on several threads at once.
    """
    locked = getattr(ffi.lib, name)
    function = getattr(ctypes.CDLL(ffi.lib._name), name)
    function.argtypes, function.restype = locked.argtypes, locked.restype
    return function


def target_machine(target: Target) -> llvm.TargetMachine:
    """LLVM's code generator for ``target``; nothing in it depends on the machine we run on."""
    _initialise_targets()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=3, reloc="pic", codemodel="small"
    )


@cache
def _initialise_targets() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
