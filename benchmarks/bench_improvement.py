"""How many trajectories of the policy in use certify a better one, beside the bounds of safe policy improvement.

First table: worlds of public benchmarks, built from their published rules, tied (the same unknowns everywhere) and
untied (only the graph is known); δ = 0.1 as there. The policy in use is a softmax of the optimal action values, worth
half of the way from a random policy to the best one; that of resource gathering takes the best action except with
probability 3e-5, as in the public code. ``ours``: how long a log has to grow until an improvement is certified,
the first of a row of sizes at which one is and then halves between it and the size before, until one that fails is at
most a tenth shorter; median, least and most over the seeds. ``SPIBB``, ``2s`` and ``beta``: at least so many
trajectories are needed before the bound of Laroche et al. (2019) and the two of Wienhöft et al. (2023) allow one
state-action pair to be changed with a positive gain, by their formulas with the true gain of the best policy and the
true visits of the most frequent pair.

Second table: the cliff grid, δ = 0.001: improvements from logs of a policy with 20 % random actions, at one common
parameter and from two certificates; then the fewest steps with P(fall) ≤ 0.05 (the optimum is 13.706). Of a statement
that turns out false the row has a column ``failure``.

Third table: the best policy is in use, so every improvement is false; their share must not exceed δ.

There are 100 seeds and 10^4 runs, or as many as 30 processor seconds allow for each row; ``--full`` takes a hundred
times that: hours, for the night. ``--only`` chooses a world, "cliff grid" or "best policy in use"; ``--first N``
chooses other seeds for the first table.
"""

from __future__ import annotations

import math
import time
import warnings
from typing import Any

import numpy as np
import scipy

from benchmarks import improvement_worlds as worlds
from rpl_agent import Objective, Policy, certify, improve
from rpl_agent.core.errors import RPLWarning
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.model import ParametricMDP
from rpl_agent.core.model.building.unknown import hide_parameters
from rpl_agent.core.solver import solve_at
from rpl_agent.guarantee.shown import true_value

DELTA = 0.1
#: worlds and sizes of logs for false improvements; runs may exceed the share δ by chance
FALSE, FALSE_SIZES, ALLOWED_MORE = ("grid", "wet chicken"), (2, 20, 200), 1.1
#: trajectories at which an improvement is looked for, and how close the size found is to one that fails
SIZES, FINE = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000), 0.1
#: processor seconds after which no further seed or run is begun, for each row
PATIENCE = 30.0


def rows(smoke: bool = False, full: bool = False, only: str = "", first: int = 0) -> list[dict[str, Any]]:
    patience = 100.0 * PATIENCE if full else PATIENCE
    seeds, runs, names = (1, 4, ("grid", "resource gathering")) if smoke else (100, 10_000, tuple(WORLDS))
    found = list[dict[str, Any]]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RPLWarning)
        found += [_world(name, range(first, first + seeds), patience, smoke) for name in names if only in ("", name)]
        if only in ("", "cliff grid"):
            found += _cliff(100 if full else 1 if smoke else 3, smoke)
        if only in ("", "best policy in use"):
            found += [_false(name, runs, patience) for name in FALSE]
    return found


def _false(name: str, runs: int, patience: float) -> dict[str, Any]:
    """Improvements of the best policy, all of which are false: their share, over runs with a log of it each."""
    pmdp, theta, discount, steps = WORLDS[name]()
    objective = Objective.discounted("gain", discount)
    best = solve_at(pmdp, theta, objective).policy
    used = worlds.softened(pmdp, best, 0.3)  # a log that visits everything; the baseline is the best policy itself
    began, claimed, missed, run = time.process_time(), 0, 0, 0
    while run < runs and time.process_time() - began < patience:
        size = FALSE_SIZES[run % len(FALSE_SIZES)]
        counts = worlds.logged(pmdp, theta, objective, used, size, 10_000_000 + run, steps)
        found = improve(pmdp, counts, objective, best, delta=DELTA)
        gain = true_value(pmdp, objective, found.policy, theta) - true_value(pmdp, objective, best, theta)
        room = 1e-5 * abs(gain) + 1e-9
        claimed += found.lower > room
        missed += not found.lower - room <= gain <= found.upper + room
        run += 1
    row = {"world": f"{name}, best policy in use", "runs": run, "false": claimed, "missed": missed}
    row |= {"share": claimed / run, "allowed": DELTA, "CPU s": time.process_time() - began}
    return {**row, "failure": "more than δ"} if claimed > ALLOWED_MORE * DELTA * run + 3.0 else row


