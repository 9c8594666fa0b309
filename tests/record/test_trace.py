"""The trace: what is written can be read, wherever it was cut, and damage is told from what was torn."""

from __future__ import annotations

import json
import math
import random
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isobit.record.columns import ENTRIES, ROW
from isobit.record.errors import RecordError
from isobit.record.rows import Ends, Logged, packed, step_bytes, unpacked
from isobit.record.trace import Step, Trace, TraceWriter, number, open_trace, read_steps

SAMPLES = Path(__file__).parent / "samples"


def digest(*what: object) -> str:
    return random.Random(repr(what)).randbytes(16).hex()


def step(i: int) -> Step:
    """A step with any number of losses, with and without each of its digests."""
    losses = tuple(f"f32:{i * 7 + k:08x}" for k in range(i % 4)) + (("", f"xxh3:{digest(i)}") if i % 5 == 3 else ())
    taken = {name: digest(name, i) for k, name in enumerate(("batch", "settings", "random")) if i >> k & 1}
    sampled = {name: digest(name, i) for name in ("gradients", "state") if i % 4 == 1}
    return Step(i, i % 2, losses, "" if i == 6 else f"{i:032x}", i / 8, **taken, **sampled)


STEPS = [step(i) for i in range(11)]


def write(folder: Path, steps: list[Step]) -> Path:
    """A trace with a metric, a text, settings and a hole before each step; returns its folder."""
    writer = TraceWriter(folder, {"gradients": {"every": 4}})
    for one in steps:
        i = one.index
        writer.metric(i, one.seconds, ("a", "b")[i % 2], f"i64:{i:016x}")
        writer.text(i, one.seconds, "t", f"text {i}")
        writer.settings(i, one.optimizer, [(0, "lr", repr(i / 10)), (1, "lr", "1")])
        writer.hole(f"op{i}", "outside")
        writer.step(one)
    writer.digest(len(steps), 0, "ab")
    writer.close()
    return folder / "trace"


def test_a_trace_reads_as_it_was_written(tmp_path: Path) -> None:
    write(tmp_path, STEPS)
    trace = open_trace(tmp_path)
    assert list(trace.steps()) == list(read_steps(tmp_path)) == STEPS
    assert (len(trace), trace.version, trace.sampling) == (11, 2, {"gradients": {"every": 4}})
    assert (trace.step(3), trace.step(-1), list(trace.steps(4, -3))) == (STEPS[3], STEPS[-1], STEPS[4:-3])
    assert list(trace.steps(20)) == list(trace.steps(3, 2)) == []
    with pytest.raises(IndexError):
        trace.step(11)
    assert [e["op"] for e in trace.events("h")] == [f"op{i}" for i in range(11)]
    assert [e["d"] for e in trace.events("b")] == ["ab"]


def test_columns_are_those_of_the_steps(tmp_path: Path) -> None:
    write(tmp_path, STEPS)
    trace = open_trace(tmp_path)
    assert trace.column("seconds").tolist() == [s.seconds for s in STEPS]
    assert trace.column("optimizer").tolist() == [s.optimizer for s in STEPS]
    for name in ("batch", "settings", "parameters", "random"):
        wanted = [struct.unpack("<2Q", bytes.fromhex(getattr(s, name) or "00" * 16)) for s in STEPS]
        assert [tuple(row) for row in trace.column(name).tolist()] == wanted
    for name in ("gradients", "state"):
        steps, words = trace.sampled(name)
        assert steps.tolist() == [1, 5, 9]
        assert [struct.pack("<2Q", *row).hex() for row in words.tolist()] == [
            getattr(STEPS[i], name) for i in (1, 5, 9)
        ]
    last = [s.losses[-1] if s.losses else "" for s in STEPS]
    assert [str(v) for v in trace.column("loss").tolist()] == [str(number(bits)) for bits in last]
    with pytest.raises(ValueError, match="no column 'gradients' of every step"):
        trace.column("gradients")
    with pytest.raises(ValueError, match="'loss' is not sampled"):
        trace.sampled("loss")


