"""What the agent's sampling costs: the variance of the value that its data leave, over that of the best design.

At the truth, with G the gradient of the optimum and I the Fisher information of the data (expected outcomes of the rows
that were visited), ``ratio`` is n G'I⁻¹G after n episodes over the least value of G'I(ω)⁻¹G, ω the visits per
episode of any policy, also of one with a rule per step: mean over the seeds, and ``worst``. The least value is found by
the method of Frank and Wolfe and known up to ``gap``, by which ratios may be too small: with c = I(ω)⁻¹G and φ = G'c no
design ω' has less than φ² / max c'I(ω')c. ``uniform`` is the ratio of uniform actions. ``plans`` is the processor time
of planning, ms per update that was not skipped, and ``share`` its part of the run.

The last two worlds have a horizon: their environments' time limits.

Second table: the final width of a certificate with the agent's sampling over the better of uniform and of optimistic
play, each with the same number of episodes, as means over the seeds (``over best``): bridges, wet chicken, random
models of 7 to 40 unknowns in blocks (`block_worlds`), and the six worlds.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import gymnasium as gym
import numpy as np

import rpl_agent.agent.exploration as exploration
import rpl_envs
from benchmarks import block_worlds
from rpl_agent.agent.exploration.design import Episodes, RowInformation
from rpl_agent.agent.rpl import RPLAgent
from rpl_agent.agent.schedule import Never
from rpl_agent.core.coupled.attribution import coordinate_jacobian, point_frame, slopes
from rpl_agent.core.errors import RPLWarning
from rpl_agent.core.model import Nature, Objective, ParametricMDP, Policy
from rpl_agent.core.model.simulate import row_visits
from rpl_agent.core.relaxations.interval import Point
from rpl_agent.core.solver import solve_at
from rpl_agent.core.solver.problem import Problem
from rpl_envs.benchmark import benchmark

OWN = (
    "Aircraft-20x10", "Betting-25", "Engagement-50", "MarsRover-10x10", "Glider-11x9", "ParallelBetting-5",
)  # fmt: skip
#: Gymnasium's own with a horizon: their options, and the truth.
LIMITED = {
    "FrozenLake-v1": ({}, (1 / 3,)),
    "CliffWalking-v1": ({"is_slippery": True, "max_episode_steps": 60}, (1 / 3,)),
}
SEEDS = tuple(range(200, 205))
#: what the second table compares, the agent's own first; random models in blocks there
SAMPLERS, BLOCK_MODELS = ("certificate", "optimistic", "uniform"), 20
#: most rounds of the search for the best design; step of the differences of the gradient
ROUNDS, STEP = 2000, 1e-5
Row = dict[str, Any]


def gradient_of(pmdp: ParametricMDP, objective: Objective, theta: np.ndarray) -> np.ndarray:
    """(d,) of the optimum, by differences."""

    def optimum(at: np.ndarray) -> float:
        return solve_at(pmdp, at, objective, precision=1e-10).middle

    return np.array([(optimum(theta + e) - optimum(theta - e)) / (2 * STEP) for e in STEP * np.eye(len(theta))])


class Truth:
    """Variances at the true parameters."""

    def __init__(self, pmdp: ParametricMDP, objective: Objective, theta: np.ndarray, limit: int):
        self.pmdp, self.theta, weights = pmdp, theta, slopes(pmdp, theta)
        assert weights is not None
        gradient = gradient_of(pmdp, objective, theta)
        # from parameters to the coordinates of the model's information
        self.gradient = np.linalg.pinv(coordinate_jacobian(pmdp)).T @ gradient
        self.information = RowInformation(pmdp, theta, weights, self.gradient)
        self.mdp = pmdp.instantiate(theta)
        problem = Problem.of(Point(self.mdp), objective, Nature.COOPERATIVE, None)
        plays = Episodes.of(problem, point_frame(pmdp, theta), limit)
        assert plays is not None
        self.plays = plays

    def variance(self, visits: np.ndarray) -> float:
        inverse = np.linalg.pinv(self.information.of(visits), rcond=1e-12, hermitian=True)
        return float(self.gradient @ inverse @ self.gradient)

    def uniform(self) -> np.ndarray:
        """(R,) visits of an episode of uniform actions."""
        pmdp = self.pmdp
        found = row_visits(self.mdp, Policy.uniform(pmdp), self.plays.steps, self.plays.stopped)
        return np.where(self.plays.stopped[pmdp.row_state], 0.0, found)

    def least(self) -> tuple[float, float]:
        """(the least variance of one episode, by how much it may be smaller, relatively)."""
        visits, bound = self.uniform(), 0.0
        for _ in range(ROUNDS):
            matrix = self.information.of(visits)
            now = float(self.gradient @ np.linalg.solve(matrix, self.gradient))
            rate = self.information.rates(self.information.wanted(matrix))
            best = self.plays.visits(self.plays.best(rate))
            bound = max(bound, now * now / float(rate @ best))
            if bound >= 0.999 * now:
                break
            steps = np.minimum(np.geomspace(1e-4, 1.0, 40), 0.999)
            tried = [self.variance((1 - a) * visits + a * best) for a in steps]
            a = steps[int(np.argmin(tried))]
            visits = (1 - a) * visits + a * best
        return now, 1.0 - bound / now


def row(name: str, episodes: int, seeds: tuple[int, ...]) -> Row:
    """One world."""
    ratios, spent, total, plans = [], 0.0, 0.0, 0
    original, truth = exploration.informative_policy, None

    def timed(*arguments: Any) -> Any:
        nonlocal spent, plans
        start = time.process_time()
        found = original(*arguments)
        spent, plans = spent + time.process_time() - start, plans + 1
        return found

    for seed in seeds:
        env = gym.make(name, **LIMITED[name][0]) if name in LIMITED else gym.make(f"rpl/{name}-v0")
        agent = RPLAgent(seed=seed, delta=1e-3)
        exploration.informative_policy = timed
        start = time.process_time()
        agent.learn(env, episodes)
        total += time.process_time() - start
        exploration.informative_policy = original
        if truth is None:
            theta = np.array(LIMITED[name][1] if name in LIMITED else benchmark(name).theta)
            limit = agent.session.time_limit
            assert limit is not None
            truth = Truth(agent.pmdp, agent.objective, theta, limit)
            least, gap = truth.least()
        visits = agent.session.experience.counts.row_totals.astype(float)
        ratios.append(truth.variance(visits / episodes) / least)
    assert truth is not None
    return {
        "world": name, "episodes": episodes, "seeds": len(seeds), "ratio": float(np.mean(ratios)),
        "worst": float(max(ratios)), "uniform": truth.variance(truth.uniform()) / least, "gap": gap,
        "plans": 1e3 * spent / max(plans, 1), "share": spent / total,
    }  # fmt: skip


def final_gap(name: str, sampler: str, episodes: int, seed: int) -> float:
    """Of a run whose data come from "certificate", "optimistic" or "uniform" play."""
    delta = 1e-3
    if name in OWN:
        env = gym.make(f"rpl/{name}-v0")
    else:
        world = block_worlds.world(name)
        env = rpl_envs.make_own(world.pmdp, world.objective, world.theta, max_episode_steps=world.steps)
        delta = world.delta
    if sampler == "uniform":
        agent = RPLAgent(seed=seed, delta=delta, schedule=Never())
    else:
        agent = RPLAgent(seed=seed, delta=delta, exploration=sampler)
    agent.learn(env, episodes)
    return float(agent.certificate.gap)


def against(name: str, episodes: int, seeds: tuple[int, ...]) -> Row:
    """One row of the second table."""
    widths = {
        sampler: float(np.mean([final_gap(name, sampler, episodes, seed) for seed in seeds])) for sampler in SAMPLERS
    }
    best = min(widths[sampler] for sampler in SAMPLERS[1:])
    return {"world": name, "episodes": episodes, "seeds": len(seeds), **widths, "over best": widths[SAMPLERS[0]] / best}


def rows(smoke: bool = False, full: bool = False) -> list[Row]:
    """Both tables."""
    warnings.simplefilter("ignore", RPLWarning)
    if smoke:
        found = [row("MarsRover-10x10", 100, SEEDS[:1]), row("FrozenLake-v1", 30, SEEDS[:1])]
        return [*found, against("bridges", 100, SEEDS[:1])]
    seeds = SEEDS if full else SEEDS[:2]
    # an environment that is stepped in Python takes most of the time
    found = [row(name, 20_000 if full else 5_000, seeds) for name in OWN]
    found += [row(name, 1_000, seeds) for name in LIMITED]
    worlds = ("bridges", "wet chicken", *(f"block {k}" for k in range(BLOCK_MODELS)), *OWN)
    return found + [against(name, 5_000 if full else 1_000, seeds) for name in worlds]
