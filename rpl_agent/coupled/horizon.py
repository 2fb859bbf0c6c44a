"""Finite horizons: affine functions with k steps to go, each from the ones with k − 1."""

from __future__ import annotations

import numpy as np

from rpl_agent._core import Struct
from rpl_agent.coupled.affine import AffineBound, Side, chances_of, excess, groups_of
from rpl_agent.model.csr import best_rows
from rpl_agent.model.objective import Sense
from rpl_agent.model.policy import Policy
from rpl_agent.regions.frame import Frame
from rpl_agent.solver.problem import Problem

#: paid per step beside the excess, relative to the values
ROUNDING = 1e-14


def greedy_rules(problem: Problem, frame: Frame) -> Policy:
    """The best policy at the centre of the frame, one decision rule per step."""
    pmdp, horizon = problem.pmdp, problem.objective.horizon
    assert horizon is not None
    chances, decided, start = chances_of(problem, frame), problem.task.decided, problem.boundary()
    sign = 1.0 if problem.objective.sense is Sense.MAX else -1.0
    values, rules = start, []
    for _ in range(horizon):
        q = sign * _row_values(problem, chances, values)
        rules.append(best_rows(q, pmdp.state_ptr, pmdp.row_state))
        values = np.where(decided, start, sign * q[rules[-1]])
    return Policy.deterministic(np.array(rules[::-1]))


def find_horizon_bound(problem: Problem, frame: Frame, policy: Policy, side: Side, every_policy: bool) -> AffineBound:
    """A bound with the gradients of a policy; it is to be checked."""
    pmdp, horizon = problem.pmdp, problem.objective.horizon
    assert horizon is not None
    chances, start, open_states = chances_of(problem, frame), problem.boundary(), ~problem.task.decided
    size, r = pmdp.num_states, frame.dimension
    values, slack = np.tile(start, (horizon + 1, 1)), np.zeros((horizon + 1, size))
    gradient = np.zeros((horizon + 1, size, r))
    for k in range(1, horizon + 1):
        rule = policy.at(horizon - k)
        weights = groups_of(problem, rule).weights
        q, before = _row_values(problem, chances, values[k - 1]), values[k - 1][pmdp.successor]
        values[k] = np.where(open_states, np.bincount(pmdp.row_state, weights * q, size), start)
        p, spread = chances.p[pmdp.expression], problem.gamma * weights[pmdp.transition_row]
        source = pmdp.row_state[pmdp.transition_row]
        for j in range(r):
            pull = before * chances.slope[pmdp.expression, j] + p * gradient[k - 1][pmdp.successor, j]
            gradient[k, :, j] = np.where(open_states, np.bincount(source, spread * pull, size), 0.0)
        groups, sign = groups_of(problem, None if every_policy else rule), side.value
        after = (values[k - 1] + sign * slack[k - 1], gradient[k - 1])
        margin = ROUNDING * float(np.abs(values[k]).max(initial=0.0))
        for _ in range(2):
            missed = excess(problem, groups, chances, side, (values[k] + sign * slack[k], gradient[k]), after)
            slack[k] += np.where(open_states & (missed > 0.0), missed * (1.0 + 1e-12) + margin, 0.0)
    return AffineBound(side, None if every_policy else policy, frame, values, gradient, slack, open_states)


def _row_values(problem: Problem, chances: Struct, values: np.ndarray) -> np.ndarray:
    """(R,) reward + γ Σ p v at the centre."""
    pmdp = problem.pmdp
    terms = chances.p[pmdp.expression] * values[pmdp.successor]
    return problem.reward + problem.gamma * np.add.reduceat(terms, pmdp.row_ptr[:-1])
