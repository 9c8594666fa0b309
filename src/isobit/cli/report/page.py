"""The page: one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from isobit import __version__
from isobit.cli.report import content
from isobit.cli.report.chart import HEIGHT, WIDTH, Chart, Line, Mark, chart, columns_for, span
from isobit.cli.report.content import Banner, Comparison, RunView
from isobit.cli.report.letters import printable
from isobit.cli.report.provenance import Row
from isobit.record.store import Run

MOST_CHARTS = 120  # of a group: more than anyone looks at, and too much for a page


@dataclass(frozen=True)
class Group:
    """Charts under one heading."""

    place: int
    title: str
    charts: list[Chart]


@dataclass(frozen=True)
class Page:
    """All that the template needs."""

    title: str
    runs: list[RunView]
    banners: list[Banner]
    facts: list[Row]
    groups: list[Group]
    curve_remarks: list[str]
    comparisons: list[Comparison]


def report(runs: Sequence[Run]) -> bytes:
    """The page for `runs`; raises RecordError if a record is damaged. The same records give the same bytes."""
    views = [content.view(run, _label(n)) for n, run in enumerate(runs)]
    compared = content.comparisons(views)
    groups, remarks = _groups(views, content.marks(views, compared))
    page = Page(
        title=views[0].title if len(views) == 1 else f"{len(views)} runs compared",
        runs=views,
        banners=content.banners(views, compared),
        facts=content.side_by_side(views),
        groups=groups,
        curve_remarks=remarks,
        comparisons=compared,
    )
    return _rendered(page).encode("utf-8")


def _label(n: int) -> str:
    return chr(ord("A") + n) if n < 26 else f"R{n}"


def _groups(views: Sequence[RunView], marks: Sequence[Mark]) -> tuple[list[Group], list[str]]:
    remarks = []
    found: list[tuple[str, str, list[tuple[str, list[Line]]]]] = []
    for title, unit, charts in (
        ("Losses", "", content.loss_lines(views)),
        ("Logged values", "", content.metric_lines(views)),
        ("Time", "s", content.time_lines(views)),
    ):
        if len(charts) > MOST_CHARTS:
            remarks.append(f"{title}: the first {MOST_CHARTS} of {len(charts):,} are drawn.")
        found.append((title, unit, charts[:MOST_CHARTS]))
    refused = sum(view.curves.refused for view in views)
    if refused:
        remarks.append(f"{refused:,} losses were not a single number and have no place in a curve.")
    if not any(charts for _, _, charts in found):
        remarks.append("No optimizer made a step: there is nothing to draw.")
    every = [line for _, _, charts in found for _, lines in charts for line in lines]
    columns, steps = columns_for(len(every)), span(every) if every else (0, 0)  # one span: marks stand in line
    groups = [
        Group(place, title, [chart(name, lines, columns, steps, marks, unit) for name, lines in charts])
        for place, (title, unit, charts) in enumerate(found)
        if charts
    ]
    return groups, remarks


def _rendered(page: Page) -> str:
    loader = PackageLoader("isobit.cli.report")
    environment = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    style, script = (_source(environment, name) for name in ("style.css", "page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    return environment.get_template("page.html").render(
        page=page,
        style=style,
        script=script,
        script_hash=f"sha256-{digest}",  # no other script runs in the page
        version=__version__,
        width=WIDTH,
        height=HEIGHT,
    )


def _source(environment: Environment, name: str) -> str:
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


def _shown(value: Any) -> Any:
    """What every expression of a template passes through before it is escaped."""
    return printable(value) if isinstance(value, str) and not hasattr(value, "__html__") else value
