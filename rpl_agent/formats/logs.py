"""Logged transitions to `Counts`: offline certification needs nothing else.

A log has one row per step, in the order in which the steps happened:

- ``state, action, next_state`` with the model's state numbers, or
- the state variables and the same names with ``next_``: ``level, broken, action, next_level, next_broken``.

Actions are names or numbers; other columns are ignored. The behaviour policy may be adaptive and need not be logged.
Rows are read in blocks, so memory does not grow with the log. A row that the model forbids is never skipped silently:
either nothing is used and the error lists the places, or (on request) such rows go to a quarantine file with their
reasons. A block of rows that is there twice (a log read twice, files joined that overlap) is an error: see repeats.py.
"""

from __future__ import annotations

import csv
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rpl_agent.errors import DataError, RPLWarning, listed
from rpl_agent.evidence.counts import AMBIGUOUS, NO_ROW, Counts, locate
from rpl_agent.formats.log_sources import LogRows, length, open_log
from rpl_agent.formats.repeats import Repeats
from rpl_agent.likelihood.windows import split_fraction
from rpl_agent.model.pmdp import ParametricMDP
from rpl_agent.model.policy import Policy

#: So many forbidden rows are listed in an error; the rest is counted.
LISTED = 10
_UNKNOWN = -1


@dataclass(frozen=True)
class Log:
    """A log that was read.

    counts : with marks for the likelihood region.
    rows : rows in the log; quarantined : how many of them the model forbids.
    """

    counts: Counts
    rows: int
    quarantined: int


def read_log(
    pmdp: ParametricMDP, source: str | Path, *, quarantine: str | Path | None = None, schedule: str = "geometric"
) -> Log:
    """Read ``log.csv``, ``log.parquet`` or ``minari:NAME`` into counts.

    Parameters
    ----------
    quarantine : write rows that the model forbids to this CSV file (with their place and reason) instead of failing.
        A certificate from the other rows is right only if the forbidden ones are recording errors, not behaviour.
    schedule : when to take the marks of the likelihood region. "geometric" is valid however the end of the log was
        decided. "split" is a little tighter, and right only if the length of the log was fixed in advance.

    Raises
    ------
    DataError
        Naming file and line (or row, or episode and step) of the first forbidden rows, and their number.
    """
    counts = Counts(pmdp, schedule=schedule)
    due = max(1, round(split_fraction(pmdp) * length(source))) if schedule == "split" else None
    decoder = _Decoder(pmdp)
    forbidden, repeats = _Forbidden(quarantine), Repeats()
    rows = 0
    with forbidden:
        for block in open_log(source):
            states, actions, successors, found, reasons = decoder.decode(block)
            for k in sorted(reasons):
                forbidden.add(block, k, reasons[k])
            good = np.ones(block.size, dtype=bool)
            good[list(reasons)] = False
            rows += block.size
            states, actions, successors = states[good], actions[good], successors[good]
            if due is not None and counts.total + len(states) >= due and not counts.marks:
                first = due - counts.total
                counts.add_many(states[:first], actions[:first], successors[:first])
                counts.mark()
                states, actions, successors = states[first:], actions[first:], successors[first:]
            counts.add_many(states, actions, successors)
            again = repeats.add(found[good], counts)
            if again is not None:
                raise DataError(
                    f"{source}: usable rows {again[1] + 1} to {again[1] + again[2]} repeat rows {again[0] + 1} to "
                    f"{again[0] + again[2]}: the same steps read twice are not more data; nothing was used"
                )
    if forbidden.count and quarantine is None:
        more = f"\n  … and {forbidden.count - LISTED} more" if forbidden.count > LISTED else ""
        raise DataError(
            f"{source}: {forbidden.count} of {rows} rows contradict the model; nothing was used\n  "
            + "\n  ".join(forbidden.listed)
            + more
        )
    if forbidden.count:
        warnings.warn(
            f"{source}: {forbidden.count} of {rows} rows contradict the model and were written to {quarantine}; the "
            "certificate holds only if they are recording errors",
            RPLWarning,
            stacklevel=2,
        )
    if not counts.total:
        raise DataError(f"{source}: the log holds no transition of the model")
    return Log(counts, rows, forbidden.count)


