"""``isobit replay``: runs a record again and says whether the bits are the same."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from isobit.cli import exits
from isobit.cli.child import run_child
from isobit.cli.opening import redactions
from isobit.cli.oplevel import operator_parting
from isobit.cli.output import print_json
from isobit.cli.plan import RECORD, Plan, process_environment
from isobit.cli.sample import replay_segments
from isobit.cli.stdin import NAME as STDIN
from isobit.record.code_files import held_paths, recorded_code, script_root
from isobit.record.compare import with_causes
from isobit.record.data_differences import change_words
from isobit.record.inputs import changed_inputs
from isobit.record.manifest import INTERRUPTED, Manifest, Verdict
from isobit.record.parting import LENGTH, PARTS
from isobit.record.precheck import changed_code, changed_surroundings
from isobit.record.replay import DIFFERS, IDENTICAL, NONE
from isobit.record.store import Run, Store
from isobit.record.surrounding_differences import package_differences
from isobit.record.workcopy import Mirror, code_in, working_copy

CURRENT = "current"
_SAID_BEFORE = 8  # lines on each of what has changed
_NAMED = 3  # files in a line
_STDERR = 2
_EXIT = {IDENTICAL: exits.OK, DIFFERS: exits.DIFFERS}


@dataclass(frozen=True)
class How:
    """How to replay. `code` is "record" for the recorded code, "current" for today's files in the same place, or
    another folder with the same files. `op_level`: find the first operator that differs, too. `sample`: only so many
    segments between checkpoints.
    """

    threads: int | None = None
    cpu: str | None = None
    code: str = RECORD
    keep_going: bool = False
    op_level: bool = False
    sample: int | None = None


def replay(store: Store, run: Run, how: How, as_json: bool = False) -> int:
    """Replay `run` and print the verdict; returns the exit code: 0 identical, 1 differs, 2 no verdict.

    With `as_json` the verdict is an object and alone on stdout: what the script prints goes to stderr. Raises
    RecordError if the record does not hold what a replay needs.
    """
    operator = None
    with _code(run, how.code) as code:
        plan = _plan(store, run, code, how)
        _say_before(store, run, plan, code.mirror.hidden if code.mirror else ())
        if how.sample is not None:
            return replay_segments(run, plan, code.folder, how.sample, as_json)
        status, made = run_child(plan, code.folder, stdout=_STDERR if as_json else None)
        if made is not None and _verdict_of(made) is not None:
            made = with_causes(run, made)
        judged = _judged(made, status)
        if not as_json:
            _print(judged, run.manifest, made.manifest if made and _verdict_of(made) else None)
        if how.op_level and judged.step is not None:
            operator = _first_operator(store, run, (plan, code.folder), judged.step)
            if not as_json:
                Console(highlight=False).print(f"first operator: {operator}", markup=False, soft_wrap=True)
    if as_json:
        print_json(_object(judged, run.manifest, made.manifest if made else None) | {"first_operator": operator})
    if made is not None and made.status == INTERRUPTED:
        return exits.INTERRUPTED
    return _EXIT.get(judged.outcome, exits.NO_VERDICT)


def _say_before(store: Store, run: Run, plan: Plan, hidden: Sequence[str]) -> None:
    """What is not as it was recorded, before any time is spent. Data that the record holds comes from it."""
    recorded = plan.replay_code == RECORD
    held = held_paths(run) if recorded else frozenset()
    lines = [f"data: {line}" for line in change_words([c for c in changed_inputs(run) if c.path not in held])]
    lines += _few([f"since then: {text}" for text in changed_surroundings(run, store, process_environment(plan))])
    if recorded:
        lines += redactions(run)
        lines += _left_alone(hidden)
    else:
        root = script_root(run) if plan.replay_code == CURRENT else os.path.abspath(plan.replay_code)
        lines += _few([f"code: {text}" for text in changed_code(run, Path(root))])
    for line in lines:
        print(f"isobit: {line}", file=sys.stderr, flush=True)


def _left_alone(hidden: Sequence[str]) -> list[str]:
    """What the replay neither sees nor overwrites."""
    more = f" and {len(hidden) - _NAMED} more" if len(hidden) > _NAMED else ""
    names = ", ".join(hidden[:_NAMED])
    return [f"written since the run began, so not shown to the replay: {names}{more}"] if hidden else []


def _few(lines: list[str]) -> list[str]:
    rest = len(lines) - _SAID_BEFORE
    return [*lines[:_SAID_BEFORE], f"and {rest} more"] if rest > 0 else lines


def _first_operator(store: Store, run: Run, replayed: tuple[Plan, Path], step: int) -> str:
    """The first operator at which the replay's code and conditions part from the recorded ones."""
    plan, folder = replayed
    with _code(run, RECORD) as code:
        recorded = _plan(store, run, code, How())
        return operator_parting(recorded, plan, (code.folder, folder), step)


def _verdict_of(made: Run) -> Verdict | None:
    return made.manifest.replay.verdict if made.manifest.replay is not None else None


def _judged(made: Run | None, status: int) -> Verdict:
    """The replay's verdict, or why there is none."""
    if made is None:
        return Verdict(NONE, 0, f"the replay ended with exit code {status} before it had a record")
    why = f"the replay {made.manifest.id} was {made.status} (exit code {status})"
    return _verdict_of(made) or Verdict(NONE, 0, why)


