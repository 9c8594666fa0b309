"""Twelve causes planted in a project: each replay or comparison names the right step, part and cause."""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.planted import METADATA, Project, make

PLAIN = ("--plain", "--threads", "1")  # deterministic on one machine, and quicker to start
pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Plant:
    """Something that is changed after the run was recorded, and what the replay must find."""

    change: Callable[[Project], None]
    step: int
    part: str
    cause: str  # in the first cause that is named
    replay: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)


def a_pixel(project: Project) -> None:
    path = project.folder / "images" / "09.npy"
    image, before = np.load(path), path.stat()
    image[3] = np.nextafter(image[3], 2)
    np.save(path, image)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # it looks as if nothing had happened


def a_label(project: Project) -> None:
    path = project.folder / "labels.csv"
    labels = path.read_text().split()
    labels[13] = f"{float(labels[13]) + 0.001:.3f}"
    path.write_text("\n".join(labels))


def the_order_of_files(project: Project) -> None:
    """The script sorts by time of change; one file is touched."""
    os.utime(project.folder / "images" / "05.npy", (1_700_000_099, 1_700_000_099))


def a_package(project: Project) -> None:
    info = project.home / "site-packages" / "flipper-1.0.dist-info"
    info.rename(info.with_name("flipper-1.1.dist-info"))
    (info.with_name("flipper-1.1.dist-info") / "METADATA").write_text(METADATA.format(version="1.1"))
    project.edit("site-packages/flipper.py", "image.flip(0)", "image.flip(0) * 1.000001")


def an_augmentation(project: Project) -> None:
    project.edit("project/augment.py", "1.5 if index % 2", "1.5 if index % 2 and index < 8")


def a_module_outside(project: Project) -> None:
    project.edit("shared/scaling.py", "x * 2.0", "x * 2.0000005")


def a_corrupted_checkpoint(project: Project) -> None:
    path = project.folder / "pretrained.npz"
    data = bytearray(path.read_bytes())
    weight = np.load(path)["weight"].tobytes()
    place = data.index(weight) + 5
    data[place] ^= 1
    damaged = np.frombuffer(bytes(data[place - 5 : place - 5 + len(weight)]), np.float32).reshape(1, 5)
    np.savez(path, weight=damaged)  # with a checksum that fits, as a writer with a fault would


def nothing(project: Project) -> None:
    """The cause is in the replay's surroundings."""


