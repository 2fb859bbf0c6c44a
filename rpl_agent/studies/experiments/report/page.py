"""HTML pages: of a sweep (its rows, with five sentences first) and of a single run (its certificate,
how it converged, where the time went, and the policy on its world). Sections in, one HTML text out.
"""

from __future__ import annotations

import base64
import csv
import gzip
import html
import json
import math
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from statistics import median
from string import Template
from typing import Any

import numpy as np

from rpl_agent.agent.output.plotting.policy_map import PolicyMap, policy_map
from rpl_agent.agent.runs import load_run, open_certificate
from rpl_agent.core.errors import DataError, ModelError
from rpl_agent.core.model import Sense
from rpl_agent.core.solver import solve_at
from rpl_agent.guarantee.certificate import Certificate
from rpl_agent.guarantee.likelihood.estimate import point_estimate
from rpl_agent.guarantee.open_world.certificate import OpenCertificate
from rpl_agent.studies.experiments import suites
from rpl_agent.studies.experiments.report.charts import (
    ReportChart,
    charts,
    figures,
    line,
    panel,
    policy_chart,
    world_picture,
)
from rpl_agent.studies.experiments.report.open_run import discovered_chart, open_figures, unknown_rows
from rpl_agent.studies.experiments.runner import Row, by_kind, number, require_rows
from rpl_agent.studies.experiments.tables import Table, share, short, tables
from rpl_envs import INSTANCES, benchmark


@dataclass(frozen=True)
class Section:
    """A part of the page with an entry in its list of links."""

    anchor: str
    title: str
    body: str
    kind: str = ""

    def __str__(self) -> str:
        kind = f" class='{self.kind}'" if self.kind else ""
        return f"<section{kind} id='{self.anchor}'><h2>{html.escape(self.title)}</h2>{self.body}</section>"


def page(title: str, headline: Sequence[str], sections: Sequence[Section], charts: Sequence[ReportChart]) -> str:
    """The whole text; ``charts`` are the data of the chart sections among ``sections``."""
    folder = files("rpl_agent.studies.experiments.report")
    parts = [{"id": chart.id, "panels": chart.panels, "kinds": list(chart.kinds)} for chart in charts]
    data = json.dumps(parts, allow_nan=False).replace("</", "<\\/")
    return Template(folder.joinpath("page.html").read_text()).substitute(
        title=html.escape(title),
        style=folder.joinpath("page.css").read_text(),
        script=folder.joinpath("page.js").read_text(),
        plotly=plotly_script(),
        headline="".join(f"<p>{html.escape(sentence)}</p>" for sentence in headline),
        links=" ".join(f"<a href='#{s.anchor}'>{html.escape(s.title)}</a>" for s in sections),
        sections="".join(map(str, sections)),
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
        f"<p class='note'>{html.escape(chart.note)}</p><div class='controls'></div><div class='chart'></div>"
        "<p class='note panel-note'></p>"
    )
    return Section(chart.id, chart.title, body, "figure")


def table_section(table: Table) -> Section:
    head = "".join(f"<th>{html.escape(c)}</th>" for c in table.columns)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in row) + "</tr>" for row in table.rows)
    note = f"<p class='note'>{html.escape(table.note)}</p>" if table.note else ""
    field = "<div class='controls'><input type='search' placeholder='filter rows' aria-label='filter rows'></div>"
    shown = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return Section(table.name, table.title, f"{note}{field}<div class='wide'>{shown}</div>", "table")


