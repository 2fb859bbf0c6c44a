"""Bounds on values, from the outcomes of rows: `UpperValues` of the best policy, `lower_values` of a given one."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from rpl_agent.core.errors import DataError
from rpl_agent.core.evidence.ledger import OpenLedger, of_states
from rpl_agent.core.model.states import canonical
from rpl_agent.core.native import core
from rpl_agent.guarantee.open_world.assumptions import Assumptions
from rpl_agent.guarantee.open_world.data import END, GroupedOutcomes, OpenData
from rpl_agent.guarantee.stakes import MIXTURE, MOST_SWEEPS, upper_mean

#: Rounds of sweeps and known successors, and the fall, as a share of the range, that ends them.
MOST_ROUNDS, LITTLE = 200, 1e-4
#: Most states of a `Discrete` space that all get the same share; in larger ones few may ever be visited.
FEW_STATES = 4_096


class UpperValues:
    """Bounds on V*, one function per number of steps to go, kept as low as they ever were (Theorem 1).

    ``rows`` (H, R) bounds Q* of every row, ``values`` (H, S) V*; layer h has h + 1 steps to go. Without a horizon
    there is one layer.
    """

    def __init__(self, assumptions: Assumptions, actions: int, ledger: OpenLedger):
        self.assumptions, self.actions = assumptions, actions
        self.row_share, self.start_share = shares_of(assumptions, ledger)
        layers = assumptions.layers
        self.rows, self.values = np.zeros((layers, 0)), np.zeros((layers, 0))
        self.sweeps = 0
        self._low, self._high, self._levels = np.zeros((layers, 0)), np.zeros((layers, 0)), np.zeros(0)
        self._changed, self._tested = np.zeros((layers, 0), dtype=np.int64), np.zeros((layers, 0), dtype=np.int64)
        self._clock = np.zeros(1, dtype=np.int64)
        self._seen: np.ndarray = np.zeros(0, dtype=np.int64)  # visits of every row at the last update

    def update(self, data: OpenData) -> None:
        """Lower the bounds with all data so far."""
        self.grow(data)
        visits = np.array(data.visits, dtype=np.int64)
        self._tested[:, visits > self._seen] = -1
        self._seen = visits
        grouped = data.grouped()
        caps = None if self.assumptions.successors is None else SuccessorCaps(self.assumptions, data)
        if self.assumptions.horizon is None:
            self._settle(grouped, caps)
            return
        below = np.zeros(self.values.shape[1]), np.zeros(self.values.shape[1], dtype=np.int64)
        for h in range(len(self.values)):
            if caps is not None:
                np.minimum(self.rows[h], caps.rows(below[0], h), out=self.rows[h])
            self._sweep(grouped, h, 1, below)
            below = self.values[h], self._changed[h]

    def _settle(self, grouped: GroupedOutcomes, caps: SuccessorCaps | None) -> None:
        """Sweep without a horizon; known successors and sweeps lower each other's bounds."""
        for _ in range(1 if caps is None else MOST_ROUNDS):
            before = self.values[0].copy()
            if caps is not None:
                np.minimum(self.rows[0], caps.rows(self.values[0], 0), out=self.rows[0])
            self._sweep(grouped, 0, MOST_SWEEPS, (self.values[0], self._changed[0]))
            if (before - self.values[0] <= LITTLE * (self._high[0] - self._low[0])).all():
                break

    def _sweep(self, grouped: GroupedOutcomes, h: int, most: int, below: tuple[np.ndarray, np.ndarray]) -> None:
        bounds = self._low[h], self._high[h], self._levels
        rows = _open_rows(grouped, *bounds, self.assumptions, self.actions)
        own = self.rows[h], self.values[h], self._changed[h], self._tested[h]
        self.sweeps += core.open_sweeps(rows, MIXTURE, most, *below, *own, self._clock, None)

    def grow(self, data: OpenData) -> None:
        """Make room for states found since; they may be worth as much as any."""
        before, after = self.values.shape[1], len(data.states)
        if before == after:
            return
        low, high = ranges(self.assumptions, data, before)
        share = self.row_share / (self.actions * len(self.values))
        self._levels = np.append(self._levels, levels(of_states(share, before, after, known_states(self.assumptions))))
        self._low, self._high = np.hstack([self._low, low]), np.hstack([self._high, high])
        self.values = np.hstack([self.values, high])
        self.rows = np.hstack([self.rows, np.repeat(high, self.actions, axis=1)])
        self._changed = np.hstack([self._changed, np.zeros(low.shape, dtype=np.int64)])
        untested = np.full((len(low), self.actions * low.shape[1]), -1, dtype=np.int64)
        self._tested = np.hstack([self._tested, untested])
        self._seen = np.append(self._seen, np.zeros(untested.shape[1], dtype=np.int64))

    def start(self, data: OpenData) -> float:
        """A bound on the return of every policy from the start."""
        return start_upper(self.assumptions, self.values[-1], data, self.start_share)

    def mean_start(self, data: OpenData) -> float:
        """The mean bound of the starts so far: what is left of `start` once starts are known."""
        return float(self.values[-1] @ np.array(data.starts[: self.values.shape[1]])) / max(1, sum(data.starts))

    def listed(self) -> list[list[float | None]]:
        """(H, S) the bounds; None where nothing is known but the range."""
        known = self.values < self._high
        return [[v if k else None for v, k in zip(*pair)] for pair in zip(self.values.tolist(), known.tolist())]

    def restore(self, rows: np.ndarray, values: np.ndarray) -> None:
        """Go on from stored bounds."""
        self.rows[:], self.values[:] = rows, values

    @property
    def unknown_rows(self) -> int:
        """Rows of which nothing is known but the range, with all steps to go."""
        return int((self.rows[-1] >= np.repeat(self._high[-1], self.actions)).sum())