class _Forbidden:
    """Rows that cannot be used: listed for an error, or written to a file."""

    def __init__(self, path: str | Path | None):
        self.path = path
        self.count = 0
        self.listed: list[str] = []
        self._file: Any = None
        self._writer: Any = None

    def __enter__(self) -> _Forbidden:
        if self.path is not None:
            self._file = open(self.path, "w", encoding="utf-8", newline="")
            self._writer = csv.writer(self._file)
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, block: LogRows, k: int, reason: str) -> None:
        if self._writer is not None:
            if not self.count:
                self._writer.writerow(["place", "reason", *block.columns])
            self._writer.writerow([block.place(k), reason, *(column[k] for column in block.columns.values())])
        elif len(self.listed) < LISTED:
            self.listed.append(f"{block.place(k)}: {reason}")
        self.count += 1


class _Decoder:
    """Rows of a block to state numbers, action numbers and successor numbers, with reasons for those that have none."""

    def __init__(self, pmdp: ParametricMDP):
        self.pmdp = pmdp
        self.action_number = {name: i for i, name in enumerate(pmdp.action_names)}
        self._values: list[np.ndarray] | None = None

    def decode(self, block: LogRows) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[int, str]]:
        """States, actions, successors and transitions (n,) each, and the reasons of rows that are none."""
        reasons = dict(block.broken)
        columns = block.columns
        if "action" not in columns:
            raise DataError(f"no column 'action'; the log has {listed(columns)}")
        if "state" in columns and "next_state" in columns:
            states = self._numbers(columns["state"], "state", reasons)
            successors = self._numbers(columns["next_state"], "next_state", reasons)
        else:
            names = self._variable_columns(columns)
            states = self._states([columns[n] for n in names], names, reasons)
            successors = self._states([columns[f"next_{n}"] for n in names], [f"next_{n}" for n in names], reasons)
        actions = self._actions(columns["action"], reasons)
        found = locate(self.pmdp, states, actions, successors)
        for k in np.flatnonzero(found < 0).tolist():
            if k not in reasons:
                reasons[k] = self._reason(int(states[k]), int(actions[k]), int(successors[k]), int(found[k]))
        return states, actions, np.where(found >= 0, self.pmdp.successor[found], successors), found, reasons

    def _variable_columns(self, columns: Collection[str]) -> list[str]:
        names = list(self.pmdp.variables)
        if names and all(n in columns and f"next_{n}" in columns for n in names):
            return names
        numbered = [f"#{j}" for j in range(len(names))]  # a Minari observation with one number per variable
        if names and all(n in columns for n in numbered) and f"#{len(names)}" not in columns:
            return numbered
        wanted = ", ".join(["state, next_state", *([f"or {', '.join(names)} with next_{names[0]} …"] if names else [])])
        raise DataError(f"the log has the columns {listed(columns)}; needed are {wanted}")

    def _numbers(self, column: Sequence[Any], name: str, reasons: dict[int, str]) -> np.ndarray:
        """(n,) int64; what is no whole number gets a reason and -1."""
        if isinstance(column, np.ndarray) and column.dtype.kind in "iu":
            return column.astype(np.int64)
        try:
            return np.array([int(v) for v in column], dtype=np.int64)
        except (TypeError, ValueError, OverflowError):
            pass
        numbers = np.full(len(column), _UNKNOWN, dtype=np.int64)
        for k, value in enumerate(column):
            try:
                numbers[k] = _whole(value)
            except (TypeError, ValueError, OverflowError):
                reasons.setdefault(k, f"{name} = {value!r} is no whole number")
        return numbers

    def _actions(self, column: Sequence[Any], reasons: dict[int, str]) -> np.ndarray:
        if isinstance(column, np.ndarray) and column.dtype.kind in "iu":
            return column.astype(np.int64)
        number = self.action_number
        actions = np.empty(len(column), dtype=np.int64)
        for k, value in enumerate(column):
            found = number.get(value)
            if found is None:
                try:
                    found = _whole(value)
                except (TypeError, ValueError, OverflowError):
                    found = _UNKNOWN
                    reasons.setdefault(k, f"the model has no action {value!r}")
            actions[k] = found
        return actions

    def _states(self, columns: list[Sequence[Any]], names: list[str], reasons: dict[int, str]) -> np.ndarray:
        """State numbers from the values of the variables."""
        numbers = [self._numbers(c, n, reasons) for c, n in zip(columns, names, strict=True)]
        if self._values is None:
            self._index()
        key = np.zeros(len(numbers[0]), dtype=np.int64)
        known = np.ones(len(key), dtype=bool)
        for column, values in zip(numbers, self._values or [], strict=True):
            rank = np.minimum(np.searchsorted(values, column), len(values) - 1)
            known &= values[rank] == column
            key = key * len(values) + rank
        place = np.minimum(np.searchsorted(self._keys, key), len(self._keys) - 1)
        known &= self._keys[place] == key
        for k in np.flatnonzero(~known).tolist():
            shown = ", ".join(f"{n}={int(c[k])}" for n, c in zip(names, numbers, strict=True))
            reasons.setdefault(k, f"the model has no state ({shown})")
        return np.where(known, self._order[place], _UNKNOWN)

    def _index(self) -> None:
        """Sorted keys of all states, by the ranks of their variables' values."""
        shown = np.flatnonzero(~self.pmdp.is_silent)  # the others have the variables of a state that is shown
        columns = [np.asarray(c, dtype=np.int64)[shown] for c in self.pmdp.variables.values()]
        self._values = [np.unique(c) for c in columns]
        size = 1
        for values in self._values:
            size *= len(values)
        if size >= 2**62:
            raise DataError("the state variables take too many combinations: use the columns state and next_state")
        key = np.zeros(len(shown), dtype=np.int64)
        for column, values in zip(columns, self._values, strict=True):
            key = key * len(values) + np.searchsorted(values, column)
        order = np.argsort(key, kind="stable")
        self._keys, self._order = key[order], shown[order]

    def _reason(self, state: int, action: int, successor: int, found: int) -> str:
        p = self.pmdp
        if not 0 <= state < p.num_states:
            return f"the model has no state {state} (it has {p.num_states})"
        if not 0 <= action < p.num_actions:
            return f"the model has no action {action} (it has {p.num_actions})"
        shown = f"{p.state_name(state)}, action {p.action_names[action]!r}"
        if found == NO_ROW:
            return f"{shown} is not enabled"
        if not 0 <= successor < p.num_states:
            return f"the model has no state {successor} (it has {p.num_states})"
        if found == AMBIGUOUS:
            return f"{shown} leads to {p.state_name(successor)} on several ways, and only the reward tells them apart"
        return f"{shown} never leads to {p.state_name(successor)}"