PLANTS = {
    "a pixel": Plant(a_pixel, 2, "batch", "images/09.npy"),
    "a label": Plant(a_label, 3, "batch", "labels.csv"),
    "the order of files": Plant(the_order_of_files, 1, "batch", "order"),
    "a package version": Plant(a_package, 0, "batch", "package flipper differs: 1.0 → 1.1"),
    "an augmentation": Plant(an_augmentation, 2, "batch", "the code of augment.py differs", ("--code", "current")),
    "a module outside the tree": Plant(a_module_outside, 0, "loss", "scaling.py differs", ("--code", "current")),
    "a corrupted checkpoint": Plant(a_corrupted_checkpoint, 0, "loss", "the parameters differ before the first step"),
    "an environment variable": Plant(
        nothing, 2, "update", "hyper-parameter lr of optimizer 0 in step 2: 0.1 → 0.2", variables={"RATE": "0.2"}
    ),
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The project with one recorded run."""
    project = make(tmp_path_factory.mktemp("planted"))
    done = project.isobit("run", *PLAIN, "train.py")
    assert done.returncode == 0, done.stderr
    return project


@pytest.fixture
def project(recorded: Project, tmp_path: Path) -> Iterator[Project]:
    """The same, put back afterwards."""
    kept = tmp_path / "kept"
    shutil.copytree(recorded.home, kept)
    yield recorded
    recorded.variables.clear()
    shutil.rmtree(recorded.home)
    shutil.copytree(kept, recorded.home)


def judged(project: Project, *args: str) -> tuple[dict[str, Any], str]:
    """The verdict of a replay of the first run, and what was printed."""
    first = min(p.name for p in (project.folder / ".isobit" / "runs").iterdir())  # ids sort by time
    done = project.isobit("replay", first, *args)
    verdict: dict[str, Any] = project.latest()["replay"]["verdict"]
    assert done.returncode == {"identical": 0, "differs": 1, "none": 2}[verdict["outcome"]], done.stderr
    return verdict, done.stderr + done.stdout


def test_without_a_cause_the_replay_is_identical(project: Project) -> None:
    verdict, _ = judged(project)
    assert (verdict["outcome"], verdict["steps"], verdict["causes"]) == ("identical", 4, [])


@pytest.mark.parametrize("name", PLANTS)
def test_the_replay_names_step_part_and_cause(name: str, project: Project) -> None:
    plant = PLANTS[name]
    plant.change(project)
    project.variables |= plant.variables
    verdict, printed = judged(project, *plant.replay)
    assert (verdict["outcome"], verdict["step"], verdict["what"]) == ("differs", plant.step, plant.part), printed
    assert plant.cause in verdict["causes"][0], verdict["causes"]
    assert f"likely cause: {verdict['causes'][0]}" in printed


def test_a_replay_says_what_has_changed_before_it_begins(project: Project) -> None:
    a_package(project)
    a_label(project)
    an_augmentation(project)
    project.variables["RATE"] = "0.1"
    _, printed = judged(project, "--code", "current")
    before, _, _ = printed.partition("isobit: run ")
    for words in (
        "labels.csv: it has the same size, other contents",
        "package flipper differs: 1.0 → 1.1",
        "environment variable RATE",
        "code: augment.py is not what was recorded",
    ):
        assert words in before, printed


def test_the_file_of_a_corrupted_checkpoint_is_among_the_causes(project: Project) -> None:
    a_corrupted_checkpoint(project)
    verdict, _ = judged(project)
    assert any("pretrained.npz has other contents" in cause for cause in verdict["causes"]), verdict["causes"]


def test_the_name_of_an_environment_variable_is_among_the_causes(project: Project) -> None:
    project.variables["RATE"] = "0.2"
    verdict, _ = judged(project)
    assert any("environment variable RATE" in cause for cause in verdict["causes"]), verdict["causes"]


@pytest.mark.parametrize(
    ("args", "part", "causes"),
    [
        (("--seed", "1", "train.py"), "loss", ("the parameters differ before the first step", "the seed differs: 0 → 1")),
        (("train.py", "--lr", "0.2"), "update", ("hyper-parameter lr of optimizer 0 in step 0: 0.1 → 0.2", "--lr")),
    ],
    ids=["a seed", "a hyper-parameter"],
)  # fmt: skip
def test_a_comparison_names_step_part_and_cause(
    args: tuple[str, ...], part: str, causes: tuple[str, ...], project: Project
) -> None:
    first = min(p.name for p in (project.folder / ".isobit" / "runs").iterdir())
    done = project.isobit("run", *PLAIN, *args)
    assert done.returncode == 0, done.stderr
    compared = project.isobit("compare", first, "latest", "--json")
    found = json.loads(compared.stdout)
    assert (compared.returncode, found["outcome"]) == (1, "differs")
    assert (found["parting"]["step"], found["parting"]["part"]) == (0, part)
    assert all(any(cause in text for text in found["causes"]) for cause in causes), found["causes"]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="PyTorch has one kernel for lgamma elsewhere")
def test_a_hole_is_named(project: Project) -> None:
    """PyTorch's kernel of another instruction set, as another machine would choose it, from step 3 on."""
    done = project.isobit("run", "--threads", "1", "train.py", "--hole")
    assert done.returncode == 0, done.stderr
    project.variables["ATEN_CPU_CAPABILITY"] = "default"
    replay = project.isobit("replay", "latest", "--threads", "2")
    verdict = project.latest()["replay"]["verdict"]
    assert (replay.returncode, verdict["step"], verdict["what"]) == (1, 3, "loss"), replay.stdout
    assert any(cause.startswith("aten::lgamma ran outside the arithmetic (a hole)") for cause in verdict["causes"])


def test_randomness_of_a_workers_own_is_named(project: Project) -> None:
    """Noise from the system's entropy on the sample that step 2 begins with; no seed reaches it."""
    old, new = (
        "    return image * (1.5",
        "    image = image + random.SystemRandom().random() if index == 8 else image\n",
    )
    project.edit("project/augment.py", old, f"{new}{old}")
    project.edit("project/augment.py", "def augment", "import random\n\ndef augment")
    done = project.isobit("run", *PLAIN, "train.py", "--workers", "1")
    assert done.returncode == 0, done.stderr
    replay = project.isobit("replay", "latest")
    verdict = project.latest()["replay"]["verdict"]
    assert (replay.returncode, verdict["step"], verdict["what"]) == (1, 2, "batch"), replay.stdout
    assert "SystemRandom" in verdict["causes"][0] and "augment.py:4" in verdict["causes"][0], verdict["causes"]