def test_what_the_script_said_is_found_by_step(tmp_path: Path) -> None:
    write(tmp_path, STEPS)
    trace = open_trace(tmp_path)
    assert trace.logged(3, 5) == [
        Logged(3, 3 / 8, "b", "i64:0000000000000003"), Logged(4, 4 / 8, "a", "i64:0000000000000004"),
        Logged(3, 3 / 8, "t", text="text 3"), Logged(4, 4 / 8, "t", text="text 4"),
    ]  # fmt: skip
    assert len(trace.logged()) == 22
    metrics = trace.metrics()
    assert metrics["a"].values.tolist() == metrics["a"].steps.tolist() == [0, 2, 4, 6, 8, 10]
    assert metrics["b"].seconds.tolist() == [i / 8 for i in range(1, 11, 2)]
    assert trace.settings(4, 0) == trace.settings(5, 0) == {"lr": "0.4", "1.lr": "1"}
    assert trace.settings(4, 1) == {"lr": "0.3", "1.lr": "1"} and trace.settings(0, 1) == {}


VALUES = [
    ("f32:3f800000", 1.0), ("f64:3ff199999999999a", 1.1), ("f16:7bff", 65504.0), ("bf16:c040", -3.0),
    ("f64:7ff8000000000000", math.nan), ("bf16:7fc0", math.nan), ("f32:ff800000", -math.inf), ("f32:80000000", -0.0),
    ("i64:8000000000000000", -(2.0**63)), ("i64:7fffffffffffffff", 2.0**63), ("i32:ffffffff", -1.0),
    ("i16:8000", -32768.0), ("i8:80", -128.0), ("u8:ff", 255.0), ("bool:01", 1.0), ("f64:0000000000000001", 5e-324),
]  # fmt: skip


@pytest.mark.parametrize(("bits", "value"), VALUES)
def test_bits_of_every_dtype_come_back(tmp_path: Path, bits: str, value: float) -> None:
    assert unpacked(*packed(bits)) == bits
    assert str(number(bits)) == str(value)
    writer = TraceWriter(tmp_path)
    writer.metric(0, 0.0, "x", bits)
    writer.step(Step(0, 0, (bits, bits), ""))
    trace = open_trace(tmp_path)
    assert (trace.logged()[0].bits, trace.step(0).losses) == (bits, (bits, bits))
    assert str(trace.metrics()["x"].values[0]) == str(trace.column("loss")[0]) == str(value)
    writer.close()


@pytest.mark.parametrize("bits", ["f32:3f80", "q32:00000000", "nonsense", "f64:", "xxh3:00", "none:"])
def test_what_is_no_bits_is_not_written(bits: str) -> None:
    with pytest.raises(ValueError, match="no bits"):
        packed(bits)


def test_nothing_written_is_an_empty_trace(tmp_path: Path) -> None:
    trace = open_trace(tmp_path)
    assert (len(trace), list(trace.steps()), trace.metrics(), trace.logged(), list(trace.events("h"))) == (
        0,
        [],
        {},
        [],
        [],
    )
    assert trace.column("loss").shape == (0,) and trace.column("batch").shape == (0, 2)


