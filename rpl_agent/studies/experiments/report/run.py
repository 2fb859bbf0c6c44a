"""The page of a single run: the answer, how the interval closed, the policy on its world, where the time went."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rpl_agent.agent.output.plotting.policy_map import PolicyMap, policy_map
from rpl_agent.agent.runs import load_run, open_certificate, require_certificate
from rpl_agent.agent.storage.checkpoint import CHECKPOINT, read_latest
from rpl_agent.agent.storage.open_state import read_open
from rpl_agent.core.errors import DataError
from rpl_agent.core.model import ParametricMDP, Sense
from rpl_agent.core.model.pmdp import UNNAMED
from rpl_agent.guarantee.certificate import Certificate
from rpl_agent.guarantee.likelihood.estimate import point_estimate
from rpl_agent.guarantee.open_world.certificate import OpenCertificate
from rpl_agent.studies.experiments.report.answer import POLICY, answer, closing_chart, open_answer, rivals
from rpl_agent.studies.experiments.report.charts import READABLE, ReportChart, panel, policy_chart
from rpl_agent.studies.experiments.report.open_run import (
    LISTED,
    discovered_chart,
    fields_table,
    open_figures,
    proposed_ties,
    unknown_rows,
)
from rpl_agent.studies.experiments.report.page import chart_section, counted, data_section, page, table_section
from rpl_agent.studies.experiments.tables import Table


def report_run(run: str | os.PathLike, output: str | os.PathLike | None = None) -> dict[str, Any]:
    """One HTML page of a single run, by default inside its folder."""
    folder = Path(run)
    without_model = open_certificate(folder)
    if without_model is not None:
        return _report_open(folder, without_model, output)
    agent = load_run(folder)
    certificate = Certificate.from_json(require_certificate(folder))
    points, seconds = _progress(folder / "progress.csv"), agent.session.planner.seconds
    maximise = certificate.objective.sense is Sense.MAX
    drawn = [closing_chart(points, certificate, maximise, rivals(certificate))]
    estimate = point_estimate(agent.pmdp, agent.counts)
    shown = None if estimate is None else policy_map(agent.pmdp.instantiate(estimate), certificate.policy)
    undecided = agent.undecided_pairs() if certificate.undecided else None
    if shown is not None:
        drawn.append(_policy(agent.pmdp, shown, undecided or []))
    drawn.append(_time(seconds))
    tables = ([] if undecided is None else [_undecided(undecided)]) + [_figures(certificate)]
    return _write_run(folder, certificate, answer(certificate, points), drawn, tables, output)


def _policy(pmdp: ParametricMDP, shown: PolicyMap, undecided: Sequence[Mapping[str, Any]]) -> ReportChart:
    """The policy on its world, with a ring around states where another action may be better."""
    note = "Visits at the point estimate."
    if not undecided:
        return policy_chart({pmdp.name: shown}, "The certified policy", note)
    note += " Ringed: states where another action may be better, so that more data would still matter."
    chart = policy_chart({pmdp.name: shown}, "The certified policy", note)
    states = sorted({pair["state"] for pair in undecided})
    x, y = (np.asarray(pmdp.variables[name])[states].tolist() for name in shown.axes)
    size = 20 if shown.action.size <= READABLE else 7
    ring = {"symbol": "circle-open", "size": size, "color": "#E6007E", "line": {"width": 2}}
    chart.panels[pmdp.name]["traces"].append(
        {"mode": "markers", "x": x, "y": y, "marker": ring, "hoverinfo": "skip", "showlegend": False}
    )
    return chart


def _undecided(pairs: Sequence[Mapping[str, Any]]) -> Table:
    """State-action pairs that may be part of a better policy."""
    lines = [
        [pair["name"], pair["action"], pair["played"], f"{pair['visits']:.3g}", f"{pair['tried']:,}"]
        for pair in pairs[:LISTED]
    ]
    columns = ("state", "action that may be better", "the policy's action", "visits per play", "times tried")
    left = f" The {LISTED} most visited of {len(pairs):,} are shown." if len(pairs) > LISTED else ""
    note = (
        "All other actions are proved to be no better. Visits of the state by the policy, at the point estimate." + left
    )
    return Table("undecided", "The states where more data would still matter", columns, lines, note=note)


def _time(seconds: Mapping[str, float]) -> ReportChart:
    """Seconds per stage; stages that took none are left out."""
    spent = {stage: taken for stage, taken in seconds.items() if taken > 0.0}
    bar = {"type": "bar", "x": list(spent), "y": list(spent.values()), "marker": {"color": POLICY}}
    return ReportChart("time", "Where the time went", "Seconds of the whole run.", {"run": panel([bar], "", "seconds")})


def _report_open(folder: Path, certificate: OpenCertificate, output: str | os.PathLike | None) -> dict[str, Any]:
    """The same of a run without a model."""
    points = _progress(folder / "progress.csv")
    drawn = [closing_chart(points, certificate, True), discovered_chart(points)]
    stored = read_open(*read_latest(folder / CHECKPOINT))
    tables = [open_figures(certificate), unknown_rows(stored), proposed_ties(stored)]
    return _write_run(folder, certificate, open_answer(certificate, points), drawn, tables, output)


def _write_run(
    folder: Path,
    certificate: Any,
    headline: str,
    drawn: list[ReportChart],
    tables: Sequence[Table],
    output: str | os.PathLike | None,
) -> dict[str, Any]:
    raw = [(name, (folder / name).read_text()) for name in ("progress.csv", "certificate.json")]
    sections = [*map(chart_section, drawn), *map(table_section, tables)]
    sections.append(data_section(raw, certificate.versions))
    target = folder / "report.html" if output is None else Path(output)
    target.parent.mkdir(parents=True, exist_ok=True)
    name = folder.resolve().name if certificate.model == UNNAMED else certificate.model
    target.write_text(page(f"{name}: certified policy", headline, sections, drawn))
    text = f"{target}: {counted(len(drawn), 'chart')}, {counted(len(tables), 'table')}"
    return {"page": str(target), "run": str(folder), "charts": len(drawn), "text": text}


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


def _figures(certificate: Certificate) -> Table:
    """The certificate field by field."""
    skipped = {"policy", "timings", "versions", "objective"}
    kept = {name: value for name, value in certificate.to_dict().items() if name not in skipped}
    return fields_table({"objective": certificate.objective.describe(), **kept})