class SuccessorCaps:
    """What a row can be worth at most because of the states that may follow it, whether it was tried or not.

    r + γV*(s') is at most the largest reward plus the largest bound of a successor; the end (None) is worth 0.
    """

    def __init__(self, assumptions: Assumptions, data: OpenData):
        assert assumptions.successors is not None and assumptions.rewards is not None
        self._assumptions, ptr, found = assumptions, [0], list[int]()
        self._strange: dict[Hashable, int] = {}  # states never visited, numbered after the others
        for state in data.states:
            for action in range(data.actions):
                for value in map(canonical, assumptions.successors(state, action)):
                    known = END if value is None else data.find(value)
                    fresh = len(data.states) + len(self._strange)
                    found.append(self._strange.setdefault(value, fresh) if known is None else known)
                if len(found) == ptr[-1]:
                    raise DataError(f"successors({state!r}, {action}) is empty: something follows; None is the end")
                ptr.append(len(found))
        self._ptr, self._successor = np.array(ptr), np.array(found, dtype=np.int64)

    def listed(self) -> tuple[list[list[int]], dict[Hashable, int]]:
        """Per row what may follow; and the states among these that were never visited, numbered after the others."""
        following = [
            self._successor[first:last].tolist() for first, last in zip(self._ptr[:-1].tolist(), self._ptr[1:].tolist())
        ]
        return following, self._strange

    def rows(self, values: np.ndarray, layer: int) -> np.ndarray:
        """(R,) bounds from the values (S,) of successors, rounded up."""
        assumed = self._assumptions
        assert assumed.rewards is not None
        if assumed.horizon is None:
            strange = [assumed.range_of(state, 1)[1] for state in self._strange]
        else:  # with one step less to go
            strange = [assumed.range_of(state, layer)[1] if layer else 0.0 for state in self._strange]
        worth = np.concatenate([values, strange, [0.0]])  # the last one is the end's
        best = np.maximum.reduceat(worth[self._successor], self._ptr[:-1])
        found = assumed.rewards[1] + assumed.discount * best
        return found + 8.0 * core.UNIT_ROUNDOFF * (abs(assumed.rewards[1]) + np.abs(best))


def shares_of(assumptions: Assumptions, ledger: OpenLedger) -> tuple[float, float]:
    """Shares of δ for all rows and for the start, which has both where rows have one outcome: these are not bet on."""
    rows, start = ledger.take("rows"), ledger.take("start")
    return rows, start + rows if assumptions.deterministic else start


