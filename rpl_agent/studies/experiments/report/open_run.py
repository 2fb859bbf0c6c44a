"""The report of a run without a model: its interval, what was discovered, and rows of which nothing is known yet."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rpl_agent.agent.storage.open_state import OpenState, stored_ties
from rpl_agent.agent.storage.state import from_plain
from rpl_agent.guarantee.open_world.certificate import OpenCertificate
from rpl_agent.guarantee.open_world.ties import ADVICE
from rpl_agent.studies.experiments.report.charts import ReportChart, line, panel
from rpl_agent.studies.experiments.tables import Table, short

#: Most rows that are listed.
LISTED = 50
#: Tag, name and colour of what is discovered over the episodes.
DISCOVERED = (
    ("discovered/states", "states seen", "#0072B2"),
    ("discovered/rows_tried", "rows tried", "#009E73"),
    ("discovered/rows_unbounded", "rows whose bound is the largest return", "#D55E00"),
)


def discovered_chart(points: dict[str, np.ndarray]) -> ReportChart:
    """States and rows found over the episodes."""
    traces = [line(points["episodes"], points[tag], name, colour) for tag, name, colour in DISCOVERED if tag in points]
    for trace in traces:
        trace["meta"] = {}
    note = "A row is a state with an action. Rows that were never tried count as the largest return."
    return ReportChart(
        "discovered", "What was discovered", note, {"run": panel(traces, "episodes", "number", log_x=True)}
    )


def open_figures(certificate: OpenCertificate) -> Table:
    """The certificate field by field."""
    content = certificate.to_dict()
    return fields_table({name: value for name, value in content.items() if name not in ("policy", "versions")})


def fields_table(content: Mapping[str, Any]) -> Table:
    """Fields of a certificate that say something; numbers with all digits, as a rounded bound may be none."""
    lines = [
        [name, value if isinstance(value, str) else json.dumps(value)]
        for name, value in content.items()
        if value not in (None, "", {}, [])
    ]
    return Table("certificate", "The certificate", ("field", "value"), lines)


def proposed_ties(stored: OpenState) -> Table:
    """Rows that seem to draw from one distribution, and the gap if that were known."""
    lines = []
    for tie in stored_ties(stored)[:LISTED]:
        shown = ", ".join(f"{label!r} {share:.3f}" for label, share in zip(tie.labels, tie.shares))
        gap = short(tie.gap, 3) if math.isfinite(tie.gap) else "–"
        lines.append([str(tie.action), f"{len(tie.states):,}", shown, f"e^{tie.log_e_value:.1f}", gap])
    columns = ("action", "states", "where it leads, and how often", "e-value against", "gap with it and those above")
    return Table("proposed_ties", "Rows that look alike", columns, lines, f"{ADVICE[0].upper()}{ADVICE[1:]}.")


def unknown_rows(stored: OpenState) -> Table:
    """States whose best row has the largest bound, most visited first: where to look, or to state a fact."""
    lines = [[repr(state), shown, f"{visits:,}"] for state, shown, visits in _widest(stored)]
    title = "States with the largest bounds"
    return Table("unknown_rows", title, ("state", "bound on its best row", "visits of its rows"), lines)


def _widest(stored: OpenState) -> Sequence[tuple[object, str, int]]:
    bounds = stored.upper_rows[-1].reshape(len(stored.states), -1)
    visits = np.bincount(stored.rows, weights=stored.counts, minlength=bounds.size).reshape(bounds.shape)
    best = bounds.max(axis=1)
    order = np.lexsort((-visits.sum(axis=1), -best))[:LISTED]
    return [(from_plain(stored.states[s]), f"{best[s]:.6g}", int(visits[s].sum())) for s in order.tolist()]
