"""The ``isobit`` command."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from isobit.cli import views
from isobit.cli.check import check as side_by_side
from isobit.cli.plan import Plan, become
from isobit.cli.replay import RECORD
from isobit.cli.replay import replay as run_again
from isobit.record.bundle import write_bundle
from isobit.record.errors import RecordError
from isobit.record.resolve import resolve
from isobit.record.store import Store

USAGE = 2
_SCRIPT_FIRST = {"allow_interspersed_args": False}  # what follows SCRIPT is the script's

app = typer.Typer(
    help="PyTorch, bit for bit: run a script, record it, replay it, judge it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Threads = Annotated[int | None, typer.Option(min=1, help="Threads to compute with; never changes a bit.")]
Cpu = Annotated[str | None, typer.Option(help="CPU level, such as x86-64-v3; never changes a bit.")]
Plain = Annotated[bool, typer.Option("--plain", hidden=True, help="PyTorch's own kernels.")]
Strict = Annotated[bool, typer.Option("--strict", help="A hole in the arithmetic is an error.")]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seeds every generator before the script's first line.")]
Script = Annotated[Path, typer.Argument(metavar="SCRIPT", help="The Python file to run, unchanged.")]
Args = Annotated[list[str] | None, typer.Argument(metavar="[ARGS]...", help="Passed to the script as they are.")]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="An id, a unique prefix, latest, latest~1, a bundle file.")]


@app.command(context_settings=_SCRIPT_FIRST)
def run(
    script: Script,
    args: Args = None,
    threads: Threads = None,
    cpu: Cpu = None,
    strict: Strict = False,
    seed: Seed = 0,
    plain: Plain = False,
) -> None:
    """Run a script with one result on every thread count and CPU, and record it."""
    become(
        Plan(
            script=_script_path(script),
            argv0=str(script),
            args=tuple(args or ()),
            command=("isobit", *sys.argv[1:]),
            home=str(_store().home),
            seed=seed,
            threads=threads,
            cpu=cpu,
            strict=strict,
            plain=plain,
        )
    )


@app.command()
def replay(
    run: RunName,
    threads: Threads = None,
    cpu: Cpu = None,
    code: Annotated[
        str,
        typer.Option(metavar="PATH|current", help="Run other code than the recorded: a folder, or today's files."),
    ] = RECORD,
) -> None:
    """Run a record again: identical (exit 0), or the first step that differs (exit 1)."""
    store = _store()
    raise typer.Exit(run_again(store, resolve(store, run), threads, cpu, code))


@app.command(context_settings=_SCRIPT_FIRST)
def check(
    script: Script,
    args: Args = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps to compare; may also stand right after SCRIPT.")] = 10,
    seed: Seed = 0,
    plain: Plain = False,
) -> None:
    """Run a script side by side under plain PyTorch and under Isobit, over threads and CPU levels."""
    steps, rest = _steps_after_script(steps, args or [])
    raise typer.Exit(side_by_side(_script_path(script), str(script), rest, steps, seed, plain))


@app.command()
def runs() -> None:
    """List the recorded runs, newest last."""
    views.show_runs(_store())


@app.command()
def show(run: RunName, as_json: Annotated[bool, typer.Option("--json", help="The manifest as JSON.")] = False) -> None:
    """Show what a record says."""
    found = resolve(_store(), run)
    (views.print_json if as_json else views.show_run)(found)


@app.command()
def bundle(
    run: RunName,
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write.")],
) -> None:
    """Put a run into one file, which `show` and `replay` take in place of an id."""
    write_bundle(resolve(_store(), run), output)


def main() -> None:
    """The entry point: reads the command line, exits 2 with one line where it or a record is wrong."""
    try:
        app(prog_name="isobit")
    except RecordError as error:
        print(f"isobit: {error}", file=sys.stderr)
        sys.exit(USAGE)


def _store() -> Store:
    return Store.find(Path.cwd())


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


def _script_path(script: Path) -> str:
    """The absolute path, symbolic links kept, as Python's ``__file__`` has it."""
    path = os.path.abspath(script)
    if not os.path.isfile(path):
        raise RecordError(f"there is no script {str(script)!r}")
    return path


if __name__ == "__main__":
    main()
