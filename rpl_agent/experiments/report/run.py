"""The page of a single run: its certificate, how it closed, where the time went, and the policy on its world."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rpl_agent.certificate import Certificate
from rpl_agent.errors import DataError
from rpl_agent.experiments.report.charts import ReportChart, line, panel, policy_chart
from rpl_agent.experiments.report.page import chart_section, data_section, page, table_section
from rpl_agent.experiments.tables import Table, short
from rpl_agent.model import ParametricMDP, Sense
from rpl_agent.plotting.policy_map import policy_map


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
