"""The command that runs a script: run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from isobit.cli.options import Args, Cpu, Module, Plain, Script, Seed, Strict, Threads, store_here
from isobit.cli.plan import Plan, become
from isobit.cli.sinks.observer import check_sinks
from isobit.cli.target import target_of


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
