"""Charts from rows alone: as plain Plotly specifications (dicts) for the page, and as PNG files.

A chart has one panel per world; its traces carry ``meta.kind`` so that the page can switch true values, guarantees
and upper bounds on and off.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rpl_agent.agent.output.plotting.policy_map import PolicyMap
from rpl_agent.studies.experiments import suites
from rpl_agent.studies.experiments.runner import Row, by_kind, grouped, number
from rpl_agent.studies.experiments.tables import interquartile_mean, ordered_instances, published, share

PALETTE = (
    "#D55E00",
    "#0072B2",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#999999",
    "#5A6B7B",
    "#8C564B",
    "#7A68A6",
    "#A6D854",
    "#FB8072",
    "#542788",
    "#E7298A",
    "#66A61E",
    "#A6761D",
    "#386CB0",
    "#F0027F",
    "#BF5B17",
)
#: (kind, label of its box, shown at first)
KINDS = (
    ("true", "return of the policy (solid; V^π)", True),
    ("guarantee", "guaranteed return (dashed; L, for costs U)", True),
    ("bound", "what no policy can beat (dotted; U, for costs L)", False),
)
#: Agents that a comparison shows initially, if it has all of them; the others are a click away.
SHOWN = {"rpl": "ours (rpl)", "ppo": "PPO", "dqn": "DQN"}
DASHES = {"true": "solid", "guarantee": "dash", "bound": "dot"}
#: Relative gaps beyond this are meaningless and are drawn at the border.
WIDEST = 10.0


@dataclass(frozen=True)
class ReportChart:
    """One figure of the page; ``panels`` maps the name of a world to its traces, layout and note."""

    id: str
    title: str
    note: str
    panels: dict[str, dict[str, Any]]
    kinds: Sequence[tuple[str, str, bool]] = ()


def charts(rows: Sequence[Row]) -> list[ReportChart]:
    """Every chart that the rows allow."""
    groups = by_kind(rows)
    online = (online_chart, gap_chart, share_chart, seconds_chart)
    made = {"compare": (compare_chart,), "online": online, "uniform": (uniform_chart,)}
    return [make(groups[kind]) for kind, makers in made.items() if groups[kind] for make in makers]


# ---------------------------------------------------------------------- lines over episodes
def band(rows: Sequence[Row], field: str) -> tuple[np.ndarray, ...]:
    """(episodes, middle, low, high) over seeds; omits points that some seed lacks.

    Agents with several copies of a world end several episodes in one step: a point belongs to the last checkpoint that
    was due then.
    """
    due = suites.checkpoints(rows[0]["task"]["episodes"])

    def checkpoint(episodes: int) -> int:
        return due[max(bisect_right(due, episodes) - 1, 0)]

    return summary([{checkpoint(p["episodes"]): number(p[field]) for p in row["result"]["curve"]} for row in rows])


def summary(curves: Sequence[dict[int, float]]) -> tuple[np.ndarray, ...]:
    common = sorted(set.intersection(*(set(c) for c in curves)))
    values = np.array([[c[n] for c in curves] for n in common]).reshape(len(common), len(curves))
    with np.errstate(invalid="ignore"):
        middle = interquartile_mean(values) if len(common) else np.zeros(0)
    return np.array(common), middle, values.min(axis=1, initial=math.inf), values.max(axis=1, initial=-math.inf)


def line(x: np.ndarray, y: np.ndarray, name: str, colour: str, kind: str = "true", legend: bool = True) -> dict:
    """A line through the finite points of (x, y)."""
    shown = np.isfinite(y)
    return {
        "x": x[shown].tolist(),
        "y": y[shown].tolist(),
        "name": name,
        "legendgroup": name,
        "showlegend": legend,
        "mode": "lines",
        "line": {"color": colour, "dash": DASHES.get(kind, "solid"), "width": 2},
        "meta": {"kind": kind},
        "hovertemplate": f"{name}, {kind}<br>at %{{x:,}}: %{{y:.6g}}<extra></extra>",
    }


def area(x: np.ndarray, low: np.ndarray, high: np.ndarray, name: str, colour: str, kind: str) -> list[dict]:
    """The band from the least to the largest seed, as two invisible lines with a filled space between."""
    shown = np.isfinite(low) & np.isfinite(high)
    common = {
        "x": x[shown].tolist(),
        "legendgroup": name,
        "showlegend": False,
        "mode": "lines",
        "hoverinfo": "skip",
        "line": {"width": 0},
        "meta": {"kind": kind},
    }
    fill = {"fill": "tonexty", "fillcolor": _transparent(colour)}
    return [{**common, "y": low[shown].tolist()}, {**common, "y": high[shown].tolist(), **fill}]


def _transparent(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.15)"


def _curves(rows: Sequence[Row], names: Callable[[Row], tuple[str, str]], over: str = "episodes") -> dict[str, Any]:
    """Learning curves over episodes or (the seeds' mean) steps: true value, guarantee, bound on every policy."""
    value, maximise = number(rows[0]["result"]["value"]), rows[0]["result"]["sense"] == "max"
    fields = {"true": "true", "guarantee": "certified", "bound": "upper" if maximise else "lower"}
    known = math.isfinite(value)
    traces, seen, ends = [], [value] if known else [], []
    endless: list[str] = []
    unbounded: list[str] = []
    for (name, colour), some in grouped(rows, names).items():
        first = True
        for kind, column in fields.items():
            if all(point.get(column) is None for row in some for point in row["result"]["curve"]):
                continue
            x, middle, low, high = band(some, column)
            x = x if over == "episodes" else band(some, over)[1]
            if kind != "bound" and len(middle) and not math.isfinite(middle[-1]):
                (endless if kind == "true" else unbounded).append(name)
            traces.append(line(x, middle, name, colour, kind, first))
            traces += area(x, low, high, name, colour, kind)
            first = False
            finite = middle[np.isfinite(middle)].tolist()
            if kind != "bound":
                seen += finite
            elif not known:  # shown in place of V*
                ends += finite[-1:]
    if known:
        traces.insert(0, _optimum(value, [x for trace in traces for x in trace["x"]]))  # behind the others
    better = "higher is better" if maximise else "lower is better"
    note = f"{better[0].upper()}{better[1:]}; bands span the seeds."
    quantity = "return" if maximise else "cost"
    if endless:
        note += f" No finite {quantity} at the end: {', '.join(sorted(endless))}."
    if unbounded:
        note += f" No finite guarantee at the end: {', '.join(sorted(unbounded))}."
    if not known:
        note += f" The truth is not known: returns are means of {rows[0]['result']['measured']:,} further episodes."
        nearest, best = (min, max) if maximise else (max, min)
        value = nearest(ends) if ends else best(seen, default=math.nan)
    reach = _reach(value, maximise, seen) if seen else None
    return panel(traces, over, f"{quantity} ({better})", note, log_x=True, y_range=reach)


def _optimum(value: float, places: Sequence[float]) -> dict[str, Any]:
    """The line of the best policy."""
    return {
        "x": [min(places), max(places)],
        "y": [value, value],
        "mode": "lines",
        "name": "the best policy (V*)",
        "line": {"color": "#777777", "width": 1.5},
        "hovertemplate": "V* = %{y:.6g}<extra></extra>",
    }


def _reach(value: float, maximise: bool, seen: Sequence[float]) -> list[float]:
    """The range of the vertical axis around V*: values far from it would hide the others."""
    low, high = min(seen), max(seen)
    margin = 0.06 * abs(value)
    if maximise:
        return [max(0.0, low) if value > 0.0 else max(low, 3.0 * value), value + margin]
    return [value - margin, min(3.0 * value, high + margin) if value > 0.0 else high + margin]


def panel(
    traces: list[dict],
    x_title: str,
    y_title: str,
    note: str = "",
    *,
    log_x: bool = False,
    log_y: bool = False,
    y_range: Sequence[float] | None = None,
) -> dict[str, Any]:
    layout: dict[str, Any] = {}
    for letter, title, log in (("x", x_title, log_x), ("y", y_title, log_y)):
        scale = log_axis([v for trace in traces for v in trace[letter]]) if log else {"type": "-"}
        layout[f"{letter}axis"] = {"title": {"text": title}, **scale, "automargin": True}
    if y_range is not None:
        layout["yaxis"]["range"] = list(y_range)
    return {"traces": traces, "layout": layout, "note": note}


#: Logarithmic axes over so many decades have labels at 2 and 5, too.
FEW_DECADES = (0.9, 3.0)


def log_axis(values: Sequence[float] | np.ndarray) -> dict[str, Any]:
    """A logarithmic axis over these values, with every label written out and marks between powers of ten."""
    given = np.asarray(values, dtype=float)
    positive = given[np.isfinite(given) & (given > 0.0)]
    axis: dict[str, Any] = {"type": "log", "tickformat": ","}  # without it 0.002 is a small "2"
    decades = math.log10(positive.max() / positive.min()) if len(positive) else 0.0
    if decades < FEW_DECADES[0]:
        return {**axis, "nticks": 5}
    marks = {"dtick": "D1", "ticks": "outside", "ticklen": 3}
    return {**axis, "dtick": "D2" if decades <= FEW_DECADES[1] else math.ceil(decades / 8.0), "minor": marks}


def _worlds(rows: Sequence[Row]) -> dict[str, list[Row]]:
    groups = grouped(rows, lambda row: row["task"]["instance"])
    return {name: groups[name] for name in ordered_instances(groups)}


def _set(row: Row) -> tuple[str, str]:
    chosen = suites.set_of(row["task"])
    return suites.set_name(*chosen), suites.SETS.get(chosen, ("", "#666666"))[1]


def online_chart(rows: Sequence[Row]) -> ReportChart:
    order = {s: i for i, s in enumerate(suites.ONLINE_SETS)}
    ranked = sorted(rows, key=lambda r: order.get(suites.set_of(r["task"]), len(order)))
    panels = {name: _curves(some, _set) for name, some in _worlds(ranked).items()}
    note = "Interquartile means over seeds. Click a name to hide it, click twice to see it alone."
    return ReportChart("online", "Learning online: values and guarantees", note, panels, KINDS)


def _by_set(rows: Sequence[Row], y_title: str, curve: Callable[[Sequence[Row]], Sequence]) -> dict[str, dict]:
    """Panels with one line per set, both axes logarithmic."""
    panels = {}
    for name, some in _worlds(rows).items():
        traces = []
        for (label, colour), group in grouped(some, _set).items():
            points, heights = curve(group)
            traces.append({**line(points, heights, label, colour, "gap"), "meta": {}})
        panels[name] = panel(traces, "episodes", y_title, "Lower is better.", log_x=True, log_y=True)
    return panels


def gap_chart(rows: Sequence[Row]) -> ReportChart:
    """Upper − lower relative to V*."""

    def gap(group: Sequence[Row]) -> tuple:
        (points, upper, *_), (_, lower, *_) = band(group, "upper"), band(group, "lower")
        return points, (upper - lower) / abs(number(group[0]["result"]["value"]))

    note = "Relative gap against episodes, log axes."
    return ReportChart("gap", "How the certified interval closes", note, _by_set(rows, "gap / V*", gap))


def seconds_chart(rows: Sequence[Row]) -> ReportChart:
    """Seconds of learning along the way."""

    def seconds(group: Sequence[Row]) -> tuple:
        curves = [zip(row["result"]["curve"], row["timing"]["curve"]) for row in group]
        return summary([{p["episodes"]: float(s) for p, s in curve} for curve in curves])[:2]

    note = "Without the time spent measuring."
    return ReportChart("seconds", "Seconds of learning", note, _by_set(rows, "seconds", seconds))


def share_chart(rows: Sequence[Row]) -> ReportChart:
    """The share of the episodes that a set needs for the final guarantee of the paper's set."""
    worlds = _worlds(rows)
    bars = []
    for chosen in suites.ONLINE_SETS:
        shares = []
        for some in worlds.values():
            mine, goal = (
                [row for row in some if suites.set_of(row["task"]) == s] for s in (chosen, ("anytime", "rectangular"))
            )
            found = share(mine, goal) if mine and goal else None
            shares.append(None if found is None else 100 * found)
        bars.append(
            {
                "type": "bar",
                "name": suites.set_name(*chosen),
                "x": list(worlds),
                "y": shares,
                "marker": {"color": suites.SETS[chosen][1]},
                "hovertemplate": "%{x}: %{y:.3g} %<extra></extra>",
            }
        )
    note = "No bar: not reached within the budget. P_I … P_R(U) are not valid online; anytime P_R is P_R made valid."
    shown = panel(bars, "", "episodes needed [%]", note)
    title = "Episodes needed for the guarantee with which anytime P_R ends"
    return ReportChart("shares", title, "Lower is better.", {"all": shown})


def uniform_chart(rows: Sequence[Row]) -> ReportChart:
    """Relative gaps after uniform sampling, one line of points per set; the paper's own figures as crosses."""
    most = max(row["task"]["episodes"] for row in rows)
    worlds = _worlds([row for row in rows if row["task"]["episodes"] == most])
    traces = []
    for chosen in suites.UNIFORM_SETS:
        found = {
            name: number(row["result"]["relative_gap"])
            for name, some in worlds.items()
            for row in some
            if suites.set_of(row["task"]) == chosen
        }
        if not found:
            continue
        name, colour = suites.SETS[chosen]
        traces.append(_points(found, name, colour, "circle"))
        paper = {n: p.gap for n in found if (p := published(n, *chosen)) is not None and p.gap is not None}
        if paper:
            traces.append({**_points(paper, f"{name}, published", colour, "x"), "visible": "legendonly"})
    note = f"Gaps above {WIDEST:g} and ∞ are drawn at the border."
    shown = panel(traces, "relative gap (log); crosses: the paper's", "", note, log_x=True)
    shown["layout"]["yaxis"] |= {"autorange": "reversed", "type": "category"}
    shown["layout"]["height"] = 120 + 26 * len(worlds)
    title = f"Relative gaps after {most:,} uniform episodes"
    return ReportChart(
        "gaps", title, "Bounds on the value of the true-optimal policy; lower is better.", {"all": shown}
    )


def _points(gaps: dict[str, float], name: str, colour: str, symbol: str) -> dict[str, Any]:
    text = ["∞" if math.isinf(g) else f"{g:.3g}" for g in gaps.values()]
    return {
        "x": [min(g, WIDEST) for g in gaps.values()],
        "y": list(gaps),
        "name": name,
        "mode": "markers",
        "text": text,
        "marker": {"color": colour, "symbol": symbol, "size": 9},
        "hovertemplate": f"{name}<br>%{{y}}: %{{text}}<extra></extra>",
    }


def compare_chart(rows: Sequence[Row]) -> ReportChart:
    agents = sorted(suites.agent_order(row["task"]["agent"] for row in rows), key=lambda name: name not in SHOWN)
    colour = {agent: PALETTE[i % len(PALETTE)] for i, agent in enumerate(agents)}
    ranked = sorted(rows, key=lambda row: agents.index(row["task"]["agent"]))
    panels = {
        name: _curves(some, lambda row: (SHOWN.get(agent := row["task"]["agent"], agent), colour[agent]), "steps")
        for name, some in _worlds(ranked).items()
    }
    for trace in (trace for panel in panels.values() for trace in panel["traces"] if set(SHOWN) <= set(agents)):
        if trace.get("legendgroup") in agents:  # not one of those, which have names of their own
            trace["visible"] = "legendonly"
    note = "Only agents that certify guarantee a return. Click a name to show or hide it, click twice to see it alone."
    # where V* is not known, what no policy can beat is the nearest to it
    unknown = any(row["result"]["value"] is None for row in rows)
    kinds = [(kind, label, shown or unknown) for kind, label, shown in KINDS]
    return ReportChart("agents", "Return and guarantee against environment steps", note, panels, kinds)


# -- policies --------------------------------------------------------------------------------------------------------
#: above this many cells there are no symbols, because they would be unreadable
READABLE = 1500
#: up to this many cells side by side have a mark of their own on the axis
READABLE_MARKS = 12


def policy_chart(maps: Mapping[str, PolicyMap], title: str, note: str) -> ReportChart:
    panels = {name: _panel(shown) for name, shown in maps.items()}
    return ReportChart("policies", title, note, panels)


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
        "type": "heatmap",
        "x": shown.xs.tolist(),
        "y": shown.ys.tolist(),
        "z": blank,
        "text": hover,
        "zmin": -0.5,
        "zmax": len(names) - 0.5,
        "colorscale": _steps(len(names)),
        "opacity": 0.75,
        "xgap": 1,
        "ygap": 1,
        "colorbar": {"tickvals": list(range(len(names))), "ticktext": shown.legend},
        "hovertemplate": "%{text}<extra></extra>",
    }
    traces = [trace]
    if shown.action.size <= READABLE:
        ys, xs = np.nonzero(shown.symbols != "")
        traces.append(
            {
                "mode": "text",
                "x": shown.xs[xs].tolist(),
                "y": shown.ys[ys].tolist(),
                "hoverinfo": "skip",
                "text": shown.symbols[ys, xs].tolist(),
                "showlegend": False,
                "textfont": {"size": 13},
            }
        )
    note = "Empty cells are (almost) never visited; where states share a cell, the action played there most is shown."
    if shown.ends:
        note += f" Plays are over in {', '.join(f'{letter} ({name})' for letter, name in shown.ends.items())}."
    made = panel(traces, shown.axes[0], shown.axes[1], note)
    for axis, values in (("xaxis", shown.xs), ("yaxis", shown.ys)):
        made["layout"][axis] |= {"showgrid": False, "zeroline": False}
        if values.dtype.kind in "iu" and np.ptp(values) <= READABLE_MARKS:
            made["layout"][axis]["dtick"] = 1  # there is no half of a cell
    if shown.downward:
        made["layout"]["yaxis"]["autorange"] = "reversed"
    return made


def _steps(count: int) -> list[list]:
    """A colour scale with one flat colour per action."""
    scale = []
    for k in range(count):
        colour = PALETTE[k % len(PALETTE)]
        scale += [[k / count, colour], [(k + 1) / count, colour]]
    return scale


def world_picture(instance: str, path: Path) -> Path:
    """The rendered picture of a world after a few random steps."""
    import gymnasium as gym
    from matplotlib.image import imsave

    env = gym.make(f"rpl/{instance}-v0", render_mode="rgb_array")
    try:
        _, info = env.reset(seed=7)
        rng = np.random.default_rng(7)
        for _ in range(6):
            _, _, terminated, truncated, following = env.step(int(rng.choice(np.flatnonzero(info["action_mask"]))))
            info = following
            if terminated or truncated:
                break
        picture = np.asarray(env.render())
    finally:
        env.close()
    path.parent.mkdir(parents=True, exist_ok=True)
    imsave(path, picture)
    return path
