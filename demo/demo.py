"""What Isobit is for, in four steps, each measured on this machine while you watch.

    make demo

The script that is trained, examples/digits_cnn.py, is plain PyTorch and the same file throughout. This
program only starts other programs and compares what they print or recorded; its exit status is 1 if
anything that Isobit promises did not happen.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from rich.console import Console

from isobit.codegen.target import host_levels
from isobit.record.trace import read_steps

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SCRIPT = "examples/digits_cnn.py"
EPOCHS = "2"
SHOWN = 4  # steps printed of each trace
console = Console(highlight=False, soft_wrap=True)


@dataclass(frozen=True)
class Ran:
    """A finished program: what it printed, and how long it took."""

    out: str
    err: str
    status: int
    seconds: float


def start(*argv: str | Path, may_fail: bool = False) -> Ran:
    """Run a Python program to its end; on failure show what it said and stop, unless it may fail."""
    begun = time.perf_counter()
    done = subprocess.run([sys.executable, *map(str, argv)], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0 and not may_fail:
        console.print(f"failed: {' '.join(map(str, argv))}", style="red", markup=False)
        console.print(done.stdout + done.stderr, markup=False)
        sys.exit(1)
    return Ran(done.stdout, done.stderr, done.returncode, time.perf_counter() - begun)


def isobit(*argv: str | Path, may_fail: bool = False) -> Ran:
    """The `isobit` command."""
    console.print(f"   $ isobit {' '.join(map(str, argv))}", style="dim")
    return start("-m", "isobit", *argv, may_fail=may_fail)


def title(text: str) -> None:
    console.print(f"\n[bold]{text}[/]")


def first_difference(a: Sequence[str], b: Sequence[str]) -> int | None:
    """The first step, counted from 0, at which two traces differ; None if they are equal."""
    pairs = zip_longest(a, b)
    return next((n for n, (x, y) in enumerate(pairs) if x != y), None)


def show_side_by_side(a: Sequence[str], b: Sequence[str]) -> None:
    """The first digests of two traces, for 1 and 2 threads."""
    console.print("   step   1 thread           2 threads", style="dim")
    for n, (x, y) in enumerate(zip(a[:SHOWN], b[:SHOWN], strict=True)):
        mark = "" if x == y else "   [red]differs[/]"
        console.print(f"   {n:4d}   {x:16s}   {y:16s}{mark}")
    console.print(f"    ...   ({len(a)} steps)", style="dim")


def plain_trace(threads: int) -> list[str]:
    """Digests of the parameters after every step under plain PyTorch."""
    ran = start(HERE / "plain_steps.py", str(threads), SCRIPT, "--epochs", "1")
    return [line.split()[1] for line in ran.err.splitlines() if line.startswith("step ")]


def plain_pytorch() -> None:
    title("1  Plain PyTorch trains one network twice: same seed, same data, same machine")
    one, two = plain_trace(1), plain_trace(2)
    show_side_by_side(one, two)
    step = first_difference(one, two)
    if step is None:
        console.print(f"   On this machine they did not part within {len(one)} steps.")
    else:
        end = "and the trained networks differ" if one[-1] != two[-1] else "and meet again by the last step"
        console.print(f"   They part at step {step}, {end}.")


def record(threads: int, save: Path) -> list[str]:
    """Train under Isobit; the recorded digests of the parameters after every step."""
    ran = isobit("run", "--threads", str(threads), SCRIPT, "--epochs", EPOCHS, "--save", save)
    shown = json.loads(start("-m", "isobit", "show", "latest", "--json").out)
    console.print(f"   {ran.seconds:.1f} s, run {shown['id']}", style="dim")
    return [step.parameters[:16] for step in read_steps(ROOT / ".isobit" / "runs" / shown["id"])]


def one_digest(save: Path) -> bool:
    title("2  The same script under Isobit, recorded")
    one, two = record(1, save), record(2, save)
    show_side_by_side(one, two)
    step = first_difference(one, two)
    if step is not None or not one:
        console.print(f"   [red]They part at step {step}: this is a bug in Isobit.[/]")
        return False
    console.print(f"   [green]One digest[/] at each of {len(one)} steps.")
    return True


def replay() -> bool:
    levels = host_levels()
    lower = levels[1] if len(levels) > 1 else levels[0]
    title(f"3  Replayed from its record, with 3 threads and CPU level {lower} (recorded with {levels[0]})")
    ran = isobit("replay", "latest", "--threads", "3", "--cpu", lower, may_fail=True)
    colour = "green" if ran.status == 0 else "red"
    verdict = (ran.out.strip() or ran.err.strip()).splitlines()[-1]
    console.print(f"   {ran.seconds:.1f} s, exit status {ran.status}:", style="dim")
    console.print(f"   {verdict}", style=colour, markup=False)
    return ran.status == 0


def without_pytorch(save: Path, folder: Path) -> bool:
    title("4  Exported, and loaded by a process that cannot import PyTorch")
    inside = start(HERE / "export_digits.py", save, folder).out.split()[-1]
    outside = start(HERE / "predict_without_torch.py", folder).out.split()[-1]
    size = (folder / "digits.iso").stat().st_size
    console.print(f"   predictions, PyTorch under Isobit:      {inside}")
    console.print(f"   predictions, digits.iso ({size >> 10} KiB) alone: {outside}")
    same = inside == outside
    console.print("   [green]The same bits.[/]" if same else "   [red]They differ: this is a bug in Isobit.[/]")
    return same


def main() -> int:
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save = folder / "digits.pt"
        plain_pytorch()
        kept = [one_digest(save), replay(), without_pytorch(save, folder)]
    console.print(f"\n   {time.perf_counter() - begun:.0f} s in all. The runs are kept: isobit runs", style="dim")
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
