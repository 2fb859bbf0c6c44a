"""Ties proposed: rows whose outcomes look alike, and what it would buy to know that they are.

A row's *labels* are where it leads as seen from its state: a displacement where states are numbers or tuples of them,
else the successor itself. Rows of one action with the same labels are compared. The e-value against the tie is the
ratio of their likelihood with a distribution for each row (mixed over all distributions) to their largest likelihood
with a common distribution: its mean is at most 1 if the tie is true. A proposal is no fact: nothing is tied until
the user says so.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rpl_agent.core.evidence.ledger import OpenLedger
from rpl_agent.guarantee.open_world.assumptions import Assumptions
from rpl_agent.guarantee.open_world.data import END, OpenData
from rpl_agent.guarantee.open_world.played import OpenPolicy
from rpl_agent.guarantee.open_world.values import UpperValues, lower_values

#: Fewest rows of a proposal and visits of each; ln e-value from which a row, or a tie, is contradicted.
FEWEST_ROWS, FEWEST_VISITS, AGAINST = 3, 20, math.log(20.0)
#: The share of δ that forecasts pretend to have for the policy's rows.
FORECAST_SHARE = 0.2


@dataclass(frozen=True)
class ProposedTie:
    """Rows of one action that seem to share one distribution of labels; ``gap`` is the forecast gap with this
    tie and those of more visits, nan if it is not known."""

    action: int
    states: tuple[Any, ...]
    labels: tuple[Any, ...]
    shares: tuple[float, ...]  # pooled frequencies
    log_e_value: float  # against the tie
    visits: int
    gap: float = math.nan
    gap_now: float = math.nan

    @property
    def text(self) -> str:
        shown = ", ".join(f"{label!r} {share:.3f}" for label, share in zip(self.labels, self.shares))
        bought = f"; with it and those above the gap would be about {self.gap:.3g} (now {self.gap_now:.3g})"
        return (
            f"action {self.action} in {len(self.states)} states seems to draw from one distribution ({shown}); "
            f"e-value against it e^{self.log_e_value:.1f}{bought if math.isfinite(self.gap) else ''}"
        )


#: What to do with a proposal.
ADVICE = "nothing is tied: if you know it to be true, say so by RPLAgent(env, noise=..., key=..., effect=...)"


def propose_ties(
    data: OpenData,
    assumptions: Assumptions | None = None,
    delta: float = 0.1,
    policy: OpenPolicy | None = None,
    known: tuple[float, float] = (-math.inf, math.inf),
) -> list[ProposedTie]:
    """Ties that the data suggest, those of most visits first.

    assumptions, delta, policy, known : for forecasts of the gap; ``known`` is the interval so far.
    """
    found = _ties(data)
    if assumptions is None or policy is None or not found:
        return found
    larger, told = _copied(data), list[ProposedTie]()
    for tie in found:
        _pool(larger, data, tie)
        lower, upper = _interval(larger, assumptions, delta, policy)
        gap = min(known[1], upper) - max(known[0], lower)
        told.append(replace(tie, gap=max(gap, 0.0), gap_now=known[1] - known[0]))
    return told


def _ties(data: OpenData) -> list[ProposedTie]:
    counted = _by_label(data)
    groups: dict[tuple[int, frozenset[Hashable]], list[int]] = defaultdict(list)
    for row, labels in counted.items():
        if len(labels) > 1 and data.visits[row] >= FEWEST_VISITS:
            groups[row % data.actions, frozenset(labels)].append(row)
    found = []
    for (action, pattern), rows in groups.items():
        listed = sorted(pattern, key=repr)
        table = np.array([[counted[row][label] for label in listed] for row in rows], dtype=float)
        alike = _alike(table)
        against = _log_e_value(table[alike])
        if alike.sum() < FEWEST_ROWS or against >= AGAINST:
            continue
        pooled = table[alike].sum(axis=0)
        states = tuple(data.states[row // data.actions] for row, fits in zip(rows, alike.tolist()) if fits)
        shares = tuple((pooled / pooled.sum()).tolist())
        found.append(ProposedTie(action, states, tuple(listed), shares, against, int(pooled.sum())))
    return sorted(found, key=lambda tie: -tie.visits)


def label_of(state: Any, successor: Any) -> Hashable:
    """Where a step leads as seen from its state."""
    if _is_number(state) and _is_number(successor):
        return successor - state  # type: ignore[no-any-return]
    both = isinstance(state, tuple) and isinstance(successor, tuple) and len(state) == len(successor)
    if both and all(map(_is_number, (*state, *successor))):
        return tuple(b - a for a, b in zip(state, successor))
    return successor  # type: ignore[no-any-return]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _label(data: OpenData, row: int, successor: int) -> Hashable:
    return "end" if successor == END else label_of(data.states[row // data.actions], data.states[successor])


def _by_label(data: OpenData) -> dict[int, Counter[Hashable]]:
    """How often each row led to each label."""
    found: dict[int, Counter[Hashable]] = defaultdict(Counter)
    for row, successor, count in zip(data.rows, data.successors, data.counts):
        found[row][_label(data, row, successor)] += count
    return found


def _alike(table: np.ndarray) -> np.ndarray:
    """(n,) rows that are not contradicted by the others: the worst row is left out until none is contradicted."""
    kept = np.ones(len(table), dtype=bool)
    while kept.sum() >= FEWEST_ROWS:
        pooled = table[kept].sum(axis=0)
        others = (pooled - table + 0.5) / (pooled - table + 0.5).sum(axis=1, keepdims=True)
        against = _log_marginal(table) - (table * np.log(others)).sum(axis=1)
        against[~kept] = -np.inf
        worst = int(against.argmax())
        if against[worst] < AGAINST:
            break
        kept[worst] = False
    return kept


def _log_marginal(table: np.ndarray) -> np.ndarray:
    """(n,) ln of the mean likelihood of counts (n, k) over all distributions (Jeffreys' prior)."""
    from scipy.special import gammaln  # slow to import, and few runs propose ties

    k, n = table.shape[1], table.sum(axis=1)
    return gammaln(0.5 * k) - gammaln(n + 0.5 * k) + (gammaln(table + 0.5) - gammaln(0.5)).sum(axis=1)


def _log_e_value(table: np.ndarray) -> float:
    """ln e-value against the tie: the likelihood with a distribution per row over that with the best common one."""
    pooled = table.sum(axis=0)
    used = pooled > 0
    common = float((pooled[used] * np.log(pooled[used] / pooled.sum())).sum())
    return float(_log_marginal(table).sum()) - common


def _pool(larger: OpenData, data: OpenData, tie: ProposedTie) -> None:
    """Give every row of a tie the visits of all, in a copy of the data: an estimate, for forecasts only."""
    tied = {_number_of(data, state) * data.actions + tie.action for state in tie.states}
    pooled, own = dict(zip(tie.labels, tie.shares)), _by_label(data)
    for k, (row, successor) in enumerate(zip(data.rows, data.successors)):
        if row in tied:
            label = _label(data, row, successor)
            more = max(round(data.counts[k] * pooled[label] * tie.visits / own[row][label]), 1)
            larger.visits[row] += more - larger.counts[k]
            larger.total += more - larger.counts[k]
            larger.counts[k] = more


def _number_of(data: OpenData, state: Any) -> int:
    number = data.find(state)
    assert number is not None
    return number


def _interval(data: OpenData, assumptions: Assumptions, delta: float, policy: OpenPolicy) -> tuple[float, float]:
    """Bounds if these were the data; that on the policy comes from its rows alone."""
    upper = UpperValues(assumptions, data.actions, OpenLedger.of(delta))
    upper.update(data)
    nothing, table = np.zeros(len(data.counts), dtype=np.int64), policy.table(len(data.states))
    lower = lower_values(assumptions, data, table, nothing, FORECAST_SHARE * delta)[-1]
    starts = np.array(data.starts, dtype=float)
    return float(lower @ starts / starts.sum()), upper.start(data)


def _copied(data: OpenData) -> OpenData:
    found = OpenData(data.actions)
    for state in data.states:
        found.state(state)
    found.starts[:] = data.starts
    found.restore(zip(data.rows, data.rewards, data.successors, data.counts))
    return found