def _whole(value: Any) -> int:
    """An int from an int, a boolean word or the text of a whole number (``"3.0"`` included)."""
    if isinstance(value, str):
        word = value.strip().lower()
        if word in ("true", "false"):
            return int(word == "true")
        try:
            return int(word)
        except ValueError:
            value = float(word)
    if value != int(value):
        raise ValueError(value)
    return int(value)


def simulate_log(
    path: str | Path, pmdp: ParametricMDP, theta: np.ndarray, *, episodes: int, max_steps: int, seed: int = 0,
    stop: np.ndarray | None = None, policy: Policy | None = None,
) -> int:  # fmt: skip
    """Write a CSV log of simulated episodes (state variables, action names), as a plant would; returns its rows.

    ``stop`` (S,) bool are states in which an episode ends; ``policy`` is uniform by default.
    """
    mdp = pmdp.instantiate(theta)
    weights = (policy or Policy.uniform(pmdp)).as_weights(pmdp)
    rng = np.random.default_rng(seed)
    columns = [np.asarray(c).tolist() for c in pmdp.variables.values()] or [list(range(pmdp.num_states))]
    names = list(pmdp.variables) or ["state"]
    rows = 0
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*names, "action", *(f"next_{n}" for n in names)])
        for _ in range(episodes):
            state = pmdp.initial_state
            for draw in rng.random((max_steps, 2)).tolist():
                if stop is not None and stop[state]:
                    break
                row = _pick(draw[0], weights, int(pmdp.state_ptr[state]), int(pmdp.state_ptr[state + 1]))
                t = _pick(draw[1], mdp.probability, int(pmdp.row_ptr[row]), int(pmdp.row_ptr[row + 1]))
                successor = int(pmdp.visible_successor[t])
                if not pmdp.is_silent[state]:  # the draw of a random start is no step
                    action = pmdp.action_names[pmdp.action[row]]
                    writer.writerow([*(c[state] for c in columns), action, *(c[successor] for c in columns)])
                    rows += 1
                state = successor
    return rows


def _pick(draw: float, weights: np.ndarray, first: int, last: int) -> int:
    """The index in first..last-1 at which the running sum of weights passes ``draw`` (never one of weight 0)."""
    chosen = first
    for k in range(first, last):
        if weights[k] > 0:
            chosen = k
            draw -= weights[k]
            if draw < 0:
                break
    return chosen
