"""The optimistic policy given the data.

Only the optimistic side is swept, without the second side and the proofs that `solve` adds: exactly
on the acyclic part, and for costs and discounted rewards by warm-started sweeps that stop when values converge. Where
plain sweeps may converge to a wrong value (undiscounted cycles without reward), `solve` is called.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rpl_agent.core.model import Nature, Objective, Policy, Sense
from rpl_agent.core.native import core
from rpl_agent.core.relaxations.base import Relaxation
from rpl_agent.core.solver import solve
from rpl_agent.core.solver.problem import Problem
from rpl_agent.core.solver.solve import horizon_side

#: Sweeps stop when no value changes by more than this fraction of the largest, or after this many sweeps.
SWEEP_TOLERANCE = 1e-4
MAX_SWEEPS = 100
#: Precision of the solver, where it is called.
PRECISION = 1e-3


@dataclass(frozen=True, eq=False)
class Optimism:
    """An (almost) optimistic policy with the values it was derived from."""

    policy: Policy
    values: np.ndarray  # (S,), or (H + 1, S) for a horizon; not bounds


def explore(relaxation: Relaxation, objective: Objective, previous: Optimism | None = None) -> Optimism:
    """The optimistic policy given the data; sweeps start from ``previous``."""
    problem = Problem.of(relaxation, objective, Nature.COOPERATIVE, None)
    if objective.horizon is not None:
        values, policy = horizon_side(problem, objective.sense is Sense.MIN)
        return Optimism(policy, values)
    if relaxation.compiled() is not None:
        cyclic = any(len(part) for _, part in problem.structure.rounds)
        converges = (problem.criterion.must_reach and not problem.criterion.signed) or problem.criterion.contracts
        if not cyclic or (converges and previous is not None):
            return _sweep(problem, previous)
    scale = 1.0 if previous is None else max(1.0, _largest(previous.values))
    solution = solve(relaxation, objective, Nature.COOPERATIVE, precision=PRECISION * scale)
    side = solution.upper_values if objective.sense is Sense.MAX else solution.lower_values
    return Optimism(solution.policy, side)


def _sweep(problem: Problem, previous: Optimism | None) -> Optimism:
    pmdp, structure = problem.pmdp, problem.structure
    values = problem.boundary()
    rows = pmdp.state_ptr[:-1].copy()
    if problem.criterion.must_reach:
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
                if bellman_sweep(cyclic) <= SWEEP_TOLERANCE * max(_largest(values[cyclic]), 1e-12):
                    break
    return Optimism(Policy.deterministic(rows), values)


def _largest(values: np.ndarray) -> float:
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
