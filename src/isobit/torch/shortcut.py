"""Shortcuts: a call that looks like an earlier one goes from PyTorch's dispatcher to its program without Python code.

A built-in function stands in for the Python kernel. It compares the arguments with the records of calls that the
Python kernel has answered; the first that fits is run, else the Python kernel is called and may add a record.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from isobit.runtime.code import CodeStore
from isobit.runtime.engine import Engine
from isobit.runtime.entry import METH_FASTCALL, METH_KEYWORDS, RUN_SYMBOL, BuiltinMaker, python_symbols
from isobit.runtime.program import Program
from isobit.torch.plan import Plan, empty
from isobit.torch.shortcut_code import (
    ARGUMENT,
    LIST,
    LITERAL,
    NOTHING,
    NUMBER,
    OBJECT,
    PYTHON_FUNCTIONS,
    PYTHON_OBJECTS,
    RESULT,
    SYMBOL,
    TENSOR,
    TORCH_FUNCTIONS,
    ObjectLayout,
    shortcut_text,
)  # fmt: skip

CAPACITY = 32
"""Records of one operator; a call whose record does not fit goes through the Python kernel."""

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_COMPARED = (int, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)

Words = ctypes.Array[ctypes.c_int64]


class _Unfit(Exception):
    """The call can have no record."""


def words(values: Sequence[int]) -> Words:
    return (ctypes.c_int64 * max(len(values), 1))(*values)


class ShortcutFactory:
    """The native code in this process, and what it needs to know of it."""

    def __init__(self, code: CodeStore, layout: ObjectLayout, functions: dict[str, int]) -> None:
        imports = python_symbols(tuple(PYTHON_FUNCTIONS), PYTHON_OBJECTS) | functions | {RUN_SYMBOL: code.run}
        address = code.load_text(shortcut_text(code.target), (SYMBOL,), imports)[SYMBOL]
        self._dtype = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(functions[TORCH_FUNCTIONS[0]])
        self._offset = layout.tensor_offset
        self._layout = words([layout.type_offset, layout.tensor_offset, *layout.tensor_types, *_rest(layout)])
        flags = METH_FASTCALL | METH_KEYWORDS
        self._maker = BuiltinMaker(address, flags, b"kernel", b"Answers calls that are known, else asks Python.")

    def function(self, table: Words, fallback: Callable[..., Any], keep: list[Any]) -> Callable[..., Any]:
        """A built-in function over a table, whose entries `keep` keeps alive."""
        held = (ctypes.addressof(table), fallback, ctypes.addressof(self._layout), self._layout, table, keep)
        return self._maker.make(*held)

    def dtype_code(self, tensor: torch.Tensor) -> int:
        """What libtorch's C interface calls the tensor's dtype."""
        cell = ctypes.c_int32()
        if self._dtype(id(tensor) + self._offset, ctypes.addressof(cell)):
            raise _Unfit
        return cell.value


def _rest(layout: ObjectLayout) -> tuple[int, int, int]:
    return layout.list_type, layout.float_type, layout.empty


@cache
def shortcut_factory(engine: Engine) -> ShortcutFactory | None:
    """The factory for an engine's programs, or None: for the reference, and where this interpreter or PyTorch does not
    look as the native code expects.
    """
    layout, functions = _object_layout(), _torch_functions()
    if engine.options.reference or layout is None or functions is None:
        return None
    return ShortcutFactory(engine.runtime.code, layout, functions)


def _object_layout() -> ObjectLayout | None:
    """Finds the type and the `at::Tensor` in objects whose type and tensor are known."""
    samples = [torch.empty(2), torch.empty(3, dtype=torch.int64), torch.nn.Parameter(torch.empty(1))]
    types = [_offsets(x, id(type(x))) for x in samples]
    tensors = [_offsets(x, x._cdata) for x in samples]
    type_offset, tensor_offset = (min(set.intersection(*found), default=-1) for found in (types, tensors))
    others: list[object] = [[1], 1.5]
    known = type_offset >= 0 and tensor_offset >= 0 and all(type_offset in _offsets(x, id(type(x)), 2) for x in others)
    if not known:
        return None
    return ObjectLayout(type_offset, tensor_offset, (id(_PLAIN[0]), id(_PLAIN[1])), id(list), id(float), id(empty))


def _offsets(x: object, word: int, count: int = 6) -> set[int]:
    """The byte offsets at which the object holds `word`, among its first words."""
    found = (ctypes.c_uint64 * count).from_address(id(x))
    return {8 * k for k, w in enumerate(found) if w == word}


def _torch_functions() -> dict[str, int] | None:
    """The addresses of libtorch's C interface, if this PyTorch has it."""
    folder = Path(torch.__file__).parent / "lib"
    names = [folder / n for n in ("libtorch_cpu.so", "libtorch_cpu.dylib", "torch_cpu.dll")]
    for name in filter(Path.exists, names):
        library = ctypes.CDLL(str(name))
        if all(hasattr(library, f) for f in TORCH_FUNCTIONS):
            return {f: ctypes.cast(getattr(library, f), ctypes.c_void_p).value or 0 for f in TORCH_FUNCTIONS}
    return None


