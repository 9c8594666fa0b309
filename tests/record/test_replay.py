"""The verdict: every way in which two runs can differ is told apart, and equal ones are equal."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from isobit.record.errors import RecordError
from isobit.record.manifest import Verdict
from isobit.record.parting import readable
from isobit.record.recorder import Recorder
from isobit.record.replay import Comparison
from isobit.record.store import Run, Store, open_run
from isobit.record.trace import Step
from tests.record.manifests import manifest

RECORDED = [Step(i, i % 2, (f"f32:{i:08x}",), f"{i:032x}") for i in range(4)]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return recorded(tmp_path, "finished", 0)


def recorded(home: Path, status: str, exit_code: int, error: str | None = None) -> Run:
    recorder = Recorder(Store(home).create(manifest))
    for step in RECORDED:
        recorder.step(step.optimizer, step.losses, step.parameters)
    recorder.finish(status, exit_code, error)
    return open_run(recorder.run.folder)


def judge(run: Run, steps: list[Step], status: str = "finished", code: int = 0, error: str | None = None) -> Verdict:
    comparison = Comparison(run)
    for step in steps:
        if not comparison.matches(step):
            break
    return comparison.verdict(status, code, error)


def changed(index: int, **fields: object) -> list[Step]:
    return [dataclasses.replace(s, **fields) if s.index == index else s for s in RECORDED]  # type: ignore[arg-type]


def test_equal_runs_are_identical(run: Run) -> None:
    verdict = judge(run, RECORDED)
    assert (verdict.outcome, verdict.steps) == ("identical", 4)


@pytest.mark.parametrize("index", range(4))
@pytest.mark.parametrize(
    ("what", "fields"),
    [
        ("loss", {"losses": ("f32:ffffffff",)}),
        ("loss", {"losses": ()}),
        ("loss", {"losses": ("f32:ffffffff",), "parameters": "b"}),
        ("update", {"parameters": "b"}),
        ("optimizer", {"optimizer": 9}),
    ],
)
def test_the_first_difference_is_named(run: Run, index: int, what: str, fields: dict[str, object]) -> None:
    verdict = judge(run, changed(index, **fields))
    assert (verdict.outcome, verdict.step, verdict.what, verdict.steps) == ("differs", index, what, index)


def test_keep_going_counts_what_differs(run: Run) -> None:
    comparison = Comparison(run, keep_going=True)
    other = [dataclasses.replace(s, parameters="b") if s.index in (1, 3) else s for s in RECORDED]
    assert all(comparison.matches(step) for step in other)
    verdict = comparison.verdict("finished", 0, None)
    assert (verdict.outcome, verdict.step, verdict.steps) == ("differs", 1, 2) and "2 of 4 steps differ" in verdict.text


def test_a_segment_is_compared_by_the_numbers_of_the_record(run: Run) -> None:
    comparison = Comparison(run, segment=(2, 4))
    made = [dataclasses.replace(s, index=s.index - 2) for s in RECORDED[2:]]
    assert [comparison.matches(step) for step in made] == [True, False]
    assert comparison.verdict("stopped", 0, None).outcome == "identical"
    comparison = Comparison(run, segment=(2, 4))
    assert not comparison.matches(dataclasses.replace(made[0], parameters="b"))
    assert comparison.verdict("stopped", 0, None).step == 2


def test_time_is_no_difference(run: Run) -> None:
    assert judge(run, changed(2, seconds=99.0)).outcome == "identical"


def test_missing_and_extra_steps(run: Run) -> None:
    fewer = judge(run, RECORDED[:3])
    assert (fewer.outcome, fewer.what, fewer.step) == ("differs", "missing", 3)
    more = judge(run, [*RECORDED, Step(4, 0, (), "x")])
    assert (more.outcome, more.what, more.step) == ("differs", "extra", 4)


@pytest.mark.parametrize("status", ["killed", "interrupted", "stopped"])
def test_a_broken_off_record_is_compared_as_far_as_it_goes(tmp_path: Path, status: str) -> None:
    run = recorded(tmp_path, status, 0)
    comparison = Comparison(run)
    assert [comparison.matches(step) for step in RECORDED] == [True, True, True, False]  # no need to go on
    assert comparison.verdict("stopped", 0, None).outcome == "identical"
    assert judge(run, RECORDED[:2]).what == "missing"
    assert judge(run, changed(3, parameters="b")).step == 3


def test_how_the_script_ends_counts(tmp_path: Path, run: Run) -> None:
    assert judge(run, RECORDED, "failed", 3).what == "exit code"
    failing = judge(run, RECORDED[:2], "failed", 1, "OSError: no data")
    assert failing.outcome == "none" and "OSError: no data" in failing.text
    assert judge(run, RECORDED[:2], "interrupted", 130).outcome == "none"
    failed = recorded(tmp_path / "f", "failed", 1, "ValueError: first")
    other = judge(failed, RECORDED[:2], "failed", 1, "OSError: no data")
    assert other.outcome == "none" and "OSError: no data" in other.text
    assert judge(failed, RECORDED, "failed", 1, "ValueError: again").outcome == "identical"
    assert judge(failed, RECORDED, "finished", 0).what == "exit code"


def test_nothing_compared_is_no_verdict(tmp_path: Path) -> None:
    recorder = Recorder(Store(tmp_path).create(manifest))
    recorder.finish("finished", 0, None)
    assert judge(open_run(recorder.run.folder), []).outcome == "none"


def test_a_record_that_breaks_off_before_its_first_step_gives_no_verdict(tmp_path: Path) -> None:
    recorder = Recorder(Store(tmp_path).create(manifest))
    recorder.finish("killed", 0, None)
    comparison = Comparison(open_run(recorder.run.folder))
    assert not comparison.matches(RECORDED[0])
    assert comparison.verdict("stopped", 0, None).outcome == "none"


@pytest.mark.parametrize("keep", [0, 1, 3])
def test_a_trace_that_has_lost_steps_is_not_compared(run: Run, keep: int) -> None:
    path = run.folder / "trace" / "steps"
    path.write_bytes(path.read_bytes()[: keep * path.stat().st_size // 4])
    with pytest.raises(RecordError, match="damaged"):
        Comparison(run)


def test_bits_are_readable() -> None:
    assert readable("f32:3f800000") == "1 (f32:3f800000)"
    assert readable("f64:3ff199999999999a") == "1.1000000000000001 (f64:3ff199999999999a)"
    assert readable("bf16:3f80") == "1 (bf16:3f80)"
    assert readable("xxh3:00") == "xxh3:00"
