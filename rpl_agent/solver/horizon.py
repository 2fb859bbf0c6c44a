"""Finite horizons: k Bellman steps from the end, each rounded outward on both sides."""

from __future__ import annotations

import numpy as np

from rpl_agent.model.policy import Policy
from rpl_agent.solver._bellman import FIXED_AGENT, MAX_AGENT
from rpl_agent.solver.operator import row_bounds, state_bounds
from rpl_agent.solver.problem import Problem
from rpl_agent.solver.solution import Solution, finish


def _weights(problem: Problem, step: int) -> np.ndarray | None:
    """The fixed policy's weights at one step, None if the agent chooses."""
    if problem.agent != FIXED_AGENT:
        return None
    if len(problem.weights):
        return problem.weights
    assert problem.policy is not None
    return problem.policy.at(step).as_weights(problem.pmdp)


def _chosen_rows(problem: Problem, q: np.ndarray) -> np.ndarray:
    """(S,) the agent's best rows by row expectations."""
    pmdp = problem.pmdp
    sign = 1.0 if problem.agent == MAX_AGENT else -1.0
    total = sign * (problem.reward + problem.gamma * q)
    best = np.maximum.reduceat(total, pmdp.state_ptr[:-1])
    hit = np.flatnonzero(total == best[pmdp.row_state])[::-1]
    rows = np.empty(pmdp.num_states, dtype=np.int64)
    rows[pmdp.row_state[hit]] = hit
    return rows


def solve_horizon(problem: Problem, precision: float, began: float) -> Solution:
    """Bounds with k = 0..H steps to go; the policy has one decision rule per step."""
    horizon = problem.objective.horizon
    assert horizon is not None
    start, decided = problem.boundary(), problem.task.decided
    lower, upper, rules = [start], [start], []
    for k in range(1, horizon + 1):
        weights = _weights(problem, horizon - k)
        low_q, high_q = row_bounds(problem, lower[-1], False), row_bounds(problem, upper[-1], True)
        if problem.agent != FIXED_AGENT:
            # The policy attains the bound on the agent's own side, so that side's values choose.
            rules.append(_chosen_rows(problem, low_q if problem.agent == MAX_AGENT else high_q))
        lower.append(np.where(decided, start, state_bounds(problem, low_q, False, weights)))
        upper.append(np.where(decided, start, state_bounds(problem, high_q, True, weights)))
    if not rules:  # no step to take: any rule will do
        rules = [problem.pmdp.state_ptr[:-1].copy()]
    policy = problem.policy if problem.policy is not None else Policy.deterministic(np.array(rules[::-1]))
    return finish(problem, np.array(lower), np.array(upper), policy, horizon, precision, began, None)


def check_horizon(solution: Solution) -> list[str]:
    """Every step's bounds must follow from the step after it."""
    problem, low, high = solution.problem, solution.lower_values, solution.upper_values
    horizon = problem.objective.horizon
    assert horizon is not None
    decided, start = problem.task.decided, problem.boundary()
    if low.shape != (horizon + 1, problem.pmdp.num_states) or low.shape != high.shape:
        return [f"values have shape {low.shape}, not one row per step"]
    if np.isnan(low).any() or np.isnan(high).any():
        return ["a value is not a number"]
    issues = []
    initial = problem.pmdp.initial_state
    if solution.lower > low[-1, initial] or solution.upper < high[-1, initial]:
        issues.append("the bracket at the initial state is tighter than the values")
    solution.policy.check(problem.pmdp)
    for values, upward in ((low, False), (high, True)):
        wrong = (values[0] < start) if upward else (values[0] > start)
        side = "upper" if upward else "lower"
        if wrong.any():
            issues.append(f"{side} is wrong with no steps to go")
        own = upward != (problem.objective.sense.value == "max")
        for k in range(1, horizon + 1):
            weights = _weights(problem, horizon - k)
            if weights is None and own:
                weights = solution.policy.at(horizon - k).as_weights(problem.pmdp)
            image = np.where(
                decided, start, state_bounds(problem, row_bounds(problem, values[k - 1], upward), upward, weights)
            )
            wrong = (values[k] < image) if upward else (values[k] > image)
            if wrong.any():
                issues.append(
                    f"{side} does not follow from the step after it, {k} steps to go, state {np.flatnonzero(wrong)[0]}"
                )
                break
    return issues
