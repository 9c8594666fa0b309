"""The process that runs a script: opens the record, switches Isobit on, runs, closes the record.

It is started afresh (cli.plan) so that the hash seed holds and nothing of the command line's machinery is
loaded.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import os
import shutil
import signal
import sys
from contextlib import ExitStack
from multiprocessing import util
from pathlib import Path

from isobit import __version__
from isobit.cli import exits
from isobit.cli.devices import hidden_devices
from isobit.cli.environment import pins_of
from isobit.cli.inherited import Child, equip
from isobit.cli.live import LiveLine, has_terminal
from isobit.cli.observers import Observer, Observers
from isobit.cli.plan import Plan
from isobit.cli.script import Outcome, StopRun, run_script
from isobit.cli.signals import leave_interrupted, on_termination
from isobit.cli.sinks.observer import Sink
from isobit.cli.stdin import record_stdin
from isobit.cli.subprocesses import tell
from isobit.cli.target import import_root
from isobit.cli.watch import DataWatch
from isobit.codegen.target import UnsupportedLevelError, host_target
from isobit.record.capture import CodeCapture, tree_of
from isobit.record.checkpoints import keep
from isobit.record.children import ChildLog
from isobit.record.errors import RecordError
from isobit.record.git import git_state
from isobit.record.manifest import FAILED, INTERRUPTED, RUNNING, Code, GitState, Hole, Manifest, Replay, Settings
from isobit.record.optrace import Operator, OperatorWriter
from isobit.record.process import current_process
from isobit.record.recorder import Recorder, utc_now
from isobit.record.replay import Comparison
from isobit.record.store import Store, open_run
from isobit.record.surroundings import machine, packages
from isobit.record.trace import Step, number
from isobit.torch.events import (
    DEFAULT,
    CheckpointEvent,
    DigestEvent,
    Event,
    HoleEvent,
    LogEvent,
    NoteEvent,
    OperatorEvent,
    Sampling,
    SessionInfo,
    SessionOptions,
    StepEvent,
)
from isobit.torch.session import exact_session


def main() -> None:
    """Run the plan in ``sys.argv[1]`` and exit as the script did."""
    plan = Plan.from_json(sys.argv[1])
    try:
        launch = Launch(plan)
    except (RecordError, UnsupportedLevelError) as error:
        print(f"isobit: {error}", file=sys.stderr)
        sys.exit(exits.USAGE)
    try:
        exit_code = launch.run()
    except KeyboardInterrupt:  # before the script's first line
        leave_interrupted()
    if launch.interrupted:
        leave_interrupted()
    sys.exit(exit_code)


class Launch:
    """One run of a script, from the opening of its record to its end."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        host_target(plan.cpu)
        self._devices = hidden_devices(plan.strict)
        root = Path(plan.root) if plan.root else tree_of(import_root(plan.script, plan.module) / "_")
        self._comparison = _comparison(plan)
        run = Store(Path(plan.home)).create(lambda run_id: _manifest(plan, run_id), plan.run_id)
        try:
            self._recorder = Recorder(run, _sampling(plan).told())
            self._operators = OperatorWriter(run.folder)
            self._capture = CodeCapture(root, run.code, (Path(__file__).parents[1],))
            self._code = Code(self._tree(root), self._capture.add_script(plan.script), git=self._git(root))
            self._recorder.update(code=self._code_now())
        except OSError as error:
            shutil.rmtree(run.folder, ignore_errors=True)
            raise RecordError(f"cannot write a record in {run.folder.parent}: {error.strerror or error}") from error
        self._owner = os.getpid()
        self._child_log = ChildLog(run.folder.resolve())
        self._data = DataWatch(run, str(root), self._tree(root))
        self._observers = Observers(_observers(plan))
        self._session = ExitStack()
        self._settings = _settings(plan, None)
        self._outcome = Outcome(INTERRUPTED, exits.INTERRUPTED)
        atexit.register(self._finish)  # the first, so it comes after all the script's handlers and threads

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the script."""
        return self._outcome.status == INTERRUPTED

    def run(self) -> int:
        """Run the script and return its exit code."""
        self._say(f"run {self._recorder.run.manifest.id}")
        self._observers.started(self._recorder.run)
        try:
            info = self._session.enter_context(exact_session(self._options(), self._sink))
        except ValueError as error:
            self._outcome = Outcome(FAILED, exits.USAGE, str(error))
            print(f"isobit: {error}", file=sys.stderr)
            return exits.USAGE
        with contextlib.suppress(OSError):  # the end of the run says it again, or that there is no room
            self._recorder.update(settings=_settings(self._plan, info))
        self._settings = _settings(self._plan, info)
        self._capture.install()
        equip(os.environ, self._child())
        util.register_after_fork(self, Launch._forked)
        record_stdin(self._recorder.run.folder, self._recorder.note)
        on_termination(self._terminated)
        self._data.start()
        argv = [self._plan.argv0, *self._plan.args]
        self._outcome = run_script(self._plan.script, argv, self._path(), self._plan.module)
        return self._outcome.exit_code

    def _child(self) -> Child:
        plan = self._plan
        folder = str(self._recorder.run.folder.resolve())
        return Child(folder, plan.seed, plan.threads, plan.cpu, plan.strict, plan.plain, self._devices)

    def _forked(self) -> None:
        """A process of multiprocessing's, which skips the usual handlers at its end."""
        util.Finalize(None, self._session.close, exitpriority=0)

    def _path(self) -> tuple[str, ...]:
        """What comes first in the script's ``sys.path``."""
        return tuple(dict.fromkeys((str(self._plan.import_root), *self._plan.paths)))

    def _terminated(self) -> None:
        self._outcome = Outcome(INTERRUPTED, 128 + signal.SIGTERM)
        self._finish()

    def _finish(self) -> None:
        """Close the record. The exact arithmetic stays on until here: threads may outlive the last line."""
        if os.getpid() != self._owner:  # a forked child's exit
            self._session.close()
            return
        if not self._recorder.active:
            return
        self._session.close()
        self._capture.add_loaded()
        end, run_id = self._outcome, self._recorder.run.manifest.id
        data = self._data.finish()
        replay = self._replay_judged(end)
        try:
            self._recorder.finish(
                end.status,
                end.exit_code,
                end.error,
                code=self._code_now(),
                data=data,
                replay=replay,
                settings=self._settings,
            )
        except OSError as error:
            print(f"isobit: the record of {run_id} could not be closed: {error.strerror or error}", file=sys.stderr)
        if self._recorder.trace_error is not None:
            print(f"isobit: {self._recorder.trace_error}", file=sys.stderr)
        self._observers.ended(self._recorder.run.manifest)
        steps = self._recorder.steps
        self._say(f"run {run_id} {end.status}, {steps} step{'s' * (steps != 1)}")

    def _replay_judged(self, end: Outcome) -> Replay | None:
        replay = self._recorder.run.manifest.replay
        if replay is None or self._comparison is None:
            return replay
        verdict = self._comparison.verdict(end.status, end.exit_code, end.error)
        return dataclasses.replace(replay, verdict=verdict)

    def _git(self, root: Path) -> GitState | None:
        """The state of the code's folder; recorded code has the one it was recorded in."""
        recorded = self._recorded_code()
        return recorded.git if recorded else git_state(root)

    def _tree(self, root: Path) -> str:
        """The tree that the code is of. Recorded code is of the one it was recorded in: the working copy that it runs
        in is deleted after this replay, and the next one looks for the script's data in the tree.
        """
        recorded = self._recorded_code()
        return recorded.root if recorded else str(root)

    def _recorded_code(self) -> Code | None:
        """What the record says of the code, where it is the recorded code that runs."""
        if self._comparison is None or self._plan.replay_code != "record":
            return None
        return self._comparison.recorded.manifest.code

    def _sink(self, event: Event) -> None:
        """Record an event; ends the script where there is no need to go on."""
        if os.getpid() != self._owner:
            tell(self._child_log, event)
            return
        match event:
            case StepEvent():
                step = self._recorder.step(**event.parts())
                if step is not None:
                    self._observers.stepped(step)
                    if not self._goes_on(step):
                        raise StopRun
            case HoleEvent():
                self._recorder.hole(event.operator, event.reason, event.count)
                if self._recorder.active:
                    self._observers.fell(Hole(event.operator, event.reason, event.count))
            case NoteEvent():
                self._recorder.note(event.text)
            case LogEvent():
                said = self._recorder.log(event.name, event.bits, event.text)
                if said is not None and said.bits:
                    self._observers.logged(said.step, said.name, number(said.bits))
            case DigestEvent():
                self._recorder.digest(event.optimizer, event.digest)
            case CheckpointEvent():
                self._recorder.checkpoint(event.path, event.digest)
                if self._plan.keep_checkpoints and self._recorder.active:
                    self._keep(event)
            case OperatorEvent():
                self._operators.add(Operator(**dataclasses.asdict(event)))

    def _keep(self, event: CheckpointEvent) -> None:
        """Keep a copy of a checkpoint; where that fails the run goes on."""
        try:
            keep(self._recorder.run.folder, event.path, event.digest)
        except OSError as error:
            self._recorder.note(f"the checkpoint {event.path} could not be kept: {error.strerror or error}")

    def _goes_on(self, step: Step) -> bool:
        if self._comparison is not None and not self._comparison.matches(step):
            return False
        return self._plan.steps is None or step.index + 1 < self._plan.steps

    def _options(self) -> SessionOptions:
        plan = self._plan
        return SessionOptions(
            threads=plan.threads,
            cpu=plan.cpu,
            strict=plan.strict,
            plain=plan.plain,
            seed=plan.seed,
            sampling=_sampling(plan),
            operators_at=plan.operators_at,
            ours=self._is_ours,
            resume_from=plan.resume_from,
            hidden_devices=self._devices,
        )

    def _is_ours(self, file: str) -> bool:
        """Whether a source file is the script's own code."""
        return file == self._plan.script or self._capture.relative(file) is not None

    def _code_now(self) -> Code:
        """What has been copied so far. Isobit's own way into the path is no part of the script's."""
        return dataclasses.replace(
            self._code,
            paths=self._capture.paths(),
            files=dict(self._capture.files),
            left_out=dict(self._capture.left_out),
        )

    def _say(self, text: str) -> None:
        if not self._plan.quiet:
            print(f"isobit: {text}", file=sys.stderr, flush=True)


