"""PyTorch, bit for bit: one result on every run, thread count, CPU level, eager, compiled and exported.

The public names load on first use: an artifact must load where only NumPy is installed, so importing this
package imports neither PyTorch nor LLVM.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isobit.artifact.export import export
    from isobit.artifact.load import load
    from isobit.record.declare import data
    from isobit.torch.checkpoint import Checkpoint
    from isobit.torch.checkpoint_file import CheckpointError
    from isobit.torch.eager import disable, enable, exact
    from isobit.torch.log import log

__version__ = "0.1.0"
__all__ = [
    "Checkpoint",
    "CheckpointError",
    "__version__",
    "data",
    "disable",
    "enable",
    "exact",
    "export",
    "load",
    "log",
]

_HOME = {
    "Checkpoint": "isobit.torch.checkpoint",
    "CheckpointError": "isobit.torch.checkpoint_file",
    "data": "isobit.record.declare",
    "disable": "isobit.torch.eager",
    "enable": "isobit.torch.eager",
    "exact": "isobit.torch.eager",
    "export": "isobit.artifact.export",
    "load": "isobit.artifact.load",
    "log": "isobit.torch.log",
}


def __getattr__(name: str) -> Any:
    """Import the module that holds a public name, once (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module 'isobit' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
