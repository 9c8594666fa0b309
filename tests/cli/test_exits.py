"""The exit codes and the usage, as docs/record.md has them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from isobit.cli import check, exits, replay
from isobit.cli.check import Result, Setting
from isobit.cli.target import Target
from isobit.record.manifest import Replay, Verdict
from isobit.record.store import Run, Store
from isobit.record.trace import Step
from tests.cli.programs import ROOT, isobit, write
from tests.cli.test_runs import isobit as in_process
from tests.record.manifests import manifest
from tests.record.test_index import make


def test_the_table_in_the_documents_is_the_one_in_the_code() -> None:
    codes = {name: value for name, value in vars(exits).items() if name.isupper()}
    assert codes == {"OK": 0, "DIFFERS": 1, "NO_VERDICT": 2, "USAGE": 2, "INTERRUPTED": 130}
    table = (ROOT / "docs" / "record.md").read_text("utf-8").partition("## Exit codes")[2]
    told = {int(number) for number in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
    assert told == set(codes.values())


@pytest.mark.parametrize(
    ("outcome", "status", "code"),
    [
        ("identical", "finished", 0), ("differs", "stopped", 1), ("none", "failed", 2), (None, "killed", 2),
        ("none", "interrupted", 130), (None, None, 2),
    ],
)  # fmt: skip
def test_replay_exits_as_its_verdict_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], outcome: str | None, status: str | None, code: int
) -> None:  # fmt: skip
    verdict = None if outcome is None else Verdict(outcome, 3, "why")
    made = None
    if status is not None:
        made = Run(tmp_path, manifest("made", status=status, replay=Replay("a", "record", verdict)))
    monkeypatch.setattr(replay, "run_child", lambda *args, **kwargs: (9, made))
    monkeypatch.setattr(replay, "_code", lambda run, code: nullcontext(SimpleNamespace(folder=tmp_path, mirror=None)))
    monkeypatch.setattr(replay, "_plan", lambda *args: None)
    monkeypatch.setattr(replay, "_say_before", lambda *args: None)
    monkeypatch.setattr(replay, "with_causes", lambda run, made: made)
    store = Store(tmp_path)
    assert replay.replay(store, make(store, "a"), replay.How()) == code
    assert (
        capsys.readouterr()
        .out.splitlines()[-1]
        .startswith(outcome if outcome in ("identical", "differs") else "no verdict")
    )
    assert replay.replay(store, store.open("a"), replay.How(), as_json=True) == code
    data = json.loads(capsys.readouterr().out)
    assert data["verdict"]["outcome"] == (outcome or "none") and data["recorded"]["run"] == "a"


def settings(*parameters: str, error: str | None = None) -> list[Result]:
    """One result under each of PyTorch and Isobit, on one and two threads, by the parameters after the only step."""
    places = [Setting(1, None), Setting(1, "v3"), Setting(2, None), Setting(2, "v3")]
    return [Result(s, (Step(0, 0, (), p),), (), error) for s, p in zip(places, parameters, strict=True)]


@pytest.mark.parametrize(
    ("results", "code", "between"),
    [
        (settings("a", "b", "c", "b"), 0, 0),
        (settings("a", "a", "a", "a"), 0, None),
        (settings("a", "a", "a", "b"), 1, 0),
        (settings("a", "a", "a", "a", error="broken"), 2, None),
    ],
)
def test_check_exits_as_its_verdict_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], results: list[Result], code: int, between: int | None
) -> None:  # fmt: skip
    by_setting = {result.setting: result for result in results}
    monkeypatch.setattr(check, "_settings", lambda plain_only: list(by_setting))
    monkeypatch.setattr(check, "_run", lambda plan, setting: by_setting[setting])
    assert check.check(Target("x.py", "x.py"), (), 1, 0, False) == code
    out = capsys.readouterr().out
    words = "at step 0; each sums" if between == 0 else "the same bits on as many threads"
    assert "median of the later half" in out and (
        code == 2 or f"Plain PyTorch and Isobit: {'part from one another ' if between == 0 else ''}{words}" in out
    )
    assert check.check(Target("x.py", "x.py"), (), 1, 0, False, as_json=True) == code
    data = json.loads(capsys.readouterr().out)
    assert data["verdict"] == {0: "identical", 1: "differs", 2: "none"}[code] and len(data["settings"]) == 4
    assert data["first_difference_of_pytorch_and_isobit"] == between


def test_replay_keeps_its_stdout_for_json(tmp_path: Path) -> None:
    write(tmp_path, "prints.py", "print('from the script')\n")
    assert isobit("run", "--plain", "-q", "prints.py", cwd=tmp_path).stderr == ""
    done = isobit("replay", "latest", "--json", cwd=tmp_path)
    assert done.returncode == 2 and "from the script" in done.stderr
    assert json.loads(done.stdout)["verdict"]["outcome"] == "none"  # no optimizer made a step


@pytest.mark.parametrize(
    ("args", "usage"),
    [
        (("run", "--help"), "isobit run [OPTIONS] SCRIPT [ARGS]..."),
        (("replay", "--help"), "isobit replay [OPTIONS] RUN"),
    ],
)
def test_usage_reads_well(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], usage: str
) -> None:
    code, out, _ = in_process(capsys, monkeypatch, *args)
    assert code == 0 and usage in out


@pytest.mark.parametrize(
    ("args", "complete", "said"),
    [
        (("--version",), None, ", arithmetic 1"),
        (("runs",), None, "abcd"),
        (("show", "latest"), None, "0.25"),
        ((), "isobit show 2026", "20261201-000000-abcd"),
    ],
)
def test_what_only_looks_imports_neither_numpy_nor_torch(
    tmp_path: Path, args: tuple[str, ...], complete: str | None, said: str
) -> None:
    make(Store(tmp_path / ".isobit"), "20261201-000000-abcd", loss="f32:3e800000")
    code = (
        f"import sys; sys.argv = {['isobit', *args]}\nfrom isobit.cli.main import main\ntry: main()\n"
        "finally: print([m for m in ('torch', 'llvmlite', 'numpy', 'mlflow', 'jinja2') if m in sys.modules])"
    )
    environment = {"PYTHONPATH": str(ROOT / "src")}
    if complete is not None:
        environment |= {"_ISOBIT_COMPLETE": "complete_bash", "COMP_WORDS": complete, "COMP_CWORD": "2"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, cwd=tmp_path)
    *lines, last = done.stdout.splitlines()
    assert said in "".join(lines) and last == "[]", done.stderr
