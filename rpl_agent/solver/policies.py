"""The agent's side of a solution: which policy each bound is about, as exact weights of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rpl_agent.errors import ModelError
from rpl_agent.model import Policy, Sense
from rpl_agent.solver.problem import FIXED_AGENT

if TYPE_CHECKING:
    from rpl_agent.solver.solution import Solution  # for types only: it imports this file


def policy_issues(solution: Solution) -> list[str]:
    """Whether the policy is one of the model, and the one that was asked about if one was."""
    problem, policy = solution.problem, solution.policy
    if policy.rows is not None and not np.issubdtype(policy.rows.dtype, np.integer):
        return [f"the policy chooses rows of type {policy.rows.dtype}"]
    try:
        policy.check(problem.pmdp)
    except ModelError as error:
        return [str(error)]
    if policy.rows is not None and policy.rows.ndim == 2:
        if problem.objective.horizon is None:
            return ["a step-dependent policy needs an objective with a horizon"]
        if not len(policy.rows):
            return ["the policy has no decision rule"]
    if problem.agent == FIXED_AGENT and not _same(policy, problem.policy):
        return ["the policy is not the one that was asked about"]
    return []


def _same(first: Policy, second: Policy | None) -> bool:
    if second is None or first.is_deterministic != second.is_deterministic:
        return False
    if first.rows is not None and second.rows is not None:
        return np.array_equal(first.rows, second.rows)
    return np.array_equal(first.weights, second.weights)  # type: ignore[arg-type]


def side_weights(solution: Solution, upward: bool, step: int = 0) -> np.ndarray | None:
    """(R,) weights of the policy that the bound of one side is about; None where it is about the best one."""
    policy = side_policy(solution, upward)
    return None if policy is None else policy.at(step).shares(solution.problem.pmdp)


def side_policy(solution: Solution, upward: bool) -> Policy | None:
    """The policy that the bound of one side is about; None where it is about the best one."""
    problem = solution.problem
    if problem.agent == FIXED_AGENT:
        return problem.policy
    own = upward == (problem.objective.sense is Sense.MIN)
    return solution.policy if own else None


def step_rows(policy: Policy | None, horizon: int) -> tuple[np.ndarray | None, int]:
    """(rows, stride) of a deterministic policy for the core: rows[k * stride] (S,) with k + 1 steps to go."""
    if policy is None or policy.rows is None:
        return None, 0
    if policy.rows.ndim == 1:
        return np.ascontiguousarray(policy.rows, np.int64), 0
    steps = np.minimum(np.arange(horizon), len(policy.rows) - 1)[::-1]  # the last rule persists
    return policy.rows[steps].astype(np.int64), policy.rows.shape[1]
