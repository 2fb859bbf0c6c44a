"""The policy to fix next, by the frequencies of what was seen: a choice that needs no guarantee."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from rpl_agent.guarantee.open_world.assumptions import Assumptions
from rpl_agent.guarantee.open_world.data import GroupedOutcomes, OpenData
from rpl_agent.guarantee.open_world.witness import OpenPolicy
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
        share, after = self._grouped.counts / self._visits[self._row], self._grouped.successor
        self._reward = np.bincount(self._row, weights=share * self._grouped.reward, minlength=len(data.visits))
        goes_on = after >= 0
        entries = share[goes_on], (self._row[goes_on], after[goes_on])
        self._chance = sparse.csr_array(entries, shape=(len(data.visits), self._states))

    def best(self) -> OpenPolicy:
        """The best policy, with doubts about rows with few visits; one visit shows all there is without chance."""
        rules = self._iterate(0.0 if self._assumptions.deterministic else DOUBT)
        tried = np.array(self._data.visits).reshape(self._states, self._actions).sum(axis=0)
        return OpenPolicy(rules, int(tried.argmax()))

    def value(self, policy: OpenPolicy) -> float:
        """The value of a policy from the start, without doubts: plays have none either. Rows never tried give least."""
        horizon, discount, (low, high) = (
            self._assumptions.horizon,
            self._assumptions.discount,
            self._assumptions.overall,
        )
        rules, values = policy.table(self._states), np.zeros(self._states)
        for h in range(MOST_ROUNDS if horizon is None else horizon):
            if h == 0 or horizon is not None:
                rows = np.arange(self._states) * self._actions + rules[h]
                chance, reward, tried = self._chance[rows], self._reward[rows], self._visits[rows] > 0
            after = np.where(tried, reward + discount * (chance @ values), low)
            moved, values = np.abs(after - values).max(initial=0.0), after
            if horizon is None and moved <= SETTLED * (high - low):
                break
        starts = np.array(self._data.starts, dtype=float)
        return float(values @ starts / starts.sum())

    def _iterate(self, doubt: float) -> np.ndarray:
        """(H, S) the actions of the best policy."""
        horizon, (low, high) = self._assumptions.horizon, self._assumptions.overall
        values, rules = np.zeros(self._states), []
        for _ in range(MOST_ROUNDS if horizon is None else horizon):
            rows = self._backup(values, doubt).reshape(self._states, self._actions)
            chosen, after = rows.argmax(axis=1), rows.max(axis=1)
            moved, values = np.abs(after - values).max(initial=0.0), after
            if horizon is not None:
                rules.append(chosen)
            elif moved <= SETTLED * (high - low):
                break
        return np.array([chosen] if horizon is None else rules, dtype=np.int64)

    def _backup(self, values: np.ndarray, doubt: float) -> np.ndarray:
        """(R,) mean of reward and discounted value, with ``doubt`` visits of the worst; less for rows never tried."""
        outcomes, worst = self._grouped, min(float(values.min(initial=0.0)), 0.0)
        rest = np.where(outcomes.successor < 0, 0.0, values[outcomes.successor])
        numbers = outcomes.reward + self._assumptions.discount * rest
        worst = min(worst, float(numbers.min(initial=0.0)))
        total = np.bincount(self._row, weights=outcomes.counts * numbers, minlength=len(self._visits))
        found = (total + doubt * worst) / np.maximum(self._visits + doubt, 1.0)
        return np.where(self._visits > 0, found, worst - 1.0)
