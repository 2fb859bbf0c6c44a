"""`ClaimedBounds`: the bounds that a solution claims, still to be checked, and the policy that each refers to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import Objective, Policy, Sense
from rpl_agent.core.solver.problem import FIXED_AGENT, Problem


class WarmStart(Protocol):
    """Values of an earlier solution: a search may start from them, but takes no bounds from them."""

    @property
    def lower_values(self) -> np.ndarray: ...

    @property
    def upper_values(self) -> np.ndarray: ...


@dataclass(frozen=True, eq=False)
class ClaimedBounds:
    """Bounds on the value of a problem, and what is needed to check them."""

    problem: Problem
    lower: float
    upper: float
    lower_values: np.ndarray
    upper_values: np.ndarray
    policy: Policy
    iterations: int  # sweeps over the model plus policy-iteration steps; 1 for an acyclic model
    seconds: float
    converged: bool  # whether upper - lower meets the requested precision
    precision: float
    nature_witness: np.ndarray | None = None  # (T,) nature's choice if it is on the proper side and there are cycles

    @property
    def objective(self) -> Objective:
        return self.problem.objective


def policy_issues(solution: ClaimedBounds) -> list[str]:
    """Problems of the policy: not one of the model, or not the one that was given."""
    problem, policy = solution.problem, solution.policy
    if policy.rows is not None and not np.issubdtype(policy.rows.dtype, np.integer):
        return [f"the policy chooses rows of type {policy.rows.dtype}"]
    try:
        policy.require_fit(problem.pmdp)
    except ModelError as error:
        return [str(error)]
    if policy.rows is not None and policy.rows.ndim == 2:
        if problem.objective.horizon is None:
            return ["a step-dependent policy needs an objective with a horizon"]
        if not len(policy.rows):
            return ["the policy has no decision rule"]
    parts = ((getattr(policy, name), getattr(problem.policy, name)) for name in ("rows", "weights"))
    if problem.agent == FIXED_AGENT and not all(np.array_equal(own, given) for own, given in parts):
        return ["the policy is not the given one"]
    return []


def side_weights(solution: ClaimedBounds, upward: bool, step: int = 0) -> np.ndarray | None:
    """(R,) weights of the policy that one side's bound refers to; None if it refers to the best policy."""
    policy = side_policy(solution, upward)
    return None if policy is None else policy.at(step).shares(solution.problem.pmdp)


def side_policy(solution: ClaimedBounds, upward: bool) -> Policy | None:
    """The policy that one side's bound refers to; None if it refers to the best policy."""
    problem = solution.problem
    if problem.agent == FIXED_AGENT:
        return problem.policy
    own = upward == (problem.objective.sense is Sense.MIN)
    return solution.policy if own else None
