"""The rows that one policy plays, their frequencies, and first bounds on the values of its states."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy

from rpl_agent.core.model import Objective, ParametricMDP, Policy
from rpl_agent.core.native import core, read_only
from rpl_agent.guarantee.stakes import STAKES, level
from rpl_agent.guarantee.untied.rows import Bounds, value_ranges

#: Sums over plays stop after so many sweeps, or once they change by this share of the largest number.
SWEEPS, SETTLED = 2_000, 1e-7
#: Rounding of a short sum, at most, as a share of the size of its terms.
ROUNDING = 1e-12
#: Stakes and most sweeps of first bounds, which need not be tight: more stakes take longer.
FIRST_STAKES = read_only(STAKES[:6])
LOG_WEIGHTS = read_only(np.full(len(FIRST_STAKES), -level(1.0 / len(FIRST_STAKES))))
MIXTURE = core.StakeMixture(size=len(FIRST_STAKES), stake=FIRST_STAKES, log_weight=LOG_WEIGHTS)
FIRST_SWEEPS = 100


@dataclass(frozen=True, eq=False)
class PolicyRows:
    """The rows that a policy plays in states whose value is open, and what their numbers may be.

    A value is open unless the graph alone decides it. The least and the largest value of a decided state are the same,
    and it has no row here.
    """

    state: np.ndarray  # (k,)
    chance: np.ndarray  # (k,) of playing it in its state
    reward: np.ndarray  # (k,)
    is_known: np.ndarray  # (k,) bool: its probabilities are known
    transition: np.ndarray  # (E,) transitions of the model: the outcomes of all rows
    owner: np.ndarray  # (E,) the row of each outcome, in 0 … k − 1
    successor: np.ndarray  # (E,)
    known: np.ndarray  # (E,) probabilities, where the row is known
    span: Bounds  # (k,) each: least and largest γV(s')
    values: Bounds  # (S,) each: least and largest value of a state, the same where it is decided
    start: int
    discount: float

    @classmethod
    def of(cls, pmdp: ParametricMDP, objective: Objective, policy: Policy) -> PolicyRows:
        """The rows of a policy that does not depend on the step."""
        task, ranges = objective.resolve(pmdp), value_ranges(pmdp, objective)
        assert ranges is not None and task.objective.horizon is None
        chance, discount = policy.as_weights(pmdp), task.objective.discount
        decided = task.target * task.criterion.at_target
        low, high = (np.where(task.decided, decided, end[0]) for end in ranges)
        number = np.flatnonzero((chance > 0.0) & (low < high)[pmdp.row_state])
        constant = pmdp.table.is_constant[pmdp.expression]
        probability = np.where(constant, pmdp.table.at(np.zeros(pmdp.num_parameters))[pmdp.expression], 0.0)
        kept = np.zeros(pmdp.num_rows, dtype=bool)
        kept[number] = True
        transition = np.flatnonzero(kept[pmdp.transition_row])
        first = pmdp.row_ptr[:-1]
        return cls(
            state=pmdp.row_state[number],
            chance=chance[number],
            reward=task.reward[number],
            is_known=np.minimum.reduceat(constant, first)[number],
            transition=transition,
            owner=np.searchsorted(number, pmdp.transition_row[transition]),
            successor=pmdp.successor[transition],
            known=probability[transition],
            span=(
                discount * np.minimum.reduceat(low[pmdp.successor], first)[number],
                discount * np.maximum.reduceat(high[pmdp.successor], first)[number],
            ),
            values=(low, high),
            start=int(pmdp.initial_state),
            discount=discount,
        )

    @property
    def size(self) -> int:
        return len(self.state)

    @cached_property
    def scale(self) -> float:
        """The largest absolute number, for rounding."""
        sizes = [np.abs(end).max(initial=0.0) for end in (*self.values, *self.span, self.reward)]
        return float(max(sizes))

    @cached_property
    def rounding(self) -> float:
        """Rounding of any sum over outcomes, at most, as a share of the size of its terms."""
        return max(ROUNDING, 8.0 * core.UNIT_ROUNDOFF * len(self.owner))

    def sum(self, numbers: np.ndarray) -> np.ndarray:
        """(E,) → (k,) sums over the outcomes of each row."""
        return np.bincount(self.owner, numbers, self.size)

    def to_states(self, numbers: np.ndarray) -> np.ndarray:
        """(k,) → (S,) means over the rows of each state; 0 where the value is decided."""
        return np.bincount(self.state, self.chance * numbers, len(self.values[0]))

    @cached_property
    def is_open(self) -> np.ndarray:
        """(S,) bool: the value is open"""
        return np.bincount(self.state, minlength=len(self.values[0])) > 0

    def frequencies(self, counts: np.ndarray) -> Frequencies:
        """Frequencies from counts (T,) of the model's transitions; known rows have their probabilities."""
        seen = counts[self.transition].astype(float)
        visits = np.where(self.is_known, 0.0, self.sum(seen))
        share = np.where(self.is_known[self.owner], self.known, seen / np.maximum(visits, 1.0)[self.owner])
        return Frequencies(self, visits, share, np.where(self.is_known[self.owner], 0.0, seen))


