"""The optimistic policy, quickly: what an update needs is a good sampler, not a certified number.

Any sampling policy is sound, so the optimistic side is swept once, without the second side and the proofs that `solve`
adds: exactly for the acyclic part, and for costs and discounted rewards by warm-started sweeps that stop when values
settle. Where plain sweeps could be fooled (undiscounted cycles that pay nothing), `solve` is called.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rpl_agent._core import core
from rpl_agent.model.objective import Nature, Objective, Sense
from rpl_agent.model.policy import Policy
from rpl_agent.relaxations.base import Relaxation
from rpl_agent.solver import solve
from rpl_agent.solver.problem import Problem

#: Sweeps stop when no value changes by more than this fraction of the largest; and after this many in any case.
SETTLED = 1e-4
MAX_SWEEPS = 100
#: Of the solver, where it is called.
PRECISION = 1e-3


#: What episodes are drawn for: to find the best policy, or also to narrow its certificate.
EXPLORATIONS = ("optimistic", "certificate")


@dataclass(frozen=True)
class SamplingGoal:
    """What a plan for the certificate has to know of a run.

    amount : episodes (steps) that it is made for.
    per_step : whether steps are what is counted, and not episodes.
    limit : steps after which the environment ends an episode, None: it need not.
    """

    amount: float
    per_step: bool
    limit: int | None


def block_of(episodes: int) -> tuple[bool, int]:
    """(whether the next episode is optimistic, episodes until that changes).

    One in ⌈√t⌉ is: the first two of every block of episodes k² … (k + 1)² − 1. A function of the number of episodes
    alone, so that a resumed run goes on in the same block.
    """
    root = math.isqrt(episodes)
    position = episodes - root * root
    return (True, min(2 - position, 2 * root + 1 - position)) if position < 2 else (False, 2 * root + 1 - position)


def optimistic_share(first: int, last: int) -> float:
    """The share of optimistic episodes among numbers first … last − 1."""
    return min(2.0 * (math.sqrt(last) - math.sqrt(first)) / (last - first), 1.0)


@dataclass(frozen=True)
class Exploration:
    """An (almost) optimistic policy with the values it was read from.

    values : (S,), or (H + 1, S) for a horizon; no bounds.
    """

    policy: Policy
    values: np.ndarray


def explore(relaxation: Relaxation, objective: Objective, previous: Exploration | None = None) -> Exploration:
    """The optimistic policy for what the data allow; ``previous`` is the start of the sweeps."""
    if objective.horizon is None and relaxation.compiled() is not None:
        problem = Problem.of(relaxation, objective, Nature.COOPERATIVE, None)
        cyclic = any(len(part) for _, part in problem.structure.rounds)
        settles = problem.must_reach or problem.discounted
        if not cyclic or (settles and previous is not None):
            return _sweep(problem, previous)
    solution = solve(relaxation, objective, Nature.COOPERATIVE, precision=PRECISION * _scale(previous))
    side = solution.upper_values if objective.sense is Sense.MAX else solution.lower_values
    return Exploration(solution.policy, side)


def _sweep(problem: Problem, previous: Exploration | None) -> Exploration:
    pmdp, structure = problem.pmdp, problem.structure
    values = problem.boundary()
    rows = pmdp.state_ptr[:-1].copy()
    if problem.must_reach:
        values[structure.sinks] = np.inf
    upward = problem.objective.sense is Sense.MAX

    def bellman_sweep(states: np.ndarray) -> float:
        return core.bellman(problem.game, len(states), states, values, values, rows, upward, 0.0, problem.scratch())

    for trivial, cyclic in structure.rounds:
        if len(trivial):
            bellman_sweep(trivial)
        if len(cyclic):
            assert previous is not None
            values[cyclic] = previous.values[cyclic]
            for _ in range(MAX_SWEEPS):
                if bellman_sweep(cyclic) <= SETTLED * max(_largest(values[cyclic]), 1e-12):
                    break
    return Exploration(Policy.deterministic(rows), values)


def _largest(values: np.ndarray) -> float:
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0))


def _scale(previous: Exploration | None) -> float:
    return 1.0 if previous is None else max(1.0, _largest(previous.values))
