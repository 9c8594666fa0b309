"""Exported models: the same bits as PyTorch under Isobit, and clear errors for everything that cannot be."""

from __future__ import annotations

import contextlib
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import isobit
from isobit.artifact.cpu import host_levels as levels_without_llvm
from isobit.artifact.cpu import levels_of
from isobit.artifact.format import ArtifactError, read_artifact
from isobit.codegen.target import UnsupportedLevelError, host_levels
from isobit.torch.trace import ExportError


def small_net() -> nn.Module:
    torch.manual_seed(5)
    layers = [nn.Conv2d(2, 5, 3, padding=1, stride=2), nn.BatchNorm2d(5), nn.GELU(), nn.Flatten(), nn.Linear(45, 4)]
    return nn.Sequential(*layers, nn.Softmax(-1)).eval()


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return torch.randn(3, 2, 5, 6, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def artifact(images: torch.Tensor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return isobit.export(small_net(), (images,), tmp_path_factory.mktemp("iso") / "net.iso")


def exact(model: nn.Module, *inputs: torch.Tensor) -> np.ndarray:
    with isobit.exact(threads=2, strict=True), torch.no_grad():
        return model(*inputs).numpy()


@pytest.mark.parametrize("threads", [1, 3])
def test_same_bits_as_eager(artifact: Path, images: torch.Tensor, threads: int) -> None:
    got = isobit.load(artifact, threads=threads)(images.numpy())
    assert isinstance(got, np.ndarray) and got.tobytes() == exact(small_net(), images).tobytes()


@pytest.mark.parametrize("level", host_levels())
def test_every_level_of_this_machine(level: str, images: torch.Tensor, tmp_path: Path) -> None:
    path = isobit.export(small_net(), (images,), tmp_path / "net.iso", cpu=level)
    model = isobit.load(path)
    assert model.level == level
    assert model(images.numpy()).tobytes() == exact(small_net(), images).tobytes()


def test_several_inputs_and_outputs(tmp_path: Path) -> None:
    class Two(nn.Module):
        def forward(self, a: torch.Tensor, unused: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return a @ b, (a * 2).t()

    a, b = torch.randn(3, 4), torch.randn(4, 2)
    path = isobit.export(Two().eval(), (a, torch.zeros(7), b), tmp_path / "two.iso")
    product, turned = isobit.load(path)(a.numpy(), np.zeros(7, np.float32), b.numpy())
    with isobit.exact(threads=2):
        assert product.tobytes() == (a @ b).numpy().tobytes()
    assert np.array_equal(turned, (a * 2).t().numpy())


def test_results_come_as_the_model_returns_them(tmp_path: Path) -> None:
    class Nested(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return {"twice": x * 2, "pair": (x + 1, [x - 1]), "one": (x.exp(),)}

    x = torch.linspace(-1, 1, 6)
    found = isobit.load(isobit.export(Nested().eval(), (x,), tmp_path / "nested.iso"))(x.numpy())
    with isobit.exact(threads=1):
        wanted = Nested()(x)
    assert list(found) == ["twice", "pair", "one"]
    assert type(found["pair"]) is tuple and type(found["pair"][1]) is list and type(found["one"]) is tuple
    for got, want in (
        (found["twice"], wanted["twice"]), (found["pair"][0], wanted["pair"][0]),
        (found["pair"][1][0], wanted["pair"][1][0]), (found["one"][0], wanted["one"][0]),
    ):  # fmt: skip
        assert got.tobytes() == want.numpy().tobytes()


class Asks(nn.Module):
    """Goes another way for other values, which one graph cannot."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x - 1


def half_trained() -> nn.Module:
    net = small_net()
    next(m for m in net.modules() if isinstance(m, nn.BatchNorm2d)).train()
    return net


REFUSED: list[tuple[str, Callable[[], Any], Callable[[torch.Tensor], Any]]] = [
    ("takes? a|torch.nn.Module", lambda: torch.sin, lambda x: (x,)),
    (r"not a Tensor: \(x,\)", small_net, lambda x: x),
    (r"training mode \(\d", half_trained, lambda x: (x,)),
    ("bfloat16, which NumPy lacks", lambda: small_net().bfloat16(), lambda x: (x,)),
    ("input 0 is complex64", small_net, lambda x: (x.to(torch.complex64),)),
    ("cannot trace the model", lambda: Asks().eval(), lambda x: (x,)),
]


@pytest.mark.parametrize(("says", "model", "inputs"), REFUSED, ids=[r[0][:20] for r in REFUSED])
def test_what_cannot_be_exported(
    says: str, model: Callable[[], Any], inputs: Callable[[torch.Tensor], Any], images: torch.Tensor, tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match=says):
        isobit.export(model(), inputs(images), tmp_path / "net.iso")
    assert not list(tmp_path.iterdir())


def test_a_place_that_takes_no_file(images: torch.Tensor, tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "missing" / "net.iso"):
        with pytest.raises(ExportError, match="no place for a file"):
            isobit.export(small_net(), (images,), place)


def test_no_threads(artifact: Path) -> None:
    for threads in (0, -1):
        with pytest.raises(ValueError, match="at least 1"):
            isobit.load(artifact, threads=threads)


def test_inputs_in_any_layout(artifact: Path, images: torch.Tensor) -> None:
    model = isobit.load(artifact)
    turned = np.asfortranarray(images.numpy())
    assert not turned.flags.c_contiguous
    assert model(turned).tobytes() == model(images.numpy()).tobytes()


def test_wrong_inputs_are_named(artifact: Path, images: torch.Tensor) -> None:
    model = isobit.load(artifact)
    with pytest.raises(TypeError, match=r"takes 1 inputs .* got 2"):
        model(images.numpy(), images.numpy())
    with pytest.raises(TypeError, match="float32, got float64"):
        model(images.numpy().astype(np.float64))
    with pytest.raises(ValueError, match=r"must have shape \(3, 2, 5, 6\), got \(2, 2, 5, 6\)"):
        model(images.numpy()[:2])


def test_a_model_in_training_mode_is_refused(images: torch.Tensor, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="training mode"):
        isobit.export(small_net().train(), (images,), tmp_path / "net.iso")
    assert not list(tmp_path.iterdir())


def test_a_hole_is_refused_by_name(tmp_path: Path) -> None:
    class Inverse(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.inv(x) + 1

    with pytest.raises(ExportError, match="linalg_inv"):
        isobit.export(Inverse().eval(), (torch.eye(3),), tmp_path / "net.iso")
    assert not list(tmp_path.iterdir())


def test_an_unknown_level_is_refused(images: torch.Tensor, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedLevelError, match="x86-64-v9"):
        isobit.export(small_net(), (images,), tmp_path / "net.iso", cpu="x86-64-v9")


@pytest.mark.parametrize("place", [0.1, 0.5, 0.9])
def test_a_damaged_file_is_never_run(artifact: Path, place: float, tmp_path: Path) -> None:
    data = bytearray(artifact.read_bytes())
    data[int(len(data) * place)] ^= 1
    (tmp_path / "bad.iso").write_bytes(data)
    with pytest.raises(ArtifactError, match=r"bad\.iso"):
        isobit.load(tmp_path / "bad.iso")


def test_damage_of_the_container_is_an_artifact_error(artifact: Path, tmp_path: Path) -> None:
    data = artifact.read_bytes()
    path = tmp_path / "damaged.iso"
    for place in [*range(0, 4000, 7), *range(len(data) - 600, len(data))]:
        path.write_bytes(data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :])
        with contextlib.suppress(ArtifactError):  # a time stamp, say, may change
            file = read_artifact(path)
            for member in file.digests:
                file.member(member)


def test_an_artifact_is_for_whom_the_umask_says(artifact: Path) -> None:
    before = os.umask(0)
    os.umask(before)
    assert artifact.stat().st_mode & 0o777 == 0o666 & ~before


def test_what_is_no_artifact(artifact: Path, tmp_path: Path) -> None:
    (tmp_path / "text.iso").write_text("no")
    with pytest.raises(ArtifactError, match="not an Isobit artifact"):
        isobit.load(tmp_path / "text.iso")
    (tmp_path / "cut.iso").write_bytes(artifact.read_bytes()[:-100])
    with pytest.raises(ArtifactError):
        isobit.load(tmp_path / "cut.iso")
    with pytest.raises(FileNotFoundError):
        isobit.load(tmp_path / "absent.iso")


def test_another_format_is_refused(artifact: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(artifact) as old, zipfile.ZipFile(tmp_path / "new.iso", "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "manifest.json":
                data = json.dumps(json.loads(data) | {"format": 99}).encode()
            new.writestr(name, data)
    with pytest.raises(ArtifactError, match="format 99"):
        isobit.load(tmp_path / "new.iso")


def test_one_model_gives_one_file(artifact: Path, images: torch.Tensor, tmp_path: Path) -> None:
    again = isobit.export(small_net(), (images,), tmp_path / "again.iso")
    assert again.read_bytes() == artifact.read_bytes()


def test_levels_are_found_without_llvm() -> None:
    assert levels_without_llvm() == host_levels()
    assert levels_of(["ssse3", "sse4_1", "sse4_2", "popcnt", "cx16", "lahf_lm"]) == ("x86-64-v2",)