def _picture(caption: str, path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    text = html.escape(caption)
    return f"<figure><img alt='{text}' src='data:image/png;base64,{data}'><figcaption>{text}</figcaption></figure>"


def data_section(downloads: Sequence[tuple[str, str]], settings: Any) -> Section:
    """Raw data as files embedded in the page, and the settings behind them."""
    links = " ".join(
        f"<a download='{html.escape(name)}.gz' href='data:application/gzip;base64,"
        f"{base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()}'>{html.escape(name)}.gz</a>"
        for name, text in downloads
    )
    shown = html.escape(json.dumps(settings, indent=1))
    details = f"<details><summary>settings and versions</summary><pre>{shown}</pre></details>"
    return Section("data", "Raw data", f"<p>Download {links}</p>{details}")


def report_run(run: str | os.PathLike, output: str | os.PathLike | None = None) -> dict[str, Any]:
    """One HTML page of a single run, by default inside its folder."""
    folder = Path(run)
    without_model = open_certificate(folder)
    if without_model is not None:
        return _report_open(folder, without_model, output)
    agent = load_run(folder)
    certificate = Certificate.from_json(folder / "certificate.json")
    points, seconds = _progress(folder / "progress.csv"), agent.session.planner.seconds
    bar = {"type": "bar", "x": list(seconds), "y": list(seconds.values()), "marker": {"color": "#0072B2"}}
    time = {"run": panel([bar], "", "seconds")}
    drawn = [_bounds(points, certificate.delta, certificate.objective.sense is Sense.MAX), _gap(points)]
    drawn.append(ReportChart("time", "Where the time went", "Seconds of the whole run.", time))
    estimate = point_estimate(agent.pmdp, agent.counts)
    shown = None if estimate is None else policy_map(agent.pmdp.instantiate(estimate), certificate.policy)
    if shown is not None:
        drawn.append(policy_chart({agent.pmdp.name: shown}, "The certified policy; visits at the point estimate."))
    return _write_run(folder, certificate, points, drawn, [_figures(certificate)], output)


def _report_open(folder: Path, certificate: OpenCertificate, output: str | os.PathLike | None) -> dict[str, Any]:
    """The same of a run without a model."""
    points = _progress(folder / "progress.csv")
    drawn = [_bounds(points, certificate.delta, True), _gap(points), discovered_chart(points)]
    return _write_run(folder, certificate, points, drawn, [open_figures(certificate), unknown_rows(folder)], output)


def _write_run(
    folder: Path,
    certificate: Any,
    points: dict[str, np.ndarray],
    drawn: list[ReportChart],
    tables: Sequence[Table],
    output: str | os.PathLike | None,
) -> dict[str, Any]:
    raw = [(name, (folder / name).read_text()) for name in ("progress.csv", "certificate.json")]
    sections = [*map(chart_section, drawn), *map(table_section, tables)]
    sections.append(data_section(raw, certificate.versions))
    target = folder / "report.html" if output is None else Path(output)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page(f"{certificate.model}: certified policy", str(certificate).splitlines(), sections, drawn))
    count = len(points["episodes"])
    text = f"{target}: {len(drawn)} charts from {count} log points"
    return {"page": str(target), "run": str(folder), "points": count, "charts": len(drawn), "text": text}


def _progress(path: Path) -> dict[str, np.ndarray]:
    """The columns of progress.csv; missing values are nan."""
    try:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        if not rows:
            raise ValueError("no log points yet")
        return {n: np.array([float(r[n]) if r.get(n) else math.nan for r in rows]) for n in rows[0]}
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: no progress to report: {error}") from None


def _bounds(points: dict[str, np.ndarray], delta: float, maximise: bool) -> ReportChart:
    x = points["episodes"]
    names = ("guarantee", "bound on every policy")
    lower, upper = names if maximise else reversed(names)
    series = [
        ("guarantee/lower", lower, "#0072B2"),
        ("guarantee/upper", upper, "#D55E00"),
        ("guarantee/estimate", "value at the point estimate", "#999999"),
        ("oracle/value", "true value of the policy", "#009E73"),
        ("oracle/optimum", "V*", "#CC79A7"),
    ]
    traces = [line(x, points[tag], name, colour) for tag, name, colour in series if tag in points]
    for trace in traces:
        trace["meta"] = {}
    better = "higher is better" if maximise else "lower is better"
    return ReportChart(
        "bounds",
        "The certified interval",
        f"δ = {delta:g}; {better}.",
        {"run": panel(traces, "episodes", "value", log_x=True)},
    )


def _gap(points: dict[str, np.ndarray]) -> ReportChart:
    """Gap and regret; a regret of 0, proved optimal, is below every logarithmic axis."""
    traces = [line(points["episodes"], points["guarantee/gap"], "gap: upper − lower", "#D55E00")]
    if "guarantee/regret" in points:  # runs of older versions have none
        regret = points["guarantee/regret"]
        shown = np.where(regret > 0.0, regret, np.nan)
        traces.append(line(points["episodes"], shown, "regret: no policy is better by more", "#0072B2"))
    for trace in traces:
        trace["meta"] = {}
    note = "Both axes logarithmic; the raw numbers, without smoothing."
    chart = panel(traces, "episodes", "gap and regret", log_x=True, log_y=True)
    return ReportChart("gap", "How the gap closes, and how far the policy is from the best", note, {"run": chart})


