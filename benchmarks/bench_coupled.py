"""Coupled against rectangular certificates, episodes for a certificate, and coverage of the agent that uses both.

First table: uniform episodes, δ = 0.001, the synthesised certificate. ``gap ratio`` is coupled over rectangular (median
of the data sets), ``worst`` its largest value; ``cost`` is the processor time of a coupled certificate over that of a
rectangular one, both from counts to bounds, least of several runs.

Second table: episodes that ``exploration="certificate"`` needs for the guarantee with which ``"optimistic"`` ends, as a
share of the latter's: means over the seeds, both with coupled certificates, looked at fifty times in the budget; then
the same for the gap.

Third table: runs of the whole agent (c-optimal sampling, running certificate, stop when certified) on a small world;
a failure is a run in which some certificate on the way was wrong about its policy's true value or the true optimum.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import gymnasium as gym
import numpy as np

from rpl_agent.agent.callbacks import BaseCallback
from rpl_agent.agent.rpl import RPLAgent
from rpl_agent.core.errors import RPLWarning
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.sampling import uniform_counts
from rpl_agent.core.model import Nature, Sense
from rpl_agent.core.relaxations.interval import Point
from rpl_agent.core.solver import solve
from rpl_agent.guarantee.certificate import Certificate
from rpl_agent.guarantee.claims.limits import certify
from rpl_agent.guarantee.pipeline import Config
from rpl_agent.guarantee.shown import true_value
from rpl_envs.benchmark import Benchmark, benchmark
from rpl_envs.registration import make_sized

DELTA = 1e-3
INSTANCES = ("Aircraft-50x10", "Glider-21x17", "Betting-50", "Engagement-100", "MarsRover-10x10", "ParallelBetting-5")
SMOKE_INSTANCES = ("Aircraft-20x10", "Glider-11x9")
ONLINE = (
    "MarsRover-10x10", "Glider-11x9", "Aircraft-20x10", "Betting-25", "Engagement-50", "ParallelBetting-6",
)  # fmt: skip
SEEDS, RUNS = tuple(range(5, 20)), 3
#: certificates looked at in a budget of the second table
LOOKS = 50
#: the agent's coverage: δ, runs, episodes at most, the gap to stop at, log interval
COVERAGE = {"delta": 0.05, "runs": 400, "episodes": 300, "gap": 5.0, "log_interval": 10}


def seconds(world: Benchmark, counts: Counts, relaxation: str) -> tuple[Certificate, float]:
    """A certificate and its least processor time; every run gets counts without anything derived from them."""
    least = np.inf
    for _ in range(RUNS):
        copy = Counts.from_arrays(world.pmdp, counts.to_arrays())
        start = time.process_time()
        found = certify(world.pmdp, copy, world.objective, Config(relaxation=relaxation, delta=DELTA))
        least = min(least, time.process_time() - start)
    return found, least


def tightness(name: str, episodes: int, seeds: tuple[int, ...]) -> dict[str, Any]:
    """One row of the first table."""
    world = benchmark(name)
    ratios, costs = [], []
    for seed in seeds:
        theta = np.array(world.theta)
        counts = uniform_counts(world.pmdp, world.objective, theta, episodes, world.max_episode_steps + 1, seed)
        wide, wide_seconds = seconds(world, counts, "rectangular")
        tight, tight_seconds = seconds(world, counts, "coupled")
        ratios.append(tight.gap / wide.gap)
        costs.append(tight_seconds / wide_seconds)
    return {
        "instance": name, "episodes": episodes, "data sets": len(seeds), "gap ratio": float(np.median(ratios)),
        "worst": float(max(ratios)), "cost": float(np.median(costs)),
    }  # fmt: skip


class Curve(BaseCallback):
    """(episodes, guarantee, gap) at every certificate of a run."""

    def __init__(self) -> None:
        super().__init__()
        self.points: list[tuple[int, float, float]] = []

    def on_certificate(self, certificate: Certificate) -> bool:
        self.points.append((self.model.num_episodes, certificate.guarantee, certificate.gap))
        return True


def learning_curve(name: str, exploration: str, seed: int, episodes: int, looks: int) -> np.ndarray:
    """(looks, 3): episodes, guarantee and gap along a run."""
    curve = Curve()
    agent = RPLAgent(seed=seed, delta=DELTA, relaxation="coupled", exploration=exploration)
    agent.learn(gym.make(f"rpl/{name}-v0"), episodes, log_interval=episodes // looks, callback=curve)
    return np.array(curve.points[:looks])


def needed(name: str, episodes: int, seeds: tuple[int, ...]) -> dict[str, Any]:
    """One row of the second table. The run for the certificate may go on for half as long again."""
    end = np.mean([learning_curve(name, "optimistic", seed, episodes, LOOKS)[-1] for seed in seeds], axis=0)
    longer = np.mean([learning_curve(name, "certificate", s, episodes * 3 // 2, LOOKS * 3 // 2) for s in seeds], axis=0)
    maximise = benchmark(name).objective.sense is Sense.MAX
    good = longer[:, 1] >= end[1] if maximise else longer[:, 1] <= end[1]
    narrow = longer[:, 2] <= end[2]

    def share(reached: np.ndarray) -> float:
        return float(longer[reached.argmax(), 0] / episodes) if reached.any() else np.inf

    return {
        "instance": name, "episodes": episodes, "seeds": len(seeds), "share for the guarantee": share(good),
        "share for the gap": share(narrow), "gap ratio at the end": float(longer[LOOKS - 1, 2] / end[2]),
    }  # fmt: skip


class Truth(BaseCallback):
    """Whether every certificate of a run was right about the true model."""

    def __init__(self, world: Any, optimum: float) -> None:  # with its pmdp, objective and theta
        super().__init__()
        self.world, self.optimum, self.right = world, optimum, True

    def on_certificate(self, certificate: Certificate) -> bool:
        value = true_value(self.world.pmdp, self.world.objective, certificate.policy, np.array(self.world.theta), 1e-9)
        low, high = (value, self.optimum) if certificate.objective.sense is Sense.MAX else (self.optimum, value)
        slack = 1e-9 * (1.0 + abs(self.optimum))
        self.right &= certificate.lower <= low + slack and high <= certificate.upper + slack
        return True


def coverage(runs: int) -> dict[str, Any]:
    """The third table."""
    world = benchmark("Betting", n=3)
    best = solve(Point(world.pmdp.instantiate(np.array(world.theta))), world.objective, Nature.COOPERATIVE)
    failures, episodes = 0, []
    for seed in range(runs):
        truth = Truth(world, (best.lower + best.upper) / 2)
        agent = RPLAgent(seed=seed, delta=COVERAGE["delta"], relaxation="coupled", exploration="certificate")
        agent.learn(
            make_sized("Betting", n=3), int(COVERAGE["episodes"]),
            stop_when_gap=COVERAGE["gap"], log_interval=int(COVERAGE["log_interval"]), callback=truth,
        )  # fmt: skip
        failures += not truth.right
        episodes.append(agent.num_episodes)
    return {
        "world": "Betting-3", "δ": COVERAGE["delta"], "runs": runs, "failures": failures,
        "share": failures / runs, "mean episodes": float(np.mean(episodes)),
    }  # fmt: skip


def rows(smoke: bool = False, full: bool = False) -> list[dict]:
    """All three tables."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RPLWarning)
        if smoke:
            table = [tightness(name, 2000, SEEDS[:1]) for name in SMOKE_INSTANCES]
            return [*table, needed("Glider-11x9", 300, (0,)), coverage(5)]
        table = [tightness(name, 100_000, SEEDS) for name in INSTANCES]
        table += [tightness("Aircraft-50x10", episodes, SEEDS) for episodes in (1000, 10_000)]
        table += [needed(name, 100_000 if full else 10_000, (0, 1, 2) if full else (0,)) for name in ONLINE]
        return [*table, coverage(int(COVERAGE["runs"]))]
