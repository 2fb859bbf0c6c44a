"""One run = one row: what each kind of task does. Each function returns (result, timing).

``result`` depends on the task alone; everything that depends on the machine goes to ``timing``.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

import rpl_envs
from rpl_agent.errors import DataError, RPLWarning
from rpl_agent.evidence.counts import Counts
from rpl_agent.evidence.sampling import uniform_counts
from rpl_agent.experiments import agents
from rpl_agent.experiments.suites import Task, checkpoints
from rpl_agent.model import Policy
from rpl_agent.pipeline import Config, certify
from rpl_agent.solver import solve_at

#: Solver precision of the tables: far below what the paper prints.
PRECISION = 1e-6

Outcome = tuple[dict[str, Any], dict[str, float]]


def instance_name(name: str) -> str:
    """ "rpl/Aircraft-20x10-v0" and "Aircraft-20x10" are the same world."""
    return re.sub(r"^(rpl_envs:)?(rpl/)?|-v\d+$", "", name)


class Truth(NamedTuple):
    """The optimum at the true parameters."""

    value: float
    policy: Policy
    seconds: float


@lru_cache(maxsize=2)
def truth(instance: str) -> Truth:
    """V* and an optimal policy of the true model."""
    world = rpl_envs.benchmark(instance)
    solution = solve_at(world.pmdp, world.theta, world.objective, precision=PRECISION)
    if not solution.upper - solution.lower <= 1e-3 * abs(solution.upper):
        raise DataError(f"the optimum of {instance} is only known to lie in [{solution.lower}, {solution.upper}]")
    return Truth(solution.middle, solution.policy, solution.seconds)


@lru_cache(maxsize=1)
def data(instance: str, seed: int, episodes: int) -> tuple[Counts, float]:
    """Counts of uniform trajectories, drawn once for all sets; and the seconds it took."""
    world = rpl_envs.benchmark(instance)
    start = time.perf_counter()
    counts = uniform_counts(
        world.pmdp, world.objective, np.asarray(world.theta), episodes, world.max_episode_steps, seed
    )
    return counts, time.perf_counter() - start


@cache
def warm_up(confidence: str, relaxation: str) -> None:
    """Certify three tiny models once per process: late imports are not part of anybody's measured time."""
    for family, size in (("Betting", {"n": 2}), ("Engagement", {"L": 8}), ("ParallelBetting", {"n": 2})):
        world = rpl_envs.benchmark(family, **size)
        counts = uniform_counts(world.pmdp, world.objective, np.asarray(world.theta), 100, 50, 0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RPLWarning)
            certify(
                world.pmdp, counts, world.objective, Config(confidence, relaxation), policy=Policy.uniform(world.pmdp)
            )


def sizes(task: Task) -> Outcome:
    """Table 1: the model's sizes, and its optimal value."""
    start = time.perf_counter()
    world = rpl_envs.benchmark(task["instance"])
    build = time.perf_counter() - start
    pmdp, best = world.pmdp, truth(task["instance"])
    result = {
        "states": pmdp.num_states, "rows": pmdp.num_rows, "transitions": pmdp.num_transitions,
        "expressions": pmdp.num_expressions, "parameters": pmdp.num_parameters,
        "rank": pmdp.table.reduction.rank, "degree": pmdp.table.degree, "objective": world.objective.describe(),
        "value": best.value,
    }  # fmt: skip
    return result, {"build": build, "solve": best.seconds}


def uniform(task: Task) -> Outcome:
    """Tables 2, 3, 5: bounds on the value of the true-optimal policy from uniform data."""
    name = task["instance"]
    world, best = rpl_envs.benchmark(name), truth(name)
    counts, sampling = data(name, task["seed"], task["episodes"])
    warm_up(task["confidence"], task["relaxation"])
    config = Config(task["confidence"], task["relaxation"], task["delta"], PRECISION)
    found = certify(world.pmdp, counts, world.objective, config, policy=best.policy)
    result = {
        "lower": found.lower, "upper": found.upper, "value": best.value, "gap": found.gap,
        "relative_gap": found.gap / best.value, "covered": bool(found.lower <= best.value <= found.upper),
        "transitions": counts.total, "empty": found.empty, "refuted": found.refuted, "fallback": found.fallback,
        "slack": found.slack,
    }  # fmt: skip
    stages = {f"stage {k}": v for k, v in found.timings.items()}
    return result, {"build": found.build_seconds, "solve": found.solve_seconds, "sampling": sampling} | stages


def online(task: Task) -> Outcome:
    """Figures 2 and 4: value and guarantee of the robust policy along the way."""
    exploration = task.get("exploration", "optimistic")
    make = agents.rpl(task["confidence"], task["relaxation"], task["schedule"], task["delta"], exploration)
    agent = make(task["seed"])
    return _learning(agent, task)


def compare(task: Task) -> Outcome:
    """One agent on one world."""
    return _learning(agents.make(task["agent"], task["seed"]), task)


def _learning(agent: Any, task: Task) -> Outcome:
    name = instance_name(task["instance"])
    best = truth(name)
    curve = agents.learn(agent, name, checkpoints(task["episodes"]))
    seconds = [point.pop("seconds") for point in curve.points]
    result = {"value": best.value, "sense": curve.world.objective.sense.value, "curve": curve.points}
    return result, {"learning": seconds[-1], "measuring": curve.measuring, "curve": seconds}  # type: ignore[dict-item]


KINDS: dict[str, Callable[[Task], Outcome]] = {
    "sizes": sizes, "uniform": uniform, "online": online, "compare": compare,
}  # fmt: skip