class Frequencies(NamedTuple):
    """The policy's rows with frequencies as probabilities. For rows without data, callers give means (``empty``)."""

    rows: PolicyRows
    visits: np.ndarray  # (k,) 0 for known rows
    share: np.ndarray  # (E,) of each outcome in its row
    seen: np.ndarray  # (E,) how often it came, 0 in known rows

    @property
    def is_empty(self) -> np.ndarray:
        """(k,) bool: neither known nor visited"""
        return (self.visits == 0.0) & ~self.rows.is_known

    def mean(self, values: np.ndarray, empty: np.ndarray) -> np.ndarray:
        """(k,) mean γV(s') of each row; ``empty`` (k,) has the numbers of rows without data."""
        found = self.rows.discount * self.rows.sum(self.share * values[self.rows.successor])
        return np.where(self.is_empty, empty, found)

    def matrix(self) -> scipy.sparse.csr_array:
        """(S, S) the chance of each step times the discount; from open states only."""
        rows = self.rows
        size, weight = len(rows.values[0]), rows.discount * rows.chance[rows.owner] * self.share
        return scipy.sparse.csr_array((weight, (rows.state[rows.owner], rows.successor)), shape=(size, size))

    def occupancies(self) -> np.ndarray:
        """(S,) the discounted visits of a play to each open state, about: endless plays are cut short."""
        start = np.zeros(len(self.rows.values[0]))
        start[self.rows.start] = 1.0
        steps, found = scipy.sparse.csr_array(self.matrix().T), start.copy()
        for _ in range(SWEEPS):
            after = np.where(self.rows.is_open, start + steps @ found, 0.0)
            moved, found = float(np.abs(after - found).max()), after
            if moved <= SETTLED * SETTLED:
                break
        return found

    def values(self, empty: np.ndarray) -> np.ndarray:
        """(S,) the value of each state at these frequencies."""
        rows, steps = self.rows, self.matrix()
        paid = rows.to_states(rows.reward + np.where(self.is_empty, empty, 0.0))
        found = np.where(rows.is_open, np.clip(0.0, *rows.values), rows.values[0])
        for _ in range(SWEEPS):
            after = np.where(rows.is_open, paid + steps @ found, found)
            moved, found = float(np.abs(after - found).max()), after
            if moved <= SETTLED * rows.scale:
                break
        return np.clip(found, *rows.values)


def first_values(rows: PolicyRows, found: Frequencies, sign: float, share_level: float) -> np.ndarray:
    """(S,) bounds on V from above (sign 1) or below (−1), by a bet on the mean of each row.

    This is Theorem 1 of `guarantee.open_world` for one policy. If states play several rows at random, each gets a known
    row, which leads to one added state per row that it plays. Every step then becomes two, each with the square root of
    the discount.
    """
    size, is_mixed = len(rows.values[0]), bool((rows.chance < 1.0).any())
    discount = math.sqrt(rows.discount) if is_mixed else rows.discount
    scale = discount / rows.discount  # from r + γV(s') to what a row's own state is worth
    values = sign * rows.values[0 if sign < 0.0 else 1]
    low, high = (scale * sign * (rows.reward + end) for end in (rows.span if sign > 0.0 else rows.span[::-1]))
    is_settled = (high <= low) & ~rows.is_known  # the number is known, whatever follows
    slack = rows.rounding * (1.0 + scale) * rows.scale
    low, high = low - slack, high + slack
    amounts = np.where(rows.is_known[rows.owner], rows.known, found.seen)
    kept = (amounts > 0.0) & ~is_settled[rows.owner]
    paid = scale * sign * rows.reward[rows.owner[kept]]
    outcomes = [rows.successor[kept].astype(np.int64), amounts[kept], paid]
    lengths, owners = np.bincount(rows.owner[kept], minlength=rows.size), rows.state
    levels = np.where(rows.is_known, -1.0, share_level)
    if is_mixed:
        choices = (size + np.arange(rows.size), rows.chance, np.zeros(rows.size))
        outcomes = [np.append(a, b) for a, b in zip(choices, outcomes)]
        states, played = np.unique(rows.state, return_counts=True)
        lengths, owners = np.append(played, lengths), np.append(states, size + np.arange(rows.size))
        levels = np.append(np.full(len(states), -1.0), levels)
        low, high = np.append(values[states] - rows.scale, low), np.append(values[states] + slack, high)
        values = np.append(values, high[len(states) :])
    changed = np.zeros(len(values), dtype=np.int64)
    core.open_sweeps(
        core.OpenRows(
            states=len(values),
            rows=len(lengths),
            state_ptr=np.append(0, np.cumsum(np.bincount(owners, minlength=len(values)))),
            row_ptr=np.append(0, np.cumsum(lengths)),
            reward=outcomes[2],
            successor=outcomes[0],
            count=outcomes[1],
            low=low,
            high=high,
            level=levels,
            discount=discount,
            certain=False,
        ),
        MIXTURE,
        FIRST_SWEEPS,
        values,
        changed,
        high.copy(),
        values,
        changed,
        np.full(len(lengths), -1, dtype=np.int64),
        np.zeros(1, dtype=np.int64),
        None,
    )
    return sign * values[:size]