def _observers(plan: Plan) -> list[Observer]:
    """Who looks on, as the plan says."""
    found: list[Observer] = []
    if plan.live and not plan.quiet and has_terminal(os.environ):
        found.append(LiveLine())
    if plan.mlflow is not None:
        found.append(Sink("mlflow", plan.mlflow))
    if plan.tensorboard is not None:
        found.append(Sink("tensorboard", plan.tensorboard))
    return found


def _manifest(plan: Plan, run_id: str) -> Manifest:
    """All that is known before the script's first line."""
    return Manifest(
        id=run_id,
        status=RUNNING,
        command=plan.command,
        script=plan.argv0,
        module=plan.module,
        args=plan.args,
        cwd=os.getcwd(),
        settings=_settings(plan, None),
        process=current_process(),
        started=utc_now(),
        isobit=__version__,
        machine=machine(),
        packages=packages(),
        replay=Replay(plan.replay_of, plan.replay_code) if plan.replay_of else None,
    )


def _settings(plan: Plan, info: SessionInfo | None) -> Settings:
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


def _sampling(plan: Plan) -> Sampling:
    return DEFAULT if plan.gradients_every is None else Sampling(every=plan.gradients_every)


def _comparison(plan: Plan) -> Comparison | None:
    if plan.replay_folder is None:
        return None
    return Comparison(open_run(Path(plan.replay_folder)), plan.keep_going, plan.segment)
