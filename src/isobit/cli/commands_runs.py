"""The commands that run scripts: run, replay, check."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from isobit.cli.check import check as side_by_side
from isobit.cli.options import Args, AsJson, Cpu, Module, Plain, RunName, Script, Seed, Strict, Threads, store_here
from isobit.cli.output import errors
from isobit.cli.plan import RECORD, Plan, become
from isobit.cli.replay import How
from isobit.cli.replay import replay as run_again
from isobit.cli.sinks.observer import check_sinks
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
    env: Annotated[
        list[str] | None, typer.Option("--env", metavar="NAME", help="Record this variable's value as well.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No lines of Isobit's own but errors.")] = False,
    no_live: Annotated[bool, typer.Option("--no-live", help="No live line on the terminal's last row.")] = False,
    mlflow: Annotated[str | None, typer.Option(metavar="URI", help="Write to this MLflow tracking server too.")] = None,
    tensorboard: Annotated[Path | None, typer.Option(metavar="DIR", help="Write TensorBoard events there too.")] = None,
) -> None:
    """Run a script with one result on every thread count and CPU, and record it."""
    check_sinks(mlflow, tensorboard)
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
            shown=tuple(env or ()),
            quiet=quiet,
            live=not no_live,
            mlflow=mlflow,
            tensorboard=None if tensorboard is None else str(tensorboard),
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
