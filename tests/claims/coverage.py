"""Coverage of all statements of improvements, of certificates within limits and of curves, in runs with many looks.

`python -m tests.claims.coverage --runs 1000` draws parameters, then data of a policy that changes with the data, and
asks at several times for an improvement over a known baseline, for a policy within a limit and for the curve of two
objectives. A run *misses* if any statement of any look is false: on the gain, on the values of both policies, on the
limit, on the policy within it, on every policy that keeps it, on the limit's best, on a point of the curve, or on all
policies by one of its half planes. At most the share δ of runs may.
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
LOOKS = (4, 12, 40, 120)
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


def within(low: float, value: float, high: float) -> bool:
    return low - SOLVED <= value <= high + SOLVED


def improvement_holds(pmdp: ParametricMDP, counts: Counts, theta: np.ndarray, baseline: Policy, delta: float) -> bool:
    """Whether all that is said about the policy that is found and the baseline is true."""
    found = improve(pmdp, counts, GOAL.free, baseline, delta=delta)
    own, other = (true_value(pmdp, GOAL.free, policy, theta) for policy in (found.policy, baseline))
    holds = within(*found.value[:1], own, found.value[1]) and within(
        *found.baseline_value[:1], other, found.baseline_value[1]
    )
    return holds and within(found.lower, own - other, found.upper)


def limits_hold(pmdp: ParametricMDP, counts: Counts, theta: np.ndarray, delta: float) -> bool:
    """Whether all that is said about the policy that is found, and about every one that keeps the limit, is true."""
    found = certify(pmdp, counts, GOAL, delta=delta)
    (claim,), (limit,) = found.limits, GOAL.limits
    value = true_value(pmdp, GOAL.free, found.policy, theta)
    trapped = true_value(pmdp, limit.objective, found.policy, theta)
    program = OccupancyProgram(CombinedModel(pmdp, [GOAL.free, limit.objective]), theta, GOAL.sense, np.array([True]))
    best = program.solve(np.array([limit.threshold]), solve_at(pmdp, theta, GOAL.free).policy)
    least = solve_at(pmdp, theta, limit.objective).middle
    holds = within(claim.lower, trapped, claim.upper) and claim.best <= least + SOLVED
    holds = holds and (claim.kept is not True or trapped <= limit.threshold + SOLVED)
    holds = holds and (claim.possible or least > limit.threshold - SOLVED)
    return holds and found.lower - SOLVED <= value and (best is None or best.values[0] <= found.upper + SOLVED)


def curve_holds(pmdp: ParametricMDP, counts: Counts, theta: np.ndarray, delta: float) -> bool:
    """Whether the points of the curve have the values that they claim, and no policy is beyond a half plane."""
    found = curve(pmdp, counts, CURVE, delta=delta, points=4)
    holds = True
    for point in found.points:
        values = [true_value(pmdp, objective, point.policy, theta) for objective in CURVE]
        holds &= all(within(*one) for one in zip(point.lower, values, point.upper))
    every = [Policy.deterministic(np.array(rows)) for rows in product(*map(range, pmdp.state_ptr, pmdp.state_ptr[1:]))]
    gains = [[sign * true_value(pmdp, o, policy, theta) for sign, o in zip(found.signs, CURVE)] for policy in every]
    for plane in found.half_planes:
        holds &= max(float(np.dot(plane.weights, gain)) for gain in gains) <= plane.most + SOLVED
    return holds


def run(rng: np.random.Generator, delta: float) -> tuple[bool, bool, bool]:
    """Whether a statement on an improvement, one on limits, one of a curve is false at some look of one run."""
    pmdp = corridor()
    theta = rng.uniform(0.1, 0.9, 2)
    mdp, counts, missed = pmdp.instantiate(theta), Counts(pmdp), [False, False, False]
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
        missed[0] |= not improvement_holds(pmdp, counts, theta, baseline, delta)
        missed[1] |= not limits_hold(pmdp, counts, theta, delta)
        missed[2] |= not curve_holds(pmdp, counts, theta, delta)
    return missed[0], missed[1], missed[2]


def runs(number: int, delta: float, seed: int) -> Iterator[tuple[bool, bool, bool]]:
    for k in range(number):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield run(np.random.default_rng([seed, k]), delta)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100, help="whole runs (default 100)")
    parser.add_argument("--delta", type=float, default=0.1, help="allowed share of misses (default 0.1)")
    parser.add_argument("--seed", type=int, default=0, help="of the first run")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many processor seconds")
    arguments = parser.parse_args()
    start, found = time.process_time(), list[tuple[bool, bool, bool]]()
    for missed in runs(arguments.runs, arguments.delta, arguments.seed):
        found.append(missed)
        if len(found) % 100 == 0:
            print(told(found, arguments.delta), f"{time.process_time() - start:.0f} CPU s", flush=True)
        if time.process_time() - start > arguments.seconds:
            break
    print(told(found, arguments.delta), f"{time.process_time() - start:.0f} CPU s")
    raise SystemExit(sum(map(any, found)) > arguments.delta * len(found))


def told(found: list[tuple[bool, bool, bool]], delta: float) -> str:
    parts = ", ".join(f"{sum(kind)} {name}" for kind, name in zip(zip(*found), ("improvements", "limits", "curves")))
    whole = f"{len(found):,} runs of {len(LOOKS)} looks at delta {delta:g}: {sum(map(any, found))} miss ({parts})"
    return f"{whole}; at most {delta * len(found):.0f} may;"


if __name__ == "__main__":
    main()
