"""Bridges: from yearly inspections to a maintenance plan for 30 years, with bounds on its cost and on its risk.

    python examples/bridges.py [--components 50 200 1000 5000] [--years 10] [--plot bridges.png] [--table table.csv]

The model is examples/models/bridge.prism (which names its source and our own choices). Inspections are simulated
at the book's rates: a table with one line per component and year, `condition, action, next_condition`, as an
agency would keep it. Each certificate is printed next to the optimum from plain value iteration, which knows the rates.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path

import numpy as np

from rpl_agent import Certificate, Config, Objective, ParametricMDP, Policy, Sense, certify
from rpl_agent.formats import prism
from rpl_agent.formats.logs import read_log, simulate_log

MODEL = Path(__file__).with_name("models") / "bridge.prism"
BOOK = {"wear1": 0.03, "wear2": 0.03, "wear3": 0.08, "wear4": 0.13, "heal": 0.62, "slip": 0.04, "renew": 0.85}
YEARS = 30
#: For both statements together: each may fail with half of it.
DELTA = 0.05
#: Chance that an agency acted in a year in which the model leaves a choice.
ACTIVE = 0.3


def practice(pmdp: ParametricMDP) -> Policy:
    """What was done while inspections were recorded: mostly nothing."""
    nothing = np.array(pmdp.action_names)[pmdp.action] == "nothing"
    sizes = np.diff(pmdp.state_ptr)[pmdp.row_state]
    waits = np.bincount(pmdp.row_state, nothing)[pmdp.row_state] > 0
    others = np.maximum(sizes - waits, 1)
    weights = np.where(nothing, 1 - ACTIVE, np.where(waits, ACTIVE, 1.0) / others)
    return Policy.randomised(np.where(nothing & (sizes == 1), 1.0, weights))


def inspections(pmdp: ParametricMDP, components: int, years: int, path: Path, seed: int) -> None:
    """The table of an agency; every component is in condition 3 in its first year."""
    simulate_log(path, pmdp, BOOK, episodes=components, max_steps=years, seed=seed, policy=practice(pmdp))


def statements(pmdp: ParametricMDP, cost: Objective, table: Path) -> tuple[Certificate, Certificate]:
    """(cost of the best plan, risk of that plan) for 30 years; both are true with probability ≥ 1 − DELTA."""
    counts, config = read_log(pmdp, table).counts, Config(delta=DELTA / 2)
    plan = certify(pmdp, counts, cost, config)
    failure = Objective.reach("failed", sense=Sense.MIN, horizon=YEARS)
    return plan, certify(pmdp, counts, failure, config, policy=plan.policy)


def value_iteration(pmdp: ParametricMDP, cost: Objective, policy: Policy | None = None) -> tuple[float, float]:
    """(least cost over 30 years, risk of failure on the way), with known rates and without the package's solvers."""
    mdp, reward = pmdp.instantiate(BOOK), pmdp.row_reward(cost.reward_name or "")
    failed = pmdp.labels["failed"]
    v, risk = np.zeros(pmdp.num_states), failed.astype(float)
    for year in reversed(range(YEARS)):
        q = reward + np.add.reduceat(mdp.probability * v[pmdp.successor], pmdp.row_ptr[:-1])
        r = np.add.reduceat(mdp.probability * risk[pmdp.successor], pmdp.row_ptr[:-1])
        if policy is None:
            chosen = np.array([lo + np.argmin(q[lo:hi]) for lo, hi in zip(pmdp.state_ptr, pmdp.state_ptr[1:])])
        else:
            chosen = np.array([policy.row(pmdp, s, step=year) for s in range(pmdp.num_states)])
        v, risk = q[chosen], np.where(failed, 1.0, r[chosen])
    return float(v[pmdp.initial_state]), float(risk[pmdp.initial_state])


def draw(
    path: str, pmdp: ParametricMDP, sizes: list[int], found: list[tuple[Certificate, Certificate]], optimum: float
) -> None:
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.6, 6.4), dpi=160, layout="constrained")
    left, middle, right = figure.subplot_mosaic("ab;cc").values()
    risks = [value_iteration(pmdp, cost.objective, cost.policy)[1] for cost, _ in found]
    left.fill_between(sizes, [c.lower for c, _ in found], [c.upper for c, _ in found], alpha=0.3, color="#d9480f")
    left.axhline(optimum, color="0.2", linestyle="--", label="optimum, rates known")
    left.set(xscale="log", xlabel="components inspected", ylabel="cost over 30 years [1000]", title="certified cost")
    middle.fill_between(sizes, [r.lower for _, r in found], [r.upper for _, r in found], alpha=0.3, color="#1c7ed6")
    middle.plot(sizes, risks, "k--", label="its true risk")
    middle.set(xscale="log", xlabel="components inspected", title="certified risk of failure", ylim=0)
    left.legend()
    middle.legend()
    policy, order = found[-1][0].policy, np.argsort(pmdp.variables["condition"])
    shown = np.array([[policy.action(pmdp, s, step=year) for year in range(YEARS)] for s in order])
    colours = ListedColormap(["#e9ecef", "#ffd43b", "#ff922b", "#c92a2a"])
    right.imshow(shown, aspect="auto", cmap=colours, vmin=0, vmax=3)
    for line, row in enumerate(shown):
        for part in np.split(np.arange(YEARS), np.flatnonzero(np.diff(row)) + 1):
            if len(part) > 2:  # a name in fewer years would not fit
                right.text(part.mean(), line, pmdp.action_names[row[part[0]]], ha="center", va="center", fontsize=9)
    right.set(yticks=range(5), yticklabels=range(1, 6), xlabel="year", ylabel="condition", title="the certified plan")
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--components", type=int, nargs="+", default=[50, 200, 1_000, 5_000])
    parser.add_argument("--years", type=int, default=10)
    parser.add_argument("--plot", metavar="FILE")
    parser.add_argument("--table", type=Path, metavar="FILE", help="keep the (last) table of inspections")
    arguments = parser.parse_args()
    pmdp, cost = prism.load(MODEL).objective()
    optimum, risk = value_iteration(pmdp, cost)
    print(f"optimum with known rates: cost {optimum:.1f}, risk of failure {risk:.4f}")
    print("components  inspections   cost of the plan        its risk of failure    (truth)")
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for components in arguments.components:
            table = arguments.table or Path(folder) / "inspections.csv"
            inspections(pmdp, components, arguments.years, table, seed=components)
            plan, failure = statements(pmdp, cost, table)
            true_cost, true_risk = value_iteration(pmdp, cost, plan.policy)
            print(
                f"{components:>10,} {plan.samples:>12,}   [{plan.lower:7.1f}, {plan.upper:7.1f}]   "
                f"[{failure.lower:.4f}, {failure.upper:.4f}]   ({true_cost:.1f}, {true_risk:.4f})"
            )
            found.append((plan, failure))
    plan, failure = found[-1]
    most, least, risk = math.ceil(plan.upper), math.floor(plan.lower), math.ceil(1000 * failure.upper) / 10
    print(
        f"\nTo the agency: with this plan a component costs at most {most} thousand in expectation over the next "
        f"{YEARS} years,\nand fails in that time with a chance of at most {risk} %. No plan costs less than "
        f"{least} thousand.\nSuch statements are wrong at most {100 * DELTA:.0f} times in 100."
    )
    if arguments.plot:
        draw(arguments.plot, pmdp, arguments.components, found, optimum)


if __name__ == "__main__":
    main()
