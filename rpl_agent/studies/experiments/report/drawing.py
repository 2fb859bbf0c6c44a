"""Charts as picture files: `draw` for one, `figures` for all that a sweep allows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rpl_agent.studies.experiments.report.charts import DASHES, ReportChart

DPI = 110
STYLES: dict[str, Any] = {"solid": "-", "dash": "--", "dot": ":"}
MARKERS = {"circle": "o", "x": "x"}
#: The paper's Figure 2 shows these worlds, its Figure 4 all.
FIGURE_2 = ("Aircraft-20x10", "ParallelBetting-6")


def figures(charts: Sequence[ReportChart], folder: Path) -> list[Path]:
    """Draw every figure that the charts allow; return the files."""
    found = {chart.id: chart for chart in charts}
    wanted: list[tuple[str, str, Sequence[str] | None]] = [(id, id, None) for id in ("gaps", "agents", "seconds")]
    wanted.append(("figure4", "online", None))
    if "online" in found and set(FIGURE_2) <= set(found["online"].panels):
        wanted.append(("figure2", "online", FIGURE_2))
    return [draw(found[id], folder / f"{name}.png", panels) for name, id, panels in wanted if id in found]


def draw(chart: ReportChart, path: Path, names: Sequence[str] | None = None) -> Path:
    """Draw the panels of a chart (all by default) side by side, without the kinds of lines that start hidden."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    names = list(chart.panels) if names is None else names
    hidden = {kind for kind, _, shown in chart.kinds if not shown}
    columns = min(3, len(names))
    lines = math.ceil(len(names) / columns)
    height = chart.panels[names[0]]["layout"].get("height")
    size = (9, height / 70) if height else (4.4 * columns, 3.4 * lines) if columns > 1 else (6.4, 4.4)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False)
    for axis in axes.flat[len(names) :]:
        axis.set_visible(False)
    for axis, name in zip(axes.flat, names):
        panel = chart.panels[name]
        shown = [t for t in panel["traces"] if "visible" not in t or t["mode"] == "markers"]
        _traces(axis, [t for t in shown if t.get("meta", {}).get("kind") not in hidden])
        _axes(axis, panel["layout"])
        axis.set_title("" if name == "all" else name, fontsize=10)
    handles = {label: handle for axis in axes.flat for handle, label in zip(*axis.get_legend_handles_labels())}
    for kind, label, at_first in chart.kinds:
        if at_first:
            handles[label] = Line2D([], [], color="black", linestyle=STYLES[DASHES[kind]])
    ncols = 4 if columns > 2 or height else 2
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=ncols, fontsize=8, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DPI, metadata={"Software": None})  # no version in the file: equal rows, equal bytes
    return path


def _traces(axis: Any, traces: Sequence[dict[str, Any]]) -> None:
    previous: dict[str, Any] = {}
    for trace in traces:
        x, y, label = trace["x"], trace["y"], trace.get("name") if trace.get("showlegend", True) else None
        if trace["mode"] == "markers":
            look = trace["marker"]
            label = None if look["symbol"] == "x" else label  # the paper's figures are explained by the axis
            axis.plot(x, y, MARKERS[look["symbol"]], color=look["color"], label=label, markersize=5)
        elif "fill" in trace:
            axis.fill_between(x, previous["y"], y, color=previous["colour"], alpha=0.15, linewidth=0)
        elif trace["line"]["width"]:
            look = trace["line"]
            previous = {"colour": look["color"]}
            axis.plot(x, y, STYLES[look.get("dash", "solid")], color=look["color"], linewidth=1.5, label=label)
        previous["y"] = y


def _axes(axis: Any, layout: dict[str, Any]) -> None:
    for letter in "xy":
        given = layout[f"{letter}axis"]
        if given["type"] == "log":
            getattr(axis, f"set_{letter}scale")("log")
        if "range" in given:
            getattr(axis, f"set_{letter}lim")(*given["range"])
        getattr(axis, f"set_{letter}label")(given["title"]["text"])
    if layout["yaxis"].get("autorange") == "reversed":
        axis.invert_yaxis()
        axis.grid(axis="x", alpha=0.3)
