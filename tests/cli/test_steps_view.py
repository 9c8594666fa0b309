"""`isobit.log` in a recorded script, and what `isobit show --steps` makes of the record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from isobit.cli.steps_view import _range, show_steps
from isobit.record.errors import RecordError
from isobit.record.recorder import Recorder
from isobit.record.store import Run, Store, open_run
from isobit.record.trace import open_trace
from tests.cli.programs import isobit, project
from tests.record.manifests import manifest


@pytest.fixture
def run(tmp_path: Path) -> Run:
    recorder = Recorder(Store(tmp_path).create(manifest))
    for i in range(5):
        recorder.step(0, ("f32:3f800000", "f32:3f000000"), f"{i}" * 32, batch="ab" * 16)
        recorder.log("accuracy", "bf16:3f40", "")
        recorder.log("seen", f"i64:{i:016x}", "")
    recorder.log("end", "", "of [all]")
    recorder.finish("finished", 0, None)
    return open_run(recorder.run.folder)


def test_a_range_of_steps_is_shown(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    show_steps(run, "-2:", as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:2]] == ["step", "3"] and "4444" in lines[2]
    assert "1, 0.5" in lines[1] and "abababab" in lines[1] and "gradients" not in lines[0]
    assert "accuracy = 0.75 (bf16:3f40), seen = 3" in lines[1]
    assert "of [all]" in "".join(lines[2:])


def test_steps_as_json(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    show_steps(run, "1", as_json=True)
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["index"], row["losses"], row["parameters"]) == (1, ["f32:3f800000", "f32:3f000000"], "1" * 32)
    assert [(said["name"], said["bits"], said["step"]) for said in row["logged"]] == [
        ("accuracy", "bf16:3f40", 2), ("seen", "i64:0000000000000001", 2),
    ]  # fmt: skip


def test_ranges() -> None:
    steps = list(range(10))
    wanted = {"2:4": [2, 3], ":2": [0, 1], "-2:": [8, 9], "7": [7], "-1": [9], "-3": [7], ":": steps, "20": []}
    assert {text: steps[_range(text)] for text in wanted} == wanted
    for text in ("", "a", "1:2:3", "1-2"):
        with pytest.raises(RecordError, match="takes a range"):
            _range(text)


def test_a_script_logs_and_a_replay_compares_batches(tmp_path: Path) -> None:
    folder = project(tmp_path / "p")
    script = folder / "train ö.py"
    said = 'step(a, b)\n    import isobit; isobit.log(rate=update.param_groups[0]["lr"], at="x")\nimport isobit\n'
    script.write_text(script.read_text("utf-8").replace("    step(a, b)\n", f"    {said}"), "utf-8")
    done = isobit("run", "--plain", "--threads", "1", script.name, "--fork", cwd=folder)
    assert done.returncode == 0, done.stderr
    store = Store(folder / ".isobit")
    trace = open_trace(store.open(store.ids()[0]).folder)
    assert [x.bits for x in trace.logged() if x.bits] == ["f64:3fb999999999999a"] * 3 + ["f64:3fc999999999999a"] * 2
    assert trace.settings(2, 0)["lr"] == "0.1" and trace.settings(3, 0)["lr"] == "0.2"
    steps = list(trace.steps())
    assert all(s.batch and s.settings and s.random for s in steps) and len({s.batch for s in steps}) == 5
    assert [bool(s.gradients and s.state) for s in steps] == [True] * 4 + [False]
    assert [event["i"] for event in trace.events("b")] == [5]
    assert trace.sampling["gradients"] == {"first": 4, "every": 32}
    script.write_text(script.read_text("utf-8").replace("torch.randn(20, 8)", "torch.randn(20, 8).roll(1)"), "utf-8")
    again = isobit("replay", "latest", "--code", "current", cwd=folder)
    assert (again.returncode, again.stdout.splitlines()[-1][:29]) == (
        1,
        "differs at step 0 (counted fr",
    ) and "batch" in again.stdout