class Shortcut:
    """The records of one operator and the built-in function that looks through them."""

    def __init__(self, factory: ShortcutFactory, fallback: Callable[..., Any]) -> None:
        self._factory = factory
        self._table = (ctypes.c_int64 * (3 + CAPACITY))()
        self._keep: list[Any] = []
        self.function = factory.function(self._table, fallback, self._keep)

    def add(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], run_time: Sequence[bool],
        answer: Plan | Callable[..., Any], returns: int, in_tuple: bool,
    ) -> None:  # fmt: skip
        """Records that calls like this one are answered by `answer`; nothing happens where no record can say so.

        `run_time[k]`: value k (arguments, then keywords) is a number that the program reads. `returns`: how many
        results there are; more than one, or if `in_tuple`, come as a tuple.
        """
        if self._table[0] == CAPACITY:
            return
        try:
            values = [*args, *kwargs.values()]
            record = _Record(self._factory, values, run_time)
            entry = record.entry(len(args), tuple(kwargs) or None, answer, returns, in_tuple)
        except _Unfit:
            return
        self._keep.append((entry, record.keep, answer))
        table = self._table
        table[1] = max(table[1], record.tensors)
        table[2] = max(table[2], record.numbers)
        table[3 + table[0]] = ctypes.addressof(entry)
        table[0] += 1  # last: the entry is whole now


class _Record:
    """The words of one entry; `keep` holds what they point to."""

    def __init__(self, factory: ShortcutFactory, values: Sequence[Any], run_time: Sequence[bool]) -> None:
        self.factory = factory
        self.keep: list[Any] = []
        self.descriptors: list[int] = []
        self.count = self.tensors = self.numbers = 0
        self.positions: list[int] = []  # of each tensor among the values, -1 in a list
        for k, value in enumerate(values):
            self._describe(value, -1, k, run_time[k])

    def _describe(self, value: Any, holder: int, position: int, run_time: bool = False) -> None:
        kind = type(value)
        if kind in _PLAIN:
            self._tensor(value, holder, position)
        elif run_time and kind in (float, int):
            self.numbers += 1
            self._put(NUMBER, holder, position, id(kind))
        elif kind is float:
            self._put(LITERAL, holder, position, struct.unpack("<q", struct.pack("<d", value))[0])
        elif kind is list and holder < 0 and any(isinstance(x, torch.Tensor) for x in value):
            self._put(LIST, holder, position, len(value))
            for k, x in enumerate(value):
                self._describe(x, position, k)
        elif kind in _COMPARED or (kind is list and all(type(x) in (int, bool, type(None)) for x in value)):
            kept = list(value) if kind is list else value
            self.keep.append(kept)
            self._put(OBJECT, holder, position, id(kept))
        else:
            raise _Unfit

    def _put(self, *own: int) -> None:
        self.descriptors += own
        self.count += 1

    def _tensor(self, x: torch.Tensor, holder: int, position: int) -> None:
        self.tensors += 1
        self.positions.append(position if holder < 0 else -1)
        self._put(TENSOR, holder, position, self.factory.dtype_code(x), x.dim(), *x.shape, *x.stride())

    def held(self, values: Sequence[int]) -> int:
        """The address of words that live as long as the record."""
        self.keep.append(words(values))
        return ctypes.addressof(self.keep[-1])

    def entry(self, n_args: int, keywords: tuple[str, ...] | None, answer: Any, returns: int, in_tuple: bool) -> Words:
        names = 0
        if keywords is not None:
            self.keep.append(keywords)
            names = id(keywords)
        head = [n_args, names, self.count, self.held(self.descriptors)]
        if not isinstance(answer, Plan):
            return words([*head, 0, id(answer), *[0] * 11])
        program = answer.executable
        if not isinstance(program, Program):
            raise _Unfit
        if sum(t.position >= answer.n_inputs for t in answer.targets) > 1:
            raise _Unfit  # nobody would see that two of them share memory
        start = program.start
        fresh = [None if f is None else (tuple(f[0]), tuple(f[1]), f[2]) for f in answer.fresh]
        self.keep += [start, fresh]
        targets = [w for t in answer.targets for w in self._target(t, answer)]
        items = self._items(answer, returns)
        numbers = program.spec.n_inputs - answer.n_inputs
        if numbers != self.numbers:
            raise AssertionError("the plan reads other numbers than the call has")
        return words([
            *head, program.address, id(start), answer.n_inputs, numbers, len(fresh),
            self.held([0 if f is None else id(f) for f in fresh]), len(answer.targets), self.held(targets),
            self.held(answer.spans), len(items), int(not in_tuple and returns <= 1),
            self.held([w for item in items for w in item]), program.spec.n_inputs + program.spec.n_outputs,
        ])  # fmt: skip

    def _target(self, target: Any, plan: Plan) -> tuple[int, int, int]:
        shared = bytes(k in target.shared for k in range(plan.n_inputs)) or b"\0"
        self.keep.append(ctypes.create_string_buffer(shared, len(shared)))
        return target.position, target.span, ctypes.addressof(self.keep[-1])

    def _items(self, plan: Plan, returns: int) -> list[tuple[int, int]]:
        """What is returned: as StatementKernel.answer."""
        if plan.fresh:
            items = [(NOTHING, 0) if f is None else (RESULT, k) for k, f in enumerate(plan.fresh)]
        else:
            places = [self.positions[t.position] for t in plan.targets]
            items = [(ARGUMENT, k) for k in places]
        if any(kind == RESULT for kind, _ in items[returns:]):
            raise _Unfit
        items = items[:returns] or [(NOTHING, 0)]
        if any(kind == ARGUMENT and k < 0 for kind, k in items):
            raise _Unfit
        return items