def _object(verdict: Verdict, recorded: Manifest, made: Manifest | None) -> dict[str, Any]:
    """The verdict as JSON has it."""
    pair = (recorded, made or recorded)
    return {
        "verdict": dataclasses.asdict(verdict),
        "recorded": _side(recorded),
        "replayed": _side(made) if made else None,
        "holes": _holes(*pair),
        "package_changes": [d.text for d in package_differences(recorded.packages, pair[1].packages)],
    }


def _side(manifest: Manifest) -> dict[str, Any]:
    return {"run": manifest.id, "status": manifest.status, "settings": dataclasses.asdict(manifest.settings)}


@dataclass(frozen=True)
class _Code:
    """What to run, and where: the script, as it names itself, folders for sys.path, the folder to start in."""

    script: str
    argv0: str
    paths: tuple[str, ...]
    folder: Path
    mirror: Mirror | None = None


@contextmanager
def _code(run: Run, code: str) -> Iterator[_Code]:
    """The code to run: recorded, as it is today, or that of a folder."""
    recorded, manifest = recorded_code(run), run.manifest
    if code == RECORD:
        mirror = working_copy(run)
        try:
            where = mirror.where
            paths = tuple(where(path) for path in recorded.paths)
            script, argv0 = mirror.map(recorded.script), where(manifest.script)
            yield _Code(script, argv0, paths, _folder(manifest, mirror), mirror)
        finally:
            mirror.remove()
        return
    root = script_root(run)
    place = root if code == CURRENT else os.path.abspath(code)
    script = code_in(Path(place), run)
    paths = tuple(place + path[len(root) :] if f"{path}/".startswith(f"{root}/") else path for path in recorded.paths)
    yield _Code(script, manifest.script, paths, _folder(manifest))


def _plan(store: Store, run: Run, code: _Code, how: How) -> Plan:
    manifest, settings = run.manifest, run.manifest.settings
    return Plan(
        script=code.script,
        argv0=code.argv0,
        args=manifest.args,
        command=("isobit", *sys.argv[1:]),
        home=str(store.home),
        seed=settings.seed,
        threads=settings.asked_threads if how.threads is None else how.threads,
        cpu=settings.asked_cpu if how.cpu is None else how.cpu,
        strict=settings.strict,
        plain=settings.mode == "plain",
        steps=settings.steps,
        run_id=store.new_id(),
        mirror=str(code.mirror.root) if code.mirror else None,
        mirrored=code.mirror.trees if code.mirror else (),
        paths=code.paths,
        replay_folder=str(run.folder),
        replay_of=manifest.id,
        replay_code=how.code,
        keep_going=how.keep_going,
        live=True,
        module=manifest.module,
        stdin=str(run.folder / STDIN) if (run.folder / STDIN).exists() else None,
        pins=settings.pins,
    )


def _folder(manifest: Manifest, mirror: Mirror | None = None) -> Path:
    """The folder to run in, so that the script finds its data: the mirror's where the run worked in a recorded tree, or
    in a folder that is not here; else the same one, or the present one, with a word.
    """
    folder = Path(manifest.cwd)
    if mirror is not None and (mirror.holds(manifest.cwd) or not folder.is_dir()):
        copy = Path(mirror.map(manifest.cwd))
        copy.mkdir(parents=True, exist_ok=True)
        return copy
    if folder.is_dir():
        return folder
    print(f"isobit: {folder}, where the run took place, is not here: replaying in {Path.cwd()}", file=sys.stderr)
    return Path.cwd()


def _print(verdict: Verdict, recorded: Manifest, made: Manifest | None) -> None:
    """Where the two runs took place, their holes, and last the verdict in one line."""
    console = Console(highlight=False)
    if made is None:
        console.print(f"no verdict: {verdict.text}", style="yellow", markup=False, soft_wrap=True)
        return
    lines = [f"recorded {recorded.id}: {_conditions(recorded)}", f"replayed {made.id}: {_conditions(made)}"]
    lines += [d.text for d in package_differences(recorded.packages, made.packages)]
    lines += [f"hole: {name}" for name in _holes(recorded, made)]
    lines += [f"likely cause: {why}" for why in verdict.causes]
    for line in lines:
        console.print(line, style="dim", markup=False, soft_wrap=True)
    colour, text = _sentence(verdict, recorded, made)
    console.print(text, style=colour, markup=False, soft_wrap=True)


def _sentence(verdict: Verdict, recorded: Manifest, made: Manifest) -> tuple[str, str]:
    if verdict.outcome == IDENTICAL:
        holes = len(_holes(recorded, made))
        but = f", but with {holes} hole{'s' * (holes != 1)} outside the arithmetic" if holes else ""
        pair = f"{_conditions(recorded)} and {_conditions(made)}"
        return "yellow" if holes else "green", f"identical: {verdict.text} ({pair}){but}"
    if verdict.outcome == DIFFERS:
        where = "" if verdict.step is None else f" at step {verdict.step} (counted from 0)"
        part = f", in the {verdict.what}" if verdict.what in PARTS - {LENGTH} else ""
        return "red", f"differs{where}{part}: {verdict.text}"
    return "yellow", f"no verdict: {verdict.text}"


def _conditions(manifest: Manifest) -> str:
    settings = manifest.settings
    threads = f"{settings.threads} thread{'s' * (settings.threads != 1)}"
    return f"{threads}, {'PyTorch itself' if settings.mode == 'plain' else settings.cpu}"


def _holes(recorded: Manifest, made: Manifest) -> list[str]:
    return sorted({hole.operator for hole in (*recorded.holes, *made.holes)})
