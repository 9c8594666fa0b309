"""Notes which files a run opens for reading, at the moment they are opened, in every process of the run.

Each process appends a line of JSON for each path that is new to it to `opened.jsonl` in the run's folder, by one write;
so a run that is killed leaves what it had read, and processes need not talk to each other. Keys are short because there
may be hundreds of thousands of lines: ``p`` path, ``s`` size, ``m`` time of the last change of contents, ``c`` of the
inode (nanoseconds), ``i`` inode, and where they hold: ``h`` digest, ``k`` the number of a child process, ``w`` 1: the
run wrote the file itself, ``d`` 1: declared by `isobit.data`.

A small file is hashed at once: that costs less than to hand it on, and nobody can change it in between.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import sysconfig
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.machinery import all_suffixes
from json.encoder import encode_basestring_ascii as _quoted
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import unquote

from isobit.record.hashes import FileState, hash_file
from isobit.record.packages import INSTALLED

NAME = "opened.jsonl"
EVENTS = ("open", "os.rename", "sqlite3.connect")
LIMIT = 250_000
"""Paths that a process notes; more are only counted, lest the record outgrow what it is for."""
SMALL = 64 << 10
"""Bytes of a file that is hashed at once."""

_ACCESS = os.O_RDONLY | os.O_WRONLY | os.O_RDWR
_MAKES = os.O_CREAT | os.O_TRUNC | os.O_EXCL
_CODE = tuple(all_suffixes())
_INSTALLED = tuple(f"/{name}/" for name in sorted(INSTALLED))
_ABOUT_PACKAGES = (".dist-info/", ".egg-info/")
_SYSTEM = ("/proc/", "/sys/", "/dev/")


@dataclass(frozen=True)
class Watch:
    """What a process must know to take part; `text` goes to processes that are started afresh.

    Files whose names begin with one of `outside` are Isobit's own. Names below `copy`, where a replay runs, are noted
    as those of the tree `original` that it stands for. ``began`` is when the log was made, on the file system's clock.
    """

    log: str
    began: int
    owner: int
    outside: tuple[str, ...] = ()
    copy: str = ""
    original: str = ""

    @property
    def text(self) -> str:
        """One line that `of` reads."""
        return json.dumps(asdict(self))

    @staticmethod
    def of(text: str) -> Watch:
        data = json.loads(text)
        return Watch(**{**data, "outside": tuple(data["outside"])})


def begin_watch(folder: Path, outside: tuple[str, ...], copy: str = "", original: str = "") -> Watch:
    """Make the log of the run in `folder`. Raises OSError where it cannot be written."""
    log = folder / NAME
    with open(log, "xb"):
        pass
    known = {_below(form(place)) for place in outside for form in (os.path.abspath, os.path.realpath)}
    caches = os.path.join(os.path.realpath(tempfile.gettempdir()), "torchinductor_")
    moved = ("", "") if not copy or _below(copy) == _below(original) else (_below(copy), _below(original))
    return Watch(str(log), log.stat().st_mtime_ns, os.getpid(), (*sorted(known), caches), *moved)


def _below(folder: str) -> str:
    """What the names of all files in the folder begin with."""
    return os.path.join(os.path.abspath(folder), "")


class OpenedFiles:
    """Listens to the audit events `EVENTS`, whose arguments are a path, a mode and flags, two paths, or a database.

    Called in the middle of whatever opens a file, and again from inside itself when a finalizer opens one: it holds no
    lock, and threads that race write a line twice, which readers take for one. It says nothing and never fails.
    """

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.unnoted = 0  # files that were opened after the limit
        self.failed: str | None = None  # why not all could be noted
        self.deaf: set[int] = set()  # threads whose files are Isobit's own
        self.overwritten: Callable[[str], None] = lambda path: None  # told before a file that was read is overwritten
        self._seen: set[object] = set()  # absolute paths, as they were opened
        self._written: set[str] = set()
        self._lines = 0
        self._handle = -1
        self._log = (-1, -1)
        self._outside = (*watch.outside, *_SYSTEM)
        self._isobit = _below(os.path.dirname(os.path.dirname(__file__)))
        self._standard = tuple({_below(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")})
        self._not_callers = (*self._standard, "<frozen ")
        if hasattr(os, "register_at_fork"):
            mine = weakref.ref(self)
            os.register_at_fork(after_in_child=lambda: _forget_threads(mine()))

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note an audit event."""
        if threading.get_ident() in self.deaf:
            return
        try:
            if event == "open":
                self._opened(*arguments)
            elif event == "os.rename":
                self._renamed(arguments[0], arguments[1])
            else:
                self._read(_database(arguments[0]), False)
        except Exception as error:
            if not _ours(error):  # raised by the script's handler of a signal, which happened to arrive here
                raise
            self.failed = f"{type(error).__name__}: {error}"

    def declare(self, path: str) -> None:
        """Note a file that is going to be read below Python."""
        self._read(path, False, declared=True)

    def _opened(self, path: Any, mode: str | None, flags: int) -> None:
        access = flags & _ACCESS
        if access == os.O_RDONLY or (access == os.O_RDWR and not flags & _MAKES):
            if type(path) is not str or path not in self._seen:
                # io.open_code, which imports modules, is the one that gives no flags at all
                self._read(path, flags == 0 and mode == "rb")
        elif type(path) is not int:
            name = os.path.abspath(os.fsdecode(path))
            self._about_to_change(name)
            self._written.add(name)

    def _renamed(self, old: Any, new: Any) -> None:
        """A file written under a temporary name is the run's own under its last one, too."""
        target = os.path.abspath(os.fsdecode(new))
        self._about_to_change(target)
        if os.path.abspath(os.fsdecode(old)) in self._written:
            self._written.add(target)

    def _about_to_change(self, name: str) -> None:
        if name in self._seen and name not in self._written and os.getpid() == self.watch.owner:
            self.overwritten(self.name_of(name))

    def _read(self, path: Any, as_code: bool, declared: bool = False) -> None:
        if type(path) is int:  # a descriptor: it was opened before
            return
        name = os.fsdecode(path)
        absolute = os.path.abspath(name)
        if absolute in self._seen:
            return
        ours = not declared and absolute.endswith(_CODE) and self._opened_by_isobit()
        if ours or not self._is_data(absolute, as_code):
            self._seen.add(absolute)
            return
        try:
            found = os.stat(absolute)
        except (OSError, ValueError):  # opening it fails, too
            return
        self._seen.add(absolute)
        if not stat.S_ISREG(found.st_mode):
            return
        if self._lines >= LIMIT:
            self.unnoted += 1
            return
        self._lines += 1
        made = absolute in self._written or found.st_mtime_ns > self.watch.began
        self._note(absolute, FileState.of(found), made, declared)

    def _is_data(self, path: str, as_code: bool) -> bool:
        if path.startswith(self._outside) or (as_code and path.endswith(_CODE)):
            return False
        if os.sep != "/":
            path = path.replace(os.sep, "/")
        if path.endswith(".pyc"):
            return False
        if "-packages/" in path and any(place in path for place in _INSTALLED):
            return not path.endswith(_CODE) and not any(place in path for place in _ABOUT_PACKAGES)
        return not path.startswith(self._standard) and not (path.endswith(".py") and path in loaded_files())

    def _opened_by_isobit(self) -> bool:
        """Whether the nearest caller outside of the standard library is Isobit, which copies a module's source."""
        here = sys._getframe().f_code.co_filename
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            name = frame.f_code.co_filename
            if name != here and not name.startswith(self._not_callers):
                return name.startswith(self._isobit)
            frame = frame.f_back
        return False

    def name_of(self, path: str) -> str:
        """The name that `path` is noted by."""
        copy = self.watch.copy
        return self.watch.original + path[len(copy) :] if copy and path.startswith(copy) else path

    def _note(self, path: str, state: FileState, made: bool, declared: bool) -> None:
        line = f'{{"p":{_quoted(self.name_of(path))},"s":{state.size},"m":{state.mtime_ns},"c":{state.ctime_ns}'
        line += f',"i":{state.inode}'
        digest = _hashed(path, state) if state.size <= SMALL and not made else None
        if digest is not None:
            line += f',"h":"{digest}"'
        process = os.getpid()
        if process != self.watch.owner:
            line += f',"k":{process}'
        line += ',"w":1' * made + ',"d":1' * declared + "}\n"
        self._append(line.encode("ascii"))

    def _append(self, line: bytes) -> None:
        """One write. The descriptor is looked at first: a script that closes all it finds may have given its number to
        a file of its own.
        """
        try:
            found = os.fstat(self._handle)
        except OSError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != self._log:
            self._handle = os.open(self.watch.log, os.O_WRONLY | os.O_APPEND | getattr(os, "O_CLOEXEC", 0))
            found = os.fstat(self._handle)
            self._log = (found.st_dev, found.st_ino)
        os.write(self._handle, line)


