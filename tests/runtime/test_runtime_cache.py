"""Object code on disk: found again, never trusted when damaged, shared by processes."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from isobit.codegen.kernel import KernelSource
from isobit.codegen.target import host_levels, host_target, level_target
from isobit.runtime import code as code_module
from isobit.runtime.cache import ObjectCache, object_key
from isobit.runtime.program import Launch, ProgramSpec, Runtime, RuntimeOptions
from tests.runtime.hand_kernels import addresses, binary

ROOT = Path(__file__).parents[2]
KEY = object_key("text", host_target())


def add(folder: Path | None) -> None:
    """One program, run and checked."""
    runtime = Runtime(RuntimeOptions(threads=1, cache_dir=folder))
    a, b = np.float32([[1, 2], [3, 4]])
    c = np.zeros(2, np.float32)
    runtime.load(ProgramSpec((Launch(binary("fadd"), (2,)),), 2, 1)).run(addresses(a, b), addresses(c))
    assert c.tolist() == [4, 6]


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what is compiled during the test."""
    names: list[str] = []
    original = code_module.compile_object

    def spy(text: str, target: object, name: str, imports: object) -> bytes:
        names.append(name)
        return original(text, target, name, imports)  # type: ignore[arg-type]

    monkeypatch.setattr(code_module, "compile_object", spy)
    return names


def test_the_second_process_compiles_nothing(tmp_path: Path, compiled: list[str]) -> None:
    add(tmp_path)
    assert "fadd" in compiled
    compiled.clear()
    add(tmp_path)
    assert compiled == []


def test_without_a_folder_everything_is_compiled(compiled: list[str]) -> None:
    add(None)
    add(None)
    assert compiled.count("fadd") == 2


def test_one_text_is_compiled_and_linked_once(compiled: list[str]) -> None:
    runtime = Runtime(RuntimeOptions(threads=1))
    kernels = [KernelSource("fadd", binary("fadd").text) for _ in range(5)]
    found = [runtime.code.addresses([kernel])[kernel] for kernel in kernels]
    assert len(set(found)) == 1
    assert compiled.count("fadd") == 1


def test_a_program_with_many_kernels(compiled: list[str]) -> None:
    """Compiled on several threads at once, each result under its own name."""
    kernels = [KernelSource(f"k{i}", binary("fadd").text.replace("@fadd", f"@k{i}").replace("%z = fadd float %x, %y",
               f"%w = fadd float %x, %y\n  %z = fmul float %w, {i}.0")) for i in range(24)]  # fmt: skip
    runtime = Runtime(RuntimeOptions(threads=2))
    found = runtime.code.addresses(kernels)
    assert len(set(found.values())) == 24
    a, b, c = np.float32([[1.5], [2], [0]])
    for i, kernel in enumerate(kernels):
        runtime.load(ProgramSpec((Launch(kernel, (1,)),), 2, 1)).run(addresses(a, b), addresses(c))
        assert c[0] == 3.5 * i


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut short": lambda data: data[:-1],
    "cut in the head": lambda data: data[:10],
    "a bit flipped in the code": lambda data: data[:-50] + bytes([data[-50] ^ 4]) + data[-49:],
    "a bit flipped in the digest": lambda data: data[:20] + bytes([data[20] ^ 1]) + data[21:],
    "longer": lambda data: data + b"\x00",
    "another format": lambda data: data.replace(b"isobit-object\x00\x01", b"isobit-object\x00\x02", 1),
    "something else": lambda data: b"not an object",
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_entry_is_rebuilt(how: str, tmp_path: Path, compiled: list[str]) -> None:
    add(tmp_path)
    entries = {path: path.read_bytes() for path in tmp_path.rglob("*.o")}
    assert len(entries) == 3
    for path, data in entries.items():
        path.write_bytes(DAMAGE[how](data))
        assert path.read_bytes() != data
    compiled.clear()
    add(tmp_path)
    assert len(compiled) == 3
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.o")} == entries


def test_an_entry_under_another_key_is_not_taken(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    other = object_key("other text", host_target())
    cache.put(KEY, b"code")
    path = tmp_path / KEY[:2] / f"{KEY[2:]}.o"
    moved = tmp_path / other[:2] / f"{other[2:]}.o"
    moved.parent.mkdir()
    os.replace(path, moved)
    assert cache.get(other) is None


def test_the_key_holds_all_that_decides_the_code() -> None:
    target = host_target()
    keys = {KEY, object_key("texts", target), *(object_key("text", level_target(x)) for x in ("aarch64", "x86-64-v4"))}
    keys |= {object_key("text", replace(target, features="+x")), object_key("text", replace(target, cpu="znver4"))}
    assert len(keys) == 6


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """A file stands where the folder should be (permissions do not stop root): one warning, and it works."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.warns(RuntimeWarning, match="kernels are not cached in .*file") as caught:
        add(blocked / "kernels")
    assert len(caught) == 1


def test_reading_from_a_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: list[str]
) -> None:
    add(tmp_path)
    compiled.clear()

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr("tempfile.mkstemp", refuse)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        add(tmp_path)
    assert compiled == []


def test_nothing_is_left_behind_when_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.warns(RuntimeWarning, match="disk full"):
        ObjectCache(tmp_path).put(KEY, b"code")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_two_processes_at_once(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from tests.runtime.test_runtime_cache import add\n"
        "for _ in range(3): add(Path(sys.argv[1]))"
    )
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": ""}
    command = [sys.executable, "-c", script, str(tmp_path)]
    running = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) for _ in range(2)]
    assert [(p.communicate(timeout=60)[1], p.returncode) for p in running] == [(b"", 0)] * 2
    assert sorted(path.suffix for path in tmp_path.rglob("*") if path.is_file()) == [".o"] * 3


def test_the_levels_have_entries_of_their_own(tmp_path: Path, compiled: list[str]) -> None:
    for level in host_levels():
        Runtime(RuntimeOptions(level=level, cache_dir=tmp_path))
    assert len(compiled) == 2 * len(host_levels())
