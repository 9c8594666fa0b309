"""What a report says: from records to words and curves. All that the report knows of records is read here, and in
provenance.py.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from isobit.cli.report.chart import Line, Mark
from isobit.cli.report.provenance import Patch, Row, Table, origin, patches, tables
from isobit.cli.words import many
from isobit.record.causes import Difference
from isobit.record.compare import Compared, compare
from isobit.record.curves import Curve, curve, losses, step_times
from isobit.record.inputs import compare_inputs, read_inputs
from isobit.record.manifest import Hole
from isobit.record.parting import readable, steps_text
from isobit.record.remarks import remarks
from isobit.record.store import Run
from isobit.record.trace import Logged, Step, Trace, open_trace

_MOST_TEXTS = 500
_UNKNOWN_NAMED = 5
_ALWAYS_OTHER = frozenset({"run", "started", "time", "replay of", "verdict"})  # no news that these differ


@dataclass(frozen=True)
class Banner:
    """A sentence at the top, with likely causes of what it says. ``kind``: good, bad, warn or plain."""

    kind: str
    sign: str
    text: str
    causes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Curves:
    """The curves of a run, by what they show."""

    losses: dict[tuple[int, int], Curve]
    metrics: dict[str, Curve]
    times: Curve
    last: Step | None
    count: int
    refused: int  # losses that are no number
    texts: list[Logged]
    hyper_parameters: list[tuple[str, str, str]]  # optimizer, name, value


@dataclass(frozen=True)
class RunView:
    """One run. ``label`` tells it from the others: A, B, …"""

    run: Run
    label: str
    curves: Curves
    holes: tuple[Hole, ...]
    notes: tuple[str, ...]
    facts: dict[str, tuple[str, bool]]  # by name: the value, and whether it is code
    origin: list[Row]
    tables: list[Table]
    patches: list[Patch] = field(default_factory=list)

    @property
    def id(self) -> str:
        """The run's id."""
        return self.run.manifest.id

    @property
    def title(self) -> str:
        """The script or module, and its arguments."""
        manifest = self.run.manifest
        what = (manifest.script,) if manifest.module is None else ("-m", manifest.module)
        return shlex.join((*what, *manifest.args))

    @property
    def name(self) -> str:
        """How legends call it."""
        return f"{self.label} · {self.id[-4:]}"


@dataclass(frozen=True)
class Comparison:
    """How a run differs from the first."""

    title: str
    text: str
    compared: Compared
    unknown: tuple[str, ...] = ()  # what the records do not allow to compare

    @property
    def causes(self) -> tuple[str, ...]:
        """Likely causes of their parting."""
        return self.compared.causes

    @property
    def differences(self) -> tuple[Difference, ...]:
        """All that differs, apart from the steps."""
        return self.compared.differences


def view(run: Run, label: str) -> RunView:
    """All that a report says of a run; raises RecordError if its record is damaged."""
    curves = read_curves(run)
    holes, notes = remarks(run)
    facts = dict(_facts(run, curves, holes))
    shown = [*_logged(curves), *tables(run)]
    return RunView(run, label, curves, holes, notes, facts, list(origin(run)), shown, list(patches(run)))


def read_curves(run: Run) -> Curves:
    """What the trace holds; every entry is checked, so that damage is told and not drawn."""
    trace = open_trace(run.folder)
    by_place, refused = losses(trace.losses())
    times = step_times(trace.column("seconds"))
    metrics = {name: curve(points) for name, points in sorted(trace.points().items())}
    last = trace.step(-1) if len(trace) else None
    return Curves(by_place, metrics, times, last, len(trace), refused, trace.texts(), _hyper_parameters(trace))


def _hyper_parameters(trace: Trace) -> list[tuple[str, str, str]]:
    """Those of the last step of each optimizer: its number, the name, the value."""
    optimizers = dict.fromkeys(event["o"] for event in trace.events("v"))
    return [
        (str(optimizer), name, value)
        for optimizer in optimizers
        for name, value in trace.settings(len(trace), optimizer).items()
    ]


def _logged(curves: Curves) -> Iterator[Table]:
    """What the trace holds beside numbers."""
    if curves.texts:
        texts = [(f"{logged.step:,}", logged.name, logged.text) for logged in curves.texts[:_MOST_TEXTS]]
        more = "" if len(texts) == len(curves.texts) else f", the first {_MOST_TEXTS}"
        yield Table(f"{many(len(curves.texts), 'logged text')}{more}", ("step", "name", "text"), texts)
    if curves.hyper_parameters:
        title = f"{many(len(curves.hyper_parameters), 'hyper-parameter')} at the last step"
        yield Table(title, ("optimizer", "name", "value"), curves.hyper_parameters)


