"""Figures from rows alone; the only file of the experiments that draws."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rpl_agent.experiments import suites
from rpl_agent.experiments.published import published
from rpl_agent.experiments.statistics import interquartile_mean
from rpl_agent.experiments.store import Row, number
from rpl_envs import INSTANCES

#: One colour per set, the same in every figure; safe for colour-blind readers (Okabe and Ito).
COLOURS: dict[tuple[str, ...], str] = {
    ("clopper-pearson", "tied"): "#999999", ("clopper-pearson", "parameter"): "#E69F00",
    ("clopper-pearson", "expression"): "#56B4E9", ("clopper-pearson", "rectangular"): "#0072B2",
    ("ellipsoid", "parameter"): "#F0E442", ("ellipsoid", "expression"): "#CCBB44",
    ("ellipsoid", "rectangular"): "#AA8800", ("l1", "rectangular"): "#CC79A7",
    ("anytime", "rectangular"): "#009E73", ("likelihood", "expression"): "#F4A582",
    ("likelihood", "rectangular"): "#D55E00",
    ("clopper-pearson", "coupled"): "#0b7285", ("likelihood", "coupled"): "#c2255c",
    ("likelihood", "coupled", "certificate"): "#5f3dc4",
}  # fmt: skip
PALETTE = (
    "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999999", "#5A6B7B", "#8C564B", "#7A68A6",
    "#A6D854", "#FB8072", "#542788", "#E7298A", "#66A61E", "#A6761D", "#386CB0", "#F0027F", "#BF5B17",
)  # fmt: skip
DPI = 110
#: Relative gaps beyond this (some are infinite) are drawn at the border: such a bound says nothing.
WIDEST = 10.0


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg", force=False)
    from matplotlib import pyplot

    return pyplot


def band(rows: Sequence[Row], field: str) -> tuple[np.ndarray, ...]:
    """(episodes, middle, low, high) over seeds; points that not all seeds have are left out.

    Agents with several copies of a world end some episodes in one step: a point belongs to the last checkpoint that was
    due then.
    """
    due = suites.checkpoints(rows[0]["task"]["episodes"])

    def checkpoint(episodes: int) -> int:
        return due[max(bisect_right(due, episodes) - 1, 0)]

    return _summary([{checkpoint(p["episodes"]): number(p[field]) for p in row["result"]["curve"]} for row in rows])


def _summary(curves: Sequence[dict[int, float]]) -> tuple[np.ndarray, ...]:
    common = sorted(set.intersection(*(set(c) for c in curves)))
    values = np.array([[c[n] for c in curves] for n in common]).reshape(len(common), len(curves))
    with np.errstate(invalid="ignore"):
        middle = interquartile_mean(values) if len(common) else np.zeros(0)
    return np.array(common), middle, values.min(axis=1, initial=math.inf), values.max(axis=1, initial=-math.inf)


def _draw(axis: Any, summary: tuple[np.ndarray, ...], colour: str, label: str | None, dashed: bool = False) -> None:
    n, middle, low, high = summary
    shown = np.isfinite(middle)
    if not shown.any():
        return
    axis.plot(n[shown], middle[shown], color=colour, linestyle="--" if dashed else "-", linewidth=1.6, label=label)
    band = shown & np.isfinite(low) & np.isfinite(high)
    axis.fill_between(n[band], low[band], high[band], color=colour, alpha=0.15, linewidth=0)


def _limits(axis: Any, value: float, lines: Sequence[np.ndarray], maximise: bool) -> None:
    """Show V* and what comes near it; a guarantee that is still far away leaves the frame."""
    finite = np.concatenate([line[np.isfinite(line)] for line in lines]) if lines else np.array([value])
    if maximise:
        axis.set_ylim(max(0.0, finite.min(initial=value)), value + 0.06 * abs(value))
    else:
        axis.set_ylim(0.94 * value, min(3.0 * value, 1.05 * finite.max(initial=value)))


def _panel(top: Any, bottom: Any, rows: Sequence[Row], title: str) -> None:
    """Values above, seconds below, for one world's online runs."""
    groups: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[suites.set_of(row["task"])].append(row)
    value, maximise = number(rows[0]["result"]["value"]), rows[0]["result"]["sense"] == "max"
    lines = []
    order = {s: i for i, s in enumerate(suites.ONLINE_SETS)}
    for chosen in sorted(groups, key=lambda s: order.get(s, len(order))):
        some, colour = groups[chosen], COLOURS.get(chosen, "#333333")
        true, certified = band(some, "true"), band(some, "certified")
        _draw(top, true, colour, suites.set_name(*chosen))
        _draw(top, certified, colour, None, dashed=True)
        lines += [true[1], certified[1]]
        seconds = [
            dict(zip((p["episodes"] for p in row["result"]["curve"]), map(float, row["timing"]["curve"])))
            for row in some
        ]
        _draw(bottom, _summary(seconds), colour, None)
    top.axhline(value, color="black", linewidth=0.8, linestyle=":")
    _limits(top, value, lines, maximise)
    top.set_title(title, fontsize=10)
    top.set_xscale("log")
    bottom.set_xscale("log")
    bottom.set_yscale("log")
    bottom.yaxis.minorticks_off()
    bottom.set_xlabel("trajectories")


