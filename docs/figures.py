"""Draw the pictures of docs/concepts.md and the README from our own code: `python docs/figures.py`.

images/pipeline.png   the paper's Figure 1: a parametric MDP, the learned intervals, the confidence region
images/one_parameter.png bounds of the drifting walk: rectangular, coupled, exact
images/hero.png       return, guarantee and regret of one run of ours; PPO and DQN behind, from results/ (`rpl compare`)
images/aircraft.png … the six worlds of docs/environments.md
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import gymnasium as gym
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import rpl_envs
from rpl_agent.cli import main
from rpl_agent.core.coupled import coupled_bounds
from rpl_agent.core.evidence.intervals import confidence_intervals
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.model import Domain, Nature, Objective, build
from rpl_agent.core.regions.lifting import build_region
from rpl_agent.core.relaxations.interval import Point
from rpl_agent.core.relaxations.rectangular import Rectangular
from rpl_agent.core.solver import solve, solve_both
from rpl_agent.guarantee.shown import true_value
from rpl_agent.studies.experiments.report.charts import band
from rpl_agent.studies.experiments.runner import require_rows

IMAGES = Path(__file__).resolve().parent / "images"
TRUE = {"t1": 0.45, "t2": 0.6}
#: the rover of the paper's introduction: two channels with unknown reliabilities t1, t2
ROWS = {
    ("s0", "a"): {"s1": "0.7*t1 + 0.3*t2", "s2": "1 - 0.7*t1 - 0.3*t2"},
    ("s0", "b"): {"s2": "0.7*t1 + 0.3*t2", "s0": "1 - 0.7*t1 - 0.3*t2"},
    ("s1", "b"): {"s2": "0.2*t1 + 0.6*t2", "s3": "1 - 0.2*t1 - 0.6*t2"},
    ("s2", "a"): {"s3": "0.9*t1 + 0.05*t2", "s2": "1 - 0.9*t1 - 0.05*t2"},
    ("s3", "a"): {"s3": 1},
}
POSITIONS = {"s0": (0, 1), "s1": (1, 1), "s2": (0, 0), "s3": (1, 0)}
COLOR = "#8c2d19"
#: pixels: how wide the site shows a picture on a large screen, and the least height of its text there
COLUMN, SMALLEST = 700, 9
LABEL = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}


def save(figure, name: str, dpi: int) -> None:
    """Write a picture whose text can be read where it is shown, in the column of the site."""
    sizes = [text.get_fontsize() for text in figure.findobj(matplotlib.text.Text) if text.get_text().strip()]
    shown = min(sizes) / 72 * COLUMN / figure.get_figwidth()
    if shown < SMALLEST:
        raise ValueError(f"{name}: its smallest text is {shown:.1f} pixels high in a column of {COLUMN}")
    figure.savefig(IMAGES / name, dpi=dpi, metadata={"Software": None})
    plt.close(figure)


def rover():
    def actions(state):
        return {a: row for (s, a), row in ROWS.items() if s == state}

    return build("s0", actions, domain=Domain.box(["t1", "t2"]), labels={"done": lambda s: s == "s3"}, name="rover")


def draw_model(axis, text) -> None:
    """The model as a small graph; ``text`` labels an edge (state, action, successor)."""
    for name, (x, y) in POSITIONS.items():
        axis.scatter([x], [y], s=1500, color="#f1e1de", edgecolor="black", zorder=3, linewidth=1.5)
        axis.text(x, y, f"${name[0]}_{name[1]}$", ha="center", va="center", zorder=4, fontsize=13)
    for (s, a, t), (dx, dy, bend) in {
        ("s0", "a", "s1"): (0.0, 0.1, 0.0), ("s0", "a", "s2"): (0.25, 0.22, -0.35),
        ("s0", "b", "s2"): (-0.25, 0.0, 0.35),
        ("s1", "b", "s3"): (0.12, 0.0, 0.0), ("s1", "b", "s2"): (0.0, -0.2, 0.0), ("s2", "a", "s3"): (0.0, -0.12, 0.0),
    }.items():  # fmt: skip
        start, end = np.array(POSITIONS[s], dtype=float), np.array(POSITIONS[t], dtype=float)
        axis.annotate(
            "", end, start,
            arrowprops={"arrowstyle": "-|>", "shrinkA": 20, "shrinkB": 20, "connectionstyle": f"arc3,rad={bend}"},
        )  # fmt: skip
        x, y = (start + end) / 2 + (dx, dy)
        axis.text(x, y, f"{a}: {text(s, a, t)}", ha="center", va="center", fontsize=10, bbox=LABEL)
    axis.set_xlim(-0.75, 1.55)
    axis.set_ylim(-0.35, 1.3)
    axis.axis("off")


def draw_region(axis, model, lower, upper) -> None:
    """Each learned interval is a strip in parameter space; U is where all of them meet."""
    table = model.table
    grid = np.linspace(0, 1, 600)
    x, y = np.meshgrid(grid, grid)
    values = table.at(np.column_stack([x.ravel(), y.ravel()]))
    inside = np.ones(len(values), dtype=bool)
    for f in np.flatnonzero(~table.is_constant):
        strip = (values[:, f] >= lower[f]) & (values[:, f] <= upper[f])
        inside &= strip
        axis.contour(x, y, values[:, f].reshape(x.shape), levels=[lower[f], upper[f]], colors="grey", linewidths=0.8)
    axis.contourf(x, y, inside.reshape(x.shape), levels=[0.5, 1.5], colors=[COLOR], alpha=0.75)
    axis.scatter(*TRUE.values(), color="white", edgecolor="black", zorder=5, s=28)
    axis.annotate(
        "truth", tuple(TRUE.values()), xytext=(0.62, 0.75), fontsize=10, arrowprops={"arrowstyle": "-", "lw": 0.6}
    )
    axis.set_xlabel(r"$\theta_1$")
    axis.set_ylabel(r"$\theta_2$")
    axis.set_aspect("equal")


def pipeline() -> None:
    model = rover()
    objective = Objective.reach("done")
    counts = uniform_counts(model, objective, np.array(list(TRUE.values())), 400, 50, seed=3)
    lower, upper = confidence_intervals(model, counts, "anytime", 0.05)
    order = {s: i for i, s in enumerate(["s0", "s1", "s2", "s3"])}

    def interval(s, a, t):
        row = model.find_row(order[s], model.action_names.index(a))
        f = model.expression[model.find_transition(row, order[t])]
        return f"[{lower[f]:.2f}, {upper[f]:.2f}]"

    figure, drawn = plt.subplot_mosaic("ab;cc", figsize=(9.6, 8.2), height_ratios=[1, 1.1], layout="constrained")
    axes = list(drawn.values())
    draw_model(axes[0], lambda s, a, t: ROWS[s, a][t].replace("*t", r"·θ").replace("θ1", "θ₁").replace("θ2", "θ₂"))
    draw_model(axes[1], interval)
    draw_region(axes[2], model, lower, upper)
    titles = (
        "(a) known: the polynomials",
        f"(b) learned: intervals from {counts.total} steps",
        "(c) the region U of parameters",
    )
    for axis, title in zip(axes, titles):
        axis.set_title(title, fontsize=12)
    save(figure, "pipeline.png", dpi=150)


def one_parameter() -> None:
    """The drifting walk of examples/: bounds for p in an interval around ½, and the exact range of the value."""
    sys.path.insert(0, str(IMAGES.parent.parent / "examples"))
    from drifting_walk import OBJECTIVE, PLACES, drifting_walk

    model = drifting_walk()
    widths = np.linspace(0.002, 0.05, 13)
    bounds: dict[str, list[tuple[float, float]]] = {"rectangular": [], "coupled": [], "exact": []}
    for width in widths:
        lower, upper = (np.where(model.table.is_constant, model.table.constant, 0.5 + s * width) for s in (-1, 1))
        region = build_region(model, lower, upper)
        relaxation = Rectangular(model, region)
        robust, optimistic = solve_both(relaxation, OBJECTIVE)
        known = (robust.lower, optimistic.upper)
        found = coupled_bounds(relaxation, region, OBJECTIVE, None, robust.policy, known, pieces=1)
        grid = np.linspace(0.5 - width, 0.5 + width, 41)
        values = [true_value(model, OBJECTIVE, robust.policy, np.array([p])) for p in grid]
        bounds["rectangular"].append((robust.lower, optimistic.upper))
        bounds["coupled"].append((max(found.lower, robust.lower), min(found.upper, optimistic.upper)))
        bounds["exact"].append((min(values), max(values)))
    figure, (left, right) = plt.subplots(2, 1, figsize=(7.2, 5.8), height_ratios=[1, 2.4], layout="constrained")
    places = np.arange(-PLACES, PLACES + 1)
    for sign, label, color in ((1, "p", "#1f6feb"), (-1, "1 − p", "#d1242f")):
        chosen = places[(places >= 0) if sign > 0 else (places < 0)]
        left.scatter(chosen, np.zeros(len(chosen)), s=260, color=color, alpha=0.25, edgecolor=color, zorder=3)
        left.text(chosen.mean(), 0.35, f"right with {label}", ha="center", color=color, fontsize=11)
    left.annotate("start", (0, 0), (0, -0.5), ha="center", arrowprops={"arrowstyle": "->"})
    left.text(PLACES, -0.55, "goal", ha="center")
    left.text(-PLACES, -0.55, "end", ha="center")
    left.set(xlim=(-PLACES - 1, PLACES + 1), ylim=(-1, 1), title="one parameter that pulls both ways")
    left.axis("off")
    drawn = {name: np.array(pairs).T for name, pairs in bounds.items()}
    right.fill_between(widths, *drawn["rectangular"], color="#999999", alpha=0.3, label="rectangular bounds")
    right.fill_between(widths, *drawn["exact"], color="black", alpha=0.45, label="exact range of the value")
    right.plot(widths, drawn["coupled"].T, color="#1f6feb", linewidth=2, label=["coupled bounds", None])
    right.set(xlabel="p within ½ ± this", ylabel="probability of the goal", title="what can be said about the value")
    right.legend(loc="upper left", fontsize=9)
    save(figure, "one_parameter.png", dpi=180)


#: picture: (world, seed, steps), chosen so that there is something to see
WORLDS = {
    "aircraft": ("Aircraft-20x10", 3, 8), "betting": ("Betting-25", 0, 18), "engagement": ("Engagement-50", 12, 40),
    "glider": ("Glider-11x9", 3, 15), "mars_rover": ("MarsRover-10x10", 3, 12),
    "parallel_betting": ("ParallelBetting-6", 14, 5),
}  # fmt: skip


#: The README's first picture: the world, our budget, and the colours of the three agents.
HERO, HERO_EPISODES = "Betting-25", 5_000
OURS, PPO, DQN = "#D55E00", "#009E73", "#0072B2"


def hero() -> None:
    """One run of ours: its interval, its value and its regret; the returns of PPO and DQN (`rpl compare`) behind."""
    points = learned(HERO, HERO_EPISODES)
    steps, value = points["samples/steps"], points["oracle/optimum"][-1]
    with plt.rc_context({"font.size": 15, "axes.spines.top": False, "axes.spines.right": False}):
        figure, (above, below) = plt.subplots(
            2, 1, figsize=(7.8, 7.0), sharex=True, height_ratios=(2, 1), layout="constrained"
        )
        for agent, colour in (("ppo", PPO), ("dqn", DQN)):
            draw_baseline(above, agent, colour)
        draw_interval(above, points, value)
        below.loglog(steps, points["guarantee/regret"], color=OURS, linewidth=2.5)
        below.set_ylabel("regret")
        below.set_xlabel("environment steps")
        last = points["guarantee/regret"][-1]
        label = f"proved: within {last:.2g} of the best"
        below.text(300, 2.2 * last, label, color=OURS, weight="bold")
        save(figure, "hero.png", dpi=180)


def learned(name: str, episodes: int) -> dict[str, np.ndarray]:
    """The columns of progress.csv of a run with the simulator's true parameters shown."""
    with TemporaryDirectory() as folder:
        main(
            [
                "train",
                f"rpl/{name}-v0",
                "--budget",
                str(episodes),
                "--seed",
                "0",
                "--log-dir",
                folder,
                "--name",
                "run",
                "--quiet",
            ]
        )
        with (Path(folder) / "run" / "progress.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
    return {column: np.array([float(row[column] or "nan") for row in rows]) for column in rows[0]}


def draw_baseline(axis, agent: str, colour: str) -> None:
    """The seeds of one baseline: their middle, and their range as a band."""
    rows = [
        row
        for row in require_rows(IMAGES.parents[1] / "results").all("compare")
        if row["task"]["agent"] == agent and row["task"]["instance"] == HERO
    ]
    _, middle, low, high = band(rows, "true")
    steps = band(rows, "steps")[1]
    axis.plot(steps, middle, color=colour, linewidth=1.5, alpha=0.8)
    axis.fill_between(steps, low, high, color=colour, alpha=0.08, linewidth=0)


def draw_interval(axis, points, value: float) -> None:
    """The band that closes around the policy's value."""
    steps, lower, upper = points["samples/steps"], points["guarantee/lower"], points["guarantee/upper"]
    axis.fill_between(steps, lower, upper, color=OURS, alpha=0.15, linewidth=0)
    axis.plot(steps, lower, "--", color=OURS, linewidth=2.5)
    axis.plot(steps, upper, ":", color=OURS, linewidth=2.5)
    axis.plot(steps, points["oracle/value"], color=OURS, linewidth=2.5)
    axis.set(xscale="log", ylim=(0.0, 2.2 * value), ylabel="return")
    axis.text(6_000, 1.52 * value, "no policy returns more", color=OURS)
    axis.text(1_700, 1.05 * value, "our policy's return", color=OURS)
    axis.text(14_000, 0.52 * value, "its guaranteed return", color=OURS)
    axis.text(9_000, 0.30 * value, "PPO", color=PPO)
    axis.text(9_000, 0.15 * value, "DQN", color=DQN)
    axis.text(22_000, 0.22 * value, "(no guarantee)", color="#555555")


def worlds() -> None:
    """Each world some steps into an episode of its optimal policy."""
    for picture, (name, seed, steps) in WORLDS.items():
        world = rpl_envs.benchmark(name)
        policy = solve(Point(world.pmdp.instantiate(world.theta)), world.objective, Nature.COOPERATIVE).policy
        env = gym.make(f"rpl/{name}-v0", render_mode="rgb_array")
        state, _ = env.reset(seed=seed)
        for step in range(steps):
            state, _, over, _, _ = env.step(int(world.pmdp.action[policy.at(step).rows[state]]))
            if over:
                break
        plt.imsave(IMAGES / f"{picture}.png", env.render(), metadata={"Software": None})


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    hero()
    worlds()
    pipeline()
    one_parameter()