def loaded_files() -> set[str]:
    """The source files of the modules that are loaded: their text is code, even where something reads it again."""
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return {file for file in files if isinstance(file, str)}


def _hashed(path: str, state: FileState) -> str | None:
    """The file's digest; None where it cannot be read, which who hashes the rest will say."""
    try:
        return hash_file(path, state)
    except OSError:
        return None


def _database(name: Any) -> Any:
    """The file of an SQLite database, which may be given as an address."""
    text = os.fsdecode(name)
    return unquote(text.removeprefix("file:").partition("?")[0]) if text.startswith("file:") else text


def _forget_threads(opened: OpenedFiles | None) -> None:
    if opened is not None:
        opened.deaf.clear()


_CALLED = (_below, hash_file, os.path.abspath, os.fsdecode, os.path.join)
_OURS = frozenset(function.__code__.co_filename for function in _CALLED)


def _ours(error: BaseException) -> bool:
    """Whether the code that raised was called from here, and not by the interpreter in between."""
    trace, last = error.__traceback__, ""
    while trace is not None:
        last = trace.tb_frame.f_code.co_filename
        trace = trace.tb_next
    return last in _OURS


@dataclass(frozen=True)
class Opened:
    """One line of the log."""

    path: str
    state: FileState
    child: int = 0
    made: bool = False
    declared: bool = False
    digest: str | None = None


class OpenedLog:
    """Reads a log while it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""

    def new(self) -> Iterator[Opened]:
        """What came since the last time. Lines that are torn or damaged are passed over."""
        try:
            with open(self._path, "rb", buffering=0) as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            found = _parsed(line)
            if found is not None:
                yield found


def _parsed(line: bytes) -> Opened | None:
    try:
        data = json.loads(line)
        state = FileState(int(data["s"]), int(data["m"]), int(data["i"]), int(data["c"]))
        marks = int(data.get("k", 0)), bool(data.get("w")), bool(data.get("d"))
        return Opened(str(data["p"]), state, *marks, data.get("h"))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
