"""Finite horizons: k Bellman steps from the end, each rounded outward on both sides."""

from __future__ import annotations

import numpy as np

from rpl_agent._core import core
from rpl_agent.model import Policy, best_rows
from rpl_agent.solver.check import SMALLEST
from rpl_agent.solver.operator import row_bounds, state_bounds, step_scratch, total_bounds
from rpl_agent.solver.policies import step_rows
from rpl_agent.solver.problem import FIXED_AGENT, MAX_AGENT, Problem
from rpl_agent.solver.solution import Solution, finish


def solve_horizon(problem: Problem, precision: float, began: float) -> Solution:
    """Bounds with k = 0..H steps to go; the policy has one decision rule per step."""
    horizon, states = problem.objective.horizon, problem.pmdp.num_states
    assert horizon is not None
    lower, upper = np.empty((horizon + 1, states)), np.empty((horizon + 1, states))
    lower[0] = upper[0] = problem.boundary()
    rules = np.empty((max(horizon, 1), states), dtype=np.int64)
    rules[-1] = problem.pmdp.state_ptr[:-1]  # no step to take: any rule will do
    if problem.relaxation.compiled() is None:
        _by_expectations(problem, lower, upper, rules)
    else:
        free = problem.agent != FIXED_AGENT
        core.horizon_backward(
            problem.game, states, horizon, problem.task.decided, *step_rows(problem.policy, horizon), lower, upper,
            rules if free else None, *step_scratch(problem),
        )  # fmt: skip
    policy = problem.policy if problem.policy is not None else Policy.deterministic(rules[::-1].copy())
    return finish(problem, lower, upper, policy, horizon, precision, began, None)


def _by_expectations(problem: Problem, lower: np.ndarray, upper: np.ndarray, rules: np.ndarray) -> None:
    """The same step by step, for relaxations that only have `expectation`."""
    horizon = len(lower) - 1
    for k in range(1, horizon + 1):
        weights = None
        if problem.policy is not None:
            weights = problem.policy.at(horizon - k).shares(problem.pmdp)
        for side, upward, nothing in ((lower, False, -np.inf), (upper, True, np.inf)):
            q = row_bounds(problem, side[k - 1], upward)
            if problem.agent != FIXED_AGENT and upward == (problem.agent != MAX_AGENT):
                totals = problem.agent * total_bounds(problem, q, upward)
                rules[k - 1] = best_rows(totals, problem.pmdp.state_ptr, problem.pmdp.row_state)
            image = state_bounds(problem, q, upward, weights)
            image[np.isnan(image)] = nothing  # differences beyond the largest float: a bound that says nothing
            faint = (image != 0.0) & (np.abs(image) < SMALLEST)
            image[faint & ((image > 0.0) | upward)] = SMALLEST if upward else 0.0
            side[k] = np.where(problem.task.decided, side[0], image)
