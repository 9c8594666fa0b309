"""Object code into this process."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Mapping, Sequence

import llvmlite.binding as llvm

from isobit.codegen.objects import KernelError, target_machine
from isobit.codegen.target import Target


class Loader:
    """Links object code into the process and keeps it there as long as the loader lives.

    Every object is a library of its own that sees the given imports and nothing else: a kernel that calls into the
    process by accident does not load.
    """

    def __init__(self, target: Target) -> None:
        self._jit = llvm.create_lljit_compiler(target_machine(target), use_jit_link=True, suppress_errors=True)
        self._numbers = itertools.count()
        self._loaded: list[llvm.ResourceTracker] = []

    def link(self, code: bytes, symbols: Sequence[str], imports: Mapping[str, int], name: str) -> list[int]:
        """The addresses of ``symbols`` in ``code``. Raises KernelError, naming ``name``, if it does not link."""
        builder = llvm.JITLibraryBuilder().add_object_img(code)
        for symbol, address in imports.items():
            builder.import_symbol(symbol, address)
        for symbol in symbols:
            builder.export_symbol(symbol)
        try:
            tracker = builder.link(self._jit, f"isobit{next(self._numbers)}")
        except RuntimeError as error:
            raise KernelError(f"kernel {name} does not link: {error}") from None
        self._loaded.append(tracker)
        return [tracker[symbol] for symbol in symbols]


def process_symbols(names: Sequence[str]) -> dict[str, int]:
    """The addresses of C library functions in this process."""
    process = ctypes.CDLL(None)
    return {name: ctypes.cast(getattr(process, name), ctypes.c_void_p).value or 0 for name in names}
