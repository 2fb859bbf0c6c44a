"""Finite horizons: k Bellman steps from the end, each rounded outward on both sides."""

from __future__ import annotations

import numpy as np

from rpl_agent.model.csr import best_rows
from rpl_agent.model.policy import Policy
from rpl_agent.solver.check import SMALLEST
from rpl_agent.solver.operator import row_bounds, state_bounds, total_bounds
from rpl_agent.solver.policies import distribution
from rpl_agent.solver.problem import FIXED_AGENT, MAX_AGENT, Problem
from rpl_agent.solver.solution import Solution, finish


def _chosen_rows(problem: Problem, totals: np.ndarray) -> np.ndarray:
    """(S,) the agent's best rows by bounds of what they are worth.

    Rounding is part of the bounds: among rows that are equal but for it, the policy must take the one whose bound is
    reported.
    """
    sign = 1.0 if problem.agent == MAX_AGENT else -1.0
    return best_rows(sign * totals, problem.pmdp.state_ptr, problem.pmdp.row_state)


def solve_horizon(problem: Problem, precision: float, began: float) -> Solution:
    """Bounds with k = 0..H steps to go; the policy has one decision rule per step."""
    horizon = problem.objective.horizon
    assert horizon is not None
    start, decided = problem.boundary(), problem.task.decided
    lower, upper, rules = [start], [start], []
    for k in range(1, horizon + 1):
        weights = None
        if problem.policy is not None:
            weights = distribution(problem.policy.at(horizon - k), problem.pmdp)
        low_q, high_q = row_bounds(problem, lower[-1], False), row_bounds(problem, upper[-1], True)
        if problem.agent != FIXED_AGENT:
            # The policy attains the bound on the agent's own side, so that side's values choose.
            upward = problem.agent != MAX_AGENT
            rules.append(_chosen_rows(problem, total_bounds(problem, high_q if upward else low_q, upward)))
        for side, q, upward, nothing in ((lower, low_q, False, -np.inf), (upper, high_q, True, np.inf)):
            image = state_bounds(problem, q, upward, weights)
            image[np.isnan(image)] = nothing  # differences beyond the largest float: a bound that says nothing
            faint = (image != 0.0) & (np.abs(image) < SMALLEST)
            image[faint & ((image > 0.0) | upward)] = SMALLEST if upward else 0.0
            side.append(np.where(decided, start, image))
    if not rules:  # no step to take: any rule will do
        rules = [problem.pmdp.state_ptr[:-1].copy()]
    policy = problem.policy if problem.policy is not None else Policy.deterministic(np.array(rules[::-1]))
    return finish(problem, np.array(lower), np.array(upper), policy, horizon, precision, began, None)