def _facts(run: Run, curves: Curves, holes: Sequence[Hole]) -> Iterator[tuple[str, tuple[str, bool]]]:
    manifest, settings = run.manifest, run.manifest.settings
    yield "run", (manifest.id, True)
    yield "status", (_status(run), False)
    if manifest.replay is not None:
        yield "replay of", (f"{manifest.replay.of}, with the code of: {manifest.replay.code}", False)
    yield "script" if manifest.module is None else "module", (manifest.script, True)
    yield "arguments", (shlex.join(manifest.args) or "none", True)
    yield "started", (_utc(manifest.started), False)
    yield "time", ("unknown" if manifest.seconds is None else f"{manifest.seconds:,.1f} s", False)
    yield "steps", (f"{curves.count:,}", False)
    if curves.last is not None:
        yield "last loss", (", ".join(readable(loss) for loss in curves.last.losses) or "none", True)
        yield "final parameters", (curves.last.parameters or "not recorded", True)
    exact = settings.mode != "plain"
    yield "arithmetic", (f"Isobit's, version {settings.arithmetic}" if exact else "PyTorch's own", False)
    yield "threads", (str(settings.threads or "unknown"), False)
    yield "CPU level", (settings.cpu or ("unknown" if exact else "PyTorch's choice"), False)
    yield "seed", (str(settings.seed), False)
    yield "holes", (_holes(holes), False)


def _status(run: Run) -> str:
    manifest = run.manifest
    ending = [] if manifest.exit_code is None else [f"exit code {manifest.exit_code}"]
    ending += [text for text in (manifest.error, manifest.trace_error) if text is not None]
    return run.status + (f" ({'; '.join(ending)})" if ending else "")


def _holes(holes: Sequence[Hole]) -> str:
    if not holes:
        return "none"
    times = sum(hole.count for hole in holes)
    return f"{many(len(holes), 'operator')}, {many(times, 'time') if times else 'not counted'}"


def side_by_side(runs: Sequence[RunView]) -> list[Row]:
    """The facts of all runs; what is not the same is marked."""
    rows = []
    for name in dict.fromkeys(name for run in runs for name in run.facts):
        cells = [run.facts.get(name, ("–", False)) for run in runs]
        values = tuple(value for value, _ in cells)
        differs = len(set(values)) > 1 and name not in _ALWAYS_OTHER
        rows.append(Row(name, values, any(code for _, code in cells), differs))
    return rows


def comparisons(runs: Sequence[RunView]) -> list[Comparison]:
    """Every run against the first."""
    found = []
    for other in runs[1:]:
        compared = compare(runs[0].run, other.run)
        title = f"{runs[0].label} → {other.label}: {runs[0].id} → {other.id}"
        found.append(Comparison(title, _sentence(runs[0], other, compared), compared, tuple(_unknown(runs[0], other))))
    return found


def _unknown(first: RunView, other: RunView) -> Iterator[str]:
    """What nobody can tell from the two records, so that "nothing differs" is not read as more than it says."""
    one, two = read_inputs(first.run), read_inputs(other.run)
    paths = compare_inputs(one, two).unknown if one.files and two.files else ()
    if paths:
        names = ", ".join(paths[:_UNKNOWN_NAMED]) + (", …" if len(paths) > _UNKNOWN_NAMED else "")
        yield f"the contents of {many(len(paths), 'data file')}, which one of the runs has not hashed: {names}"
    before, after = first.run.manifest.environment, other.run.manifest.environment
    hidden = before.digests.keys() & after.digests.keys() if before is not None and after is not None else ()
    if hidden and before is not None and after is not None and before.key != after.key:
        yield f"{many(len(hidden), 'environment variable')} without a recorded value: the runs are of different stores"


def _sentence(first: RunView, other: RunView, compared: Compared) -> str:
    parting = compared.parting
    if parting is not None:
        what = f"at step {parting.step:,} (counted from 0), in the {parting.part}: {parting.text}"
        return f"{other.label} parts from {first.label} {what}"
    if not min(compared.steps):
        return f"{other.label} and {first.label}: there are no steps to compare"
    same = steps_text(min(compared.steps))
    ends = "" if compared.steps[0] == compared.steps[1] else ", where the shorter one breaks off"
    return f"{other.label} is identical with {first.label}: {same}, to the last bit{ends}"


