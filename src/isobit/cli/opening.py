"""What a record says before the script's first line: how it was started, its code, packages, machine, variables."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from isobit import __version__
from isobit.cli.environment import pins_of
from isobit.cli.plan import Plan
from isobit.cli.target import import_root
from isobit.record.capture import CodeCapture
from isobit.record.code_files import recorded_trees, taken_over
from isobit.record.environment import environment
from isobit.record.manifest import RUNNING, Code, Manifest, Replay, Settings
from isobit.record.packages import Package, packages
from isobit.record.process import current_process
from isobit.record.recorder import utc_now
from isobit.record.secrets import redact_words
from isobit.record.store import Run, Store
from isobit.record.surroundings import machine
from isobit.torch.events import SessionInfo


@dataclass
class Opening:
    """All that is recorded of a run before it begins. ``notes``: what a reader of the record should know."""

    code: Code
    capture: CodeCapture
    packages: list[Package]
    notes: list[str]
    of: Run | None  # whose recorded code it is that runs

    def manifest(self, plan: Plan, run_id: str) -> Manifest:
        """The manifest with which the run's record appears."""
        args, hidden = redact_words(plan.args)
        command, _ = redact_words(plan.command)
        return Manifest(
            id=run_id,
            status=RUNNING,
            command=command,
            script=plan.argv0,
            module=plan.module,
            args=args,
            cwd=self.of.manifest.cwd if self.of else os.getcwd(),  # the mirror is gone after the replay
            settings=settings(plan, None),
            process=current_process(),
            started=utc_now(),
            isobit=__version__,
            code=self.code,
            machine=machine(),
            packages={package.name: package.version for package in self.packages},
            package_digests={package.name: package.digest for package in self.packages if package.digest},
            editable={package.name: package.editable for package in self.packages if package.editable},
            environment=environment(os.environ, Path(plan.home), plan.shown),
            redacted=hidden,
            replay=Replay(plan.replay_of, plan.replay_code) if plan.replay_of else None,
        )


def opening(plan: Plan, store: Store, of: Run | None) -> Opening:
    """Record code and packages into the store. `of`: the run whose recorded code runs again. Raises RecordError where
    the store cannot be written.
    """
    store.prepare()
    installed = packages(store.home)
    isobit = Path(__file__).parents[1]
    editable = {package.name: package.editable for package in installed if package.editable}
    capture = CodeCapture(store.objects, store.home, os.environ, (isobit,), editable)
    if of is not None:
        return Opening(taken_over(of, store.objects), capture, installed, [], of)
    folder = import_root(plan.script, plan.module) if plan.module is not None else None
    capture.start(plan.script, plan.module, folder)
    notes = [*capture.notes, *capture.remarks()]
    return Opening(capture.code(), capture, installed, notes, None)


def settings(plan: Plan, info: SessionInfo | None) -> Settings:
    """What was asked for, and what it is, once `info` says so."""
    return Settings(
        mode="plain" if plan.plain else "exact",
        seed=plan.seed,
        hash_seed=plan.hash_seed,
        strict=plan.strict,
        asked_threads=plan.threads,
        asked_cpu=plan.cpu,
        threads=info.threads if info else None,
        cpu=info.cpu if info else None,
        steps=plan.steps,
        pins={} if plan.plain else pins_of(os.environ),
    )


def redactions(run: Run) -> list[str]:
    """A line for each recorded file in which secrets were made unreadable, and one for the arguments."""
    lines = []
    for tree, listing in recorded_trees(run):
        for name, kinds in listing.redacted.items():
            what = ", ".join(f"{count} × {kind}" for kind, count in kinds.items())
            lines.append(f"asterisks stand for secrets in {os.path.join(tree.root, name)} ({what})")
    if run.manifest.redacted:
        lines.append(f"asterisks stand for secrets in the arguments ({run.manifest.redacted})")
    return lines
