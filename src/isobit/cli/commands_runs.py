"""The commands that run scripts: run, replay, check."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from isobit.cli.check import check as side_by_side
from isobit.cli.options import Args, Cpu, Module, Plain, RunName, Script, Seed, Strict, Threads, store_here
from isobit.cli.plan import Plan, become
from isobit.cli.replay import RECORD, How
from isobit.cli.replay import replay as run_again
from isobit.cli.target import target_of
from isobit.record.resolve import resolve


def run(
    script: Script,
    args: Args = None,
    threads: Threads = None,
    cpu: Cpu = None,
    strict: Strict = False,
    seed: Seed = 0,
    plain: Plain = False,
    module: Module = False,
    keep_checkpoints: Annotated[bool, typer.Option(help="Keep every isobit.Checkpoint in the record.")] = False,
) -> None:
    """Run a script with one result on every thread count and CPU, and record it."""
    target = target_of(script, module)
    become(
        Plan(
            script=target.script,
            argv0=target.argv0,
            module=target.module,
            args=tuple(args or ()),
            command=("isobit", *sys.argv[1:]),
            home=str(store_here().home),
            seed=seed,
            threads=threads,
            cpu=cpu,
            strict=strict,
            plain=plain,
            keep_checkpoints=keep_checkpoints,
        )
    )


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
) -> None:
    """Run a record again: identical (exit 0), or the first step that differs (exit 1)."""
    store = store_here()
    raise typer.Exit(run_again(store, resolve(store, run), How(threads, cpu, code, keep_going, op_level, sample)))


def check(
    script: Script,
    args: Args = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps to compare; may also stand right after SCRIPT.")] = 10,
    seed: Seed = 0,
    plain: Plain = False,
    module: Module = False,
) -> None:
    """Run a script side by side under plain PyTorch and under Isobit, over threads and CPU levels."""
    steps, rest = _steps_after_script(steps, args or [])
    raise typer.Exit(side_by_side(target_of(script, module), rest, steps, seed, plain))


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