def _figures(certificate: Certificate) -> Table:
    """The certificate field by field."""
    skipped = {"policy", "timings", "versions", "objective"}
    lines = [["objective", certificate.objective.describe()]]
    for name, value in certificate.to_dict().items():
        if name not in skipped and value not in (None, "", {}, []):
            shown = short(value, 8) if isinstance(value, float) else value
            lines.append([name, shown if isinstance(shown, str) else json.dumps(shown)])
    return Table("certificate", "The certificate", ("field", "value"), lines)


OURS = ("likelihood", "coupled")
#: as the agent learns by default
AGENT = (*OURS, "certificate")
THEIRS = ("clopper-pearson", "rectangular")


def headline(rows: Sequence[Row]) -> list[str]:
    """What was run, how tight, how sample-efficient, whether it held, and how the agents compare."""
    groups = by_kind(rows)
    sentences = [_what(rows), _tightness(groups["uniform"]), _samples(groups["online"])]
    sentences += [_held(groups["uniform"], groups["online"]), _agents(groups["compare"])]
    return [sentence for sentence in sentences if sentence]


def _of(rows: Sequence[Row], chosen: tuple[str, ...]) -> dict[tuple, Row]:
    return {
        (r["task"]["instance"], r["task"]["seed"], r["task"]["episodes"]): r
        for r in rows
        if suites.set_of(r["task"]) == chosen
    }


def _what(rows: Sequence[Row]) -> str:
    worlds = {row["task"]["instance"] for row in rows if "instance" in row["task"]}
    commits = sorted({(row["run"].get("commit") or "unknown")[:10] for row in rows})
    machines = sorted({f"{row['run']['machine'].get('cpus')} cores" for row in rows})
    return f"{len(rows)} runs on {len(worlds)} worlds, measured on {', '.join(machines)} at {', '.join(commits)}."


def _tightness(rows: Sequence[Row]) -> str:
    ours, theirs = _of(rows, OURS), _of(rows, THEIRS)
    ratios = [
        number(ours[k]["result"]["relative_gap"]) / number(theirs[k]["result"]["relative_gap"])
        for k in ours.keys() & theirs.keys()
    ]
    ratios = [ratio for ratio in ratios if math.isfinite(ratio)]
    if not ratios:
        return ""
    return (
        f"On the same data the certified interval of {suites.set_name(*OURS)} is {median(ratios):.2f} times as wide as "
        f"that of the paper's tightest set in the median of {len(ratios)} instances (from {min(ratios):.2f} to "
        f"{max(ratios):.2f})."
    )


def _samples(rows: Sequence[Row]) -> str:
    shares = {}
    for name in sorted({row["task"]["instance"] for row in rows}):
        some = [row for row in rows if row["task"]["instance"] == name]
        mine, goal = list(_of(some, AGENT).values()), list(_of(some, ("anytime", "rectangular")).values())
        found = share(mine, goal) if mine and goal else None
        if found is not None:
            shares[name] = found
    if not shares:
        return ""
    best, worst = min(shares, key=shares.__getitem__), max(shares, key=shares.__getitem__)
    return (
        f"Learning online it needs {100 * median(shares.values()):.0f} % of the episodes (median) for the guarantee "
        f"with which the paper's set, made valid online, ends: {100 * shares[best]:.0f} % on {best}, "
        f"{100 * shares[worst]:.0f} % on {worst}."
    )


def _held(uniform: Sequence[Row], online: Sequence[Row]) -> str:
    valid = [row for row in online if row["task"]["confidence"] in ("likelihood", "anytime")]
    broken = sum(not row["result"]["covered"] for row in uniform) + sum(_violated(row) for row in valid)
    total = len(uniform) + len(valid)
    if not total:
        return ""
    held = "every one of them held" if not broken else f"{broken} of them did not hold"
    return f"{total} certified intervals were compared with the true values: {held}."


