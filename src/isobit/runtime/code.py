"""From kernel texts to addresses, compiling each text once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from threading import Lock

from isobit.codegen.kernel import KernelSource
from isobit.codegen.objects import compile_object
from isobit.codegen.target import Target
from isobit.runtime import driver, entry
from isobit.runtime.cache import ObjectCache, object_key
from isobit.runtime.loader import Loader, process_symbols

_KERNEL_IMPORTS = ("memcpy", "memmove", "memset")  # what LLVM itself makes of loops that copy and fill


class CodeStore:
    """The code of one target in this process: driver, Python entry and kernels; several runtimes may share it."""

    def __init__(self, target: Target, cache_dir: Path | None) -> None:
        self.target = target
        self._cache = ObjectCache(cache_dir)
        self._loader = Loader(target)
        self._addresses: dict[tuple[str, str], int] = {}
        self._lock = Lock()
        self._kernel_imports = process_symbols(_KERNEL_IMPORTS)
        self.driver = self._load_driver()
        self.entries = entry.EntryFactory(self._load_entry())

    def addresses(self, kernels: Iterable[KernelSource]) -> dict[KernelSource, int]:
        """The address of each kernel's function. Raises KernelError for one that does not compile or link."""
        return {kernel: self._address(kernel) for kernel in dict.fromkeys(kernels)}

    def _address(self, kernel: KernelSource) -> int:
        key = object_key(kernel.text, self.target)
        known = self._addresses.get((key, kernel.symbol))
        if known is not None:
            return known
        code = self._object(key, kernel.text, kernel.symbol)
        with self._lock:
            [address] = self._loader.link(code, [kernel.symbol], self._kernel_imports, kernel.symbol)
            return self._addresses.setdefault((key, kernel.symbol), address)

    def _object(self, key: str, text: str, name: str) -> bytes:
        code = self._cache.get(key)
        if code is None:
            code = compile_object(text, self.target, name)
            self._cache.put(key, code)
        return code

    def _load_driver(self) -> dict[str, int]:
        text = driver.driver_text(self.target)
        code = self._object(object_key(text, self.target), text, "driver")
        imports = process_symbols(driver.IMPORTS)
        return dict(zip(driver.SYMBOLS, self._loader.link(code, driver.SYMBOLS, imports, "driver")))

    def _load_entry(self) -> int:
        text = entry.ENTRY_TEXT
        code = self._object(object_key(text, self.target), text, entry.SYMBOL)
        imports = entry.python_symbols() | {"isobit_execute": self.driver["isobit_execute"]}
        [address] = self._loader.link(code, [entry.SYMBOL], imports, entry.SYMBOL)
        return address
