"""The policy to fix next, by the frequencies of what was seen: a choice that needs no guarantee."""

from __future__ import annotations

import numpy as np

from rpl_agent.guarantee.open_world.assumptions import Assumptions
from rpl_agent.guarantee.open_world.data import GroupedOutcomes, OpenData
from rpl_agent.guarantee.open_world.played import OpenPolicy
from rpl_agent.guarantee.untied.estimate import DOUBT, MOST_ROUNDS

#: Change, as a share of the range, that ends value iteration without a horizon.
SETTLED = 1e-5


class FrequencyModel:
    """The world as if frequencies were probabilities."""

    def __init__(self, assumptions: Assumptions, data: OpenData):
        self._assumptions, self._data = assumptions, data
        self._grouped: GroupedOutcomes = data.grouped()
        self._states, self._actions = len(data.states), data.actions
        self._row = np.repeat(np.arange(len(data.visits)), np.diff(self._grouped.ptr))
        self._visits = np.bincount(self._row, weights=self._grouped.counts, minlength=len(data.visits))

    def best(self) -> OpenPolicy:
        """The best policy, with doubts about rows with few visits; one visit shows all there is without chance."""
        rules, _ = self._iterate(None, 0.0 if self._assumptions.deterministic else DOUBT)
        tried = np.array(self._data.visits).reshape(self._states, self._actions).sum(axis=0)
        return OpenPolicy(rules, int(tried.argmax()))

    def value(self, policy: OpenPolicy) -> float:
        """The value of a policy from the start, without doubts: plays have none either."""
        return self._from_start(self._iterate(policy.table(self._states), 0.0)[1])

    def _from_start(self, values: np.ndarray) -> float:
        starts = np.array(self._data.starts, dtype=float)
        return float(values @ starts / starts.sum())

    def _iterate(self, fixed: np.ndarray | None, doubt: float) -> tuple[np.ndarray, np.ndarray]:
        """((H, S) actions, (S,) values with all steps to go) of the best or of a given policy."""
        horizon, (low, high) = self._assumptions.horizon, self._assumptions.overall
        values, rules = np.zeros(self._states), []
        for h in range(MOST_ROUNDS if horizon is None else horizon):
            rows = self._backup(values, doubt).reshape(self._states, self._actions)
            chosen = rows.argmax(axis=1) if fixed is None else fixed[0 if horizon is None else h]
            after = rows[np.arange(self._states), chosen]
            moved, values = np.abs(after - values).max(initial=0.0), after
            if horizon is not None:
                rules.append(chosen)
            elif moved <= SETTLED * (high - low):
                break
        if horizon is None:
            rules = [chosen]
        return np.array(rules, dtype=np.int64), values

    def _backup(self, values: np.ndarray, doubt: float) -> np.ndarray:
        """(R,) mean of reward and discounted value, with ``doubt`` visits as bad as the worst state; never tried, less.

        As bad as the worst step would be too much: a step into the worst state is worse than the state, and so on.
        """
        outcomes, worst = self._grouped, min(float(values.min(initial=0.0)), 0.0)
        rest = np.where(outcomes.successor < 0, 0.0, values[outcomes.successor])
        numbers = outcomes.reward + self._assumptions.discount * rest
        total = np.bincount(self._row, weights=outcomes.counts * numbers, minlength=len(self._visits))
        found = (total + doubt * worst) / np.maximum(self._visits + doubt, 1.0)
        return np.where(self._visits > 0, found, min(worst, float(numbers.min(initial=0.0))) - 1.0)
