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
        p = ended.instantiate(theta).probability
        states, rows = combined.pmdp.num_states, len(self.used)
        place = np.full(ended.num_rows, -1)
        place[self.used] = np.arange(rows)
        moves = (place[ended.transition_row] >= 0) & (ended.successor < states)
        entries = np.concatenate([np.ones(rows), -combined.discount * p[moves]])
        where = np.concatenate([ended.row_state[self.used], ended.successor[moves]])
        columns = np.concatenate([np.arange(rows), place[ended.transition_row[moves]]])
        self.flow = scipy.sparse.csr_array((entries, (where, columns)), shape=(states, rows))

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
        x = np.where(x > NOISE * x.max(initial=0.0), x, 0.0)
        visits, origin = np.zeros(pmdp.num_rows), self.origin[self.used]
        visits[origin[origin >= 0]] = x[origin >= 0]
        totals = np.add.reduceat(visits, pmdp.state_ptr[:-1])[pmdp.row_state]
        seen = totals > 0.0
        shares = visits / np.where(seen, totals, 1.0)
        return Policy.of_weights(pmdp, np.where(seen, shares, elsewhere.as_weights(pmdp)))
