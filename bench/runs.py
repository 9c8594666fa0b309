"""python -m bench.runs [COUNT]: how long `isobit runs` takes in a store of so many runs, its index warm, and `show`.

By turns with a Python that does nothing: what slows the machine down slows both.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from bench.commands import by_turns, isobit
from bench.records import make_records

GOAL = 1.0  # seconds on the clock for 10,000 runs


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "isobit --version": isobit("--version"),
        f"isobit runs, {count:,} runs": isobit("runs"),
        "isobit runs -n 30": isobit("runs", "-n", "30"),
        "isobit show latest": isobit("show", "latest"),
    }
    with tempfile.TemporaryDirectory() as folder:
        make_records(Path(folder), count, killed=count // 50)
        print(f"load average {os.getloadavg()[0]:.1f}; by turns, medians; goal {GOAL} s on the clock for 10,000")
        for name, (cpu, wall) in by_turns(commands, Path(folder), rounds=9).items():
            print(f"{name:28s} {cpu:6.2f} s of the CPU {wall:6.2f} s on the clock")


if __name__ == "__main__":
    main()
