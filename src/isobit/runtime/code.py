"""From kernel texts to addresses, compiling each text once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

from isobit.codegen.kernel import KernelSource
from isobit.codegen.objects import MEMORY_FUNCTIONS, compile_object
from isobit.codegen.target import Target
from isobit.runtime import driver, entry
from isobit.runtime.cache import ObjectCache, object_key
from isobit.runtime.loader import Loader, process_symbols
from isobit.runtime.pool import available_cores


class CodeStore:
    """The code of one target in this process: driver, Python entry and kernels; several runtimes may share it."""

    def __init__(self, target: Target, cache_dir: Path | None) -> None:
        self.target = target
        self._cache = ObjectCache(cache_dir)
        self._loader = Loader(target)
        self._known: dict[tuple[str, str], int] = {}
        self._lock = Lock()
        self._kernel_imports = process_symbols(MEMORY_FUNCTIONS)
        text = driver.driver_text(target)
        self.driver = self.load_text(text, driver.SYMBOLS, process_symbols(driver.IMPORTS))
        imports = entry.python_symbols() | {"isobit_execute": self.driver["isobit_execute"]}
        own = self.load_text(entry.ENTRY_TEXT, (entry.SYMBOL, entry.RUN_SYMBOL), imports)
        self.entries, self.run = entry.EntryFactory(own[entry.SYMBOL]), own[entry.RUN_SYMBOL]

    def addresses(self, kernels: Iterable[KernelSource]) -> dict[KernelSource, int]:
        """The address of each kernel's function; what must be compiled is compiled on all cores.

        Raises KernelError for a kernel that does not compile or link.
        """
        keys = {kernel: object_key(kernel.text, self.target) for kernel in dict.fromkeys(kernels)}
        missing = {
            (key, kernel.symbol): kernel for kernel, key in keys.items() if (key, kernel.symbol) not in self._known
        }
        self._link(dict(zip(missing, self._objects(missing))))
        return {kernel: self._known[key, kernel.symbol] for kernel, key in keys.items()}

    def _objects(self, kernels: dict[tuple[str, str], KernelSource]) -> list[bytes]:
        jobs = [(key, kernel.text, symbol) for (key, symbol), kernel in kernels.items()]
        if len(jobs) < 2:
            return [self._object(*job) for job in jobs]
        with ThreadPoolExecutor(min(len(jobs), available_cores()), "isobit-compile") as workers:
            return list(workers.map(self._object, *zip(*jobs)))

    def _link(self, codes: dict[tuple[str, str], bytes]) -> None:
        with self._lock:  # another thread may have linked some in the meantime
            todo = [(name, code) for name, code in codes.items() if name not in self._known]
            while todo:
                group = {symbol: (key, code) for (key, symbol), code in reversed(todo)}  # the first of each symbol
                linked = self._loader.link_kernels({s: code for s, (_, code) in group.items()}, self._kernel_imports)
                self._known.update({(group[symbol][0], symbol): address for symbol, address in linked.items()})
                todo = [(name, code) for name, code in todo if name not in self._known]

    def _object(self, key: str, text: str, name: str, imports: Collection[str] = MEMORY_FUNCTIONS) -> bytes:
        code = self._cache.get(key)
        if code is None:
            code = compile_object(text, self.target, name, imports)
            self._cache.put(key, code)
        return code

    def load_text(self, text: str, symbols: Sequence[str], imports: dict[str, int]) -> dict[str, int]:
        """The addresses of ``symbols`` in LLVM IR that is no kernel and may use ``imports``, compiled and linked."""
        code = self._object(object_key(text, self.target), text, symbols[0], imports)
        return dict(zip(symbols, self._loader.link(code, symbols, imports, symbols[0]), strict=True))
