"""Putting a page together: sections in, one HTML text out; and the page of a single run: its certificate, how it
closed, where the time went, and the policy on its world.
"""

from __future__ import annotations

import base64
import csv
import gzip
import html
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from rpl_agent.certificate import Certificate
from rpl_agent.errors import DataError, ModelError
from rpl_agent.experiments.report.charts import ReportChart, line, panel, policy_chart
from rpl_agent.experiments.tables import Table, short
from rpl_agent.model import ParametricMDP, Sense
from rpl_agent.plotting.policy_map import policy_map


@dataclass(frozen=True)
class Section:
    """A part of the page with a place in its list of links."""

    anchor: str
    title: str
    body: str


def page(title: str, headline: Sequence[str], sections: Sequence[Section], charts: Sequence[ReportChart]) -> str:
    """The whole text; ``charts`` are the data of the chart sections among ``sections``."""
    folder = files("rpl_agent.experiments.report")
    data = json.dumps([chart.to_dict() for chart in charts], allow_nan=False).replace("</", "<\\/")
    return Template(folder.joinpath("page.html").read_text()).substitute(
        title=html.escape(title),
        style=folder.joinpath("page.css").read_text(),
        script=folder.joinpath("page.js").read_text(),
        plotly=plotly_script(),
        headline="".join(f"<p>{html.escape(sentence)}</p>" for sentence in headline),
        links=" ".join(f"<a href='#{s.anchor}'>{html.escape(s.title)}</a>" for s in sections),
        sections="".join(s.body for s in sections),
        charts=data,
    )


def plotly_script() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise ModelError("the report needs plotly: pip install plotly") from None
    return get_plotlyjs()


def chart_section(chart: ReportChart) -> Section:
    body = (
        f"<section class='figure' id='{chart.id}'><h2>{html.escape(chart.title)}</h2>"
        f"<p class='note'>{html.escape(chart.note)}</p><div class='controls'></div><div class='chart'></div>"
        "<p class='note panel-note'></p></section>"
    )
    return Section(chart.id, chart.title, body)


def table_section(table: Table) -> Section:
    field = "<div class='controls'><input type='search' placeholder='filter rows' aria-label='filter rows'></div>"
    head, body = table.to_html().split("<div class='wide'>", 1)
    text = f"<section class='table' id='{table.name}'>{head}{field}<div class='wide'>{body}</section>"
    return Section(table.name, table.title, text)


def pictures_section(anchor: str, title: str, pictures: Sequence[tuple[str, Path]]) -> Section:
    body = "".join(_picture(caption, path) for caption, path in pictures)
    return Section(
        anchor, title, f"<section id='{anchor}'><h2>{html.escape(title)}</h2><div class='worlds'>{body}</div></section>"
    )


def _picture(caption: str, path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    text = html.escape(caption)
    return f"<figure><img alt='{text}' src='data:image/png;base64,{data}'><figcaption>{text}</figcaption></figure>"


def data_section(downloads: Sequence[tuple[str, str]], settings: Any) -> Section:
    """Raw data as files that the page itself contains, and the settings behind them."""
    links = " ".join(
        f"<a download='{html.escape(name)}.gz' href='data:application/gzip;base64,"
        f"{base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()}'>{html.escape(name)}.gz</a>"
        for name, text in downloads
    )
    shown = html.escape(json.dumps(settings, indent=1))
    body = (
        f"<section id='data'><h2>Raw data</h2><p>Download {links}</p>"
        f"<details><summary>settings and versions</summary><pre>{shown}</pre></details></section>"
    )
    return Section("data", "Raw data", body)


def write_run_report(
    folder: str | os.PathLike, output: str | os.PathLike, pmdp: ParametricMDP, estimate: np.ndarray | None,
    seconds: Mapping[str, float],
) -> dict[str, Any]:  # fmt: skip
    """A page from a run folder's files, the policy drawn at ``estimate``, and the ``seconds`` of each stage."""
    run = Path(folder)
    certificate = Certificate.from_json(run / "certificate.json")
    points = _progress(run / "progress.csv")
    drawn = [_bounds(points, certificate), _gap(points), _time(seconds)]
    if estimate is not None:
        shown = policy_map(pmdp.instantiate(estimate), certificate.policy)
        if shown is not None:
            drawn.append(policy_chart({pmdp.name: shown}, "The certified policy; visits at the point estimate."))
    table = _figures(certificate)
    raw = [(name, (run / name).read_text()) for name in ("progress.csv", "certificate.json")]
    sections = [*map(chart_section, drawn), table_section(table), data_section(raw, certificate.versions)]
    target = Path(output)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page(f"{certificate.model}: certified policy", str(certificate).splitlines(), sections, drawn))
    return {"page": os.fspath(target), "run": os.fspath(run), "points": len(points["episodes"]), "charts": len(drawn)}


def _progress(path: Path) -> dict[str, np.ndarray]:
    """The columns of progress.csv; what a row lacks is nan."""
    try:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        if not rows:
            raise ValueError("no log points yet")
        return {n: np.array([float(r[n]) if r.get(n) else math.nan for r in rows]) for n in rows[0]}
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: no progress to report: {error}") from None


def _bounds(points: dict[str, np.ndarray], certificate: Certificate) -> ReportChart:
    x = points["episodes"]
    maximise = certificate.objective.sense is Sense.MAX
    names = ("guarantee", "bound on every policy")
    lower, upper = names if maximise else reversed(names)
    series = [
        ("guarantee/lower", lower, "#0072B2"), ("guarantee/upper", upper, "#D55E00"),
        ("guarantee/estimate", "value at the point estimate", "#999999"),
        ("oracle/value", "true value of the policy", "#009E73"), ("oracle/optimum", "V*", "#CC79A7"),
    ]  # fmt: skip
    traces = [line(x, points[tag], name, colour) for tag, name, colour in series if tag in points]
    for trace in traces:
        trace["meta"] = {}
    better = "higher is better" if maximise else "lower is better"
    return ReportChart(
        "bounds", "The certified interval", f"δ = {certificate.delta:g}; {better}.",
        {"run": panel(traces, "episodes", "value", log_x=True)},
    )  # fmt: skip


def _gap(points: dict[str, np.ndarray]) -> ReportChart:
    trace = {**line(points["episodes"], points["guarantee/gap"], "gap", "#D55E00"), "meta": {}}
    shown = panel([trace], "episodes", "upper − lower", log_x=True, log_y=True)
    note = "Both axes logarithmic; the raw numbers, without smoothing."
    return ReportChart("gap", "How the gap closes", note, {"run": shown})


def _time(seconds: Mapping[str, float]) -> ReportChart:
    bar = {"type": "bar", "x": list(seconds), "y": list(seconds.values()), "marker": {"color": "#0072B2"}}
    return ReportChart("time", "Where the time went", "Seconds of the whole run.", {"run": panel([bar], "", "seconds")})


def _figures(certificate: Certificate) -> Table:
    """The certificate field by field."""
    skipped = {"policy", "timings", "versions", "objective"}
    lines = [["objective", certificate.objective.describe()]]
    for name, value in certificate.to_dict().items():
        if name not in skipped and value not in (None, "", {}, []):
            shown = short(value, 8) if isinstance(value, float) else value
            lines.append([name, shown if isinstance(shown, str) else json.dumps(shown)])
    return Table("certificate", "The certificate", ("field", "value"), lines)