def known_states(assumptions: Assumptions) -> int | None:
    """The number of all states, if it is known and they share δ equally."""
    known = assumptions.states
    return len(known) if known is not None and len(known) <= FEW_STATES else None


def start_upper(assumptions: Assumptions, values: np.ndarray, data: OpenData, share: float) -> float:
    """A bound on the mean of the values (S,) of the states in which episodes begin."""
    starts = np.array(data.starts, dtype=float)
    seen = np.flatnonzero(starts)
    return upper_mean(values[seen], starts[seen], *assumptions.overall, share)


def lower_values(
    assumptions: Assumptions, data: OpenData, policy: np.ndarray, before: np.ndarray, share: float
) -> np.ndarray:
    """(H, S) lower bounds of the value of a policy (H, S), from outcomes since ``before`` (Theorem 1 turned round).

    States are numbered by first visit since the world was entered, so their shares were fixed before the policy was.
    """
    low, high = ranges(assumptions, data, 0)
    layers, states = low.shape
    shares = of_states(share / layers, 0, states, known_states(assumptions))
    grouped = data.grouped(before)
    found, clock = -low, np.zeros(1, dtype=np.int64)
    next_values, next_changed = np.zeros(states), np.zeros(states, dtype=np.int64)
    for h in range(layers):
        played = _of_policy(grouped, policy[h], data.actions)
        rows = _open_rows(played, -high[h], -low[h], levels(shares), assumptions, 1)
        changed, tested = np.zeros(states, dtype=np.int64), np.full(states, -1, dtype=np.int64)
        if assumptions.horizon is None:
            next_values, next_changed = found[h], changed
        core.open_sweeps(
            rows,
            MIXTURE,
            MOST_SWEEPS if assumptions.horizon is None else 1,
            next_values,
            next_changed,
            found[h].copy(),
            found[h],
            changed,
            tested,
            clock,
            None,
        )
        next_values, next_changed = found[h], changed
    return -found


def _of_policy(grouped: GroupedOutcomes, actions: np.ndarray, number: int) -> GroupedOutcomes:
    """The outcomes of a policy's rows, one row per state, with rewards negated."""
    rows = np.arange(len(actions)) * number + actions
    lengths = grouped.ptr[rows + 1] - grouped.ptr[rows]
    ptr = np.append(0, np.cumsum(lengths))
    at = np.repeat(grouped.ptr[rows] - ptr[:-1], lengths) + np.arange(ptr[-1])
    return GroupedOutcomes(ptr, -grouped.reward[at], grouped.successor[at], grouped.counts[at], grouped.order[at])


def ranges(assumptions: Assumptions, data: OpenData, first: int) -> tuple[np.ndarray, np.ndarray]:
    """(H, n) least and largest returns of the states from number ``first`` on."""
    layers = range(1, assumptions.layers + 1)
    if not callable(assumptions.returns):
        found = np.array([assumptions.range_of(None, h) for h in layers])
        wide = np.repeat(found[:, None, :], len(data.states) - first, axis=1)
    else:
        wide = np.array([[assumptions.range_of(state, h) for state in data.states[first:]] for h in layers])
    return np.ascontiguousarray(wide[:, :, 0]), np.ascontiguousarray(wide[:, :, 1])


def levels(shares: np.ndarray) -> np.ndarray:
    """ln 1/share, rounded up."""
    return np.nextafter(np.nextafter(-np.log(shares), np.inf), np.inf)


def _open_rows(
    grouped: GroupedOutcomes,
    low: np.ndarray,
    high: np.ndarray,
    level: np.ndarray,
    assumptions: Assumptions,
    actions: int,
) -> Any:
    """The rows of states that all have this many actions; each row has the range and the level (S,) of its state."""
    return core.OpenRows(
        states=len(low),
        rows=len(low) * actions,
        state_ptr=np.arange(len(low) + 1) * actions,
        row_ptr=grouped.ptr,
        reward=grouped.reward,
        successor=grouped.successor,
        count=grouped.counts,
        low=np.repeat(low, actions),
        high=np.repeat(high, actions),
        level=np.repeat(level, actions),
        discount=assumptions.discount,
        certain=assumptions.deterministic,
    )
