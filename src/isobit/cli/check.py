"""``isobit check``: one script side by side under plain PyTorch and under Isobit, over threads and CPU levels."""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from isobit.cli import exits
from isobit.cli.child import run_child
from isobit.cli.output import print_json
from isobit.cli.plan import Plan
from isobit.cli.target import Target
from isobit.record.errors import RecordError
from isobit.record.ids import new_id
from isobit.record.manifest import INTERRUPTED
from isobit.record.trace import Step, read_steps

# Asked in a process of its own: LLVM takes its time to load, and no other command needs it.
_LEVELS = "from isobit.codegen.target import host_levels; print(*host_levels(), sep='\\n')"
_THREADS = (1, 2)
_SHOWN = 12  # hexadecimal digits of a digest
_TAIL = 12  # lines of a failed script's output


@dataclass(frozen=True)
class Setting:
    """One way to run the script; ``cpu`` None for plain PyTorch."""

    threads: int
    cpu: str | None

    @property
    def plain(self) -> bool:
        return self.cpu is None

    def __str__(self) -> str:
        name = "PyTorch" if self.plain else f"Isobit, {self.cpu}"
        return f"{name}, {self.threads} thread{'s' * (self.threads != 1)}"


@dataclass(frozen=True)
class Result:
    """What came of a setting: its steps, the holes it fell into, and what went wrong if anything did."""

    setting: Setting
    steps: tuple[Step, ...]
    holes: tuple[str, ...] = ()
    error: str | None = None

    @property
    def step_seconds(self) -> float | None:
        """The median time from one step to the next over the later half: the first ones compile."""
        times = [step.seconds for step in self.steps]
        between = [after - before for before, after in pairwise(times)]
        return median(between[len(between) // 2 :]) if between else None


def check(target: Target, args: Sequence[str], steps: int, seed: int, plain_only: bool, as_json: bool = False) -> int:
    """Run the first `steps` steps in every setting and print the comparison.

    Returns 0 if all of Isobit's digests agree, 1 if they do not, 2 if a setting failed, 130 after Ctrl-C.
    `plain_only` leaves Isobit out and judges plain PyTorch in its place; `as_json` prints one object instead.
    """
    results = []
    console = Console(highlight=False, stderr=as_json)
    with tempfile.TemporaryDirectory(prefix="isobit-check-") as home:
        for setting in _settings(plain_only):
            with console.status(f"{escape(str(setting))} …"):
                plan = _plan(target, args, steps, seed, setting, home)
                result = _run(plan, setting)
            if result is None:
                console.print("interrupted", style="yellow")
                return exits.INTERRUPTED
            results.append(result)
    judged = [r for r in results if plain_only or not r.setting.plain]
    if as_json:
        print_json(_object(results, judged))
    else:
        _report(console, results)
        _print_verdict(console, results, judged)
    return _exit_code(results, judged)


def _settings(plain_only: bool) -> list[Setting]:
    """Plain PyTorch and Isobit's best level in turn, then the lower levels."""
    plain = [Setting(threads, None) for threads in _THREADS]
    if plain_only:
        return plain
    best, *lower = _host_levels()
    exact = [Setting(threads, best) for threads in _THREADS]
    return [s for pair in zip(plain, exact, strict=True) for s in pair] + [
        Setting(_THREADS[-1], level) for level in lower
    ]


def _host_levels() -> list[str]:
    done = subprocess.run([sys.executable, "-c", _LEVELS], capture_output=True, text=True)
    levels = done.stdout.split()
    if done.returncode != 0 or not levels:
        raise RecordError(f"Isobit knows no CPU level of this machine\n{done.stderr}".rstrip())
    return levels


def _plan(target: Target, args: Sequence[str], steps: int, seed: int, setting: Setting, home: str) -> Plan:
    return Plan(
        script=target.script,
        argv0=target.argv0,
        module=target.module,
        args=tuple(args),
        command=("isobit", *sys.argv[1:]),
        home=home,
        seed=seed,
        threads=setting.threads,
        cpu=setting.cpu,
        plain=setting.plain,
        steps=steps,
        quiet=True,
        run_id=new_id(time.time_ns()),
    )


def _run(plan: Plan, setting: Setting) -> Result | None:
    """What came of `setting`; None if it was interrupted."""
    with tempfile.TemporaryFile() as output:
        code, run = run_child(plan, Path.cwd(), output)
        output.seek(0)
        tail = "\n".join(output.read().decode("utf-8", "replace").splitlines()[-_TAIL:])
    if code in (-signal.SIGINT, -signal.SIGTERM) or (run is not None and run.status == INTERRUPTED):
        return None
    if run is None or run.status not in ("stopped", "finished"):
        return Result(setting, (), error=f"exit code {code}\n{tail}")
    steps = tuple(read_steps(run.folder))
    error = None if steps else "no optimizer made a step"
    return Result(setting, steps, tuple(hole.operator for hole in run.manifest.holes), error)


def first_difference(results: Sequence[Result]) -> int | None:
    """The first step, counted from 0, at which not all agree in losses and parameters; None if they do."""
    traces = [[(s.optimizer, s.losses, s.parameters) for s in r.steps] for r in results]
    longest = max((len(trace) for trace in traces), default=0)
    return next((i for i in range(longest) if any(t[i : i + 1] != traces[0][i : i + 1] for t in traces)), None)


def _report(console: Console, results: Sequence[Result]) -> None:
    parts = first_difference([r for r in results if r.error is None])
    last = max((len(r.steps) for r in results), default=0) - 1
    shown = last if parts is None else parts
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("setting", no_wrap=True)
    for index in dict.fromkeys((shown, last)):
        table.add_column(f"digest, step {index}", no_wrap=True)
    table.add_column("ms a step*", justify="right", no_wrap=True)
    table.add_column("ratio", justify="right", no_wrap=True)
    for result in results:
        table.add_row(*_row(result, list(dict.fromkeys((shown, last))), results))
    console.print(table)
    console.print("* median of the later half of the steps: the first ones compile", style="dim")
    for result in results:
        if result.error is not None:
            console.print(f"\n{result.setting}: {result.error}", style="red", markup=False)


def _row(result: Result, shown: Sequence[int], results: Sequence[Result]) -> tuple[str, ...]:
    """A line of the table: setting, digests at the steps `shown`, median step time, ratio to plain PyTorch's."""
    if result.error is not None:
        return str(result.setting), "[red]failed[/]"
    seconds, ratio = result.step_seconds, _ratio(result, results)
    return (
        str(result.setting),
        *(_digest(result, index) for index in shown),
        "" if seconds is None else f"{1e3 * seconds:.2f}",
        "" if ratio is None else f"{ratio:.2f}",
    )


def _digest(result: Result, index: int) -> str:
    return result.steps[index].parameters[:_SHOWN] if index < len(result.steps) else "none"


def _ratio(result: Result, results: Sequence[Result]) -> float | None:
    """Time against plain PyTorch on as many threads."""
    same = [r for r in results if r.setting.plain and r.setting.threads == result.setting.threads]
    ours, theirs = result.step_seconds, same[0].step_seconds if same else None
    return ours / theirs if ours is not None and theirs else None


def _exit_code(results: Sequence[Result], judged: Sequence[Result]) -> int:
    if any(r.error is not None for r in results):
        return exits.NO_VERDICT
    return exits.OK if first_difference(judged) is None else exits.DIFFERS


def _object(results: Sequence[Result], judged: Sequence[Result]) -> dict[str, Any]:
    """The comparison as JSON has it: settings with their steps, and where they part."""
    code = _exit_code(results, judged)
    plain = [r for r in results if r.setting.plain]
    verdict = {exits.OK: "identical", exits.DIFFERS: "differs"}.get(code, "none")
    return {
        "verdict": verdict,
        "judged": "PyTorch" if list(judged) == plain else "Isobit",
        "first_difference": first_difference(judged) if code != exits.NO_VERDICT else None,
        "first_difference_of_pytorch": first_difference([r for r in plain if r.error is None]),
        "first_difference_of_pytorch_and_isobit": _first_between(results),
        "holes": sorted({hole for r in judged for hole in r.holes}),
        "settings": [_result_object(result, results) for result in results],
    }


def _result_object(result: Result, results: Sequence[Result]) -> dict[str, Any]:
    return {
        "arithmetic": "PyTorch" if result.setting.plain else "Isobit",
        **dataclasses.asdict(result.setting),
        "digests": [step.parameters for step in result.steps],
        "losses": [list(step.losses) for step in result.steps],
        "seconds_a_step": result.step_seconds,
        "ratio_to_pytorch": _ratio(result, results),
        "holes": list(result.holes),
        "error": result.error,
    }


def _first_between(results: Sequence[Result]) -> int | None:
    """The first step at which Isobit is not where plain PyTorch on as many threads is; None if nowhere, or unknown."""
    sound = [r for r in results if r.error is None]
    pairs = [
        (theirs, ours)
        for theirs in sound
        for ours in sound
        if theirs.setting.plain and not ours.setting.plain and theirs.setting.threads == ours.setting.threads
    ]
    return min((step for step in map(first_difference, pairs) if step is not None), default=None)


def _print_verdict(console: Console, results: Sequence[Result], judged: Sequence[Result]) -> None:
    """Print what it comes to, the verdict last."""
    plain = [r for r in results if r.setting.plain and r.error is None]
    if any(r.error is not None for r in results):
        console.print("no verdict: not every setting ran", style="yellow")
        return
    if judged != plain:
        if len(plain) > 1:
            console.print(_says("Plain PyTorch", plain), style="dim")
        console.print(_between(results), style="dim")
    for hole in sorted({hole for r in judged for hole in r.holes}):
        console.print(f"hole: {hole}", style="yellow", markup=False)
    name = "Plain PyTorch" if judged == plain else "Isobit"
    console.print(_says(name, judged), style="green" if first_difference(judged) is None else "red")


def _between(results: Sequence[Result]) -> str:
    step = _first_between(results)
    if step is None:
        return "Plain PyTorch and Isobit: the same bits on as many threads"
    return f"Plain PyTorch and Isobit: part from one another at step {step}; each sums in an order of its own"


def _says(name: str, results: Sequence[Result]) -> str:
    parts, steps = first_difference(results), len(results[0].steps)
    if parts is None:
        return f"{name}: one digest in {len(results)} settings over {steps} step{'s' * (steps != 1)}"
    return f"{name}: parts at step {parts} (counted from 0)"