def _tied(make: Any, discount: float, steps: int) -> tuple[ParametricMDP, np.ndarray, float, int]:
    pmdp, truth = make()
    return pmdp, np.array([truth[name] for name in pmdp.table.parameters]), discount, steps


def _untied(make: Any, discount: float, steps: int) -> tuple[ParametricMDP, np.ndarray, float, int]:
    pmdp, theta, *_ = _tied(make, discount, steps)
    hidden = hide_parameters(pmdp.instantiate(theta))
    return hidden.pmdp, hidden.theta, discount, steps


GRID = (worlds.grid, worlds.GRID_DISCOUNT, 1000)
RIVER = (worlds.wet_chicken, worlds.RIVER_DISCOUNT, worlds.RIVER_STEPS)
GATHERING = (worlds.resource_gathering, worlds.GATHERING_DISCOUNT, worlds.GATHERING_STEPS)
WORLDS: dict[str, Any] = {
    "grid": lambda: _tied(*GRID),
    "grid, untied": lambda: _untied(*GRID),
    "wet chicken": lambda: _tied(*RIVER),
    "wet chicken, untied": lambda: _untied(*RIVER),
    "resource gathering": lambda: _tied(*GATHERING),
    "random MDP": lambda: (*worlds.random_mdp(1), worlds.GRID_DISCOUNT, 1000),
}


def _world(name: str, seeds: range, patience: float, smoke: bool) -> dict[str, Any]:
    pmdp, theta, discount, steps = WORLDS[name]()
    objective = Objective.discounted("gain", discount)
    best = solve_at(pmdp, theta, objective).policy
    used = worlds.halfway(pmdp, theta, objective)
    if name == "resource gathering":
        used = worlds.softened(pmdp, best, 4e-5)
    gain = true_value(pmdp, objective, best, theta) - true_value(pmdp, objective, used, theta)
    sizes = SIZES[:7] if smoke else SIZES
    began = time.process_time()
    needed, failed = [], 0
    for seed in seeds:
        count, holds = _first(pmdp, theta, objective, used, sizes, seed, steps)
        needed.append(count)
        failed += not holds
        if time.process_time() - began > patience:
            break
    row = {
        "world": name,
        "unknowns": pmdp.num_parameters,
        "gain": gain,
        "seeds": len(needed),
        "ours": float(np.median(needed)),
        "least": min(needed),
        "most": max(needed),
        **_formulas(pmdp, theta, objective, used, gain, steps),
        "CPU s": time.process_time() - began,
    }
    return {**row, "failure": f"{failed} false"} if failed else row


def _first(
    pmdp: ParametricMDP,
    theta: np.ndarray,
    objective: Objective,
    used: Policy,
    sizes: tuple[int, ...],
    seed: int,
    steps: int,
) -> tuple[float, bool]:
    """(the size of a growing log at which an improvement is certified, inf if none is; whether all of it is true)."""
    holds, fails = True, 0

    def improves(size: int) -> bool:
        nonlocal holds
        counts = worlds.logged(pmdp, theta, objective, used, size, seed, steps)  # begins with every shorter one
        found = improve(pmdp, counts, objective, used, delta=DELTA)
        if found.improves:
            values = [true_value(pmdp, objective, policy, theta) for policy in (found.policy, used)]
            holds &= bool(found.lower <= values[0] - values[1] + 1e-5 * abs(values[0]))
        return found.improves

    for size in sizes:
        if improves(size):
            break
        fails = size
    else:
        return math.inf, holds
    while size - fails > max(1.0, FINE * size):
        middle = (fails + size) // 2
        size, fails = (middle, fails) if improves(middle) else (size, middle)
    return size, holds


def _formulas(
    pmdp: ParametricMDP, theta: np.ndarray, objective: Objective, used: Policy, gain: float, steps: int
) -> dict[str, float]:
    """Trajectories that the published bounds need at least."""
    S, A, gamma = pmdp.num_states, pmdp.num_actions, objective.discount
    largest = float(np.abs(pmdp.row_reward("gain")).max()) / (1.0 - gamma)
    visits = float(_visits(pmdp, theta, used, steps).max())
    scale = 32.0 * largest**2 / (gain * (1.0 - gamma)) ** 2
    spibb = scale * (math.log(2.0 * S * A / DELTA) + S * math.log(2.0))
    two = scale * math.log(8.0 * S**2 * A**2 / DELTA)
    return {"SPIBB": spibb / visits, "2s": two / visits, "beta": _beta(gain, largest, gamma, S, A, two) / visits}


