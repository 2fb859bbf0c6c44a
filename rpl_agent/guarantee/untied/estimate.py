"""`FrequencyEstimate` chooses the policy to fix next, from observed frequencies: the choice needs no guarantee."""

from __future__ import annotations

import numpy as np

from rpl_agent.core.model import Objective, ParametricMDP, Policy, Sense

#: Value iteration without a horizon ends after so many rounds, or with a change of this share of the largest value.
MOST_ROUNDS, SETTLED = 2_000, 1e-6
#: Each row counts so many more visits, to the worst state: a row with few visits has to look better than others.
DOUBT = 1.0


class FrequencyEstimate:
    """An untied model with frequencies as its probabilities, in the time of the solver.

    transitions : (T,) counts
    """

    def __init__(self, pmdp: ParametricMDP, objective: Objective, transitions: np.ndarray):
        self._pmdp, self._objective = pmdp, objective
        self._task = objective.resolve(pmdp)
        self._sign = 1.0 if objective.sense is Sense.MAX else -1.0
        constant = pmdp.table.is_constant[pmdp.expression]
        self._is_known = np.minimum.reduceat(constant, pmdp.row_ptr[:-1])
        self._transitions = transitions
        self._visits = np.add.reduceat(transitions, pmdp.row_ptr[:-1]).astype(float)
        self._chances = pmdp.table.at(np.zeros(pmdp.num_parameters))[pmdp.expression]

    def best(self) -> Policy:
        """The best policy, if rows with few visits are doubted."""
        return self._iterate(None, DOUBT)[0]

    def value(self, policy: Policy) -> float:
        """The value of a deterministic policy from the start, without doubt."""
        return self._iterate(policy, 0.0)[1]

    def _shares(self, doubt: float) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities of transitions (T,), and of the worst state (R,): a row never tried leads only there."""
        total = np.maximum(self._visits + doubt, 1.0)
        worst = np.where(self._is_known, 0.0, np.where(self._visits > 0.0, doubt / total, 1.0))
        row = self._pmdp.transition_row
        return np.where(self._is_known[row], self._chances, self._transitions / total[row]), worst

    def _iterate(self, policy: Policy | None, doubt: float) -> tuple[Policy, float]:
        pmdp, task, sign = self._pmdp, self._task, self._sign
        shares, of_worst = self._shares(doubt)
        horizon, discount = task.objective.horizon, task.objective.discount
        known = sign * task.target * task.criterion.at_target
        reward, first = sign * task.reward, pmdp.row_ptr[:-1]
        values, rules = np.where(task.decided, known, 0.0), list[np.ndarray]()
        for k in range(MOST_ROUNDS if horizon is None else horizon):
            worst = float(values.min(initial=0.0))
            mean = np.add.reduceat(shares * values[pmdp.successor], first) + of_worst * worst
            rows = reward + discount * mean
            if policy is None:
                chosen = self._best_rows(rows)
            else:
                rule = policy.at(0 if horizon is None else horizon - 1 - k).rows
                assert rule is not None
                chosen = rule
            after = np.where(task.decided, known, rows[chosen])
            moved, values = float(np.abs(after - values).max(initial=0.0)), after
            rules.append(chosen)
            if horizon is None and moved <= SETTLED * float(np.abs(values).max(initial=1e-300)):
                break
        found = Policy.deterministic(rules[-1] if horizon is None else np.array(rules[::-1]))
        return found if policy is None else policy, sign * float(values[pmdp.initial_state])

    def _best_rows(self, rows: np.ndarray) -> np.ndarray:
        """(S,) the best row of every state; the first among equals."""
        pmdp = self._pmdp
        best = np.maximum.reduceat(rows, pmdp.state_ptr[:-1])
        candidates = np.flatnonzero(rows >= best[pmdp.row_state])
        states, at = np.unique(pmdp.row_state[candidates], return_index=True)
        assert len(states) == pmdp.num_states
        return candidates[at]
