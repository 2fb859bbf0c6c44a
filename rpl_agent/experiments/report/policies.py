"""Policy maps as charts: arrows on grids, bet sizes over money."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rpl_agent.experiments.report.charts import PALETTE, ReportChart, panel
from rpl_agent.plotting.policy_map import PolicyMap

#: more cells than this get no symbols: they could not be read
READABLE = 1500


def policy_chart(maps: Mapping[str, PolicyMap], note: str) -> ReportChart:
    panels = {name: _panel(shown) for name, shown in maps.items()}
    return ReportChart("policies", "Policies on their worlds", note, panels)


def _panel(shown: PolicyMap) -> dict:
    names = shown.action_names
    blank = [[None if a < 0 else a for a in row] for row in shown.action.tolist()]
    hover = [
        [
            "" if a < 0 else f"{shown.axes[0]} {x}, {shown.axes[1]} {y}: {names[a]}, {v:.3g} visits per play"
            for x, a, v in zip(shown.xs, row, visits)
        ]
        for y, row, visits in zip(shown.ys, shown.action, shown.visits)
    ]
    trace = {
        "type": "heatmap", "x": shown.xs.tolist(), "y": shown.ys.tolist(), "z": blank, "text": hover,
        "zmin": -0.5, "zmax": len(names) - 0.5, "colorscale": _steps(len(names)), "opacity": 0.75, "xgap": 1, "ygap": 1,
        "colorbar": {"tickvals": list(range(len(names))), "ticktext": shown.legend},
        "hovertemplate": "%{text}<extra></extra>",
    }  # fmt: skip
    traces = [trace]
    if shown.action.size <= READABLE:
        ys, xs = np.nonzero(shown.action >= 0)
        traces.append({
            "mode": "text", "x": shown.xs[xs].tolist(), "y": shown.ys[ys].tolist(), "hoverinfo": "skip",
            "text": shown.symbols[ys, xs].tolist(), "showlegend": False, "textfont": {"size": 13},
        })  # fmt: skip
    note = "Empty cells are (almost) never visited; where states share a cell, the action played there most is shown."
    made = panel(traces, shown.axes[0], shown.axes[1], note)
    for axis in ("xaxis", "yaxis"):
        made["layout"][axis] |= {"showgrid": False, "zeroline": False}
    return made


def _steps(count: int) -> list[list]:
    """A colour scale with one flat colour per action."""
    scale = []
    for k in range(count):
        colour = PALETTE[k % len(PALETTE)]
        scale += [[k / count, colour], [(k + 1) / count, colour]]
    return scale
