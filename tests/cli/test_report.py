"""The page that `isobit report` writes: what it says, that it is sound HTML, that nothing in a record gets out of hand."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from isobit.cli.report.chart import Line, Mark, chart, columns_for, number
from isobit.cli.report.command import write_report
from isobit.cli.report.letters import printable
from isobit.cli.report.page import report
from isobit.cli.report.ticks import log_axis, step_ticks, ticks, value_axis
from isobit.cli.views import show_run
from isobit.record.bundle import write_bundle
from isobit.record.checking import Points
from isobit.record.curves import Curve, envelope, measured
from isobit.record.curves import curve as curve_of
from isobit.record.errors import RecordError
from isobit.record.inputs import Input, Inputs, write_inputs
from isobit.record.listing import FILE, Entry, LeftOut, Listing
from isobit.record.manifest import (
    EDITABLE,
    SCRIPT,
    Code,
    Data,
    Environment,
    GitState,
    Hole,
    Machine,
    Replay,
    Settings,
    Tree,
    Verdict,
)
from isobit.record.rows import packed
from isobit.record.store import Run, Store, open_run, rewrite
from isobit.record.trace import Step, TraceWriter
from tests.cli.browser import Browser, chromium
from tests.cli.programs import isobit
from tests.record.manifests import manifest

NASTY = "</script><script>pwned=1</script><img src=x onerror=pwned=1>\"'&\udcff\u202e"


def f32(value: float) -> str:
    return f"f32:{struct.unpack('>I', struct.pack('>f', value))[0]:08x}"


def digest(losses: Sequence[Sequence[float]]) -> str:
    """What stands for the parameters after steps with these losses."""
    return f"{zlib.crc32(repr(list(losses)).encode()):032x}"


def code_of(run: Run, root: str, name: str, text: str, git: GitState, left_out: tuple[str, ...] = ()) -> Code:
    """Code of one file, kept in the run's store."""
    digest = run.objects.put(text.encode())
    listing = Listing({name: Entry(FILE, len(text), digest)}, {out: LeftOut(None, out) for out in left_out})
    patch = run.objects.put(f"--- a/{printable(name)}\n+++ b/{printable(name)}\n+{printable(root)}\n".encode())
    git = dataclasses.replace(git, patch=patch)
    return Code(f"{root}/{name}", (Tree(root, SCRIPT, run.objects.put(listing.to_bytes()), 1, len(text), git=git),))


def record(home: Path, name: str, losses: Sequence[Sequence[float]], text: str = "lr = 0.1\n", **fields: object) -> Run:
    """A finished run whose steps had these losses."""
    run_id = f"20261130-184207-{name}"
    run = Store(home / ".isobit").create(lambda i: manifest(i), run_id)
    trace = TraceWriter(run.folder)
    for i, values in enumerate(losses):
        trace.metric(i, i * 0.5, "accuracy", f32(1 / (1 + i)))
        trace.step(Step(i, 0, tuple(map(f32, values)), digest(losses[: i + 1]), i * 0.5))
    trace.close()
    whole = code_of(run, "/home/a/project", "train.py", text, GitState("c0ffee", "main", True))
    settings = Settings("exact", 7, "7", threads=2, cpu="x86-64-v3")
    known = {"status": "finished", "exit_code": 0, "ended": "2026-11-30T18:43:07.120+00:00", "seconds": 3.5}
    return rewrite(run, steps=len(losses), **{**known, "settings": settings, "code": whole, **fields})


def falling(count: int, change: int | None = None) -> list[tuple[float]]:
    """Losses that differ from the step `change` on."""
    return [(2.0 / (1 + i) + (0.25 if change is not None and i >= change else 0.0),) for i in range(count)]