def online_figure(rows: Sequence[Row], path: Path, instances: Sequence[str] | None = None) -> Path:
    """Figure 4 (all learning worlds), or Figure 2 (some of them)."""
    plt = _pyplot()
    known = list(INSTANCES)
    names = sorted({r["task"]["instance"] for r in rows}, key=lambda n: known.index(n) if n in known else len(known))
    names = [n for n in names if instances is None or n in instances]
    columns = min(3, len(names))
    lines = math.ceil(len(names) / columns)
    ratios = [2.4, 1.0] * lines
    figure, axes = plt.subplots(
        2 * lines, columns, figsize=(4.3 * columns, 4.4 * lines), squeeze=False, gridspec_kw={"height_ratios": ratios},
        layout="constrained",
    )  # fmt: skip
    for axis in axes.flat:
        axis.set_visible(False)
    for i, name in enumerate(names):
        top, bottom = axes[2 * (i // columns)][i % columns], axes[2 * (i // columns) + 1][i % columns]
        top.set_visible(True)
        bottom.set_visible(True)
        _panel(top, bottom, [r for r in rows if r["task"]["instance"] == name], name)
        if i % columns == 0:
            top.set_ylabel("value of the robust policy")
            bottom.set_ylabel("seconds")
    handles, labels = axes[0][0].get_legend_handles_labels()
    columns = min(6, max(1, len(labels)))
    figure.legend(handles, labels, loc="outside upper center", ncols=columns, fontsize=9, frameon=False)
    figure.supxlabel("solid: true value; dashed: guarantee; dotted: V*; bands: all seeds", fontsize=9)
    return _save(plt, figure, path)


def gaps_figure(rows: Sequence[Row], path: Path) -> Path:
    """Relative gaps of all sets, one line per instance; crosses are the paper's."""
    plt = _pyplot()
    known = list(INSTANCES)
    names = sorted({r["task"]["instance"] for r in rows}, key=lambda n: known.index(n) if n in known else len(known))
    figure, axis = plt.subplots(figsize=(9, 0.36 * len(names) + 1.6), layout="constrained")
    used = {suites.set_of(r["task"]) for r in rows}
    sets = [s for s in suites.UNIFORM_SETS if s in used]
    for chosen in sets:
        label: str | None = suites.set_name(*chosen)
        for row in rows:
            task = row["task"]
            gap = number(row["result"]["relative_gap"])
            if suites.set_of(task) != chosen or math.isnan(gap) or gap <= 0:
                continue
            y = names.index(task["instance"])
            marker = ">" if gap > WIDEST else "D" if chosen[0] == "likelihood" else "o"
            gap = min(gap, WIDEST)
            edge = {"markeredgecolor": "white", "markeredgewidth": 0.5}
            axis.plot(gap, y, marker, color=COLOURS[chosen], label=label, markersize=6, **edge)
            label = None  # one entry per set in the legend
            paper = published(task["instance"], *chosen)
            if paper is not None and paper.gap:
                axis.plot(min(paper.gap, WIDEST), y + 0.22, "x", color=COLOURS[chosen], markersize=5)
    axis.set_xscale("log")
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.grid(axis="x", alpha=0.3)
    axis.set_xlabel("relative gap of the true-optimal policy (filled: ours; crosses: the paper's; ▷ beyond)")
    figure.legend(*axis.get_legend_handles_labels(), loc="outside upper center", ncols=6, fontsize=8, frameon=False)
    return _save(plt, figure, path)


def compare_figure(rows: Sequence[Row], path: Path) -> Path:
    """Learning curves of all agents, one panel per world: true values solid, certified values dashed."""
    plt = _pyplot()
    known = list(INSTANCES)
    names = sorted({r["task"]["instance"] for r in rows}, key=lambda n: known.index(n) if n in known else len(known))
    agents = suites.agent_order(r["task"]["agent"] for r in rows)
    columns = min(3, len(names))
    lines = math.ceil(len(names) / columns)
    size = (4.6 * columns, 3.4 * lines)
    figure, axes = plt.subplots(lines, columns, figsize=size, squeeze=False, layout="constrained")
    for axis in axes.flat[len(names) :]:
        axis.set_visible(False)
    for axis, name in zip(axes.flat, names):
        drawn = []
        for i, agent in enumerate(agents):
            some = [r for r in rows if r["task"]["instance"] == name and r["task"]["agent"] == agent]
            if not some:
                continue
            colour = PALETTE[i % len(PALETTE)]
            true = band(some, "true")
            _draw(axis, true, colour, agent)
            drawn.append(true[1])
            if any(p["certified"] is not None for p in some[0]["result"]["curve"]):
                _draw(axis, band(some, "certified"), colour, None, dashed=True)
        first = next(r for r in rows if r["task"]["instance"] == name)
        value = number(first["result"]["value"])
        axis.axhline(value, color="black", linewidth=0.8, linestyle=":")
        _limits(axis, value, drawn, first["result"]["sense"] == "max")
        axis.set_xscale("log")
        axis.set_title(name, fontsize=10)
        axis.set_xlabel("episodes")
    axes[0][0].set_ylabel("value")
    handles = {label: handle for axis in axes.flat for handle, label in zip(*axis.get_legend_handles_labels())}
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=6, fontsize=8, frameon=False)
    return _save(plt, figure, path)


def world_picture(instance: str, path: Path) -> Path:
    """The rendered picture of a world after a few random steps."""
    import gymnasium as gym

    plt = _pyplot()
    env = gym.make(f"rpl/{instance}-v0", render_mode="rgb_array")
    try:
        _, info = env.reset(seed=7)
        rng = np.random.default_rng(7)
        for _ in range(6):
            _, _, terminated, truncated, following = env.step(int(rng.choice(np.flatnonzero(info["action_mask"]))))
            info = following
            if terminated or truncated:
                break
        picture = env.render()
    finally:
        env.close()
    path.parent.mkdir(parents=True, exist_ok=True)
    plt.imsave(path, picture)
    return path


def _save(plt: Any, figure: Any, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DPI, metadata={"Software": None})  # no version in the file: equal rows, equal bytes
    plt.close(figure)
    return path


def figures(rows: Sequence[Row], folder: Path) -> list[tuple[str, Path]]:
    """(caption, file) of every figure that the rows allow."""
    by_kind: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_kind[row["task"]["kind"]].append(row)
    found = []
    online = by_kind["online"]
    pair = [n for n in ("Aircraft-20x10", "ParallelBetting-6") if any(r["task"]["instance"] == n for r in online)]
    if len(pair) == 2:
        found.append(("Figure 2: online learning on two worlds", online_figure(online, folder / "figure2.png", pair)))
    if online:
        found.append(("Figure 4: online learning", online_figure(online, folder / "figure4.png")))
    if by_kind["uniform"]:
        most = max(r["task"]["episodes"] for r in by_kind["uniform"])
        rows_of_most = [r for r in by_kind["uniform"] if r["task"]["episodes"] == most]
        caption = f"Relative gaps after {most:,} uniform trajectories"
        found.append((caption, gaps_figure(rows_of_most, folder / "gaps.png")))
    if by_kind["compare"]:
        found.append(("Comparison of agents", compare_figure(by_kind["compare"], folder / "compare.png")))
    return found
