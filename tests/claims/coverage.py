"""Coverage of all statements of improvements, of certificates within limits and of curves, in runs with many looks.

`python -m tests.claims.coverage --runs 1000` draws parameters, then data of a policy that changes with the data, and
asks at several times for an improvement over a known baseline, for a policy within a limit and for the curve of two
objectives. A run *misses* if any statement of any look is false: on the gain, on the values of both policies, on the
limit, on the policy within it, on every policy that keeps it, on the limit's best, on a point of the curve, or on all
policies by one of its half planes. At most the share δ of runs may.

`--false-improvements 10000` asks instead for improvements over the best policy, of two coins that are nearly as good:
each one that is certified is false. At most the share δ of runs may have one, or another statement that is false.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from itertools import product

import numpy as np

from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Objective, ParametricMDP, Policy, build
from rpl_agent.core.solver import solve_at
from rpl_agent.guarantee.claims.combined import CombinedModel
from rpl_agent.guarantee.claims.curves import curve
from rpl_agent.guarantee.claims.improvement import improve
from rpl_agent.guarantee.claims.limits import certify
from rpl_agent.guarantee.claims.occupancy import OccupancyProgram
from rpl_agent.guarantee.shown import true_value

#: Error of the true values, which are solved in floats.
SOLVED = 1e-6
#: Looks of a run: transitions of all rows in turn until then.
LOOKS = (6, 60)
GOAL = Objective.parse("maximise probability of goal subject to probability of trap <= 0.2")
CURVE = [Objective.parse("maximise probability of goal"), Objective.parse("minimise probability of trap")]


def corridor() -> ParametricMDP:
    """Four steps to the goal, each a fast and risky one, or a slow and safe one that may be lost."""

    def actions(place: int | str) -> dict[str, dict[int | str, str]]:
        if isinstance(place, str):
            return {"stay": {place: "1"}}
        after = "goal" if place == 3 else place + 1
        return {
            "fast": {after: "p", "trap": "(1 - p) / 2", "lost": "(1 - p) / 2"},
            "slow": {after: "q", "lost": "1 - q"},
        }

    labels = {name: lambda s, name=name: s == name for name in ("goal", "trap")}
    return build(0, actions, domain={"p": (0.05, 0.95), "q": (0.05, 0.95)}, labels=labels)


def two_coins() -> ParametricMDP:
    """One toss of one of two coins."""

    def actions(place: str) -> dict[str, dict[str, str]]:
        if place != "start":
            return {"stay": {place: "1"}}
        return {name: {"goal": name, "lost": f"1 - {name}"} for name in ("p", "q")}

    return build("start", actions, domain=["p", "q"], labels={"goal": lambda s: s == "goal"})


def within(low: float, value: float, high: float) -> bool:
    return low - SOLVED <= value <= high + SOLVED


class Truth:
    """One model at one parameter: what is true of single policies and of all of them."""

    def __init__(self, pmdp: ParametricMDP, theta: np.ndarray) -> None:
        self.pmdp, self.theta = pmdp, theta
        (limit,) = GOAL.limits
        values = [GOAL.free, limit.objective]
        program = OccupancyProgram(CombinedModel(pmdp, values), theta, GOAL.sense, np.array([True]))
        best = program.solve(np.array([limit.threshold]), solve_at(pmdp, theta, GOAL.free).policy)
        self.best = -np.inf if best is None else float(best.values[0])  # of all policies that keep the limit
        self.least = solve_at(pmdp, theta, limit.objective).middle  # that any policy is trapped with
        choices = product(*map(range, pmdp.state_ptr, pmdp.state_ptr[1:]))
        every = [Policy.deterministic(np.array(rows)) for rows in choices]
        self.corners = np.array([[self.value(o, policy) for o in CURVE] for policy in every])

    def value(self, objective: Objective, policy: Policy) -> float:
        return true_value(self.pmdp, objective, policy, self.theta)


def improvement_holds(truth: Truth, counts: Counts, baseline: Policy, delta: float) -> bool:
    """Whether all that is said about the policy that is found and the baseline is true."""
    found = improve(truth.pmdp, counts, GOAL.free, baseline, delta=delta)
    own, other = (truth.value(GOAL.free, policy) for policy in (found.policy, baseline))
    holds = within(*found.value[:1], own, found.value[1]) and within(
        *found.baseline_value[:1], other, found.baseline_value[1]
    )
    return holds and within(found.lower, own - other, found.upper)


def limits_hold(truth: Truth, counts: Counts, delta: float) -> bool:
    """Whether all that is said about the policy that is found, and about every one that keeps the limit, is true."""
    found = certify(truth.pmdp, counts, GOAL, delta=delta)
    (claim,), (limit,) = found.limits, GOAL.limits
    value, trapped = (truth.value(objective, found.policy) for objective in (GOAL.free, limit.objective))
    holds = within(claim.lower, trapped, claim.upper) and claim.best <= truth.least + SOLVED
    holds = holds and (claim.kept is not True or trapped <= limit.threshold + SOLVED)
    holds = holds and (claim.possible or truth.least > limit.threshold - SOLVED)
    return holds and found.lower - SOLVED <= value and truth.best <= found.upper + SOLVED


def curve_holds(truth: Truth, counts: Counts, delta: float) -> bool:
    """Whether the points of the curve have the values that they claim, and no policy is beyond a half plane."""
    found = curve(truth.pmdp, counts, CURVE, delta=delta, points=3)
    holds = True
    for point in found.points:
        values = [truth.value(objective, point.policy) for objective in CURVE]
        holds &= all(within(*one) for one in zip(point.lower, values, point.upper))
    gains = truth.corners * found.signs
    return holds and all((gains @ plane.weights).max() <= plane.most + SOLVED for plane in found.half_planes)


def run(rng: np.random.Generator, delta: float) -> tuple[bool, bool, bool]:
    """Whether a statement on an improvement, one on limits, one of a curve is false at some look of one run."""
    pmdp = corridor()
    truth = Truth(pmdp, rng.uniform(0.1, 0.9, 2))
    mdp, counts, missed = pmdp.instantiate(truth.theta), Counts(pmdp), [False, False, False]
    rows = [np.arange(*pmdp.row_ptr[row : row + 2]) for row in range(pmdp.num_rows)]
    free = [row for row in range(pmdp.num_rows) if len(rows[row]) > 1]
    baseline = Policy.deterministic(rng.integers(pmdp.state_ptr[:-1], pmdp.state_ptr[1:]))
    for before, after in zip((0, *LOOKS), LOOKS):
        for _ in range(before, after):
            chosen = free if counts.total % 3 else free[:2]  # what is tried depends on how much there is
            drawn = [
                rng.choice(rows[row], p=mdp.probability[rows[row]] / mdp.probability[rows[row]].sum()) for row in chosen
            ]
            counts.add_transitions(np.array(drawn))
        missed[0] |= not improvement_holds(truth, counts, baseline, delta)
        missed[1] |= not limits_hold(truth, counts, delta)
        missed[2] |= not curve_holds(truth, counts, delta)
    return missed[0], missed[1], missed[2]


def false_improvement(pmdp: ParametricMDP, rng: np.random.Generator, delta: float) -> tuple[bool, bool]:
    """Whether an improvement over the best policy is certified, and whether any other statement is false.

    The coin that is ahead is tossed more often, and data decide when to stop.
    """
    better = rng.uniform(0.2, 0.8)
    chances = np.array([better, better - rng.uniform(0.0, 0.05)])
    wins, tosses, moves = np.zeros(2), np.zeros(2), list[int]()
    while len(moves) < 30 or (len(moves) < 90 and abs(wins[0] / tosses[0] - wins[1] / tosses[1]) > 0.1):
        ahead = int(wins[1] * tosses[0] > wins[0] * tosses[1])
        coin = ahead if tosses.min() > 0 and rng.random() < 0.7 else int(tosses[0] > tosses[1])
        won = bool(rng.random() < chances[coin])
        wins[coin] += won
        tosses[coin] += 1
        first = int(pmdp.row_ptr[pmdp.state_ptr[pmdp.initial_state] + coin])
        goal = bool(pmdp.labels["goal"][pmdp.successor[first]])
        moves.append(first + (won != goal))
    counts = Counts(pmdp)
    counts.add_transitions(np.array(moves))
    rows = np.array(pmdp.state_ptr[:-1])
    found = improve(pmdp, counts, GOAL.free, Policy.deterministic(rows), delta=delta)
    chosen = found.policy.as_weights(pmdp)[pmdp.state_ptr[pmdp.initial_state] :][:2]
    own, best = float(chosen @ chances), float(chances[0])
    holds = within(found.lower, own - best, found.upper)
    holds &= within(found.value[0], own, found.value[1])
    holds &= within(found.baseline_value[0], best, found.baseline_value[1])
    return found.improves, not holds


def false_improvements(number: int, delta: float, seed: int) -> Iterator[tuple[bool, bool]]:
    pmdp = two_coins()
    for k in range(number):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield false_improvement(pmdp, np.random.default_rng([seed, k]), delta)


def runs(number: int, delta: float, seed: int) -> Iterator[tuple[bool, bool, bool]]:
    for k in range(number):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield run(np.random.default_rng([seed, k]), delta)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100, help="whole runs (default 100)")
    parser.add_argument(
        "--false-improvements", type=int, metavar="N", help="N improvements over the best policy instead"
    )
    parser.add_argument("--delta", type=float, default=0.1, help="allowed share of misses (default 0.1)")
    parser.add_argument("--seed", type=int, default=0, help="of the first run")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many processor seconds")
    arguments = parser.parse_args()
    asked, delta = arguments.false_improvements, arguments.delta
    drawn: Iterator[tuple[bool, ...]] = (
        runs(arguments.runs, delta, arguments.seed)
        if asked is None
        else false_improvements(asked, delta, arguments.seed)
    )
    start, found = time.process_time(), list[tuple[bool, ...]]()
    for missed in drawn:
        found.append(missed)
        if len(found) % (50 if asked is None else 500) == 0:
            print(told(found, delta), f"{time.process_time() - start:.0f} CPU s", flush=True)
        if time.process_time() - start > arguments.seconds:
            break
    print(told(found, delta), f"{time.process_time() - start:.0f} CPU s")
    raise SystemExit(sum(map(any, found)) > delta * len(found))


def told(found: list[tuple[bool, ...]], delta: float) -> str:
    names = ("improvements", "limits", "curves") if len(found[0]) == 3 else ("false improvements", "other statements")
    parts = ", ".join(f"{sum(kind)} {name}" for kind, name in zip(zip(*found), names))
    looks = f" of {len(LOOKS)} looks" if len(found[0]) == 3 else ""
    whole = f"{len(found):,} runs{looks} at delta {delta:g}: {sum(map(any, found))} miss ({parts})"
    return f"{whole}; at most {delta * len(found):.0f} may;"


if __name__ == "__main__":
    main()