class Sound(HTMLParser):
    """Reads a page and complains of what is not well-formed or not accessible. ``text``: all that is to be read."""

    VOID = frozenset({"meta", "link", "br", "img", "input", "path"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.ids: list[str] = []
        self._open: list[str] = []
        self._named: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []
        assert len(self.ids) == len(set(self.ids)), "an id stands twice"
        assert set(self._named) <= set(self.ids), "a label points nowhere"
        assert self.tags.count("caption") == self.tags.count("table"), "a table has no caption"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = dict(attrs)
        assert len(given) == len(attrs), f"<{tag}> has an attribute twice"
        for name in ("id", "aria-labelledby", "aria-describedby"):
            if given.get(name):
                (self.ids if name == "id" else self._named).append(str(given[name]))
        assert not any(name.startswith("on") for name in given), f"<{tag}> runs a script"
        assert tag != "svg" or given["aria-label"], "a picture without words"
        assert not (given.get("src") or (given.get("href") or "data:,")[:1] not in "#d"), f"<{tag}> loads something"
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag == "path"

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] not in (["script"], ["style"]):
            self.text += data


def read(*runs: Run) -> Sound:
    return Sound(report(runs).decode("utf-8"))


def test_one_run(tmp_path: Path) -> None:
    run = record(
        tmp_path, "aaaa", [(2.5, 1.0), (math.nan, 0.5), (1.25, 0.25)], args=("--lr", "0.1 x"), notes=("a remark",),
        holes=(Hole("aten::fft", "outside version 1", 1200),), packages={"torch": "2.13.0"}, cwd="/home/a",
        machine=Machine("Linux", "A Processor", 4, 2**34, "CPython 3.12"),
    )  # fmt: skip
    page = read(run)
    last = digest([(2.5, 1.0), (math.nan, 0.5), (1.25, 0.25)])
    for words in (
        "é x.py' --lr '0.1 x'", "finished (exit code 0)", "1.25 (f32:3fa00000), 0.25 (f32:3e800000)", "x86-64-v3",
        "1 operator, 1,200 times", "aten::fft", "a remark", "c0ffee", "changed since the commit", "train.py",
        "torch", "2.13.0", "A Processor, 4 cores", "16.0 GiB", "loss 0", "loss 1", "accuracy", "Time of a step",
        "1 × NaN, first at step 1", "version 1", "seed",
    ):  # fmt: skip
        assert words in page.text, words
    assert last in page.text
    assert page.tags.count("figure") == 3 and page.tags.count("h1") == 1 and page.tags.count("main") == 1


def test_where_a_run_came_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Trees with what is not in them, data that has no digest, variables without values, pins, input, checkpoints."""
    start = record(tmp_path, "zzzz", falling(1))
    seen = Listing({"a.py": Entry(FILE, 1500, "d" * 64)}, {"big.bin": LeftOut(2_000_000, "too large")})
    seen.redacted["a.py"] = {"an API key": 2}
    many = Listing({f"m{i}.py": Entry(FILE, 3, f"{i:064x}") for i in range(1500)})
    git = GitState("c0ffee", None, True, {"origin": "https://example.org/a"}, left_out={"patch": "git failed"})
    trees = [
        Tree(root, kind, start.objects.put(listing.to_bytes()), git=state, package=package)
        for root, kind, listing, state, package in (
            ("/a/project", SCRIPT, seen, git, None), ("/a/lib", EDITABLE, many, None, "lib"),
        )
    ]  # fmt: skip
    known = Environment({"TZ": "UTC"}, {"HOME": "0" * 16}, ("MY_TOKEN",), "k")
    run = record(
        tmp_path, "aaaa", falling(3), module="pkg.train", script="pkg.train", environment=known, data=Data(2, 1500),
        settings=Settings("exact", 7, "7", strict=True, pins={"MKL_CBWR": "COMPATIBLE"}), redacted=1,
        code=Code("/a/project/a.py", tuple(trees)), packages={"lib": "1.0"}, editable={"lib": "/a/lib"},
        machine=Machine("Linux", "A Processor", 1, 2**34, "CPython 3.12", "fpu vme", {"nofile": "1024"}),
    )  # fmt: skip
    files = [Input(f"/data/{i}", 1500, 0, i, f"{i:064x}") for i in range(600)]
    write_inputs(run.folder, Inputs({f.path: f for f in (*files, Input("/data/x", 7, 0, 600, None, "it changed"))}))
    (run.folder / "stdin").write_bytes(b"12345")
    events = run.folder / "trace" / "events.jsonl"
    events.write_text(
        events.read_text()
        + json.dumps({"k": "c", "i": 2, "path": "/a/c.st", "d": "feed"}, separators=(",", ":"))
        + "\n"
    )
    page = read(open_run(run.folder))
    for words in (
        "-m pkg.train", "secrets in 1 argument were", "holes in the arithmetic are errors", "5 bytes, recorded",
        "2 files, 1.5 kB", "1 code file of the script: /a/project", "https://example.org/a", "not recorded: too large",
        "2.0 MB", "git failed", "made unreadable: 2 × an API key", "1,500 code files of an editable package: /a/lib",
        "502 more files", "601 data files", "not hashed: it changed", "101 more files", "/a/c.st", "1 pin", "COMPATIBLE",
        "3 environment variables", "set; its value is not recorded", "MY_TOKEN", "looks like a secret", "limit: nofile",
        "fpu vme", "editable: /a/lib", "1 core",
    ):  # fmt: skip
        assert words in page.text, words
    assert "0" * 16 not in page.text.partition("3 environment variables")[2].partition("limit: nofile")[0]
    assert len(report([run])) < 500_000
    show_run(run)
    shown = {line.split()[0]: " ".join(line.split()[1:]) for line in capsys.readouterr().out.splitlines()}
    assert (shown["module"], shown["stdin"], shown["pins"]) == ("-m pkg.train", "5 bytes", "MKL_CBWR")
    assert shown["data"] == "2 files, 1.5 kB" and shown["redacted"] == "1 argument with secrets made unreadable"
    assert shown["environment"].startswith("1 variable with values, 1 as digests, 1 by name")


def test_what_cannot_be_compared_is_said(tmp_path: Path) -> None:
    runs = [
        record(
            tmp_path, name, falling(2, change=1 if n else None), environment=Environment(values, {"HOME": key}, (), key)
        )
        for n, (name, values, key) in enumerate((("aaaa", {"TZ": "UTC"}, "1"), ("bbbb", {"TZ": "CET"}, "2")))
    ]
    for n, run in enumerate(runs):
        files = [Input("/d/hidden", 1, 0, 0, None, "no time"), Input("/d/changed", 1, 0, 1, f"{n}")]
        write_inputs(run.folder, Inputs({file.path: file for file in files}))
    text = read(*runs).text.partition("What differs")[2]
    assert "environment variable TZ differs: UTC → CET" in text and "/d/changed has other contents" in text
    assert text.index("likeliest first") < text.index("/d/changed has other contents") < text.index("TZ differs")
    assert "contents of 1 data file, which one of the runs has not hashed: /d/hidden" in text
    assert "Not known: 1 environment variable without a recorded value: the runs are of different stores" in text


def test_one_record_gives_one_page(tmp_path: Path) -> None:
    run = record(tmp_path, "aaaa", falling(5))
    assert report([run]) == report([open_run(run.folder)])


@pytest.mark.parametrize(
    ("outcome", "step", "says", "kind"),
    [
        ("identical", None, "identical: why", "good"), ("differs", 2, "differs at step 2 (counted from 0): why", "bad"),
        ("none", None, "no verdict: why", "warn"),
    ],
)  # fmt: skip
def test_a_replay_says_its_verdict_first(tmp_path: Path, outcome: str, step: int | None, says: str, kind: str) -> None:
    replay = Replay("20261130-184207-zzzz", "record", Verdict(outcome, 2, "why", step, causes=("the <moon>",)))
    run = record(tmp_path, "aaaa", falling(4), replay=replay)
    page = report([run]).decode("utf-8")
    assert says in Sound(page).text.partition("Key facts")[0] and f'class="banner {kind}"' in page
    assert "likely cause: the <moon>" in Sound(page).text
    assert ("differs from the record at step 2" in page) == (step is not None)


def test_runs_side_by_side(tmp_path: Path) -> None:
    first = record(tmp_path, "aaaa", falling(9))
    other = record(tmp_path, "bbbb", falling(9, change=4), text="lr = 0.2 <b>\n", args=("--more",))
    same = record(tmp_path, "cccc", falling(9))
    page = read(first, other, same)
    for words in (
        "3 runs compared", "B parts from A at step 4 (counted from 0), in the loss", "C is identical with A: 9 steps",
        "-lr = 0.1", "+lr = 0.2 <b>", "A · aaaa", "C · cccc", "the code of train.py differs",
    ):  # fmt: skip
        assert words in page.text, words
    source = report([first, other, same]).decode("utf-8")
    marked = re.findall(r'<tr class="differs"><th scope="row"><span aria-label="differs:">≠</span> (.*?)</th>', source)
    assert marked == ["arguments", "last loss", "final parameters"]
    assert source.count('class="flag') == 3  # in every chart
    assert all("≠" not in row for row in re.findall(r"<tr>.*?</tr>", source, re.DOTALL))


@pytest.mark.parametrize("count", [0, 1])
def test_runs_of_hardly_any_steps(tmp_path: Path, count: int) -> None:
    page = read(record(tmp_path, "aaaa", falling(count), status="failed", error="ValueError: x", exit_code=1))
    assert "failed (exit code 1; ValueError: x)" in page.text
    assert ("there is nothing to draw" in page.text) == (count == 0)
    assert "there are no steps to compare" in read(*[record(tmp_path, n, falling(0)) for n in ("bbbb", "cccc")]).text


def nasty(home: Path) -> Run:
    """A run whose every word is an attack."""
    start = Store(home / ".isobit").create(lambda i: manifest(i), "20261130-184206-zzzz")
    whole = code_of(
        start, NASTY, f"{NASTY}.py", NASTY.encode("utf-8", "replace").decode(), GitState(NASTY, NASTY, True), (NASTY,)
    )
    run = record(
        home, "nast", falling(3), script=f"{NASTY}.py", args=(NASTY, 'a "b"'), cwd=NASTY, notes=(NASTY,),
        holes=(Hole(NASTY, NASTY, 1),), packages={NASTY: NASTY}, error=NASTY, status="failed",
        code=whole, environment=Environment({NASTY: NASTY}), data=Data(1, 1),
    )  # fmt: skip
    write_inputs(run.folder, Inputs({NASTY: Input(NASTY, 1, 0, 0, None, NASTY)}))
    trace = run.folder / "trace" / "events.jsonl"
    lines = trace.read_text("utf-8").replace('"accuracy"', json.dumps(NASTY))
    text = json.dumps({"k": "t", "i": 1, "t": 0.1, "name": NASTY, "text": NASTY}, separators=(",", ":"))
    trace.write_text(f"{lines}{text}\n", "utf-8")
    return open_run(run.folder)


def test_everything_is_escaped(tmp_path: Path) -> None:
    run = nasty(tmp_path)
    page = report([run]).decode("utf-8")
    sound = Sound(page)
    assert sound.tags.count("script") == 1 + sound.tags.count("figure") and "img" not in sound.tags
    assert sound.text.count(r"&\xff\u202e") >= 12 and "\u202e" not in page
    assert "pwned" not in "".join(re.findall(r"<script>(.*?)</script>", page, re.DOTALL))
    assert sound.text.count("<img src=x onerror=pwned=1>") >= 12
    Sound(report([run, record(tmp_path, "aaaa", falling(3))]).decode("utf-8"))


def test_letters() -> None:
    assert printable("plain ä 中 👩‍🔬\n\ttab") == "plain ä 中 👩‍🔬\n\ttab"
    assert printable("\x00\x7f\x9b\udcfe\ud800\u2028\U000e0001") == r"\x00\x7f\x9b\xfe\ud800\u2028\U000e0001"


def curve(values: Sequence[float], steps: Sequence[int] | None = None) -> Curve:
    array = np.array(values, np.float64)
    return measured(np.arange(array.size) if steps is None else np.array(steps, np.int64), array)


@pytest.mark.parametrize("seed", range(20))
def test_thinning_keeps_what_is_seen(seed: int) -> None:
    """Of each column: the lowest, the highest, first and last, and every kind of value that is no number."""
    random = np.random.default_rng(seed)
    count, columns = int(random.integers(1, 5000)), int(random.integers(1, 60))
    steps = np.sort(random.choice(9000, count, replace=False))
    values = random.standard_normal(count).cumsum()
    values[random.random(count) < 0.01] = random.choice([np.nan, np.inf, -np.inf])
    whole = curve(values.tolist(), steps.tolist())
    thin = envelope(whole, 0, 8999, columns)
    assert thin.steps.size <= max(2 * columns, 10 * columns) and np.all(np.diff(thin.steps) > 0)
    for column in range(columns):
        before, after = (c.values[c.steps * columns // 9000 == column] for c in (whole, thin))
        if before.size:
            finite = [x[np.isfinite(x)] for x in (before, after)]
            assert [np.isnan(x).any() for x in (before, before)] == [np.isnan(x).any() for x in (after, after)]
            assert [np.isposinf(before).any(), np.isneginf(before).any()] == [
                np.isposinf(after).any(),
                np.isneginf(after).any(),
            ]
            assert [f(finite[0], initial=0.0) for f in (np.max, np.min)] == [
                f(finite[1], initial=0.0) for f in (np.max, np.min)
            ]
            assert np.array_equal(before[[0, -1]], after[[0, -1]], equal_nan=True)


def test_a_million_steps_make_a_small_page_and_lose_no_spike() -> None:
    random = np.random.default_rng(1)
    values = random.random(1_000_000).astype(np.float32).astype(np.float64)
    values[654_321], values[777_777] = 50.0, np.nan
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    kinds = np.full(bits.size, 1, np.uint8)
    lines = [Line("loss", Curve(np.arange(bits.size), values, kinds, bits))]
    drawn = chart("Loss", lines, columns_for(12), (0, 999_999))
    assert drawn.summaries[0].highest.step == 654_321 and "first at step 777,777" in drawn.summaries[0].odd
    assert 654_321 in np.cumsum(drawn.points["lines"][0]["steps"]) and drawn.scales[0].drawings[0].gaps
    size = len(json.dumps(drawn.points)) + sum(len(d.path) for s in drawn.scales for d in s.drawings)
    assert 12 * size < 1_500_000  # a dozen such curves


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("f32:3f800000", 1.0), ("f64:7ff0000000000000", math.inf), ("bf16:bfc0", -1.5), ("f16:3c01", 1.0009765625),
        ("i64:ffffffffffffffff", -1.0), ("i8:80", -128.0), ("u8:ff", 255.0), ("bool:01", 1.0),
    ],
)  # fmt: skip
def test_bits_become_numbers(word: str, value: float) -> None:
    packed_words = [packed(word), packed("xxh3:" + "0" * 32)]
    kinds, bits = zip(*((kind, int.from_bytes(value[:8], "little")) for kind, value in packed_words))
    found = curve_of(Points(np.array([3, 4]), np.array(kinds, np.uint8), np.array(bits, np.uint64)))
    assert (found.values.tolist(), found.word(0), found.kind) == ([value], word, word.split(":")[0])


@pytest.mark.parametrize(
    "values",
    [
        (0.0, 1.0), (5.0, 5.0), (-3.0, 1e-9), (0.693147180, 0.693147182), (-1.7e308, 1.7e308), (5e-324, 1e-323),
        (1e-12, 1e12), (0.0, 0.0), (123456.0, 123457.0), (-2e10, -1e10), (1e300, 1.0000000000000002e300), (0.9, 1.1),
    ],
)  # fmt: skip
def test_ticks_are_few_in_order_and_tell_apart(values: tuple[float, float]) -> None:
    for axis in (value_axis(values), log_axis(values)):
        if axis is None:
            assert max(values) <= 0
            continue
        found = ticks(axis)
        assert 2 <= len(found) <= 16
        assert all(-1e-6 <= tick.at <= 1 + 1e-6 for tick in found)
        assert [t.at for t in found] == sorted({t.at for t in found}) and len({t.label for t in found}) == len(found)
        assert all(0 <= axis.at(v) <= 1 for v in values if not axis.log or v > 0)


def test_steps_have_whole_ticks() -> None:
    assert [t.label for t in step_ticks(0, 1_000_000)] == ["0", "200,000", "400,000", "600,000", "800,000", "1,000,000"]
    assert [t.label for t in step_ticks(3, 5)] == ["3", "4", "5"]
    assert [t.label for t in step_ticks(7, 7)] == ["7"]


def test_gaps_are_marked_and_lines_broken() -> None:
    drawn = chart("x", [Line("y", curve([1.0, math.nan, 3.0, 4.0, math.inf, -1.0]))], 10, (0, 5), [Mark(9, "out")])
    linear, log = (scale.drawings[0] for scale in drawn.scales)
    assert linear.path.count("M") == 3 and [gap[3] for gap in linear.gaps] == ["NaN", "+∞"]
    assert [gap[3] for gap in log.gaps] == ["NaN", "+∞", "≤ 0"] and drawn.marks == []
    assert number(0.1, "f64") == "0.1" and number(float(np.float32(0.1)), "f32") == "0.1"
    assert number(float(np.float32(3.4028235e38)), "f32") == "3.4028235e+38" and number(-math.inf) == "−∞"


def test_the_command(tmp_path: Path) -> None:
    run = record(tmp_path, "aaaa", falling(5))
    write_bundle(run, tmp_path / "b.iso")
    done = isobit("report", "latest", tmp_path / "b.iso", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "report-20261130-184207-aaaa.html\n"), done.stderr
    assert "2 runs compared" in (tmp_path / done.stdout.strip()).read_text("utf-8")
    steps = run.folder / "trace" / "steps"
    steps.write_bytes(b"x" * 10 + steps.read_bytes()[10:])
    wrong = isobit("report", "latest", "-o", "wrong.html", cwd=tmp_path)
    assert wrong.returncode == 2 and "damaged" in wrong.stderr and "Traceback" not in wrong.stderr
    assert not (tmp_path / "wrong.html").exists()


def test_a_page_that_cannot_be_written(tmp_path: Path) -> None:
    run = record(tmp_path, "aaaa", falling(2))
    with pytest.raises(RecordError, match=r"cannot write .*: No such file"):
        write_report([run], tmp_path / "missing" / "x.html")
    with pytest.raises(RecordError, match=r"cannot write .*: Is a directory"):
        write_report([run], tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".isobit"]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = chromium()
    if program is None:
        pytest.skip("no chromium is installed: the page is not tried in a browser")
    with Browser(program, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


HIDDEN = "[...document.querySelectorAll('.scale')].map((s) => getComputedStyle(s).display)"


def test_a_browser_shows_it(browser: Browser, tmp_path: Path) -> None:
    losses = [(0.1 + i / 7 if i != 5 else math.nan,) for i in range(8)]
    path = write_report([record(tmp_path, "aaaa", losses), nasty(tmp_path)], tmp_path / "r.html")
    browser.show(1280, 900)
    browser.open(path)
    assert browser.run("[typeof pwned, document.title]") == ["undefined", "2 runs compared – Isobit report"]
    browser.run("document.querySelector('.plot').scrollIntoView()")
    left, top, width, height = browser.run(
        "(() => { const b = document.querySelector('.plot').getBoundingClientRect(); return [b.x, b.y, b.width, b.height] })()"
    )
    browser.move(left + width * 3 / 7, top + height / 2)
    shown = "document.querySelector('.readout').innerText"
    assert f"A · aaaa · step 3 · {number(float(np.float32(0.1 + 3 / 7)), 'f32')} · {f32(0.1 + 3 / 7)}" in browser.run(
        shown
    )
    browser.run("document.querySelector('.plot').focus()")
    browser.press("End")
    browser.press("ArrowLeft")
    browser.press("ArrowLeft")
    assert "A · aaaa · step 5 · NaN · f32:7fc00000" in browser.run(shown)
    assert browser.run(HIDDEN)[:2] == ["block", "none"]
    browser.run("document.querySelector('.toggle').click()")
    assert browser.run(HIDDEN)[:2] == ["none", "block"] and "Point at a curve" in browser.run(shown)
    assert browser.problems() == []
    assert set(browser.requests()) == {path.as_uri()}


@pytest.mark.parametrize("dark", [False, True])
def test_it_can_be_read_on_a_phone_and_in_the_dark(browser: Browser, tmp_path: Path, dark: bool) -> None:
    run = dataclasses.replace(record(tmp_path, "aaaa", falling(30)))
    path = write_report([run, run, run], tmp_path / "r.html")
    browser.show(360, 800, dark=dark, phone=True)
    browser.open(path)
    assert browser.run("document.documentElement.scrollWidth") == 360  # nothing but tables is wider
    colour, back = browser.run(
        "(() => { const s = getComputedStyle(document.body); return [s.color, s.backgroundColor] })()"
    )
    light, deep = (sum(map(int, re.findall(r"\d+", c)[:3])) for c in ((colour, back) if dark else (back, colour)))
    assert light > 650 and deep < 110
