"""`isobit runs` and what commands say to programs, in this process: no script is run."""

from __future__ import annotations

import json
import re
import sys
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from isobit.cli import listing
from isobit.cli.arguments import named
from isobit.cli.choose import condition, moment
from isobit.cli.main import main
from isobit.cli.options import _run_names
from isobit.record.errors import RecordError
from isobit.record.index import entries
from isobit.record.store import Store
from tests.record.test_index import make


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with four runs, which is the current one."""
    store = Store(tmp_path / ".isobit")
    for number, (status, seconds) in enumerate(
        [("finished", 9.0), ("failed", None), ("finished", 75.0), ("stopped", 2.0)]
    ):
        make(
            store, f"2026120{number + 1}-000000-abc{number}", count=number, status=status, seconds=seconds,
            started=f"2026-12-0{number + 1}T00:00:00.000+00:00", script="dir/train.py" if number else "other.py",
            args=("--lr", f"0.{number}", "a b"),
        )  # fmt: skip
    monkeypatch.chdir(tmp_path)
    return tmp_path


def isobit(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *args: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `isobit ARGS`."""
    monkeypatch.setattr(sys, "argv", ["isobit", *args])
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def ids(text: str) -> list[str]:
    return [line.split()[0][-4:] for line in text.splitlines()[1:]]


@pytest.mark.parametrize(
    ("args", "wanted"),
    [
        ((), "0123"),
        (("-n", "2"), "23"),
        (("--status", "failed", "--status", "stopped"), "13"),
        (("--script", "train*"), "123"),
        (("--script", "dir/*"), "123"),
        (("--since", "2026-12-03T00:00:00+00:00"), "23"),
        (("--where", "loss>=1.0000001"), "23"),
        (("--where", "loss<1.0000002", "--where", "arg.lr!=0.0"), "12"),
        (("--where", "arg.lr = 0.20"), "2"),
        (("--where", "arg.arg1=a b", "--where", "status=failed"), "1"),
        (("--sort", "time"), "1302"),
        (("--sort", "time", "--reverse"), "1203"),
        (("--sort", "steps", "-r", "-n", "1"), "0"),
        (("--sort", "loss"), "0123"),
        (("--sort", "status", "--where", "steps>0"), "123"),
    ],
)  # fmt: skip
def test_runs_are_chosen_and_sorted(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], wanted: str
) -> None:
    code, out, err = isobit(capsys, monkeypatch, "runs", *args)
    assert (code, err, ids(out)) == (0, "", [f"abc{n}" for n in wanted])
    code, out, _ = isobit(capsys, monkeypatch, "runs", "--json", *args)
    assert [run["id"][-4:] for run in json.loads(out)] == [f"abc{n}" for n in wanted]


def test_the_list_greps_well(here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(here / ".isobit")
    make(store, "20261209-000000-abcd", count=0, args=("x" * 200, "two\nlines\t"), script="a script.py", started="2026-12-09T00:00:00.000+00:00",
    )  # fmt: skip
    _, out, _ = isobit(capsys, monkeypatch, "runs")
    lines = out.splitlines()
    assert len(lines) == 6 and "\t" not in out and "\x1b" not in out
    assert lines[-1].endswith(f"'a script.py' {'x' * 200} 'two\\nlines\\t'")
    assert len({line.index(word) for line, word in zip(lines[1:], ["other", *["dir/"] * 3, "'a"])}) == 1
    assert lines[2].split() == ["20261202-000000-abc1", "failed", "1", "1", "dir/train.py", "--lr", "0.1", "'a", "b'"]


def test_a_terminal_gets_the_last_runs_and_how_many_more(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "SHOWN", 3)
    found = entries(Store(here / ".isobit"))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    for everything, first, count in ((False, "… 1 more; --all shows them, -n N the last N", 5), (True, "run ", 5)):
        listing.show_runs(found, None, everything)
        lines = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out).splitlines()
        assert lines[0].startswith(first) and len(lines) == count and all(len(line) <= 60 for line in lines)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--where", "loss"), "--where takes NAME"),
        (("--where", "colour=red"), "--where knows loss,"),
        (("--where", "loss<low"), "compares numbers"),
        (("--since", "yesterday"), "--since takes 30m"),
    ],
)
def test_what_cannot_be_understood_is_an_error(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], says: str
) -> None:
    code, out, err = isobit(capsys, monkeypatch, "runs", *args)
    assert (code, out) == (2, "") and err.startswith("isobit: ") and says in err
    code, out, err = isobit(capsys, monkeypatch, "runs", "--json", *args)
    assert (code, err) == (2, "") and says in json.loads(out)["error"]


def test_moments_and_conditions() -> None:
    now = datetime(2026, 12, 1, 12, tzinfo=UTC)
    assert moment("2d", now) == datetime(2026, 11, 29, 12, tzinfo=UTC)
    assert moment(" 1.5h", now) == datetime(2026, 12, 1, 10, 30, tzinfo=UTC)
    assert moment("2026-11-30", now) == datetime(2026, 11, 30).astimezone()
    with pytest.raises(RecordError):
        condition("arg.=1")


def test_arguments_get_names() -> None:
    args = ("--lr", "-0.1", "--x=a=b", "-v", "--deep", "file", "-", "--", "--y")
    assert named(args) == {"lr": "-0.1", "x": "a=b", "v": "true", "deep": "file", "arg1": "-", "arg2": "--y"}


def test_the_shell_is_offered_runs(here: Path) -> None:
    assert _run_names("la") == ["latest"]
    assert [name[-4:] for name in _run_names("2026120")] == ["abc3", "abc2", "abc1", "abc0"]


def test_show_and_bundle_speak_json(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, _ = isobit(capsys, monkeypatch, "bundle", "abc2", "-o", "x.iso", "--json")
    assert code == 0
    assert json.loads(out) == {"run": "20261203-000000-abc2", "bundle": "x.iso", "bytes": Path("x.iso").stat().st_size}
    code, out, _ = isobit(capsys, monkeypatch, "show", "x.iso", "--json")
    assert (code, json.loads(out)["steps"]) == (0, 2)
    _, out, _ = isobit(capsys, monkeypatch, "show", "abc2")
    assert "isobit run 'é x.py'" in out  # as it can be typed again


def test_an_exported_model_is_no_run(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile("model.iso", "w") as archive:
        archive.writestr("manifest.json", json.dumps({"format": 2}))
    code, out, err = isobit(capsys, monkeypatch, "show", "model.iso")
    assert (code, out) == (2, "") and "model.iso is an exported model, not a run" in err


def test_a_damaged_manifest_is_a_line(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = here / ".isobit" / "runs" / "20261203-000000-abc2" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "settings": "none", "started": 5}))
    code, out, _ = isobit(capsys, monkeypatch, "runs")
    assert code == 0 and "abc2  unreadable" in out and "cannot be read" in out and len(out.splitlines()) == 5
    code, out, err = isobit(capsys, monkeypatch, "show", "abc2")
    assert (code, out) == (2, "") and "cannot be read" in err and len(err.splitlines()) == 1
