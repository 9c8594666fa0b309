"""Whole columns, checked at once, say what the entries say one by one; so does what is read without NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from isobit.arithmetic.dtypes import DType
from isobit.record import reading
from isobit.record.columns import ENTRIES, ROW
from isobit.record.curves import curve
from isobit.record.curves import losses as curves_of
from isobit.record.errors import RecordError
from isobit.record.peek import last_step
from isobit.record.rows import KINDS, SIZES, STEPS, XXH3, packed
from isobit.record.trace import Step, Trace, TraceWriter, open_trace

LOSSES = (
    (), ("f32:3f800000",), ("f64:3ff8000000000000", "xxh3:" + "12" * 16), ("", "bf16:3f80", "f32:7fc00000"), ("i8:80",),
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run's folder with a trace of all that there may be: losses of none to three, two optimizers, samples, metrics."""
    writer = TraceWriter(tmp_path)
    for i in range(13):
        sampled = {"gradients": f"{i:032x}"} if i % 3 == 0 else {"state": f"{i:032x}"} if i % 4 == 0 else {}
        writer.step(Step(i, i % 2, LOSSES[i % len(LOSSES)], f"{i:032x}", i / 10, **sampled))
        writer.metric(i, i / 10, "ab"[i % 2], f"f32:3f80000{i % 10}")
    writer.text(13, 1.3, "said", "this")
    writer.close()
    return tmp_path


@pytest.fixture(params=[3, 1 << 16], ids=["in blocks", "at once"], autouse=True)
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_CHECKED", request.param)


def test_losses_are_those_of_the_steps(folder: Path) -> None:
    trace = open_trace(folder)
    found = trace.losses()
    wanted = [(s.index, s.optimizer, p, *packed(w)) for s in trace.steps() for p, w in enumerate(s.losses)]
    columns = (found.steps, found.optimizers, found.positions, found.kinds, found.bits)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == [
        (*place, kind, int.from_bytes(bits[:8], "little")) for *place, kind, bits in wanted
    ]
    curves, refused = curves_of(found)
    words: dict[tuple[int, int], list[tuple[int, str]]] = {}
    for step in trace.steps():
        for position, word in enumerate(step.losses):
            if word and not word.startswith("xxh3"):
                words.setdefault((step.optimizer, position), []).append((step.index, word))
    assert refused == sum(not word or word.startswith("xxh3") for step in trace.steps() for word in step.losses) > 2
    assert words == {k: [(int(s), c.word(n)) for n, s in enumerate(c.steps)] for k, c in curves.items()}


def test_points_are_those_that_were_logged(folder: Path) -> None:
    trace = open_trace(folder)
    said = [(x.name, x.step, x.bits) for x in trace.logged() if x.bits]
    curves = {name: curve(points) for name, points in trace.points().items()}
    found = [(name, int(step), c.word(n)) for name, c in curves.items() for n, step in enumerate(c.steps)]
    assert sorted(found) == sorted(said) and len(said) == 13
    assert trace.texts() == [x for x in trace.logged() if not x.bits] != []


@pytest.mark.parametrize("name", [STEPS, *ENTRIES])
def test_damage_is_met_wherever_it_is(folder: Path, name: str) -> None:
    path = folder / "trace" / name
    sound = path.read_bytes()
    last = 3 if name == "losses" else 1  # the entries of the last step count as torn
    for place in range(0, len(sound) - last * SIZES[name], 5):  # prime to all sizes: each byte of an entry has its turn
        path.write_bytes(sound[:place] + bytes([sound[place] ^ 1 << place % 8]) + sound[place + 1 :])
        with pytest.raises(RecordError, match="is damaged"):
            everything(open_trace(folder))
    path.write_bytes(sound)
    everything(open_trace(folder))


def everything(trace: Trace) -> None:
    trace.losses()
    trace.points()


def test_no_step_has_no_losses(tmp_path: Path) -> None:
    TraceWriter(tmp_path).close()
    found = open_trace(tmp_path).losses()
    assert found.steps.size == 0 and curves_of(found) == ({}, 0) and open_trace(tmp_path).points() == {}


@pytest.mark.parametrize("name", [STEPS, "losses", "state"])
def test_the_last_step_is_found_without_numpy(folder: Path, name: str) -> None:
    path = folder / "trace" / name
    sound = path.read_bytes()
    for end in (*range(0, len(sound) + 1, 5), len(sound)):
        path.write_bytes(sound[:end] + (bytes(200) if name == STEPS else b""))
        try:
            trace = open_trace(folder)
            wanted = (len(trace), trace.step(-1) if len(trace) else None)
        except RecordError:
            with pytest.raises(RecordError):
                last_step(folder)
        else:
            assert last_step(folder) == wanted


def test_the_layout_is_that_of_numpy_and_of_all_element_types() -> None:
    assert {name: dtype.itemsize for name, dtype in {STEPS: ROW, **ENTRIES}.items()} == SIZES
    assert KINDS[XXH3 + 1 :] == tuple(map(str, DType))
    for dtype in DType:
        number, bits = packed(f"{dtype}:{'01' * dtype.itemsize}")
        assert KINDS[number] == dtype and np.count_nonzero(np.frombuffer(bits, np.uint8)) == dtype.itemsize
