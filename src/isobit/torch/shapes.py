"""What PyTorch says about a call before it runs: shapes, strides and dtypes of the results, and its errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from isobit.torch.lowering import map_tensors
from isobit.torch.signature import Kind, Signature, Slot


def shapes_of(full: Signature, values: Sequence[Any]) -> tuple[list[Any], tuple[Any, ...]]:
    """The arguments without data, and the results that PyTorch's shape function gives for them on the CPU.

    PyTorch's own errors about arguments that do not fit come from here.
    """
    with _modes_allowed(), FakeTensorMode():
        fakes = [map_tensors(_without_data, v) for v in values]
        if not full.returns:
            return fakes, ()
        args, kwargs = full.unbind(_as_tensors(fakes, full.slots))
        result = full.overload(*args, **kwargs)
    return fakes, tuple(result) if isinstance(result, (tuple, list)) else (result,)


@contextmanager
def _modes_allowed() -> Iterator[None]:
    """Lets dispatch modes act inside code that has switched them off, such as PyTorch's own tracer."""
    excluded = torch._C._dispatch_tls_local_exclude_set()
    for key in (torch._C.DispatchKey.Python, torch._C.DispatchKey.PythonTLSSnapshot):
        excluded = excluded.remove(key)
    with torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), excluded):
        yield


def _without_data(t: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype)


def _as_tensors(fakes: Sequence[Any], slots: Sequence[Slot]) -> list[Any]:
    """`fakes` with numbers in tensor slots as tensors that promote as the numbers do."""
    beside = next((m for m in fakes if isinstance(m, torch.Tensor)), None)

    def convert(fake: Any, slot: Slot) -> Any:
        if slot.kind is not Kind.TENSOR or not isinstance(fake, (int, float)):
            return fake
        return torch.empty((), dtype=torch.result_type(beside, fake) if beside is not None else None)

    return [convert(m, s) for m, s in zip(fakes, slots, strict=True)]
