"""Which segments of a run can be run again: those whose checkpoint still is what was written."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from isobit.record import checkpoints
from isobit.record.checkpoints import Segment, keep, sample, segments
from isobit.record.recorder import Recorder
from isobit.record.store import Run, Store, open_run
from tests.record.manifests import manifest

STEPS, EVERY = 10, 3


def checkpoint(path: Path, digest: str) -> Path:
    """A file with a header as isobit.Checkpoint writes it."""
    header = json.dumps({"__metadata__": {"isobit": "{}", "digest": digest}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    return path


def run_with(tmp_path: Path, kept: bool) -> Run:
    """Ten steps, a checkpoint after every third, all under one name."""
    recorder = Recorder(Store(tmp_path / "s").create(manifest))
    for step in range(STEPS):
        if step and step % EVERY == 0:
            draft = checkpoint(tmp_path / "draft", f"digest{step}")
            os.replace(draft, tmp_path / "last.ckpt")  # as Checkpoint.save does
            recorder.checkpoint(str(tmp_path / "last.ckpt"), f"digest{step}")
            if kept:
                keep(recorder.run.folder, str(tmp_path / "last.ckpt"), f"digest{step}")
        recorder.step(0, ("f32:00000000",), f"{step:032x}")
    recorder.finish("finished", 0, None)
    return open_run(recorder.run.folder)


def starts(found: tuple[Segment, ...]) -> list[tuple[int, int]]:
    return [(segment.start, segment.stop) for segment in found]


def test_an_overwritten_checkpoint_has_no_segment(tmp_path: Path) -> None:
    run = run_with(tmp_path, kept=False)
    assert starts(segments(run)) == [(0, 3), (9, 10)]
    assert segments(run)[1].checkpoint == tmp_path / "last.ckpt"
    (tmp_path / "last.ckpt").write_bytes(b"\xff" * 20)
    assert starts(segments(run)) == [(0, 3)]


@pytest.mark.parametrize("linked", [True, False], ids=["one file system", "another"])
def test_kept_ones_have_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: bool) -> None:
    if not linked:
        monkeypatch.setattr(checkpoints.os, "link", lambda *args: (_ for _ in ()).throw(OSError("another file system")))
    run = run_with(tmp_path, kept=True)
    assert starts(segments(run)) == [(0, 3), (3, 6), (6, 9), (9, 10)]
    assert [s.checkpoint is None for s in segments(run)] == [True, False, False, False]
    assert not list((run.folder / "checkpoints").glob(".*"))


def test_a_sample_is_in_order_and_no_larger_than_what_there_is(tmp_path: Path) -> None:
    available = segments(run_with(tmp_path, kept=True))
    for count in (1, 2, 3):
        chosen = sample(available, count)
        assert (
            len(chosen) == count
            and list(chosen) == sorted(chosen, key=lambda s: s.start)
            and set(chosen) <= set(available)
        )
    assert sample(available, 9) == available