def banners(runs: Sequence[RunView], compared: Sequence[Comparison]) -> list[Banner]:
    """Verdicts first, then how runs ended that did not finish, then holes."""
    found = [banner for run in runs for banner in _replay_banner(run, len(runs) > 1)]
    for comparison in compared:
        parted = comparison.compared.parting is not None
        known = parted or min(comparison.compared.steps) > 0
        kind, sign = ("bad", "≠") if parted else ("good", "✓") if known else ("warn", "?")
        found.append(Banner(kind, sign, comparison.text))
    for run in runs:
        which = f"{run.label}: " if len(runs) > 1 else ""
        if run.run.status not in ("finished", "stopped"):
            kind = "plain" if run.run.status == "running" else "bad"
            found.append(Banner(kind, "!", f"{which}{run.facts['status'][0]}"))
        if run.holes:
            found.append(Banner("warn", "!", f"{which}holes in the arithmetic: {run.facts['holes'][0]}"))
    return found


def _replay_banner(run: RunView, several: bool) -> Iterator[Banner]:
    replay = run.run.manifest.replay
    if replay is None:
        return
    which = f"{run.label}, " if several else ""
    if replay.verdict is None:
        yield Banner("warn", "?", f"{which}replay of {replay.of}: no verdict")
        return
    verdict = replay.verdict
    kind, sign = {"identical": ("good", "✓"), "differs": ("bad", "≠")}.get(verdict.outcome, ("warn", "?"))
    word = "no verdict" if verdict.outcome == "none" else verdict.outcome
    where = "" if verdict.step is None else f" at step {verdict.step:,} (counted from 0)"
    yield Banner(kind, sign, f"{which}replay of {replay.of}: {word}{where}: {verdict.text}", verdict.causes)


def marks(runs: Sequence[RunView], compared: Sequence[Comparison]) -> list[Mark]:
    """Where runs part from the first; those that part at one step share a mark."""
    at: dict[int, list[str]] = {}
    for run, comparison in zip(runs[1:], compared, strict=True):
        if comparison.compared.parting is not None:
            at.setdefault(comparison.compared.parting.step, []).append(run.label)
    replay = runs[0].run.manifest.replay
    step = None if replay is None or replay.verdict is None else replay.verdict.step
    if len(runs) == 1 and step is not None:
        return [Mark(step, f"differs from the record at step {step:,}")]
    return [
        Mark(step, f"{', '.join(names)} part{'s' * (len(names) == 1)} from {runs[0].label} at step {step:,}")
        for step, names in sorted(at.items())
    ]


def loss_lines(runs: Sequence[RunView]) -> list[tuple[str, list[Line]]]:
    """Charts of losses: of one run all in one, of several runs one for each loss."""
    if len(runs) == 1:
        curves = runs[0].curves.losses
        lines = [Line(_loss_name(key, curves), curve, n) for n, (key, curve) in enumerate(curves.items())]
        return [("Loss by step", lines)] if lines else []
    keys = {key: run.curves.losses for run in reversed(runs) for key in run.curves.losses}
    every = dict.fromkeys(sorted(keys))
    return [(_loss_title(key, every), _of_runs(runs, [r.curves.losses.get(key) for r in runs])) for key in every]


def _loss_title(key: tuple[int, int], keys: Mapping[tuple[int, int], object]) -> str:
    name = _loss_name(key, keys)
    return "Loss by step" if name == "loss" else f"Loss by step: {name}"


def _loss_name(key: tuple[int, int], keys: Mapping[tuple[int, int], object]) -> str:
    """Names the optimizer where there are several, and the position where its steps have several losses."""
    words = []
    if len({optimizer for optimizer, _ in keys}) > 1:
        words.append(f"optimizer {key[0]}")
    if len([1 for optimizer, _ in keys if optimizer == key[0]]) > 1:
        words.append(f"loss {key[1]}")
    return ", ".join(words) or "loss"


def metric_lines(runs: Sequence[RunView]) -> list[tuple[str, list[Line]]]:
    """A chart for each name that was given to isobit.log."""
    names = dict.fromkeys(name for run in runs for name in run.curves.metrics)
    return [(name, _of_runs(runs, [run.curves.metrics.get(name) for run in runs], name)) for name in names]


def time_lines(runs: Sequence[RunView]) -> list[tuple[str, list[Line]]]:
    """The chart of step times."""
    lines = _of_runs(runs, [run.curves.times for run in runs], "step time")
    return [("Time of a step", lines)] if lines else []


def _of_runs(runs: Sequence[RunView], curves: Sequence[Curve | None], only: str = "") -> list[Line]:
    """A line for each run that has the curve; each run has its own style everywhere."""
    return [
        Line(run.name if len(runs) > 1 else only, curve, style)
        for style, (run, curve) in enumerate(zip(runs, curves, strict=True))
        if curve is not None and curve.steps.size
    ]


def _utc(stamp: str) -> str:
    """The same everywhere: a record's report does not depend on where it is written."""
    return datetime.fromisoformat(stamp).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
