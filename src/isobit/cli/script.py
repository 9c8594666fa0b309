"""Runs a Python file as `python FILE` would: as ``__main__``, with its own ``sys.argv``, path and
tracebacks.
"""

from __future__ import annotations

import builtins
import sys
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType

from isobit.record.manifest import FAILED, FINISHED, INTERRUPTED, STOPPED

# Wrappers of ours that stand between the script and what it calls.
_HIDDEN = frozenset({"isobit.torch.steps", "isobit.torch.entropy", "isobit.torch.accelerators"})


class StopRun(BaseException):
    """Ends the script because Isobit has seen enough; not an Exception, so that the script does not catch
    it.
    """


@dataclass(frozen=True)
class Outcome:
    """How a script ended."""

    status: str
    exit_code: int
    error: str | None = None


def run_script(path: str, argv: list[str], paths: tuple[str, ...]) -> Outcome:
    """Run the file `path`; `paths` goes into ``sys.path`` after the script's own folder.

    What the script raises is printed as Python prints it, without Isobit's frames.
    """
    sys.argv[:] = argv
    folder = str(Path(path).resolve().parent)
    sys.path[:0] = [folder, *(p for p in dict.fromkeys(paths) if p != folder)]
    main = _main_module(path)
    try:
        # not with the `from __future__` imports of this file
        code = compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
        exec(code, main.__dict__)
    except StopRun:
        return Outcome(STOPPED, 0)
    except SystemExit as error:
        return _exited(error)
    except KeyboardInterrupt as error:
        _show(error, path)
        return Outcome(INTERRUPTED, 130)
    except BaseException as error:
        _show(error, path)
        return Outcome(FAILED, 1, f"{type(error).__name__}: {_message(error)}")
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


def _exited(error: SystemExit) -> Outcome:
    """What `python` makes of sys.exit(): a number, nothing, or a message on stderr."""
    if error.code is None or isinstance(error.code, int):
        code = (error.code or 0) & 0xFF
    else:
        print(error.code, file=sys.stderr)
        code = 1
    return Outcome(FAILED if code else FINISHED, code, None if code == 0 else f"SystemExit: {error.code}")


def _message(error: BaseException) -> str:
    """What the exception says, fit for a file; as Python shows it where it cannot say it."""
    try:
        return str(error).encode("utf-8", "backslashreplace").decode()
    except Exception:
        return "<exception str() failed>"


def _show(error: BaseException, path: str) -> None:
    """Print the traceback by the hook that is set, from the script's first frame on."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != path:
        trace = trace.tb_next
    error.__traceback__ = trace
    link: BaseException | None = error
    while link is not None:
        link.__traceback__ = _without_ours(link.__traceback__)
        link = link.__cause__ or link.__context__
    sys.excepthook(type(error), error, error.__traceback__)


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
