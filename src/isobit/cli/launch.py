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

from isobit.cli import exits
from isobit.cli.devices import hidden_devices
from isobit.cli.inherited import Child, equip
from isobit.cli.live import LiveLine, has_terminal
from isobit.cli.observers import Observer, Observers
from isobit.cli.opening import opening, settings
from isobit.cli.plan import RECORD, Plan
from isobit.cli.script import Outcome, StopRun, run_script
from isobit.cli.signals import leave_interrupted, on_termination
from isobit.cli.sinks.observer import Sink
from isobit.cli.stdin import record_stdin
from isobit.cli.subprocesses import tell
from isobit.cli.watch import DataWatch
from isobit.codegen.target import UnsupportedLevelError, host_target
from isobit.record.checkpoints import keep
from isobit.record.children import ChildLog
from isobit.record.errors import RecordError
from isobit.record.manifest import FAILED, INTERRUPTED, Code, Hole, Replay
from isobit.record.mirror_imports import redirect
from isobit.record.optrace import Operator, OperatorWriter
from isobit.record.recorder import Recorder
from isobit.record.replay import Comparison
from isobit.record.store import Run, Store, open_run
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
    SessionOptions,
    StepEvent,
)
from isobit.torch.session import exact_session


def main() -> None:
    """Run the plan in ``sys.argv`` and exit as the script did."""
    plan = Plan.from_arguments(sys.argv[1:])
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
        self._comparison = _comparison(plan)
        store = Store(Path(plan.home))
        opened = opening(plan, store, self._recorded())
        run = store.create(lambda run_id: opened.manifest(plan, run_id), plan.run_id)
        try:
            self._recorder = Recorder(run, _sampling(plan).told())
            self._operators = OperatorWriter(run.folder)
            for note in opened.notes:
                self._recorder.note(note)
        except OSError as error:
            shutil.rmtree(run.folder, ignore_errors=True)
            raise RecordError(f"cannot write a record in {run.folder.parent}: {error.strerror or error}") from error
        self._owner = os.getpid()
        self._child_log = ChildLog(run.folder.resolve())
        self._capture, self._code = opened.capture, opened.code
        self._data = DataWatch(run, plan.mirror or "", "/")
        self._observers = Observers(_observers(plan))
        self._session = ExitStack()
        self._settings = settings(plan, None)
        self._outcome = Outcome(INTERRUPTED, exits.INTERRUPTED)
        atexit.register(self._finish)  # the first, so it comes after all the script's handlers and threads

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the script."""
        return self._outcome.status == INTERRUPTED

    def run(self) -> int:
        """Run the script and return its exit code."""
        self._say(f"run {self._recorder.run.manifest.id}")
        for line in self._capture.remarks():
            self._say(line)
        self._observers.started(self._recorder.run)
        try:
            info = self._session.enter_context(exact_session(self._options(), self._sink))
        except ValueError as error:
            self._outcome = Outcome(FAILED, exits.USAGE, str(error))
            print(f"isobit: {error}", file=sys.stderr)
            return exits.USAGE
        with contextlib.suppress(OSError):  # the end of the run says it again, or that there is no room
            self._recorder.update(settings=settings(self._plan, info))
        self._settings = settings(self._plan, info)
        if self._recorded() is None:
            self._capture.install(self._recorder.run.folder)
        if self._plan.mirror is not None:
            redirect(self._plan.mirror, self._plan.mirrored)
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
        code = self._code_at_the_end()
        end, run_id = self._outcome, self._recorder.run.manifest.id
        data = self._data.finish()
        replay = self._replay_judged(end)
        try:
            self._recorder.finish(
                end.status,
                end.exit_code,
                end.error,
                code=code,
                data=data,
                replay=replay,
                settings=self._settings,
            )
            if self._code is not code or self._recorded() is not None:  # else the journal alone names what was imported
                self._capture.close()
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

    def _recorded(self) -> Run | None:
        """The run whose recorded code it is that runs."""
        if self._comparison is None or self._plan.replay_code != RECORD:
            return None
        return self._comparison.recorded

    def _code_at_the_end(self) -> Code:
        """The code with the modules that were imported. Recorded code is what it was."""
        if self._recorded() is not None:
            return self._code
        self._capture.add_loaded()
        for note in self._capture.notes:
            self._recorder.note(note)
        try:
            return self._capture.code()
        except RecordError as error:  # the record's journal names the modules that were imported
            print(f"isobit: {error}", file=sys.stderr)
            return self._code

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
                self._recorder.note(self._as_recorded(event.text))
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
                fields = dataclasses.asdict(event)
                self._operators.add(Operator(**{**fields, "line": self._as_recorded(event.line)}))

    def _as_recorded(self, text: str) -> str:
        """`text` with paths as they were where the code was recorded: the mirror that it runs in is gone afterwards."""
        return text if self._plan.mirror is None else text.replace(self._plan.mirror, "")

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
            anew=plan.segment is not None and plan.resume_from is None,
            hidden_devices=self._devices,
        )

    def _is_ours(self, file: str) -> bool:
        """Whether a source file is the script's own code."""
        return file == self._plan.script or self._capture.is_own(file)

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


def _sampling(plan: Plan) -> Sampling:
    return DEFAULT if plan.gradients_every is None else Sampling(every=plan.gradients_every)


def _comparison(plan: Plan) -> Comparison | None:
    if plan.replay_folder is None:
        return None
    return Comparison(open_run(Path(plan.replay_folder)), plan.keep_going, plan.segment)
