"""Runs a Python file as `python FILE` would, or a module as `python -m MODULE` would: as ``__main__``, with its own
``sys.argv``, path and tracebacks.
"""

from __future__ import annotations

import builtins
import subprocess
import sys
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Any

from isobit.cli import exits
from isobit.record.manifest import FAILED, FINISHED, INTERRUPTED, STOPPED
from isobit.record.secrets import redact_text

# Wrappers of ours that stand between the script and what it calls.
_WRAPPERS = ("steps", "batches", "entropy", "accelerators", "late_backward", "script_modules")
_HIDDEN = frozenset(f"isobit.torch.{name}" for name in _WRAPPERS)


class StopRun(BaseException):
    """Ends the script because Isobit has seen enough; not an Exception, so that the script does not catch
    it.
    """


_ON_THE_WAY = frozenset({__file__, "<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>"})
_interpreter_flags = subprocess._args_from_interpreter_flags  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Outcome:
    """How a script ended. ``error`` goes into the record, so it shows no secrets."""

    status: str
    exit_code: int
    error: str | None = None


def run_script(path: str, argv: list[str], paths: tuple[str, ...], module: str | None = None) -> Outcome:
    """Run the file `path`, or the `module` that it is of; `paths` goes to the beginning of ``sys.path``.

    What the script raises is printed as Python prints it, without Isobit's frames.
    """
    sys.argv[:] = argv
    sys.orig_argv[:] = [sys.executable, *_interpreter_flags(), *(["-m"] if module else []), *argv]
    sys.path[:0] = paths
    try:
        if module is None:
            # not with the `from __future__` imports of this file
            code = compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
            main = _main_module(path)
        else:
            spec, code = _module_code(module)
            path = sys.argv[0] = str(spec.origin)
            main = _main_of_module(spec)
        exec(code, main.__dict__)
    except StopRun:
        return Outcome(STOPPED, 0)
    except SystemExit as error:
        return _exited(error)
    except KeyboardInterrupt as error:
        _show(error, path)
        return Outcome(INTERRUPTED, exits.INTERRUPTED)
    except BaseException as error:
        _show(error, path)
        return Outcome(FAILED, 1, _said(error))
    return Outcome(FINISHED, 0)


def _main_module(path: str) -> ModuleType:
    """A fresh ``__main__`` as it is before the first line of a script."""
    main = ModuleType("__main__")
    main.__dict__.update(
        __file__=path,
        __builtins__=builtins,
        __annotations__={},
        __cached__=None,
        __loader__=SourceFileLoader("__main__", path),
    )
    sys.modules["__main__"] = main
    return main


def _module_code(name: str) -> tuple[ModuleSpec, CodeType]:
    """The module `name`, or of a package its __main__. Imports the packages above it."""
    spec = find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = find_spec(f"{name}.__main__")
    loader: Any = spec.loader if spec else None
    if spec is None or loader is None:
        raise SystemExit(f"{sys.executable}: No module named {name}")
    code: CodeType = loader.get_code(spec.name)
    return spec, code


def _main_of_module(spec: ModuleSpec) -> ModuleType:
    """A fresh ``__main__`` as it is before the first line of a module that is run."""
    main = ModuleType("__main__")
    main.__dict__.update(
        __file__=spec.origin,
        __builtins__=builtins,
        __cached__=spec.cached,
        __loader__=spec.loader,
        __package__=spec.parent,
        __spec__=spec,
    )
    sys.modules["__main__"] = main
    return main


def _exited(error: SystemExit) -> Outcome:
    """What `python` makes of sys.exit(): a number, nothing, or a message on stderr."""
    if error.code is None or isinstance(error.code, int):
        code = (error.code or 0) & 0xFF
    else:
        print(error.code, file=sys.stderr)
        code = 1
    return Outcome(FAILED, code, _said(error)) if code else Outcome(FINISHED, 0)


def _said(error: BaseException) -> str:
    """What the exception says, fit for a file; as Python shows it where it cannot say it."""
    try:
        message = str(error).encode("utf-8", "backslashreplace").decode()
    except Exception:
        message = "<exception str() failed>"
    return redact_text(f"{type(error).__name__}: {message}")[0]


def _show(error: BaseException, path: str) -> None:
    """Print the traceback by the hook that is set, from the script's first frame on."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != path:
        trace = trace.tb_next
    error.__traceback__ = trace or _after_import(error.__traceback__)
    link: BaseException | None = error
    while link is not None:
        link.__traceback__ = _without_ours(link.__traceback__)
        link = link.__cause__ or link.__context__
    sys.excepthook(type(error), error, error.__traceback__)


def _after_import(trace: TracebackType | None) -> TracebackType | None:
    """What a package raised that was imported on the way to the script."""
    while trace is not None and trace.tb_frame.f_code.co_filename in _ON_THE_WAY:
        trace = trace.tb_next
    return trace


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without Isobit's frames. No recursion: a RecursionError's has as many entries as the stack."""
    kept = []
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__") not in _HIDDEN:
            kept.append(trace)
        trace = trace.tb_next
    rest = None
    for entry in reversed(kept):
        rest = TracebackType(rest, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return rest
