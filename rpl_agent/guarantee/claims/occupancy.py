"""Policies within limits at known parameters: a linear program over occupancies.

x(s, a) is the discounted number of times that a is taken in s: Σ_a x(s, a) − γ Σ p(s | s', a') x(s', a') = [s = start].
Values of all objectives are linear in x, and a vertex is randomised in at most as many states as there are limits. Its
numbers are guesses: bounds on the policy are proved afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from rpl_agent.core.highs import linear_program
from rpl_agent.core.model import ParametricMDP, Policy, Sense
from rpl_agent.guarantee.claims.combined import CombinedModel

#: cost of a step relative to the largest reward, so that plays do not turn in circles for nothing
STEP_COST = 1e-9
#: occupancies below this share of the largest are rounding errors of the solver
NOISE = 1e-10
#: tolerance of programs whose potentials prove a bound; below what rows cost less there
TOLERANCE = 1e-10


@dataclass(frozen=True, eq=False)
class LimitedOptimum:
    """The best policy within limits at one parameter vector, up to the precision of the solver."""

    policy: Policy
    values: np.ndarray  # (K,) of all objectives
    multipliers: np.ndarray  # (K − 1,) ≥ 0, the price of each limit


class OccupancyProgram:
    """Linear programs of one model at one parameter vector, for changing thresholds."""

    def __init__(self, combined: CombinedModel, theta: np.ndarray, sense: Sense, upward: np.ndarray) -> None:
        """``upward`` (K − 1,): whether a limit is one from above."""
        self.combined, self.sign = combined, 1.0 if sense is Sense.MIN else -1.0
        self.upward = upward
        ended, self.origin = combined.ended(np.zeros_like(combined.over))
        self.ended, self.rewards = ended, combined.rewards(ended, self.origin)
        self.used = np.flatnonzero(ended.row_state < combined.pmdp.num_states)
        chances = ended.instantiate(theta).values
        assert chances is not None
        self.flow = flow_of(ended, self.used, chances, combined.discount)

    def solve(self, thresholds: np.ndarray, elsewhere: Policy) -> LimitedOptimum | None:
        """The best policy with limits at ``thresholds`` (K − 1,); where it never is, it plays ``elsewhere``.

        None if no policy keeps them, or the solver failed.
        """
        paid = self.rewards[:, self.used]
        turn = np.where(self.upward, 1.0, -1.0)
        limits = scipy.sparse.csr_array(turn[:, None] * paid[1:])
        A = scipy.sparse.csr_array(scipy.sparse.vstack([self.flow, limits]))
        start = (np.arange(self.flow.shape[0]) == self.combined.pmdp.initial_state).astype(float)
        lower = np.concatenate([start, np.full(len(thresholds), -np.inf)])
        upper = np.concatenate([start, turn * thresholds])
        cost = self.sign * paid[0] + STEP_COST * max(1.0, float(np.abs(paid[0]).max()))
        found = linear_program(cost, (A.indptr, A.indices, A.data), lower, upper)
        if found is None:
            return None
        x, duals = found
        multipliers = np.maximum(-duals[self.flow.shape[0] :], 0.0)
        return LimitedOptimum(self._policy(x, elsewhere), paid @ x, multipliers)

    def _policy(self, x: np.ndarray, elsewhere: Policy) -> Policy:
        """The policy with these occupancies: each row has its share of those in its state."""
        pmdp: ParametricMDP = self.combined.pmdp
        visits, origin = np.zeros(pmdp.num_rows), self.origin[self.used]
        visits[origin[origin >= 0]] = x[origin >= 0]
        return policy_of(pmdp, visits, elsewhere.as_weights(pmdp))


def policy_of(pmdp: ParametricMDP, visits: np.ndarray, elsewhere: np.ndarray) -> Policy:
    """The policy with these occupancies (R,), without rounding errors; where it never is, ``elsewhere`` (R,)."""
    visits = np.where(visits > NOISE * visits.max(initial=0.0), visits, 0.0)
    totals = np.add.reduceat(visits, pmdp.state_ptr[:-1])[pmdp.row_state]
    seen = totals > 0.0
    return Policy.of_weights(pmdp, np.where(seen, visits / np.where(seen, totals, 1.0), elsewhere))


def flow_of(ended: ParametricMDP, rows: np.ndarray, chances: np.ndarray, discount: float) -> scipy.sparse.csr_array:
    """(S, n) what each of ``rows`` takes out of every state but the end, for probabilities (F,) of expressions."""
    states, count = ended.num_states - 1, len(rows)
    place = np.full(ended.num_rows, -1)
    place[rows] = np.arange(count)
    moves = (place[ended.transition_row] >= 0) & (ended.successor < states)
    entries = np.concatenate([np.ones(count), -discount * chances[ended.expression[moves]]])
    where = np.concatenate([ended.row_state[rows], ended.successor[moves]])
    columns = np.concatenate([np.arange(count), place[ended.transition_row[moves]]])
    return scipy.sparse.csr_array((entries, (where, columns)), shape=(states, count))


def cheapest_occupancy(
    flow: scipy.sparse.csr_array, start: int, costs: np.ndarray, margin: np.ndarray, thresholds: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """(occupancies (n,), potentials (S,), prices (K,)) of a linear program; None if it has no optimum.

    costs : (K, n) of the limits, and of a goal behind them; without a goal the largest excess over a limit is the least
    margin : (n,) what rows cost less than they do, so that potentials have room for rounding
    """
    states, limits = flow.shape[0], len(thresholds)
    has_goal = len(costs) > limits
    sizes = np.zeros(limits) if has_goal else np.maximum(1.0, np.abs(thresholds))
    goal = (costs[-1] if has_goal else np.zeros(flow.shape[1])) - margin
    excess = scipy.sparse.csr_array(np.concatenate([np.zeros(states), -sizes])[:, None])
    A = scipy.sparse.csr_array(scipy.sparse.hstack([scipy.sparse.vstack([flow, costs[:limits]]), excess]))
    begin = (np.arange(states) == start).astype(float)
    least, most = np.concatenate([begin, np.full(limits, -np.inf)]), np.concatenate([begin, thresholds])
    found = linear_program(np.append(goal, 1.0), (A.indptr, A.indices, A.data), least, most, TOLERANCE)
    if found is None:
        return None
    x, duals = found
    prices = np.append(np.maximum(-duals[states:], 0.0), np.ones(int(has_goal)))
    return x[:-1], duals[:states].copy(), prices
