"""Object code into this process."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Mapping, Sequence

import llvmlite.binding as llvm

from isobit.codegen.objects import KernelError, target_machine
from isobit.codegen.target import Target

_LIBRARIES_PER_JIT = 128  # LLVM looks through all of a JIT's libraries for each new one


class Loader:
    """Links object code into the process and keeps it there as long as the loader lives.

    A library sees the given imports and nothing else: a kernel that calls into the process by accident does not load.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._numbers = itertools.count()
        self._jits: list[llvm.LLJIT] = []
        self._loaded: list[llvm.ResourceTracker] = []

    def link(self, code: bytes, symbols: Sequence[str], imports: Mapping[str, int], name: str) -> list[int]:
        """The addresses of ``symbols`` in ``code``. Raises KernelError, naming ``name``, if it does not link."""
        try:
            return self._link([code], symbols, imports)
        except RuntimeError as error:
            raise KernelError(f"kernel {name} does not link: {error}") from None

    def link_kernels(self, codes: Mapping[str, bytes], imports: Mapping[str, int]) -> dict[str, int]:
        """The addresses of kernels by symbol; together they take a third of the time that each alone would.

        Raises KernelError naming the kernel that does not link.
        """
        try:
            return dict(zip(codes, self._link(list(codes.values()), list(codes), imports)))
        except RuntimeError:  # find out which
            return {symbol: self.link(code, [symbol], imports, symbol)[0] for symbol, code in codes.items()}

    def _link(self, codes: Sequence[bytes], symbols: Sequence[str], imports: Mapping[str, int]) -> list[int]:
        builder = llvm.JITLibraryBuilder()
        for code in codes:
            builder.add_object_img(code)
        for symbol, address in imports.items():
            builder.import_symbol(symbol, address)
        for symbol in symbols:
            builder.export_symbol(symbol)
        number = next(self._numbers)
        tracker = builder.link(self._jit(number), f"isobit{number}")
        self._loaded.append(tracker)
        return [tracker[symbol] for symbol in symbols]

    def _jit(self, number: int) -> llvm.LLJIT:
        if number % _LIBRARIES_PER_JIT == 0:
            machine = target_machine(self._target)
            self._jits.append(llvm.create_lljit_compiler(machine, use_jit_link=True, suppress_errors=True))
        return self._jits[-1]


def process_symbols(names: Sequence[str]) -> dict[str, int]:
    """The addresses of C library functions in this process."""
    process = ctypes.CDLL(None)
    return {name: ctypes.cast(getattr(process, name), ctypes.c_void_p).value or 0 for name in names}