def _beta(gain: float, largest: float, gamma: float, S: int, A: int, start: float) -> float:
    """The least N with 4 V_max / (1 − γ) · (1 − 2 I⁻¹(N/2 + 1, N/2 + 1, δ_T / 2)) ≤ gain, δ_T = δ / (S A)²."""
    share = DELTA / (S * A) ** 2
    low, high = 1.0, 4.0 * start
    for _ in range(60):
        n = math.sqrt(low * high)
        if n > 1e8:  # the normal limit; the exact quantile is lost in rounding
            width = -float(scipy.special.ndtri(share / 2.0)) / math.sqrt(n)
        else:
            width = 1.0 - 2.0 * float(scipy.special.betaincinv(n / 2.0 + 1.0, n / 2.0 + 1.0, share / 2.0))
        low, high = (n, high) if 4.0 * largest / (1.0 - gamma) * width > gain else (low, n)
    return high


def _visits(pmdp: ParametricMDP, theta: np.ndarray, policy: Policy, steps: int) -> np.ndarray:
    """(R,) expected visits of each row in a trajectory."""
    p, weights = pmdp.instantiate(theta).probability, policy.as_weights(pmdp)
    here, total = np.zeros(pmdp.num_states), np.zeros(pmdp.num_rows)
    here[pmdp.initial_state] = 1.0
    for _ in range(steps):
        taken = here[pmdp.row_state] * weights
        total += taken
        here = np.bincount(pmdp.successor, p * taken[pmdp.transition_row], pmdp.num_states)
    return total


def _cliff(seeds: int, smoke: bool) -> list[dict[str, Any]]:
    pmdp = worlds.cliff_grid()
    theta = np.array([worlds.TRUTH[name] for name in pmdp.table.parameters])
    gain, found = Objective.discounted("gain", 0.99, target="end"), list[dict[str, Any]]()
    best = solve_at(pmdp, theta, gain).policy
    used = worlds.softened(pmdp, best, 0.2)
    for episodes in (10,) if smoke else (10, 50, 200, 1000):
        results = [
            improve(pmdp, worlds.logged(pmdp, theta, gain, used, episodes, seed), gain, used) for seed in range(seeds)
        ]
        true = [true_value(pmdp, gain, r.policy, theta) - true_value(pmdp, gain, used, theta) for r in results]
        row: dict[str, Any] = {
            "cliff grid": "improvement",
            "episodes": episodes,
            "certified": float(np.median([r.lower for r in results])),
            "two certificates": float(np.median([r.value[0] - r.baseline_value[1] for r in results])),
            "true": float(np.median(true)),
        }
        wrong = sum(r.lower > value + 1e-6 for r, value in zip(results, true))
        wrong += sum(
            improve(pmdp, worlds.logged(pmdp, theta, gain, best, episodes, seed), gain, best).improves
            for seed in range(seeds)
        )
        found.append({**row, "failure": f"{wrong} false"} if wrong else row)
    return found + [_limited(pmdp, theta, episodes, seeds) for episodes in ((500,) if smoke else (500, 2000, 20_000))]


def _limited(pmdp: ParametricMDP, theta: np.ndarray, episodes: int, seeds: int) -> dict[str, Any]:
    """The fewest steps with a limit on falls."""
    goal = Objective.parse("minimise steps until done subject to probability of fallen <= 0.05")
    began, wrong, results = time.process_time(), 0, []
    for seed in range(min(seeds, 10)):
        one = certify(pmdp, uniform_counts(pmdp, goal.free, theta, episodes, 1000, seed), goal)
        fall, steps = (true_value(pmdp, o, one.policy, theta) for o in (goal.limits[0].objective, goal.free))
        claim = one.limits[0]
        wrong += not (claim.lower - 1e-6 <= fall <= claim.upper + 1e-6 and one.lower <= 13.7065 and steps <= one.upper)
        results.append((claim.upper, one.upper, one.lower))
    median = np.median(np.array(results), axis=0)
    row: dict[str, Any] = {
        "cliff grid": "steps, P(fall) ≤ .05",
        "episodes": episodes,
        "P(fall) ≤": float(median[0]),
        "steps ≤": float(median[1]),
        "none below": float(median[2]),
        "CPU s": (time.process_time() - began) / len(results),
    }
    return {**row, "failure": f"{wrong} false"} if wrong else row
