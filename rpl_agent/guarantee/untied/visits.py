"""`VisitBounds` bounds the value of a policy that was fixed at a mark, from later visits of its rows.

Any policy may have made these visits.

Let V be the policy's value, y = γV(s') the number of a visit, e = E y − mean y the error of a row's mean over its N
visits after the mark, P̃ their frequencies, r rewards. V solves V = r + γPV. So for *any* weights w of the states

    V(s0) = Σ w r + Σ_s V(s) (1[s = s0] − w_s + γ Σ_t w_t P̃_ts) + Σ w e,

because the terms with w cancel. Occupancies of the policy in P̃ make the second sum vanish where values are not known;
whatever is left of it lies between bounds on V. The errors of rows are bounded twice, by Ville's inequality:

1. all of them together, Σ b N e ≤ ℓ + Σ_k h(b (y_k − c)), h(z) = −ln(1 − z) − z, with stakes b and centres c that
   were fixed at the mark: Π (1 − b (y_k − c)) e^{b (E y − c)} has factors whose mean is at most 1. Stakes are
   proportional to the occupancies at the mark, so this is nearly Σ w e, and errors add up like their squares;
2. each row by itself, which pays for the difference w − κ b N: it is known and small, and κ ≥ 0 is free.

y is known up to bounds on V, and h is convex: the worse end of y counts. The bound on each row's error improves the
bounds on V, and these improve it in turn. Only counts and ranges are used, never the graph. `docs/guarantees.md` has
the proof in full.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from rpl_agent.core.native import core
from rpl_agent.guarantee.stakes import level
from rpl_agent.guarantee.untied.policy_rows import SETTLED, SWEEPS, PolicyRows, first_values

#: Without a plan, stakes are made for these amounts of data after the mark, as multiples of the data before it. Each
#: has an equal share of the error.
GROWTHS = (1.0, 4.0, 16.0, 64.0)
#: The largest stake, as a share of one that could lose everything.
CAP = 0.5
#: Parts of the share: for all rows together, for each by itself, and for first bounds on the values of states.
TOGETHER, ALONE, VALUES = 0.4, 0.3, 0.3
#: Most rounds in which brackets of V improve.
ROUNDS = 6


class Levels(NamedTuple):
    """ln 1/share of a bet on all rows, on a row's error, and on a row's mean."""

    together: float
    alone: float
    values: float

    @classmethod
    def of(cls, share: float, sides: int, rows: int, growths: int) -> Levels:
        each = share / (2 * max(rows, 1))  # both sides of every row
        return cls(level(TOGETHER * share / (sides * growths)), level(ALONE * each / growths), level(VALUES * each))


@dataclass(frozen=True, eq=False)
class VisitPlan:
    """What is fixed at a mark: the policy, centres and stakes.

    together : (G, k) stakes of all rows in one bet, for each growth of the data.
    alone : (G, k) the stake of each row in a bet of its own.
    """

    rows: PolicyRows
    centre: np.ndarray  # (k,)
    together: np.ndarray
    alone: np.ndarray
    levels: Levels
    is_played: np.ndarray  # (k,) bool: as far as the data before the mark tell

    @classmethod
    def at_mark(
        cls, rows: PolicyRows, before: np.ndarray, share: float, sides: int, progress: float = 0.0
    ) -> VisitPlan:
        """From counts (T,) before the mark.

        share : of δ, for all claims from this plan. sides : number of sides on which the value will be bounded.
        progress : the share of all data that comes before the mark; 0 if unknown.
        """
        growths = np.array(GROWTHS if progress <= 0.0 else (max(1.0 - progress, 1e-3) / progress,))
        bets = len(growths)
        levels = Levels.of(share * (1.0 - 1e-9), sides, rows.size, bets)
        found, width = rows.frequencies(before), rows.span[1] - rows.span[0]
        middle = 0.5 * (rows.span[0] + rows.span[1])
        values = found.values(middle)
        centre = np.clip(found.mean(values, middle), *rows.span)
        spread = rows.sum(found.share * (rows.discount * values[rows.successor] - centre[rows.owner]) ** 2)
        visits = np.maximum(found.visits, 1.0)
        spread = np.maximum(spread + width**2 / (visits + 1.0), 1e-300)
        played = found.occupancies()[rows.state] * rows.chance / visits  # per visit
        size = np.sqrt(2.0 * levels.together / (growths * max(float((played**2 * visits) @ spread), 1e-300)))
        limit = CAP / np.maximum(width, 1e-300)
        together = np.minimum(size[:, None] * played, limit)
        alone = np.minimum(np.sqrt(2.0 * levels.alone / (growths[:, None] * visits * spread)), limit)
        is_bet = ~rows.is_known & (width > 0.0)
        return cls(rows, centre, together * is_bet, alone * is_bet, levels, played > 0.0)


class VisitBounds:
    """Bounds on the value of a plan's policy, from counts (T,) of what came after the mark."""

    def __init__(self, plan: VisitPlan, later: np.ndarray):
        self._plan, self._rows = plan, plan.rows
        self._found = plan.rows.frequencies(later)
        self._slack = plan.rows.rounding * plan.rows.scale
        self.visits = int(self._found.visits.sum())
        first = (first_values(plan.rows, self._found, sign, plan.levels.values) for sign in (-1.0, 1.0))
        self._low, self._high = first
        for _ in range(ROUNDS):
            self._below, self._above = (self._alone(side) for side in (-1.0, 1.0))
            if not self._improve():
                break

    # ------------------------------------------------------------------ each row by itself
    def _losses(self, stakes: np.ndarray, side: float) -> np.ndarray:
        """(k,) Σ_k h(± b (y_k − c)) of every row, at the worse end of each y; one stake (k,) for each."""
        rows, bound = self._rows, np.zeros(len(self._rows.owner))
        rounded = 16.0 * core.UNIT_ROUNDOFF * stakes[rows.owner] * rows.scale  # of z and of h
        for end in (self._low, self._high):
            z = side * stakes[rows.owner] * (rows.discount * end[rows.successor] - self._plan.centre[rows.owner])
            bound = np.maximum(bound, -np.log1p(-z) - z)
        return rows.sum(self._found.seen * (bound + rounded)) * (1.0 + rows.rounding)

    def _alone(self, side: float) -> np.ndarray:
        """(k,) the most that e (side 1) or −e (side −1) can be."""
        rows, visits = self._rows, self._found.visits
        width = np.where(rows.is_known, 0.0, rows.span[1] - rows.span[0])
        found = width.copy()
        for stakes in self._plan.alone:
            is_bet = (visits > 0.0) & (stakes > 0.0)
            bound = (self._plan.levels.alone + self._losses(stakes, side)) / np.where(is_bet, stakes * visits, 1.0)
            found = np.where(is_bet, np.minimum(found, bound), found)
        return found + self._slack

    def _improve(self) -> bool:
        """Tighten the brackets of V by those of the rows' errors; return whether they changed much."""
        rows, found, centre = self._rows, self._found, self._plan.centre
        moved = 0.0
        for side in (-1.0, 1.0):
            is_low = side < 0.0
            error, ends = (self._below if is_low else self._above), rows.span[0 if is_low else 1]
            now = before = self._low if is_low else self._high
            for _ in range(SWEEPS):
                mean = np.where(found.is_empty, ends, found.mean(now, centre) + side * error)
                after = rows.to_states(rows.reward + mean) + side * self._slack
                better = np.minimum(now, after) if side > 0.0 else np.maximum(now, after)
                after = np.where(rows.is_open, better, now)
                change, now = float(np.abs(after - now).max(initial=0.0)), after
                if change <= SETTLED * rows.scale:
                    break
            moved = max(moved, float(np.abs(now - before).max(initial=0.0)))
            self._low, self._high = (now, self._high) if is_low else (self._low, now)
        return moved > 1e-3 * rows.scale

    # ------------------------------------------------------------------ all rows together
    @cached_property
    def _weights(self) -> np.ndarray:
        """(S,) weights of the states: any are valid; these are the occupancies at the frequencies."""
        return self._found.occupancies()

    def bound(self, side: float) -> float:
        """The most (side 1) or the least (side −1) that the start can be worth."""
        rows, found = self._rows, self._found
        weights = self._weights
        own = weights[rows.state] * rows.chance  # (k,)
        flow = np.bincount(
            rows.successor, rows.discount * own[rows.owner] * found.share * ~found.is_empty[rows.owner], len(weights)
        )
        flow[rows.start] += 1.0
        left = flow - weights
        ends = left * (self._high if side > 0.0 else self._low), left * (self._low if side > 0.0 else self._high)
        value = np.maximum(*ends) if side > 0.0 else np.minimum(*ends)
        paid = own * (rows.reward + np.where(found.is_empty, self._plan.centre, 0.0))
        base = float(value.sum() + paid.sum())
        size = float(np.abs(flow + weights) @ np.maximum(np.abs(self._low), np.abs(self._high)) + np.abs(paid).sum())
        error = min(self._errors(own, side, stakes) for stakes in self._plan.together)
        found_bound = base + side * (error * (1.0 + rows.rounding) + rows.rounding * (size + rows.scale))
        nearest = self._high if side > 0.0 else self._low
        best = min if side > 0.0 else max
        return math.nextafter(best(found_bound, float(nearest[rows.start])), side * math.inf)

    def _errors(self, own: np.ndarray, side: float, stakes: np.ndarray) -> float:
        """The most that side · Σ w e can be, with stakes (k,) on all rows."""
        losses = self._losses(stakes, side)
        cost = self._plan.levels.together + float(losses.sum())
        most, least = (self._above, self._below) if side > 0.0 else (self._below, self._above)
        return most_together(own, stakes * self._found.visits, most, least, cost)


def most_together(own: np.ndarray, bet: np.ndarray, most: np.ndarray, least: np.ndarray, cost: float) -> float:
    """A bound on Σ own e over errors with −least ≤ e ≤ most and Σ bet e ≤ cost; all (k,).

    A row with a larger bet than its weight has a negative rest, which counts like any other.
    """
    factor = best_factor(own, bet, 0.5 * (most + least), cost)
    rest = own - factor * bet
    return factor * cost + float(np.where(rest > 0.0, rest * most, -rest * least).sum())


def best_factor(own: np.ndarray, bet: np.ndarray, radius: np.ndarray, cost: float) -> float:
    """κ ≥ 0 with the least κ cost + Σ |own − κ bet| radius: where the slope of this convex function changes sign."""
    used = (bet > 0.0) & (radius > 0.0)
    if not used.any():
        return 0.0
    ratio, slope = own[used] / bet[used], (bet * radius)[used]
    order = np.argsort(ratio)
    gained = np.cumsum(slope[order])
    at = int(np.searchsorted(2.0 * gained, gained[-1] - cost))
    return float(ratio[order][min(at, len(order) - 1)]) if gained[-1] > cost else 0.0
