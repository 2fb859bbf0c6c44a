"""A hard disk: from a log of requests and mode changes to joules and lost requests per minute.

    python examples/disk.py [--minutes 10 60 360] [--plot disk.png]

The model is examples/models/disk.prism (which names its source and our own choices). The log is simulated at the
published rates: a test bench that issues random commands. Each certificate is printed next to the result of plain
value iteration, which knows the rates.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rpl_agent import Certificate, Config, Objective, ParametricMDP, Policy, certify
from rpl_agent.formats import prism
from rpl_agent.formats.logs import read_log, simulate_log

MODEL = Path(__file__).with_name("models") / "disk.prism"
PUBLISHED = {"begins": 0.102, "ends": 0.454, "standby_moves": 0.1 / 2.2, "sleep_moves": 0.1 / 6.0}
#: Half steps of a minute: requests come, the disk moves.
STEPS = 1200
#: For the three statements together: each may fail with a third of it.
DELTA = 0.05


class Statements(NamedTuple):
    """Bounds for one policy over one minute."""

    cost: Certificate
    energy: Certificate
    lost: Certificate


def objectives() -> tuple[ParametricMDP, Objective, Objective, Objective]:
    """The model, and the objectives: cost, energy and lost requests per minute."""
    pmdp, cost = prism.load(MODEL).objective()
    energy, lost = (Objective.cost(name, target=None, horizon=STEPS) for name in ("energy", "lost"))
    return pmdp, cost, energy, lost


def statements(log: Path) -> Statements:
    """The policy of least cost, its energy and its losses; all true with probability ≥ 1 − DELTA."""
    pmdp, cost, energy, lost = objectives()
    counts, config = read_log(pmdp, log).counts, Config(delta=DELTA / 3)
    best = certify(pmdp, counts, cost, config)
    return Statements(best, *(certify(pmdp, counts, goal, config, policy=best.policy) for goal in (energy, lost)))


def value_iteration(goals: list[Objective], policy: Policy | None = None) -> list[float]:
    """Values of a minute with known rates: of the policy, or of the one that is best for the first goal."""
    pmdp = objectives()[0]
    mdp, rewards = pmdp.instantiate(PUBLISHED), [pmdp.row_reward(goal.reward_name or "") for goal in goals]
    values = np.zeros((len(goals), pmdp.num_states))
    for step in reversed(range(STEPS)):
        q = rewards + np.add.reduceat(mdp.probability * values[:, pmdp.successor], pmdp.row_ptr[:-1], axis=1)
        if policy is None:
            chosen = np.array([lo + np.argmin(q[0, lo:hi]) for lo, hi in zip(pmdp.state_ptr, pmdp.state_ptr[1:])])
        else:
            rows = policy.at(step).rows
            assert rows is not None
            chosen = rows
        values = q[:, chosen]
    return values[:, pmdp.initial_state].tolist()


def draw(path: str, minutes: list[int], found: list[Statements], truth: list[list[float]]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.4), dpi=110, layout="constrained")
    for k, (axes, name, unit) in enumerate(
        zip(figure.subplots(1, 2), ("energy", "lost"), ("joule a minute", "lost requests a minute"))
    ):
        bounds, true = [getattr(statement, name) for statement in found], [t[k] for t in truth]
        sides = [[t - b.lower for t, b in zip(true, bounds)], [b.upper - t for t, b in zip(true, bounds)]]
        axes.errorbar(minutes, true, sides, fmt="none", ecolor="#d9480f", capsize=8, elinewidth=3, label="certified")
        axes.plot(minutes, true, "k_", markersize=14, label="truth of that policy")
        axes.set(xscale="log", xlabel="minutes in the log", ylabel=unit, xlim=(minutes[0] / 2, 2 * minutes[-1]))
        axes.set_xticks(minutes, [str(m) for m in minutes])
        axes.minorticks_off()
        axes.legend()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=int, nargs="+", default=[10, 60, 360])
    parser.add_argument("--plot", metavar="FILE")
    arguments = parser.parse_args()
    pmdp, cost, energy, lost = objectives()
    optimum, joule, losses = value_iteration([cost, energy, lost])
    print(
        f"optimum with known rates: cost {optimum:.2f}, of that {joule:.2f} J and {losses:.4f} lost requests a minute"
    )
    print("minutes     steps   cost               energy [J]         lost requests        (truth)")
    found, truth = [], []
    with tempfile.TemporaryDirectory() as folder:
        for minutes in arguments.minutes:
            log = Path(folder) / "log.csv"
            simulate_log(log, pmdp, PUBLISHED, episodes=minutes, max_steps=STEPS, seed=minutes)
            bounds = statements(log)
            truth.append(value_iteration([energy, lost], bounds.cost.policy))
            print(
                f"{minutes:>7} {bounds.cost.samples // 2:>9,}   [{bounds.cost.lower:.2f}, {bounds.cost.upper:.2f}]   "
                f"[{bounds.energy.lower:.2f}, {bounds.energy.upper:.2f}]   "
                f"[{bounds.lost.lower:.4f}, {bounds.lost.upper:.4f}]   ({truth[-1][0]:.2f}, {truth[-1][1]:.4f})"
            )
            found.append(bounds)
    most, rarely = math.ceil(10 * bounds.energy.upper) / 10, math.floor(1 / bounds.lost.upper)
    print(
        f"\nTo whoever runs the disk: with this policy it takes at most {most} J a minute on average, and loses at "
        f"most one request in {rarely} minutes.\nAlways active it would take 150 J. Such statements are wrong at most "
        f"{100 * DELTA:.0f} times in 100."
    )
    if arguments.plot:
        draw(arguments.plot, arguments.minutes, found, truth)


if __name__ == "__main__":
    main()
