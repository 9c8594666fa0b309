"""The commands that run scripts to judge them: replay, check."""

from __future__ import annotations

from typing import Annotated

import typer

from isobit.cli.check import check as side_by_side
from isobit.cli.options import Args, AsJson, Cpu, Module, Plain, RunName, Script, Seed, Threads, store_here
from isobit.cli.output import errors
from isobit.cli.plan import RECORD
from isobit.cli.replay import How
from isobit.cli.replay import replay as run_again
from isobit.cli.target import target_of
from isobit.record.resolve import resolve


def replay(
    run: RunName,
    threads: Threads = None,
    cpu: Cpu = None,
    code: Annotated[
        str,
        typer.Option(metavar="PATH|current", help="Run other code than the recorded: a folder, or today's files."),
    ] = RECORD,
    keep_going: Annotated[bool, typer.Option("--keep-going", help="Past the first difference, to the end.")] = False,
    op_level: Annotated[bool, typer.Option("--op-level", help="Where it differs: name the first operator.")] = False,
    sample: Annotated[int | None, typer.Option(min=1, help="Only so many segments between checkpoints.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run a record again: identical (exit 0), or the first step that differs (exit 1)."""
    with errors(as_json):
        store = store_here()
        how = How(threads, cpu, code, keep_going, op_level, sample)
        raise typer.Exit(run_again(store, resolve(store, run), how, as_json))


def check(
    script: Script,
    args: Args = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps to compare; may also stand right after SCRIPT.")] = 10,
    seed: Seed = 0,
    plain: Plain = False,
    as_json: AsJson = False,
    module: Module = False,
) -> None:
    """Run a script side by side under plain PyTorch and under Isobit, over threads and CPU levels."""
    steps, rest = _steps_after_script(steps, args or [])
    with errors(as_json):
        raise typer.Exit(side_by_side(target_of(script, module), rest, steps, seed, plain, as_json))


def _steps_after_script(steps: int, args: list[str]) -> tuple[int, list[str]]:
    """`check SCRIPT --steps N ARGS…`: what stands right after SCRIPT is ours, unless `--` does."""
    match args:
        case ["--", *rest]:
            return steps, rest
        case ["--steps", number, *rest] if number.isdecimal() and int(number) > 0:
            return int(number), rest
        case [first, *rest] if first.startswith("--steps="):
            return _steps_after_script(steps, ["--steps", first.removeprefix("--steps="), *rest])
        case ["--steps", *_]:
            raise typer.BadParameter("--steps takes a number of at least 1")
        case _:
            return steps, args
