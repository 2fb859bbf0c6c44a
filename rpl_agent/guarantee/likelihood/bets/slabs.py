"""Bets on the value, as `checker.Bets` places and proves them: slabs that contain the truth at all times.

The checker has the theorem, and defines the payoffs as a function of the data before each mark; `aim` finds the same
payoffs. Payoffs are kept with their mark, and sums are floats, moved outward by more than their rounding error, so
that every slab of the checker lies inside one from here.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.ledger import MainShares
from rpl_agent.core.evidence.marks import Mark
from rpl_agent.core.model.objectives.objective import Objective
from rpl_agent.core.model.pmdp import ParametricMDP
from rpl_agent.core.native import UNIT_ROUNDOFF
from rpl_agent.guarantee import checker
from rpl_agent.guarantee.likelihood.bets.aim import Aim, bet_world, next_aim
from rpl_agent.guarantee.likelihood.checked_model import joint_coordinates
from rpl_agent.guarantee.likelihood.joint_set import Rows, fits, forms_of
from rpl_agent.guarantee.likelihood.line import Line
from rpl_agent.guarantee.likelihood.shares import BLOCKS_WITH_BETS, OF_A_TABLE, WITH_BETS, WITHOUT_BETS

#: Nats by which slabs are loosened: the level of the checker differs in its last digits.
MARGIN = 1e-5


class Wealth(NamedTuple):
    """What bets have brought so far: ln M = gain − sums·f for u and loss + sums·f for −u."""

    sums: np.ndarray  # (n,) Σ N u over the marks, for the free expressions
    gain: float = 0.0  # Σ K ln(1 + u)
    loss: float = 0.0  # Σ K ln(1 − u)
    error: float = 0.0  # more than the rounding error of each of the two ln M

    def after(self, payoff: np.ndarray, successes: np.ndarray, trials: np.ndarray) -> Wealth:
        """Settle new successes and trials (n,) since the payoffs (n,) were fixed."""
        won, lost = (successes * np.log1p(sign * payoff) for sign in (1.0, -1.0))
        size = float(np.abs(won).sum() + np.abs(lost).sum() + np.abs(trials * payoff).sum())
        size += float(np.abs(self.sums).sum()) + abs(self.gain) + abs(self.loss)  # every sum is rounded again
        return Wealth(
            self.sums + trials * payoff,
            self.gain + float(won.sum()),
            self.loss + float(lost.sum()),
            self.error + (4.0 * len(payoff) + 64.0) * UNIT_ROUNDOFF * size,
        )


class Placed(NamedTuple):
    """Bets of all series from a mark on."""

    aim: Aim
    payoffs: list[np.ndarray]  # (n,) each
    wealth: list[Wealth]  # at the mark

    def settled(self, last: Mark, now: Mark | Counts, free: np.ndarray) -> list[Wealth]:
        """The wealth of all series later."""
        new = _since(last, now, free)
        return [wealth.after(payoff, *new) for wealth, payoff in zip(self.wealth, self.payoffs)]


_placed: WeakKeyDictionary[Mark, dict[tuple[Objective, float], Placed]] = WeakKeyDictionary()


def bets_apply(pmdp: ParametricMDP, objective: Objective | None) -> bool:
    """Whether to bet: decided by the model and the objective alone, never by data."""
    return (
        objective is not None
        and joint_coordinates(pmdp) is not None
        and (objective.reward_name is None or objective.reward_name in pmdp.rewards)
    )


def basis_of(pmdp: ParametricMDP, counts: Counts, objective: Objective | None) -> str:
    """What the set is based on: "bets" on the value, "windows" alone, or a "table" without order."""
    if counts.schedule == "table":
        return "table"
    return "bets" if counts.has_plan and bets_apply(pmdp, objective) else "windows"


def shares_of(pmdp: ParametricMDP, counts: Counts, objective: Objective | None) -> MainShares:
    """How the likelihood divides δ for these data, where the model has joint coordinates."""
    line = joint_coordinates(pmdp)
    with_bets = BLOCKS_WITH_BETS if line is not None and line.is_product else WITH_BETS
    shares = {"table": OF_A_TABLE, "bets": with_bets, "windows": WITHOUT_BETS}
    return shares[basis_of(pmdp, counts, objective)]


class Slabs(NamedTuple):
    """Rows A x ≤ b, two for each settlement of each series, numbered as in the checker."""

    A: np.ndarray  # (2m, r)
    b: np.ndarray  # (2m,)
    along: np.ndarray  # (r,) the direction of the first series, in which the data say least about the value

    def tightest(self, center: np.ndarray) -> Rows:
        """The tightest row from the centre along the direction, and the tightest one against it, where they exist."""
        room, slope = self.b - self.A @ center, self.A @ self.along
        with np.errstate(divide="ignore", invalid="ignore"):
            ahead = np.where(slope > 0.0, room / slope, np.inf)
            behind = np.where(slope < 0.0, room / -slope, np.inf)
        kept = [int(np.argmin(side)) for side in (ahead, behind) if np.isfinite(side).any()]
        return self.A[kept], self.b[kept]


def slabs(pmdp: ParametricMDP, counts: Counts, objective: Objective, alpha: float) -> Slabs:
    """All slabs of the marks so far and of the present, simultaneously with probability ≥ 1 − alpha."""
    line = joint_coordinates(pmdp)
    assert line is not None
    free, constant, weights = forms_of(line)
    found: list[Wealth] = []
    placed, last = None, None
    for mark, x in zip(counts.marks, fits(line, counts)[1:]):
        if mark.progress > 0.0:
            placed = _next(pmdp, line, (objective, alpha), mark, x, last, placed)
            if last is not None:
                found += placed.wealth
            last = mark
    if placed is None or last is None:
        return Slabs(np.zeros((0, line.dimension)), np.zeros(0), np.zeros(line.dimension))
    found += placed.settled(last, counts, free)
    sums, gain, loss, error = (np.array(part) for part in zip(*found))
    offset, normal = sums @ constant, sums @ weights
    size = np.abs(sums) @ (np.abs(constant) + np.abs(weights).sum(axis=1))
    error += (4.0 * len(free) + 64.0) * UNIT_ROUNDOFF * size + MARGIN
    level = _level(line, alpha) / checker.ONE
    A, b = np.empty((2 * len(found), line.dimension)), np.empty(2 * len(found))
    A[::2], b[::2] = normal, level - loss - offset + error
    A[1::2], b[1::2] = -normal, level - gain + offset + error
    return Slabs(A, b, placed.aim.series[0].shift)


def _level(line: Line, alpha: float) -> int:
    """Nats to win, as `checker.Bets.level`."""
    return _nats(alpha / 2 if line.is_product else alpha)


@cache
def _nats(alpha: float) -> int:
    return checker.ln(2 / Fraction(alpha))[1]


def _next(
    pmdp: ParametricMDP,
    line: Line,
    key: tuple[Objective, float],
    mark: Mark,
    x: np.ndarray,
    last: Mark | None,
    placed: Placed | None,
) -> Placed:
    """The bets from a mark on; known ones are kept with their mark."""
    known = _placed.setdefault(mark, {})
    if key not in known:
        assert mark.trials is not None
        before = None if placed is None else placed.aim
        aim = next_aim(bet_world(pmdp, key[0]), line, x, mark.successes, mark.trials, before)
        wealth = [Wealth(np.zeros(len(line.free))) for _ in aim.series]
        if placed is not None and last is not None:
            wealth = placed.settled(last, mark, line.free)
        level = checker.stake_level(_level(line, key[1]))
        known[key] = Placed(aim, [series.payoffs(level, mark.progress) for series in aim.series], wealth)
    return known[key]


def _since(last: Mark, now: Mark | Counts, free: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """New successes and trials of the free expressions after a mark."""
    assert last.trials is not None and now.trials is not None
    return (now.successes - last.successes)[free], (now.trials - last.trials)[free]
