"""A store of many recorded runs, as months of work leave one behind: for measuring what looks at all of them."""

from __future__ import annotations

import json
import os
import platform
import random
from dataclasses import asdict
from pathlib import Path

from isobit.record.ids import new_id
from isobit.record.manifest import Code, Machine, Manifest, Settings
from isobit.record.process import Process
from isobit.record.trace import Step, TraceWriter

STEPS = 20
_FIRST_NS = 1_790_000_000 * 10**9
_MINUTE_NS = 60 * 10**9


def make_records(home: Path, count: int, killed: int) -> None:
    """Write `count` runs below `home`, of which `killed`, spread evenly, never closed their record."""
    generator = random.Random(0)
    runs = home / ".isobit" / "runs"
    runs.mkdir(parents=True)
    trace = _trace(home)
    template = asdict(_manifest())
    for number in range(count):
        run_id = new_id(_FIRST_NS + number * _MINUTE_NS)
        (runs / run_id / "trace").mkdir(parents=True)
        data = template | {"id": run_id, "args": ["--lr", f"{number / 1000}"], "seconds": number / 7}
        data["status"] = generator.choice(["finished"] * 8 + ["failed", "interrupted"])
        if number * killed // count != (number + 1) * killed // count:
            data |= {"status": "running", "ended": None, "steps": None, "seconds": None, "exit_code": None}
        (runs / run_id / "manifest.json").write_text(json.dumps(data, indent=1))
        for name, content in trace.items():
            (runs / run_id / "trace" / name).write_bytes(content)


def _trace(home: Path) -> dict[str, bytes]:
    """The files of a trace."""
    writer = TraceWriter(home)
    for index in range(STEPS):
        writer.step(Step(index, 0, (f"f32:3f{index:06x}",), f"{index:032x}", index / 10))
    writer.close()
    files = {path.name: path.read_bytes() for path in (home / "trace").iterdir()}
    (home / "trace").rename(home / "trace-of-all")
    return files


def _manifest() -> Manifest:
    """What all of the runs have in common; as large as that of a project of some size."""
    return Manifest(
        id="",
        status="finished",
        command=("isobit", "run", "train.py"),
        script="train.py",
        args=(),
        cwd="/home/u/p",
        settings=Settings("exact", 0, "0", threads=2, cpu="x86-64-v3"),
        process=Process(2**22 + 1, 1, "", platform.node()),
        started="2026-11-30T18:42:07.120+00:00",
        ended="2026-11-30T18:52:07.120+00:00",
        exit_code=0,
        steps=STEPS,
        code=Code("/home/u/p/train.py"),
        machine=Machine(platform.system(), "x", os.cpu_count() or 1, 1, platform.python_version()),
        packages={f"package-number-{n}": f"1.{n}.0" for n in range(120)},
    )
