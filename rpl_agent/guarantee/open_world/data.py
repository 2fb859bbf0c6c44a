"""`OpenData`: everything seen in a world without a model, as counts of outcomes per row.

Row s·A + a is action a in state s; states are numbered by their first visit. An outcome is (reward, successor), with
successor −1 after an end: what is observed then is not a state.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

END = -1


class GroupedOutcomes(NamedTuple):
    """Outcomes by row: those of row r are entries ptr[r] to ptr[r + 1]."""

    ptr: np.ndarray  # (R + 1,) int64
    reward: np.ndarray  # (E,)
    successor: np.ndarray  # (E,) int64
    counts: np.ndarray  # (E,) float64
    order: np.ndarray  # (E,) int64, the number of each entry in the order of its first appearance


class OpenData:
    """States, outcomes and starts, discovered one by one."""

    def __init__(self, actions: int):
        self.actions = actions
        self.states: list[Hashable] = []
        self.starts: list[int] = []  # per state, how often an episode began there
        self.visits: list[int] = []  # per row
        self.total = 0
        self._index: dict[Hashable, int] = {}
        self._entries: dict[tuple[int, float, int], int] = {}
        self.outcome_of = self._entries.get  # the number of (row, reward, successor), None if it never came
        self.rows: list[int] = []  # per outcome
        self.rewards: list[float] = []
        self.successors: list[int] = []
        self.counts: list[int] = []

    def state(self, value: Hashable) -> int:
        """The number of a state, a new one at its first visit."""
        found = self._index.get(value)
        if found is None:
            found = self._index[value] = len(self.states)
            self.states.append(value)
            self.starts.append(0)
            self.visits.extend([0] * self.actions)
        return found

    def find(self, value: Hashable) -> int | None:
        """The number of a state, None if it was never visited."""
        return self._index.get(value)

    def add(self, row: int, reward: float, successor: int) -> int:
        """Count an outcome of a row; return its number."""
        key = (row, reward, successor)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = len(self.rows)
            self.rows.append(row)
            self.rewards.append(reward)
            self.successors.append(successor)
            self.counts.append(0)
        self.counts[entry] += 1
        self.visits[row] += 1
        self.total += 1
        return entry

    def again(self, entry: int, row: int) -> None:
        """Count an outcome that came before."""
        self.counts[entry] += 1
        self.visits[row] += 1
        self.total += 1

    def restore(self, entries: zip[tuple[int, float, int, int]]) -> None:
        """Add outcomes (row, reward, successor, count) in the order of their first appearance."""
        for row, reward, successor, count in entries:
            entry = self.add(row, reward, successor)
            self.counts[entry] = count
            self.visits[row] += count - 1
            self.total += count - 1

    @property
    def tried(self) -> int:
        """Number of rows that were tried."""
        return sum(1 for n in self.visits if n)

    def grouped(self, before: np.ndarray | None = None) -> GroupedOutcomes:
        """Outcomes by row; with ``before`` (counts by number of outcome) only what came since."""
        rows = np.array(self.rows, dtype=np.int64)
        counts = np.array(self.counts, dtype=np.int64)
        if before is not None:
            counts[: len(before)] -= before
        order = np.argsort(rows, kind="stable")
        order = order[counts[order] > 0]
        ptr = np.zeros(len(self.visits) + 1, dtype=np.int64)
        np.cumsum(np.bincount(rows[order], minlength=len(self.visits)), out=ptr[1:])
        return GroupedOutcomes(
            ptr,
            np.array(self.rewards, dtype=float)[order],
            np.array(self.successors, dtype=np.int64)[order],
            counts[order].astype(float),
            order,
        )
