"""`Mark`, `MarkSchedule`: snapshots of counts at stopping times, and when a table takes them.

A `Mark` is a snapshot of the counts per expression taken at a stopping time s. The joint likelihood region
(`guarantee.likelihood`) learns a prior from the data up to s and tests with the data after s, and bets on the value
(`likelihood.bets`) are placed at s and settled by the data after it.

A window of the likelihood has a weight, fixed no later than its mark, and all weights sum to at most 1: the region
is built from the weighted *average* of the windows' e-processes, never from the best of them. A mark with bets also
has the completed share of the planned data; bets are sized for the end of the plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from rpl_agent.core.model import ParametricMDP

#: Geometric schedule: a mark the first time the total reaches FIRST_MARK · RATIO^j, j = 0..MAX_MARKS-1.
FIRST_MARK = 64
RATIO = 4
MAX_MARKS = 12
#: Split schedule with a planned total: marks at these shares of it, with equal weights. Averaging three windows beats
#: the best single one by 1 % of the width, and by more with bad luck (the window's estimate far from the prior's).
SPLIT_MARKS = (0.04, 0.08, 0.16)
#: Weight of the window that starts at the first sample, by schedule; the marks share the rest.
ORIGIN_WEIGHT = {
    "geometric": 1 / (MAX_MARKS + 1),
    "planned": 1 / 16,
    "split": 0.01,
    "shares": 0.01,
    "table": 1.0,
}
SPLIT_WEIGHT = (1.0 - ORIGIN_WEIGHT["split"]) / len(SPLIT_MARKS)
#: Planned schedule: windows begin at `SPLIT_MARKS` of the plan, and later whenever there are this many times as many
#: data as at the last one.
LATER = 8
#: Share of the weight left that such a window takes, and that each geometric window before the first of them takes.
PLAN_SHARE, EARLY_SHARE = 1 / 4, 1 / 16
#: Shares of a plan at which new bets are placed. They get denser towards the end, when one of many looks succeeds.
BET_SHARES = (0.01, 0.02, 0.035, *(1.0 - (1.0 - k / 40) ** 2 for k in range(1, 40)))
#: Models with more expressions take every third of these marks, because each stores two numbers per expression.
MANY_EXPRESSIONS = 2**14
#: Models with more parameters have no bets.
MOST_PARAMETERS = 64
#: After this many changes a plan is ignored.
TRUSTED = 2
#: Without a plan, new bets are placed whenever the data have grown by this factor, sized as if this share of all data
#: had been seen.
BET_GROWTH, NO_PLAN = 2.0**0.5, 0.5
#: Share of the remaining weight that an explicit mark takes by default.
EXPLICIT_SHARE = 0.97
#: What a table may be told about its marks.
SCHEDULES = tuple(ORIGIN_WEIGHT)


@dataclass(frozen=True, eq=False)  # compared by identity: what is derived from a mark is cached by it
class Mark:
    """Snapshot at a stopping time."""

    total: int  # transitions so far
    successes: np.ndarray  # (F,) transitions labelled with each expression
    weight: float  # of the likelihood window that starts here; 0 for none
    progress: float = 0.0  # completed share of the planned data, for the bets placed here; 0 for none
    trials: np.ndarray | None = None  # (F,) `Counts.trials`; None without bets


class Due(NamedTuple):
    """A mark to take when the total reaches ``total``."""

    total: int
    weight: float
    progress: float


@dataclass(frozen=True, eq=False)
class MarkSchedule:
    """Which marks a table takes after those that it has; ``kind`` and ``planned`` as in `Counts`."""

    pmdp: ParametricMDP
    kind: str | None
    planned: int | None
    marks: Sequence[Mark]

    @property
    def origin_weight(self) -> float:
        """Weight of the window that starts at the first sample."""
        return ORIGIN_WEIGHT[self.kind or "geometric"]

    @property
    def weight_left(self) -> float:
        """The weight that no window has taken yet."""
        return 1.0 - self.origin_weight - sum(m.weight for m in self.marks)

    @property
    def _reached(self) -> int:
        """The total at the last mark."""
        return self.marks[-1].total if self.marks else 0

    # ------------------------------------------------------------------ marks that a table takes by itself
    def _automatic(self) -> list[Due]:
        """In order."""
        if self.kind == "planned" and any(mark.weight > 0.0 < mark.progress for mark in self.marks):
            return []
        if self.kind in ("geometric", "planned"):
            weight = ORIGIN_WEIGHT["geometric"] if self.kind == "geometric" else EARLY_SHARE * self.weight_left
            return [Due(FIRST_MARK * RATIO**j, weight, 0.0) for j in range(MAX_MARKS)]
        if self.planned is None:
            return []
        shares = {share: 0.0 for share in bet_shares(self.pmdp)} | dict.fromkeys(SPLIT_MARKS, SPLIT_WEIGHT)
        return sorted(Due(max(1, round(s * self.planned)), weight, s) for s, weight in shares.items())

    def next_total(self) -> int | None:
        """The total at which the next mark is due."""
        return next((due.total for due in self._automatic() if due.total > self._reached), None)

    def due(self, total: int) -> Due | None:
        """One mark for all that are due at a total: a batch may jump over several."""
        due = [due for due in self._automatic() if self._reached < due.total <= total]
        if not due:
            return None
        progress = max(d.progress for d in due)
        if self.planned is not None and progress:
            progress = min(total / self.planned, 1.0)
        return Due(total, max(d.weight for d in due), progress)

    def allows(self, total: int, weight: float) -> bool:
        """Whether the next mark can be one of this weight at a total."""
        if self.kind == "planned" and weight > PLAN_SHARE * self.weight_left * (1.0 + 1e-9):
            return False
        if self.kind == "geometric" or self.planned is not None:
            due = self.due(total)
            return weight == (0.0 if due is None else due.weight)
        return True

    # ------------------------------------------------------------------ marks of a plan that the caller knows
    def weight_of_window(self, total: int, progress: float) -> float:
        """Of the window of a plan that begins; 0 if none does."""
        begun = [mark.total for mark in self.marks if mark.weight > 0.0 < mark.progress]
        if self.kind != "planned" or (begun and 2 * total < 3 * begun[-1]):
            return 0.0
        early = len(begun) < len(SPLIT_MARKS)
        begins = progress >= SPLIT_MARKS[len(begun)] if early else total >= LATER * begun[-1]
        return PLAN_SHARE * self.weight_left if begins else 0.0

    def bet_due(self, total: int, progress: float) -> tuple[bool, float]:
        """Whether to place new bets, and the share of the plan that they are sized for."""
        before = [mark for mark in self.marks if mark.progress > 0.0]
        if not before:
            due = progress >= next_share(self.pmdp, 0.0)
        elif sum(b.progress < a.progress for a, b in pairwise(before)) >= TRUSTED:
            due, progress = total >= BET_GROWTH * before[-1].total, NO_PLAN
        else:
            last = before[-1]
            due = progress < last.progress or progress >= next_share(self.pmdp, last.progress)
            due = (due or total * last.progress > last.total) and total > last.total
        return due, progress


def bet_shares(pmdp: ParametricMDP) -> tuple[float, ...]:
    """The shares of a plan at which new bets are placed for this model."""
    if pmdp.num_parameters > MOST_PARAMETERS:
        return ()
    return BET_SHARES if pmdp.num_expressions <= MANY_EXPRESSIONS else BET_SHARES[::3]


def next_share(pmdp: ParametricMDP, progress: float) -> float:
    """The first of `bet_shares` beyond ``progress``, 1 after the last."""
    return next((share for share in bet_shares(pmdp) if share > progress), 1.0)
