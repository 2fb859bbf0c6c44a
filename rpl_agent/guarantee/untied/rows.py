"""`RowBets` bounds the value of every policy, by bets on one number per row (Theorem 1 of `guarantee.open_world`).

The number is the reward plus the discounted value of the state that follows. The graph is known, and bounds it whatever
the probabilities are: so its range depends on the model alone, as Theorem 1 requires. Everything is in the time of the
solver (`Task`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy

from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Instant, Objective, ParametricMDP, Reach, Sense, Task, cached_on, reached
from rpl_agent.core.native import core
from rpl_agent.core.regions.blocks import is_blockwise, parameters_of_expressions
from rpl_agent.core.solver.solution import Solution
from rpl_agent.guarantee.stakes import MIXTURE, MOST_SWEEPS, level

#: Most transitions times steps to go: with more, bets would take longer than the certificate.
MOST_WORK = 5_000_000
#: Rounds that ranges have to settle; undiscounted totals that do not settle have no range.
MOST_ROUNDS = 1_000
#: Rounding of a sum along a play, at most, per step, as a share of its size.
ROUNDING = 1e-12

Bounds = tuple[np.ndarray, np.ndarray]


def is_untied(pmdp: ParametricMDP) -> bool:
    """Whether every row has an unknown distribution of its own, and there are too many of them for one joint set."""
    return cached_on(pmdp, "is untied", _is_untied)


def _is_untied(pmdp: ParametricMDP) -> bool:
    if not is_blockwise(pmdp):
        return False
    ones = np.ones(pmdp.num_transitions, dtype=np.int64)
    shape = (pmdp.num_rows, pmdp.num_expressions)
    carries = scipy.sparse.csr_array((ones, pmdp.expression, pmdp.row_ptr), shape=shape)
    uses = scipy.sparse.csc_array(carries @ parameters_of_expressions(pmdp.table))
    return bool((np.diff(uses.indptr) <= 1).all())


def ranges(pmdp: ParametricMDP, objective: Objective) -> Bounds | None:
    """(low, high), each (H + 1, S): the values that states may have with 0 … H steps to go, by the graph alone.

    Without a horizon, one layer. None if the graph does not bound the values, or if there are too many layers.
    """
    task = objective.resolve(pmdp)
    horizon = task.objective.horizon
    if isinstance(objective.criterion, Instant) or objective.must_reach:
        return None
    if task.signed:  # errors of rewards would have to be nature's choice, as in the solver
        return None
    if (1 if horizon is None else horizon + 1) * pmdp.num_transitions > MOST_WORK:
        return None
    most, least = (_largest(pmdp, task, sign) for sign in (1.0, -1.0))
    return None if most is None or least is None else (-least, most)


def _largest(pmdp: ParametricMDP, task: Task, sign: float) -> np.ndarray | None:
    """(layers, S) the largest value of every state, or minus the least one (sign −1); None if there is none."""
    horizon, discount = task.objective.horizon, task.objective.discount
    first, paid = pmdp.row_ptr[pmdp.state_ptr[:-1]], sign * task.reward[pmdp.transition_row]
    is_reach = isinstance(task.criterion, Reach)
    known = sign * task.target * task.criterion.at_target
    size = float(np.abs(paid).max(initial=0.0))

    def before(worth: np.ndarray) -> np.ndarray:
        """The largest value with one step more."""
        after = np.maximum.reduceat(paid + discount * worth[pmdp.successor], first)
        return np.where(task.decided, known, after)

    if horizon is not None:
        found = [known]
        for _ in range(horizon):
            found.append(before(found[-1]))
        return np.array(found) + ROUNDING * (horizon + 1) * (size + np.abs(found).max())
    if is_reach:
        source = pmdp.row_state[pmdp.transition_row]
        can = reached(pmdp.successor, source, np.flatnonzero(task.target), pmdp.num_states)
        return np.where(task.decided, known, (can & (sign > 0)).astype(float))[None, :]
    if discount < 1.0:  # downward from a bound: every round gives a bound
        worth = np.where(task.decided, known, max(float(paid.max()), 0.0) / (1.0 - discount))
        for _ in range(MOST_ROUNDS):
            worth = before(worth)
        return worth[None, :] + ROUNDING / (1.0 - discount) * (size + np.abs(worth).max())
    worth = np.zeros(pmdp.num_states)
    for _ in range(MOST_ROUNDS):  # upward from 0: a bound only once it has settled
        after = np.maximum(before(worth), 0.0)  # a play may pay nothing more from now on
        if np.array_equal(after, worth):
            return worth[None, :] + ROUNDING * MOST_ROUNDS * (size + np.abs(worth).max())
        worth = after
    return None


def play_range(pmdp: ParametricMDP, objective: Objective) -> tuple[float, float]:
    """(least, most) that a play from the start can be worth, up to rounding; infinite if unknown."""
    ends = value_ranges(pmdp, objective)
    if ends is None:
        return -np.inf, np.inf
    low, high = (float(end[-1, pmdp.initial_state]) for end in ends)
    slack = 1e-9 * max(abs(low), abs(high))
    return low + slack, high - slack


class _Rows(NamedTuple):
    """Rows of states whose value is open, with their outcomes: successors, and counts or known chances."""

    state_ptr: np.ndarray  # (S + 1,)
    number: np.ndarray  # (R',) of the row in the model
    ptr: np.ndarray  # (R' + 1,)
    successor: np.ndarray  # (E,)
    counts: np.ndarray  # (E,)
    is_known: np.ndarray  # (R',) bool


@dataclass(eq=False)
class RowBets:
    """Bets on the rows of an untied model, for one objective, at all times except with probability ``share``."""

    pmdp: ParametricMDP
    counts: Counts
    objective: Objective
    share: float

    @classmethod
    def apply(cls, pmdp: ParametricMDP, objective: Objective | None) -> bool:
        """Whether to bet on rows: the model and the objective alone decide, never the data."""
        return objective is not None and is_untied(pmdp) and value_ranges(pmdp, objective) is not None

    def bound(self, known: np.ndarray | None = None) -> float:
        """A bound on the best value at the start: from above where it is maximised, from below otherwise.

        known : (S,) bounds on the best values that hold already; with a horizon (H + 1, S), by steps to go.
        """
        task = self.objective.resolve(self.pmdp)
        sign = 1.0 if self.objective.sense is Sense.MAX else -1.0
        found = sign * float(self._values(task, sign, known)[self.pmdp.initial_state])
        return float(task.outward(found, found)[1 if sign > 0 else 0])

    def _values(self, task: Task, sign: float, known: np.ndarray | None) -> np.ndarray:
        """(S,) bounds on sign · V*, with all steps to go."""
        ends = value_ranges(self.pmdp, self.objective)
        assert ends is not None
        low, high = (ends[0], ends[1]) if sign > 0 else (-ends[1], -ends[0])
        rows, horizon = self._rows(task), task.objective.horizon
        bets = max(int((~rows.is_known).sum()), 1) * (1 if horizon is None else horizon)
        clock = np.zeros(1, dtype=np.int64)
        best = high.copy() if known is None else np.minimum(high, sign * np.atleast_2d(known))
        if horizon is None:
            self._sweep(task, sign, rows, bets, (low[0], high[0]), None, best[0], clock)
            return best[0]
        upper = best[0]
        for h in range(1, horizon + 1):
            below, upper = upper, best[h]
            self._sweep(task, sign, rows, bets, (low[h - 1], high[h - 1]), below, upper, clock)
        return best[-1]

    def _sweep(
        self,
        task: Task,
        sign: float,
        rows: _Rows,
        bets: int,
        after: Bounds,
        below: np.ndarray | None,
        upper: np.ndarray,
        clock: np.ndarray,
    ) -> None:
        """Lower ``upper`` (S,) in place: successors have values in the range ``after``, and at most ``below``.

        below : (S,) with one step less to go; None: ``upper`` itself.
        """
        reward, discount = sign * task.reward[rows.number], task.objective.discount
        low, high = self._row_ranges(rows, reward, discount, after)
        settled = (high <= low) & ~rows.is_known  # the number is known, whatever follows
        levels = np.where(rows.is_known, -1.0, level(self.share / bets * (1.0 - 1e-9)))
        kept = ~settled[np.repeat(np.arange(len(settled)), np.diff(rows.ptr))]
        ptr = np.append(0, np.cumsum(np.where(settled, 0, np.diff(rows.ptr))))
        changed = np.zeros(len(upper), dtype=np.int64)
        core.open_sweeps(
            core.OpenRows(
                states=len(upper),
                rows=len(low),
                state_ptr=rows.state_ptr,
                row_ptr=ptr,
                reward=np.repeat(reward, np.diff(ptr)),
                successor=rows.successor[kept],
                count=rows.counts[kept],
                low=low,
                high=high,
                level=levels,
                discount=discount,
                certain=False,
            ),
            MIXTURE,
            MOST_SWEEPS if below is None else 1,
            upper if below is None else below,
            changed if below is None else np.zeros(len(upper), dtype=np.int64),
            high.copy(),
            upper,
            changed,
            np.full(len(low), -1, dtype=np.int64),
            clock,
            None,
        )

    def _row_ranges(self, rows: _Rows, reward: np.ndarray, discount: float, after: Bounds) -> Bounds:
        """(R',) each: the least and the largest reward plus discounted value of a successor, rounded outward."""
        pmdp, first = self.pmdp, self.pmdp.row_ptr[:-1]
        low = reward + discount * np.minimum.reduceat(after[0][pmdp.successor], first)[rows.number]
        high = reward + discount * np.maximum.reduceat(after[1][pmdp.successor], first)[rows.number]
        slack = 8.0 * core.UNIT_ROUNDOFF * (np.abs(reward) + np.abs(low) + np.abs(high))
        return np.where(low == high, low, low - slack), high + np.where(low == high, 0.0, slack)

    def _rows(self, task: Task) -> _Rows:
        pmdp, lengths = self.pmdp, np.diff(self.pmdp.row_ptr)
        constant = pmdp.table.is_constant[pmdp.expression]
        is_known = np.minimum.reduceat(constant, pmdp.row_ptr[:-1])
        open_row = ~task.decided[pmdp.row_state]
        chances = np.where(constant, pmdp.table.at(np.zeros(pmdp.num_parameters))[pmdp.expression], 0.0)
        amounts = np.where(np.repeat(is_known, lengths), chances, self.counts.transitions.astype(float))
        used = (amounts > 0.0) & np.repeat(open_row, lengths)
        number = np.flatnonzero(open_row)
        state_ptr = np.append(0, np.cumsum(np.bincount(pmdp.row_state[number], minlength=pmdp.num_states)))
        ptr = np.append(0, np.cumsum(np.add.reduceat(used, pmdp.row_ptr[:-1])[number]))
        return _Rows(state_ptr, number, ptr, pmdp.successor[used].astype(np.int64), amounts[used], is_known[number])


def value_ranges(pmdp: ParametricMDP, objective: Objective) -> Bounds | None:
    """`ranges`, computed once per model and objective."""
    known: dict[Objective, Bounds | None] = cached_on(pmdp, "ranges of values", lambda _: {})
    if objective not in known:
        known[objective] = ranges(pmdp, objective)
    return known[objective]


def with_row_bets(
    rows: RowBets | None, objective: Objective, known: tuple[float, float], optimistic: Solution | None
) -> tuple[float, float]:
    """Bounds tightened by bets on rows, which have a share of δ of their own.

    optimistic : bounds on the best values, which bets start from
    """
    if rows is None or rows.objective != objective:
        return known
    (lower, upper), maximising, start = known, objective.sense is Sense.MAX, None
    if optimistic is not None:
        start = optimistic.upper_values if maximising else optimistic.lower_values
    bound = rows.bound(start)
    found = (lower, min(upper, bound)) if maximising else (max(lower, bound), upper)
    return found if found[0] <= found[1] else known  # else the model is wrong, or one of the events has failed
