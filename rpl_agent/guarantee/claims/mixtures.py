"""The best value within limits at known parameters: mixtures of policies, and prices of limits.

A *mixture* draws one of several policies before the first step, so each of its values is the average of theirs. The
values of all strategies are those of mixtures (those with memory, too). So a linear program over the policies found so
far gives the best mixture of them and the price of each limit, and the policy that is best at these prices joins them,
until no policy is better (column generation).

Where plays may gain at a cost again and again, no finite number of such policies will do: there a program over
occupancies gives a randomised policy, and potentials that prove a bound (`PointTotals.by_occupancy`).

Nothing rests on the program. Values of policies are the solver's bounds, and sums over a mixture are exact. For prices
λ ≥ 0 every strategy within the limits costs at least its own total with λ_k (cost_k − limit_k) added, and the solver
bounds that from below.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np
import scipy

from rpl_agent.core.coupled.regret import same_policy
from rpl_agent.core.highs import linear_program
from rpl_agent.core.model import Policy
from rpl_agent.guarantee.claims.totals import PointTotals

#: rounds of one search after which its bounds stay as they are
ROUNDS = 300
#: shares below this are rounding errors of the linear program, whose own tolerance comes second
NOISE, TOLERANCE = 1e-13, 1e-10
#: how often broken thresholds are moved inward: by twice what is missing and, relative to them, by growing amounts
MOVES, LEAST, GROWTH = 6, 1e-14, 32.0
#: distance from limits, relative to them, of a policy that is to keep them after rounding
INSIDE = 1e-9
#: stands for an infinite gain in the linear program; less than that is attained, too
LARGE = 1e9


@dataclass(frozen=True, eq=False)
class Mixture:
    """Policies with their shares, and what the mixture costs at most."""

    shares: tuple[tuple[Fraction, Policy], ...]
    costs: tuple[Fraction | float, ...]  # (K,)

    def keeps(self, thresholds: np.ndarray) -> bool:
        """Whether the first costs are at most these."""
        return all(cost <= most for cost, most in zip(self.costs, thresholds.tolist()))


@dataclass(eq=False)
class MixtureSearch:
    """Mixtures that keep limits; an objective beyond the limits is the goal.

    thresholds : (K,) or (K − 1,) of the first objectives, as costs
    """

    totals: PointTotals
    thresholds: np.ndarray
    policies: list[Policy] = field(default_factory=list)
    costs: list[np.ndarray] = field(default_factory=list)  # (K,) each
    #: for each limit, what every strategy costs at least
    least: list[float] = field(default_factory=list)

    @property
    def size(self) -> int:
        return len(self.totals.objectives)

    def _asked(self, prices: np.ndarray) -> tuple[float, bool]:
        """(the bound for prices (K,) of limits and goal, whether a policy joined)."""
        ends = np.append(self.thresholds, 0.0)[: self.size]
        bound, policy = self.totals.bound(prices, ends)
        return bound, policy is not None and self._joined(policy)

    def _asked_by_occupancy(self, with_goal: bool) -> float:
        """The bound at the best prices of limits, with the goal or without, for gains that cost; -inf for others."""
        if not self.totals.gains_can_cost:
            return -math.inf
        bound = -math.inf
        for room in (INSIDE, 0.0):  # a policy that surely keeps the limits, and the best one
            found = self.totals.by_occupancy(self.thresholds - room * self._sizes, with_goal)
            if found is not None:
                self._joined(found[1])
                bound = found[0] if room == 0.0 else bound
        return bound

    def _joined(self, policy: Policy) -> bool:
        if any(same_policy(policy, known) for known in self.policies):
            return False
        costs = self.totals.values(policy)
        if not (costs < np.inf).all():
            return False
        self.policies.append(policy)
        self.costs.append(costs)
        return True

    # ------------------------------------------------------------------ whether limits can be kept
    def kept(self) -> tuple[Mixture | None, bool]:
        """(a mixture that keeps the limits, whether no strategy does)."""
        limits, impossible = len(self.thresholds), False
        for k in range(limits):
            bound, _ = self._asked(np.eye(self.size)[k])
            self.least.append(bound + float(self.thresholds[k]))
            impossible |= bound > 0.0
        impossible |= self._asked_by_occupancy(False) > 0.0
        if impossible:
            return None, True
        if self.size > limits:
            self._asked_by_occupancy(True)
        moved, moves, mixture = self.thresholds.copy(), 0, None
        for _ in range(ROUNDS):
            found = self._least_excess(moved)
            if found is None:
                break
            mixture, prices = found
            if mixture.keeps(self.thresholds):
                return mixture, False
            bound, joined = self._asked(prices)
            if bound > 0.0:
                return None, True
            if not joined and moves == MOVES:
                break
            if not joined:  # perhaps only for rounding
                moved -= self._inward(mixture, moves)
                moves += 1
        return mixture, False

    @cached_property
    def _sizes(self) -> np.ndarray:
        """(K,) or (K − 1,) what differences from thresholds are relative to."""
        return np.maximum(1.0, np.abs(self.thresholds))

    def _inward(self, mixture: Mixture, moves: int) -> np.ndarray:
        """By how much thresholds have to move until rounding breaks no limit that this mixture breaks."""
        limits = zip(mixture.costs, self.thresholds.tolist())
        over = np.array([float(cost - Fraction(most)) if cost > most else 0.0 for cost, most in limits])
        return np.where(over > 0.0, 2.0 * over + LEAST * GROWTH**moves * self._sizes, 0.0)

    def _least_excess(self, thresholds: np.ndarray) -> tuple[Mixture, np.ndarray] | None:
        """(the mixture with the least excess over thresholds, relative to their size; prices (K,) of the limits)."""
        if not self.policies:
            return None
        limits, sizes = len(thresholds), self._sizes
        table = np.maximum(np.array(self.costs), -LARGE).T[:limits]
        excess = np.stack([-sizes, sizes], axis=1)
        A = np.block([[table, excess], [np.ones((1, table.shape[1])), np.zeros((1, 2))]])
        cost = np.concatenate([np.zeros(table.shape[1]), [1.0, -1.0 + 1e-12]])
        found = _program(cost, A, np.append(thresholds, 1.0))
        if found is None:
            return None
        x, duals = found
        prices = np.zeros(self.size)
        prices[:limits] = np.maximum(-duals[:limits], 0.0)
        return self._mixture(x[:-2]), prices

    # ------------------------------------------------------------------ the goal
    def best(self, first: Mixture, precision: float) -> tuple[Mixture, float]:
        """(the best mixture within the limits, what every strategy within them costs at least).

        first : a mixture that keeps them
        """
        best, (least, _) = first, self._asked(np.eye(self.size)[-1])
        least = max(least, self._asked_by_occupancy(True))
        unlimited = self._with_infinite_gain()
        if unlimited is not None:
            return unlimited, -math.inf
        for _ in range(ROUNDS):
            found = self._program_within(self.thresholds)
            if found is None:
                break
            best = min([best, *self._within_limits()], key=lambda one: one.costs[-1])
            bound, joined = self._asked(np.append(found[1], 1.0))
            least = max(least, bound)
            off = float(best.costs[-1]) - least
            if not joined or off <= precision / 2.0 * max(1.0, abs(float(best.costs[-1]))):
                break
        return best, least

    def _with_infinite_gain(self) -> Mixture | None:
        """A mixture within the limits that gains infinitely much."""
        gains = np.array([costs[-1] == -np.inf for costs in self.costs])
        found = self._program_within(self.thresholds, -gains.astype(float)) if gains.any() else None
        if found is None:
            return None
        mixture = self._mixture(found[0])
        return mixture if mixture.costs[-1] == -math.inf and mixture.keeps(self.thresholds) else None

    def _within_limits(self) -> list[Mixture]:
        """The program's mixture that keeps the limits, after thresholds were moved as far as rounding demands."""
        moved = self.thresholds.copy()
        for moves in range(MOVES):
            found = self._program_within(moved)
            if found is None:
                break
            mixture = self._mixture(found[0])
            if mixture.keeps(self.thresholds):
                return [mixture]
            moved -= self._inward(mixture, moves)
        return []

    def _program_within(
        self, limits: np.ndarray, cost: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """(shares (n,), prices (K − 1,)) of the best mixture; ``cost`` (n,) is that of the goal unless given."""
        table = np.maximum(np.array(self.costs), -LARGE).T
        A = np.vstack([table[:-1], np.ones((1, table.shape[1]))])
        found = _program(table[-1] if cost is None else cost, A, np.append(limits, 1.0))
        return None if found is None else (found[0], np.maximum(-found[1][:-1], 0.0))

    def _mixture(self, shares: np.ndarray) -> Mixture:
        """The mixture with these shares (n,), up to a factor; its costs are exact sums."""
        chosen = np.flatnonzero(shares > NOISE).tolist()
        parts = [Fraction(float(shares[i])) for i in chosen]
        parts = [part / sum(parts) for part in parts]
        drawn = [self.costs[i].tolist() for i in chosen]
        return Mixture(tuple(zip(parts, (self.policies[i] for i in chosen))), tuple(_averages(parts, drawn)))


def _averages(parts: list[Fraction], costs: list[list[float]]) -> list[Fraction | float]:
    """The average of each cost, exactly; an infinite gain stays one."""
    columns = list(zip(*costs))
    return [
        -math.inf if -math.inf in column else sum((p * Fraction(c) for p, c in zip(parts, column)), Fraction(0))
        for column in columns
    ]


def _program(cost: np.ndarray, A: np.ndarray, most: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """`linear_program` with A x ≤ ``most``, in the last row =."""
    rows, least = scipy.sparse.csr_array(A), np.full(len(most), -np.inf)
    least[-1] = most[-1]
    return linear_program(cost, (rows.indptr, rows.indices, rows.data), least, most, TOLERANCE)