@pytest.mark.parametrize("name", ["steps", "losses", "gradients", "state"])
def test_a_file_cut_anywhere_leaves_the_steps_before(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, STEPS) / name
    data = path.read_bytes()
    ends, needed = Ends(), []
    for one in STEPS:
        step_bytes(one, ends)
        needed.append({"steps": one.index + 1, **vars(ends)}[name] * {"steps": ROW, **ENTRIES}[name].itemsize)
    for cut in range(0, len(data) + 1, 1 + len(data) // 300):
        path.write_bytes(data[:cut])
        assert list(read_steps(tmp_path)) == STEPS[: sum(length <= cut for length in needed)], cut


def test_what_was_said_survives_a_cut_anywhere(tmp_path: Path) -> None:
    place = write(tmp_path, STEPS)
    for name in ("metrics", "events.jsonl"):
        data = (place / name).read_bytes()
        whole = open_trace(tmp_path).logged()
        for cut in range(0, len(data), 13):
            (place / name).write_bytes(data[:cut])
            trace = open_trace(tmp_path)
            assert list(trace.steps()) == STEPS
            assert [said for said in whole if said in trace.logged()] == trace.logged()
            assert sum(len(m.steps) for m in trace.metrics().values()) == sum(bool(s.bits) for s in trace.logged())
        (place / name).write_bytes(data)


def test_files_cut_together_at_random(tmp_path: Path) -> None:
    place = write(tmp_path, STEPS)
    whole = {name: (place / name).read_bytes() for name in ("steps", *ENTRIES, "events.jsonl")}
    chance = random.Random(1)
    for _ in range(60):
        for name, data in whole.items():
            (place / name).write_bytes(data[: chance.randint(len(data) // 2, len(data))])
        steps = list(read_steps(tmp_path))
        assert steps == STEPS[: len(steps)]


def test_a_tail_that_the_disk_left_empty_is_torn(tmp_path: Path) -> None:
    path = write(tmp_path, STEPS) / "steps"
    data = path.read_bytes()
    for zeros in (1, 112, 500):
        path.write_bytes(data[:-112] + bytes(zeros))
        assert list(read_steps(tmp_path)) == STEPS[:-1]
    path.write_bytes(data[:-60] + bytes(60))
    assert list(read_steps(tmp_path)) == STEPS[:-1]


@pytest.mark.parametrize("name", ["steps", "losses", "gradients", "state", "metrics"])
def test_damage_anywhere_but_at_the_end_is_an_error(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, STEPS) / name
    data = path.read_bytes()
    torn = {"steps": 112, "losses": 2 * 17, "gradients": 0, "state": 0, "metrics": 0}[name]
    whole = list(STEPS), open_trace(tmp_path).logged()
    for place in range(0, len(data) - torn, 5):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :])
        with pytest.raises(RecordError, match="is damaged"):
            trace = open_trace(tmp_path)
            assert (list(trace.steps()), trace.logged()) == whole, place
    path.write_bytes(data)


def test_a_row_in_another_place_is_damage(tmp_path: Path) -> None:
    path = write(tmp_path, [Step(i, 0, (), "") for i in range(5)]) / "steps"
    data = path.read_bytes()
    path.write_bytes(data[:112] + data[224:336] + data[112:224] + data[336:])
    with pytest.raises(RecordError, match="step 1, is damaged"):
        list(read_steps(tmp_path))


@pytest.mark.parametrize(
    ("text", "says"),
    [("{", "is damaged"), ("[]", "is damaged"), ("{}", "is damaged"), ('{"isobit_trace": 3}', "newer version"), (None, "is missing")],
)  # fmt: skip
def test_a_header_that_does_not_fit_is_an_error(tmp_path: Path, text: str | None, says: str) -> None:
    path = write(tmp_path, STEPS) / "header.json"
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    with pytest.raises(RecordError, match=says):
        open_trace(tmp_path)


def test_a_damaged_line_or_a_missing_file_is_an_error(tmp_path: Path) -> None:
    place = write(tmp_path, STEPS)
    lines = (place / "events.jsonl").read_bytes().splitlines(keepends=True)
    (place / "events.jsonl").write_bytes(b"".join([*lines[:2], b"\0\0\n", *lines[3:]]))
    with pytest.raises(RecordError, match="line 3, is damaged"):
        list(open_trace(tmp_path).events("h"))
    (place / "losses").unlink()
    with pytest.raises(RecordError, match="losses is missing"):
        open_trace(tmp_path)


def test_a_trace_is_never_written_over(tmp_path: Path) -> None:
    write(tmp_path, STEPS)
    with pytest.raises(FileExistsError):
        TraceWriter(tmp_path)


def test_the_header_tells_how_to_read_the_files(tmp_path: Path) -> None:
    header = json.loads((write(tmp_path, STEPS) / "header.json").read_text())
    dtypes = {name: np.dtype([tuple(field) for field in fields]) for name, fields in header["columns"].items()}
    assert dtypes == {"steps": ROW, **ENTRIES}
    rows = np.fromfile(tmp_path / "trace" / "steps", dtypes["steps"])
    assert [header["kinds"][k] for k in rows["kind"].tolist()][:3] == ["none", "f32", "f32"]


def read_v1(folder: Path, text: str) -> Trace:
    (folder / "trace.jsonl").write_text('{"isobit_trace":1}\n' + text)
    return open_trace(folder)


def test_version_1_is_read(tmp_path: Path) -> None:
    line: dict[str, Any] = {
        "k": "s",
        "i": 0,
        "o": 1,
        "l": ["f32:00000000", "f64:0000000000000000"],
        "p": "ab" * 16,
        "t": 0.5,
    }
    trace = read_v1(
        tmp_path,
        json.dumps(line, separators=(",", ":"))
        + '\n{"k":"h","op":"x","why":"y"}\n{"k":"n","text":"hello"}\n{"k":"s","i"',
    )
    assert list(trace.steps()) == [Step(0, 1, tuple(line["l"]), "ab" * 16, 0.5)]
    assert [e["op"] for e in trace.events("h")] == ["x"] and [e["text"] for e in trace.events("n")] == ["hello"]
    assert (trace.metrics(), trace.logged(), trace.settings(0, 1)) == ({}, [], {})


@pytest.mark.parametrize("line", ["\0", "[]", '{"k":"s","i":0}', '{"k":"s","i":0,"o":0,"l":["x"],"p":"","t":0}'])
def test_damage_in_version_1_is_an_error(tmp_path: Path, line: str) -> None:
    with pytest.raises(RecordError, match=r"line 2, is damaged"):
        read_v1(tmp_path, line + "\n")
    (tmp_path / "trace.jsonl").write_text('{"isobit_trace":99}\n')
    with pytest.raises(RecordError, match="newer version"):
        open_trace(tmp_path)


def test_the_sample_of_version_2_is_still_read() -> None:
    trace = open_trace(SAMPLES / "v2")
    assert (trace.version, list(trace.steps())) == (2, STEPS)
    assert trace.logged(2, 3) == [Logged(2, 0.25, "a", "i64:0000000000000002"), Logged(2, 0.25, "t", text="text 2")]
    assert trace.settings(4, 0) == {"lr": "0.4", "1.lr": "1"}
    assert [(e["i"], e["o"], e["d"]) for e in trace.events("b")] == [(11, 0, "ab")]


WRITER = """
import itertools, sys
from pathlib import Path
from tests.record.test_trace import step
from isobit.record.trace import TraceWriter
writer = TraceWriter(Path(sys.argv[1]))
for i in itertools.count():
    writer.metric(i, 0.0, f"m{i % 100}", f"i64:{i:016x}")
    writer.step(step(i))
    print(i, flush=True)
"""


def killed(folder: Path, after: float) -> tuple[int, list[Step]]:
    """How many steps a writer said it had written before it was killed, and those that its trace holds."""
    root = Path(__file__).parents[2]
    child = subprocess.Popen(
        [sys.executable, "-c", WRITER, folder],
        cwd=root,
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": f"{root}/src:{root}"},
    )
    assert child.stdout is not None and child.stdout.readline() == b"0\n"
    time.sleep(after)
    child.send_signal(signal.SIGKILL)
    said = child.communicate()[0].rsplit(b"\n", 1)[0].split(b"\n")[-1]
    trace = open_trace(folder)
    assert len(trace.logged()) >= len(trace)
    return int(said or 0) + 1, list(trace.steps())


@pytest.mark.parametrize("after", [0.001, 0.02, 0.1])
def test_a_killed_writer_loses_at_most_the_step_under_way(tmp_path: Path, after: float) -> None:
    said, steps = killed(tmp_path, after)
    assert said <= len(steps) <= said + 1
    assert steps == [step(i) for i in range(len(steps))]


def test_a_million_steps_are_browsed_without_reading_all(tmp_path: Path) -> None:
    count, once = 1_000_000, 1000
    writer = TraceWriter(tmp_path)
    ends, some = Ends(), []
    for i in range(once):
        some.append(step_bytes(Step(i, 0, (f"f32:{i:08x}",), f"{i:032x}", i / 8), ends))
    writer.close()
    rows = b"".join(part["steps"] for part in some)
    with open(tmp_path / "trace" / "steps", "wb") as file:
        for _ in range(count // once - 1):
            file.write(rows)
        last = [step_bytes(Step(i, 0, (), f"{i:032x}"), Ends())["steps"] for i in range(count - once, count)]
        file.write(b"".join(last))
    begin = time.perf_counter()
    trace = open_trace(tmp_path)
    assert (len(trace), trace.step(-1).parameters) == (count, f"{count - 1:032x}")
    opened = time.perf_counter()
    assert [s.index for s in trace.steps(count - 100)] == list(range(count - 100, count))
    ranged = time.perf_counter()
    assert trace.column("loss").shape == (count,)
    whole = time.perf_counter() - ranged
    assert opened - begin < 0.05 and ranged - opened < 0.05 and whole < 2, (opened - begin, ranged - opened, whole)