def _violated(row: Row) -> bool:
    """Whether a guarantee during the run exceeded the policy's true value."""
    sign = 1.0 if row["result"]["sense"] == "max" else -1.0
    tolerance = 1e-9 * max(1.0, abs(number(row["result"]["value"])))
    return any(
        sign * number(p["certified"]) > sign * number(p["true"]) + tolerance
        for p in row["result"]["curve"]
        if p["certified"] is not None and p["true"] is not None
    )


def _agents(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    certified = {r["task"]["agent"] for r in rows if r["result"]["curve"][-1]["certified"] is not None}
    agents = {row["task"]["agent"] for row in rows}
    runs = {(row["task"]["instance"], row["task"]["agent"], row["task"]["seed"]) for row in rows}
    seeds = min(Counter((world, agent) for world, agent, _ in runs).values())
    return (
        f"{len(agents)} agents were compared with at least {seeds} seeds each; "
        f"{len(agents - certified)} of them end without any guarantee."
    )


TITLE = "Robust parameter learning: measured results"


def write_tables(made: Sequence[Table], folder: Path) -> list[Path]:
    """CSV per table and one text file with all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for table in made:
        written.append(folder / f"{table.name}.csv")
        written[-1].write_text(table.to_csv())
    written.append(folder / "tables.md")
    written[-1].write_text("\n".join(table.to_markdown() for table in made))
    return written


def report(results: str | os.PathLike = "results", output: str | os.PathLike = "results/report.html") -> dict[str, Any]:
    """One HTML page from all rows of a folder, with PNG and CSV beside it."""
    rows = require_rows(results).all()
    target = Path(output)
    folder = target.parent / "figures"
    made = tables(rows)
    drawn = charts(rows)
    written = write_tables(made, target.parent / "tables") + figures(drawn, folder)
    worlds = [(name, world_picture(name, folder / "worlds" / f"{name}.png")) for name in _pictured(rows)]
    drawn += _policies([name for name, _ in worlds])
    sections = [chart_section(chart) for chart in drawn] + [table_section(table) for table in made]
    if worlds:
        pictures = "".join(_picture(name, path) for name, path in worlds)
        sections.append(Section("worlds", "The worlds", f"<div class='worlds'>{pictures}</div>"))
    raw = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)
    sections.append(data_section([("rows.jsonl", raw)], _settings(rows)))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page(TITLE, headline(rows), sections, drawn))
    written += [path for _, path in worlds]
    return {
        "page": os.fspath(target),
        "rows": len(rows),
        "tables": len(made),
        "charts": len(drawn),
        "files": [os.fspath(path) for path in written],
        "text": f"{target}: {len(made)} tables, {len(drawn)} charts from {len(rows)} runs",
    }


def _policies(names: Sequence[str]) -> list[ReportChart]:
    """The policy that is optimal at the true parameters, for one world per family."""
    maps: dict[str, PolicyMap] = {}
    for name in names:
        world = benchmark(name)
        best = solve_at(world.pmdp, world.theta, world.objective).policy
        shown = policy_map(world.pmdp.instantiate(np.array(world.theta)), best)
        if shown is not None:
            maps[name] = shown
    return [policy_chart(maps, "The optimal policy at the true parameters.")] if maps else []


def _pictured(rows: Sequence[Row]) -> list[str]:
    """The smallest instance of each family among the rows."""
    used = {re.sub(r"^rpl/|-v\d+$", "", row["task"]["instance"]) for row in rows if "instance" in row["task"]}
    families = {INSTANCES[name].family for name in used if name in INSTANCES}
    ordered = [f for f in dict.fromkeys(i.family for i in INSTANCES.values()) if f in families]
    return [next(n for n, i in INSTANCES.items() if i.family == family) for family in ordered]


def _settings(rows: Sequence[Row]) -> dict:
    """Everything that determines the numbers: the settings that occur, and the versions."""
    settings: dict[str, set] = {}
    for row in rows:
        for field, value in row["task"].items():
            settings.setdefault(field, set()).add(json.dumps(value))
    shown = {field: [json.loads(v) for v in sorted(values)] for field, values in settings.items()}
    versions = [json.loads(v) for v in sorted({json.dumps(row["run"]["versions"], sort_keys=True) for row in rows})]
    return {"tasks": shown, "versions": versions}
