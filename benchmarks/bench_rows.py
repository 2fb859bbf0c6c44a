"""Results to the last bit: certificates and solves of small worlds, to be saved before a change and compared after it.

    python -m benchmarks rows --json > before.jsonl
    python -m benchmarks rows --compare before.jsonl

Bounds are written as hexadecimal floats; a digest stands for all values and the policy. The worlds have at most 60,000
transitions. Certificates: every confidence set with every relaxation, from 500 uniform episodes. Solves: interval
and rectangular sets around the true parameters, with every kind of objective, both natures, free and fixed agents.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from rpl_agent.core.errors import RPLWarning
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.model import Nature, Objective, Sense
from rpl_agent.core.model.policy import Policy
from rpl_agent.core.regions import build_region
from rpl_agent.core.relaxations import Intervals
from rpl_agent.core.relaxations.base import Relaxation
from rpl_agent.core.relaxations.interval import Point
from rpl_agent.core.relaxations.rectangular import Rectangular
from rpl_agent.core.solver import solve
from rpl_agent.guarantee.claims.limits import certify
from rpl_agent.guarantee.pipeline import Config
from rpl_envs import INSTANCES
from rpl_envs.benchmark import Benchmark, benchmark

Row = dict[str, Any]
LARGEST, EPISODES, SEED = 60_000, 500, 1
CONFIDENCES = ("likelihood", "anytime", "clopper-pearson", "ellipsoid")
RELAXATIONS = ("tied", "parameter", "expression", "rectangular")
#: one world of each family for the solves; smallest first
SOLVED = ("Glider-11x9", "Engagement-50", "Aircraft-20x10", "MarsRover-10x10", "Betting-25", "ParallelBetting-5")
#: relative widths of intervals; 1.5 lets lower bounds of 0 and upper bounds of 1 appear
WIDTHS = (0.02, 1.5)


def rows(smoke: bool = False, full: bool = False) -> list[Row]:
    """One dictionary per result."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RPLWarning)  # wide brackets are results too
        found = []
        for name in SOLVED[:2] if smoke else _small():
            found += list(_certificates(name))
        for name in SOLVED[:1] if smoke else SOLVED:
            found += list(_solves(name))
    return found


def _small() -> list[str]:
    sizes = {name: benchmark(name).pmdp.num_transitions for name, i in INSTANCES.items() if _may_be_small(i.counts)}
    return sorted((name for name in sizes if sizes[name] <= LARGEST), key=lambda name: sizes[name])


def _may_be_small(counts: tuple[int, int, int] | None) -> bool:
    """Whether the sizes that the paper gives, if it does, allow a world here (most of the large ones are not built)."""
    return counts is not None and counts[1] <= LARGEST


def _digest(*arrays: np.ndarray | None) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


def _certificates(name: str) -> Iterator[Row]:
    world = benchmark(name)
    pmdp, theta = world.pmdp, np.array(world.theta)
    counts = uniform_counts(pmdp, world.objective, theta, EPISODES, world.max_episode_steps, SEED)
    for confidence in CONFIDENCES:
        for relaxation in RELAXATIONS:
            if confidence == "ellipsoid" and relaxation == "tied":
                continue  # a set in parameter space has no tied intervals
            for policy in (None, Policy.uniform(pmdp)):
                found = certify(pmdp, counts, world.objective, Config(confidence, relaxation), policy=policy)
                yield {
                    "certificate": name, "confidence": confidence, "relaxation": relaxation,
                    "agent": "free" if policy is None else "uniform", "lower": found.lower.hex(),
                    "upper": found.upper.hex(), "iterations": found.iterations,
                    "policy": _digest(found.policy.rows, found.policy.weights),
                }  # fmt: skip


def _objectives(world: Benchmark) -> dict[str, Objective]:
    """Every kind of objective that the world's labels and rewards allow."""
    own = world.objective
    found = {"own": own}
    if own.target is not None:
        found["reach max"] = Objective.reach(own.target)
        found["reach min"] = Objective.reach(own.target, sense=Sense.MIN)
    name = own.reward_name or next(iter(world.pmdp.rewards), None)
    if name is not None:
        found["discounted"] = Objective.discounted(name, 0.95, sense=Sense.MAX)
        found["horizon"] = Objective.reward(name, target=own.target, horizon=12)
        if own.target is not None:
            found["cost"] = Objective.cost(name, target=own.target)
            found["reward"] = Objective.reward(name, target=own.target)
    return found


def _sets(world: Benchmark) -> Iterator[tuple[str, Relaxation]]:
    pmdp, theta = world.pmdp, np.array(world.theta)
    yield "point", Point(pmdp.instantiate(theta))
    p = pmdp.table.at(theta)
    for width in WIDTHS:
        slack = width * np.minimum(p, 1 - p) * np.random.default_rng(SEED).random(len(p))
        lower, upper = np.clip(p - slack, 0, 1), np.clip(p + slack, 0, 1)
        yield f"interval {width:g}", Intervals(pmdp, lower, upper)
        yield f"rectangular {width:g}", Rectangular(pmdp, build_region(pmdp, lower, upper))


def _solves(name: str) -> Iterator[Row]:
    world = benchmark(name)
    for label, relaxation in _sets(world):
        for title, objective in _objectives(world).items():
            for nature in Nature:
                for policy in (None, Policy.uniform(world.pmdp)):
                    found = solve(relaxation, objective, nature, policy=policy)
                    yield {
                        "solve": name, "set": label, "objective": title, "nature": nature.value,
                        "agent": "free" if policy is None else "uniform", "lower": found.lower.hex(),
                        "upper": found.upper.hex(), "iterations": found.iterations,
                        "values": _digest(found.lower_values, found.upper_values, found.policy.rows),
                        "problems": len(found.check()),
                    }  # fmt: skip
