"""Forecasts against runs: the gap that `agent.plan` expects at the true parameters, and the gap that runs end with.

``plan`` is the mean over imagined data sets, ``runs`` the mean over ``seeds`` that the forecast does not know, more of
both where gaps differ (`forecast.enough`), and ``off`` the forecast over that mean, less 1. ``misses`` are the runs
whose interval does not contain the optimum (δ = 0.001).
``price`` is the forecast gap in units of 2 z σ, and ``cost`` the processor time of the forecast over that of one run.
"""

from __future__ import annotations

import time
import warnings

import gymnasium as gym
import numpy as np

from rpl_agent.agent.evaluation import optimal_value
from rpl_agent.agent.forecast import enough
from rpl_agent.agent.rpl import RPLAgent
from rpl_agent.core.errors import RPLWarning
from rpl_envs.benchmark import benchmark

WORLDS = ("Aircraft-20x10", "Betting-25", "Engagement-50", "MarsRover-10x10", "Glider-11x9", "ParallelBetting-5")


def rows(smoke: bool = False, full: bool = False) -> list[dict]:
    """One row per world and number of episodes."""
    fewest, numbers = (3, (1_000, 20_000)) if not smoke else (1, (300,))
    worlds = WORLDS[-1:] if smoke else WORLDS
    if full:
        fewest, numbers = 10, (*numbers, 100_000)
    return [compare(world, episodes, fewest) for world in worlds for episodes in numbers]


def compare(world: str, episodes: int, fewest: int) -> dict:
    """One row, from at least so many runs; a single one is not repeated."""
    warnings.simplefilter("ignore", RPLWarning)
    identifier, truth = f"rpl/{world}-v0", benchmark(world)
    best = optimal_value(truth.pmdp, truth.objective, np.array(truth.theta))
    start = time.process_time()
    found = RPLAgent(seed=1_000).plan(gym.make(identifier), np.array(truth.theta), episodes=episodes)
    planned = time.process_time()
    gaps: list[float] = []
    misses = 0
    while len(gaps) < fewest or (fewest > 1 and not enough(gaps)):
        run = RPLAgent(seed=len(gaps)).learn(gym.make(identifier), episodes).certificate
        assert run is not None
        gaps.append(run.gap)
        misses += not run.lower - 1e-6 <= best <= run.upper + 1e-6
    seconds = (time.process_time() - planned) / len(gaps)
    mean = float(np.mean(gaps))
    return {
        "world": world, "episodes": episodes, "plan": float(found.gap[0]), "runs": mean,
        "least run": min(gaps), "most": max(gaps), "seeds": len(gaps), "off": float(found.gap[0] / mean - 1.0),
        "misses": misses, "price": float(found.price[0]), "cost": (planned - start) / seconds,
    }  # fmt: skip
