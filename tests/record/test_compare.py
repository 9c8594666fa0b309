"""What differs between two runs: each thing under its kind, files that nobody read apart, and the first step that parts."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from blake3 import blake3

from isobit.record.causes import ARGUMENT, CODE, DATA, FILE
from isobit.record.compare import compare, differences
from isobit.record.inputs import Input, Inputs, write_inputs
from isobit.record.manifest import Data
from isobit.record.store import Run, rewrite
from isobit.record.trace import Step, TraceWriter
from tests.record.projects import needs_git, recorded, repository, write

FILES = {"train.py": "a = 1\n", "config.yaml": "lr: 1\n", "notes.txt": "one\n", "README.md": "x\n"}
STEPS = [Step(i, 0, (f"f32:{i:08x}",), f"{i:032x}") for i in range(4)]


def run_of(tmp_path: Path, steps: list[Step], **fields: object) -> Run:
    """A run of the project as it is, which has read config.yaml."""
    folder = tmp_path / "p"
    run = recorded(tmp_path / "s", folder / "train.py")
    config = folder / "config.yaml"
    size, digest = config.stat().st_size, blake3(config.read_bytes()).hexdigest()
    inputs = Inputs({str(config): Input(str(config), size, 0, 0, digest)})
    write_inputs(run.folder, inputs)
    writer = TraceWriter(run.folder)
    for step in steps:
        writer.step(step)
    writer.close()
    return rewrite(run, data=Data(files=1, bytes=size), status="finished", ended="2026-11-30T18:42:09+00:00", **fields)


@needs_git
def test_each_difference_has_its_kind(tmp_path: Path) -> None:
    folder = repository(tmp_path / "p", FILES)
    first = run_of(tmp_path, STEPS)
    write(folder, {"train.py": "a = 2\n", "config.yaml": "lr: 2\n", "notes.txt": "two\n", "out/last.ckpt": b"\x00\xff"})
    second = run_of(tmp_path, STEPS, args=("--b",))
    found = {(d.kind, Path(d.name).name): d for d in differences(first, second)}
    assert set(found) == {
        (CODE, "train.py"), (DATA, "config.yaml"), (FILE, "notes.txt"), (FILE, "last.ckpt"), (ARGUMENT, "arguments"),
    }  # fmt: skip
    assert found[CODE, "train.py"].text == "the code of train.py differs (a = 1 → a = 2)"
    assert "+a = 2" in found[CODE, "train.py"].detail
    assert "neither run has read" in found[FILE, "notes.txt"].text
    assert differences(first, first) == ()


@needs_git
def test_the_first_step_that_parts_and_why(tmp_path: Path) -> None:
    folder = repository(tmp_path / "p", FILES)
    first = run_of(tmp_path, STEPS)
    write(folder, {"train.py": "a = 2\n"})
    second = run_of(tmp_path, [dataclasses.replace(s, losses=("f32:3f800000",)) if s.index > 1 else s for s in STEPS])
    compared = compare(first, second)
    assert compared.parting is not None and (compared.parting.step, compared.parting.part) == (2, "loss")
    assert compared.causes == ("the code of train.py differs (a = 1 → a = 2)",) and compared.steps == (4, 4)
    assert compare(first, first).parting is None


@needs_git
def test_a_run_that_was_stopped_is_compared_as_far_as_it_goes(tmp_path: Path) -> None:
    repository(tmp_path / "p", FILES)
    whole, part = run_of(tmp_path, STEPS), run_of(tmp_path, STEPS[:2])
    assert compare(whole, part).parting is not None
    stopped = rewrite(part, status="stopped")
    assert compare(whole, stopped).parting is None and compare(stopped, whole).steps == (2, 4)
