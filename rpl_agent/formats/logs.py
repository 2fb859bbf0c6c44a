"""Logged transitions to `Counts`: offline certification needs nothing else.

A log has one row per step, in the order in which the steps happened:

- ``state, action, next_state`` with the values of the model's states, or their numbers if it has none, or
- the state variables and the same names with ``next_``: ``level, broken, action, next_level, next_broken``.

Actions are names or numbers (those of the model if its actions are numbers). Each row must start where the previous
row led, or where plays of the model start; a column ``episode`` marks other starts. Without it, an episode that was cut
in a start state cannot be told from one that goes on there: transitions are the same, returns are refused. Other
columns are ignored. The behaviour policy may be adaptive and need not be logged.

Rows are read in blocks, so memory does not grow with the log. A row that the model forbids is never skipped silently:
either nothing is used and the error lists the places, or (on request) such rows go to a quarantine file with their
reasons. Rows that repeat earlier ones (a log read twice, overlapping files joined) are an error.
"""

from __future__ import annotations

import csv
import os
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rpl_agent.core.errors import DataError, RPLWarning, as_path, listed
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.records import impossible, locate
from rpl_agent.core.model import ParametricMDP, Policy
from rpl_agent.core.model.building.builder import whole_numbers
from rpl_agent.core.model.states import VariableStates
from rpl_agent.formats.log_sources import Coded, LogRows, RepeatedRows, length, open_log, require_distinct

#: Number of forbidden rows listed in an error; the rest are counted.
LISTED = 10
#: The column that marks episodes.
EPISODE = "episode"
_UNKNOWN = -1


@dataclass(frozen=True)
class Log:
    """The result of reading a log."""

    counts: Counts  # with marks for the likelihood region
    rows: int  # in the log
    quarantined: int  # rows that the model forbids


def read_log(
    pmdp: ParametricMDP,
    source: str | Path | Sequence[str | Path],
    *,
    quarantine: str | Path | None = None,
    schedule: str = "geometric",
    shown: Mapping[int, int] | None = None,
) -> Log:
    """Read ``log.csv``, ``log.parquet`` or ``minari:NAME`` into counts; or a log in several such pieces, in order.

    Parameters
    ----------
    source : one or several; each piece begins with an episode of its own.
    quarantine : write rows that the model forbids to this CSV file (with their place and reason) instead of failing.
        A certificate from the other rows is valid only if the forbidden ones are recording errors, not behaviour.
    schedule : when to take marks, a rule that never looks at outcomes. "geometric" is valid however the end of the log
        was decided. "split", at shares of its length, allows bets on the value and is far tighter, but valid only if
        that length was fixed in advance.
    shown : the state of each number in the columns state and next_state, for an environment that numbers what it shows
        in its own way; by default states have their own numbers, or values.

    Raises
    ------
    DataError
        Naming file and line (or row, or episode and step) of the first forbidden rows, and their number.

    >>> import tempfile, pathlib
    >>> coin = build(0, lambda s: {"flip": {1: "p", 2: "1 - p"}} if s == 0 else {"stay": {s: 1}}, domain=["p"])
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "log.csv"
    >>> _ = path.write_text("state,action,next_state\\n0,flip,1\\n0,flip,2\\n")
    >>> read_log(coin, path).counts.total
    2
    """
    if not isinstance(pmdp, ParametricMDP):
        raise DataError(f"counts need a model first: read_log(pmdp, path), not {type(pmdp).__name__}")
    pieces = list(source) if isinstance(source, Iterable) and not isinstance(source, str) else [source]
    for piece in pieces:
        as_path(piece, "source")
    if not pieces:
        raise DataError("a log has at least one file")
    source = pieces[0] if len(pieces) == 1 else f"{pieces[0]} … {pieces[-1]}"
    counts = Counts(pmdp, schedule=schedule, planned=max(1, sum(map(length, pieces))) if schedule == "split" else None)
    decoder, chain, repeated = _Decoder(pmdp, shown), _Chain(pmdp), RepeatedRows(pmdp)
    rows = 0
    _require_another_file(pieces, quarantine)
    with ExitStack() as files:
        forbidden = _Forbidden(quarantine, files)
        for block in _blocks(pieces, chain):
            states, found, reasons = decoder.decode(block)
            starts = chain.follow(block, states, found, reasons)
            for k in sorted(reasons):
                forbidden.add(block, k, reasons[k])
            good = np.ones(block.size, dtype=bool)
            good[list(reasons)] = False
            rows += block.size
            counts.add_transitions(found[good])
            _refuse_repetitions(source, repeated.add, found[good], starts[good])
    _refuse_repetitions(source, repeated.finish)
    if forbidden.count:
        text = f"{source}: {forbidden.count} of {rows} rows contradict the model"
        if quarantine is None:
            raise DataError(f"{text}; nothing was used{forbidden.lines()}")
        kept_in = f"and were written to {quarantine}; the certificate holds only if they are recording errors"
        warnings.warn(f"{text} {kept_in}", RPLWarning, stacklevel=2)
    if not counts.total:
        raise DataError(f"{source}: the log contains no transition of the model")
    return Log(counts, rows, forbidden.count)


def log_steps(
    pmdp: ParametricMDP, source: str | Path | Sequence[str | Path], shown: Mapping[int, int] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The transitions (n,) of a log in their order, and (n,) bool where an episode begins; ``shown`` as in `read_log`.

    No row may be forbidden, and where episodes begin must be beyond doubt.
    """
    decoder, chain = _Decoder(pmdp, shown), _Chain(pmdp, is_strict=True)
    steps, begins = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=bool)]
    pieces = [source] if isinstance(source, (str, Path)) else list(source)
    for block in _blocks(pieces, chain):
        states, found, reasons = decoder.decode(block)
        starts = chain.follow(block, states, found, reasons)
        if reasons:
            k = min(reasons)
            raise DataError(
                f"{block.place(k)}: {reasons[k]} (returns are those of whole episodes, in which no row may be missing)"
            )
        steps.append(found)
        begins.append(starts)
    return np.concatenate(steps), np.concatenate(begins)


def _blocks(pieces: Sequence[str | Path], chain: _Chain) -> Iterator[LogRows]:
    require_distinct(pieces)
    for piece in pieces:
        chain.restart()
        yield from open_log(piece)


def _refuse_repetitions(source: str | Path, look: Callable[..., None], *rows: np.ndarray) -> None:
    try:
        look(*rows)
    except DataError as error:
        raise type(error)(f"{source}: {error}; nothing was used") from None


class _Chain:
    """Checks that each row starts where the previous one led, and finds the starts of episodes.

    is_strict : give a reason to rows that leave open where an episode begins, too
    """

    def __init__(self, pmdp: ParametricMDP, is_strict: bool = False):
        self._pmdp, self._last, self._episode, self._is_strict = pmdp, _UNKNOWN, None, is_strict
        self._has_own = EPISODE in pmdp.variables  # then the column is part of the state
        self._begun = set[Any]()  # episodes of the column
        self._is_start = np.zeros(pmdp.num_states, dtype=bool)
        self._is_start[pmdp.initial_state] = True
        self._is_start[pmdp.first_states] = True

    def restart(self) -> None:
        """The next row begins an episode."""
        self._last, self._episode = _UNKNOWN, None
        self._begun.clear()

    def follow(self, block: LogRows, states: np.ndarray, found: np.ndarray, reasons: dict[int, str]) -> np.ndarray:
        """(n,) bool, rows that begin an episode; rows that do not follow get a reason."""
        if not block.size:
            return np.zeros(0, dtype=bool)
        led = np.where(found >= 0, self._pmdp.visible_successor[found], _UNKNOWN)
        before = np.append(self._last, led[:-1])
        broken = (before != _UNKNOWN) & (before != states) & (found >= 0)
        starts, self._last = broken | (before == _UNKNOWN), int(led[-1])
        wrong = broken & ~self._are_starts(states)
        if self._marks_episodes(block):
            starts, self._episode = _changes(block.columns[EPISODE], self._episode)
            wrong = broken & ~starts
        for k in np.flatnonzero(wrong).tolist():
            here, there = self._pmdp.state_name(int(states[k])), self._pmdp.state_name(int(before[k]))
            reasons.setdefault(
                k,
                f"begins in {here}, but the previous row led to {there}: rows of an episode must be consecutive; a "
                "column 'episode' marks where one begins",
            )
        if self._is_strict:
            self._doubt(block, states, before, starts, reasons)
        return starts

    def _are_starts(self, states: np.ndarray) -> np.ndarray:
        """(n,) bool, where plays start; numbers that are no states are not."""
        exist = (states >= 0) & (states < len(self._is_start))
        return exist & self._is_start[np.where(exist, states, 0)]

    def _marks_episodes(self, block: LogRows) -> bool:
        return EPISODE in block.columns and not self._has_own

    def _doubt(
        self, block: LogRows, states: np.ndarray, before: np.ndarray, starts: np.ndarray, reasons: dict[int, str]
    ) -> None:
        """Give a reason to rows that may begin an episode or go on with one."""
        if not self._marks_episodes(block):
            for k in np.flatnonzero((before == states) & self._are_starts(states)).tolist():
                name = self._pmdp.state_name(int(states[k]))
                reasons.setdefault(
                    k,
                    f"begins in {name}, where plays start and the previous row led: a column 'episode' must say "
                    "whether an episode begins there",
                )
            return
        for k in np.flatnonzero(starts).tolist():
            episode = block.columns[EPISODE][k]
            if episode in self._begun:
                reasons.setdefault(
                    k,
                    f"goes on with episode {episode}, which ended before: rows of an episode must be "
                    "consecutive, and each has a number of its own",
                )
            self._begun.add(episode)


def _changes(column: Sequence[Any], before: Any) -> tuple[np.ndarray, Any]:
    """((n,) bool where a column differs from the row before, its last value); ``before``: that of the last block."""
    if isinstance(column, np.ndarray) and column.dtype.kind in "iu":
        return np.append(bool(column[0] != before), column[1:] != column[:-1]), column[-1]
    values = list(column)
    return np.array([a != b for a, b in zip(values, [before, *values[:-1]], strict=True)]), values[-1]


def _require_another_file(pieces: Sequence[str | Path], quarantine: str | Path | None) -> None:
    """Refuse to write forbidden rows over the log itself."""
    for piece in pieces:
        if quarantine is not None and os.path.exists(piece) and os.path.exists(quarantine):
            if os.path.samefile(piece, quarantine):
                raise DataError(f"{quarantine} is the log itself: name another file for the rows that are forbidden")


class _Forbidden:
    """Rows that cannot be used: listed for an error, or written to a file, which the first of them opens."""

    def __init__(self, path: str | Path | None, files: ExitStack):
        self.count = 0
        self.listed: list[str] = []
        self._path, self._files = path, files

    def add(self, block: LogRows, k: int, reason: str) -> None:
        if self._path is not None:
            if not self.count:
                file = self._files.enter_context(open(self._path, "w", encoding="utf-8", newline=""))
                self._writer = csv.writer(file)
                self._writer.writerow(["place", "reason", *block.columns])
            self._writer.writerow([block.place(k), reason, *(column[k] for column in block.columns.values())])
        elif len(self.listed) < LISTED:
            self.listed.append(f"{block.place(k)}: {reason}")
        self.count += 1

    def lines(self) -> str:
        """The listed rows for an error, one a line, and how many more there are."""
        more = [f"… and {self.count - LISTED} more"] if self.count > LISTED else []
        return "".join(f"\n  {line}" for line in [*self.listed, *more])


def _numbered_actions(pmdp: ParametricMDP) -> dict[int, int] | None:
    """The action that each number stands for: its key or its name; None if it is the action's place."""
    keys = whole_numbers(pmdp.action_keys)
    if keys is not None:
        return {key: i for i, key in enumerate(keys)}
    names = {name: i for i, name in enumerate(pmdp.action_names) if name.isdecimal()}
    return {int(name): i for name, i in names.items() if name == str(int(name))} or None


class _Decoder:
    """Decodes rows of a block to state, action and successor numbers, with reasons for invalid rows."""

    def __init__(self, pmdp: ParametricMDP, shown_as: Mapping[int, int] | None = None):
        self.pmdp, self._shown_as = pmdp, shown_as
        self._action_named = {name: i for i, name in enumerate(pmdp.action_names)}
        self._action_numbered = _numbered_actions(pmdp)
        self._state_named: dict[str, int] | None = None
        self._shared_texts = set[str]()  # which say nothing about the state
        if pmdp.state_values is not None and not pmdp.variables:
            shown = np.flatnonzero(~pmdp.is_silent).tolist()
            texts = [str(pmdp.state_value(s)) for s in shown]
            times = Counter(texts)
            self._state_named = {text: s for text, s in zip(texts, shown) if times[text] == 1}
            self._shared_texts = {text for text in times if times[text] > 1}

    def decode(self, block: LogRows) -> tuple[np.ndarray, np.ndarray, dict[int, str]]:
        """States and transitions (n,) each, and why rejected rows were rejected."""
        reasons = dict(block.broken)
        columns = block.columns
        if "action" not in columns:
            raise DataError(f"no column 'action'; the log has {listed(columns)}")
        if "state" in columns and "next_state" in columns:
            read = self._observed if self._shown_as is not None else self._numbers
            if self._state_named is not None:
                read = self._valued
            states, successors = (read(columns[name], name, reasons) for name in ("state", "next_state"))
        else:
            names = self._variable_columns(columns)
            states = self._states([columns[n] for n in names], names, reasons)
            successors = self._states([columns[f"next_{n}"] for n in names], [f"next_{n}" for n in names], reasons)
        actions = self._actions(columns["action"], reasons)
        found = locate(self.pmdp, states, actions, successors)
        for k in np.flatnonzero(found < 0).tolist():
            if k not in reasons:
                step = int(states[k]), int(actions[k]), int(successors[k])
                reasons[k] = impossible(self.pmdp, *step, int(found[k]))
        return states, found, reasons

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
        """(n,) int64; values that are not integers get a reason and -1."""
        if isinstance(column, np.ndarray) and column.dtype.kind in "iu":
            return column.astype(np.int64, copy=False)
        if len(column) and isinstance(column[0], str):  # int() would truncate decimals
            try:
                return np.array([int(v) for v in column], dtype=np.int64)
            except (TypeError, ValueError, OverflowError):
                pass
        return _each(column, _whole, lambda value: f"{name} = {value!r} is not a whole number of 64 bits", reasons)

    def _observed(self, column: Sequence[Any], name: str, reasons: dict[int, str]) -> np.ndarray:
        """(n,) the states that the environment shows as these numbers."""
        known = self._shown_as or {}
        return _each(
            column, lambda value: known[_whole(value)], lambda value: f"{name}: {value!r} is shown in no state", reasons
        )

    def _valued(self, column: Sequence[Any], name: str, reasons: dict[int, str]) -> np.ndarray:
        """(n,) the states with these values, or with values that print as these texts."""
        known, shared = self._state_named or {}, self._shared_texts

        def reason(value: Any) -> str:
            what = "several states are written as" if str(value) in shared else "the model has no state"
            return f"{name}: {what} {value!r}"

        return _each(column, lambda v: known[str(v)], reason, reasons)

    def _actions(self, column: Sequence[Any], reasons: dict[int, str]) -> np.ndarray:
        """(n,) actions by name, by the model's own numbers, or by their places."""
        numbered, named = self._action_numbered, self._action_named
        if isinstance(column, np.ndarray):
            if column.dtype.kind in "iu" and numbered is None:
                return column.astype(np.int64)
            column = column.tolist()

        def action(value: Any) -> int:
            if value in named:
                return named[value]
            return _whole(value) if numbered is None else numbered[_whole(value)]

        return _each(column, action, lambda value: f"the model has no action {value!r}", reasons)

    def _states(self, columns: list[Sequence[Any]], names: list[str], reasons: dict[int, str]) -> np.ndarray:
        """State numbers from the values of the variables."""
        numbers = [self._numbers(c, n, reasons) for c, n in zip(columns, names, strict=True)]
        shown, states = self._shown
        place = states.find_all(dict(zip(states.names, numbers, strict=True)))
        if place.min(initial=0) >= 0:
            return shown[place]
        for k in np.flatnonzero(place < 0).tolist():
            values = ", ".join(f"{n}={int(c[k])}" for n, c in zip(names, numbers, strict=True))
            reasons.setdefault(k, f"the model has no state ({values})")
        return np.where(place >= 0, shown[place], _UNKNOWN)

    @cached_property
    def _shown(self) -> tuple[np.ndarray, VariableStates]:
        """The visible states by their variables (silent ones share those of a visible state)."""
        shown = np.flatnonzero(~self.pmdp.is_silent)
        return shown, VariableStates({name: np.asarray(c)[shown] for name, c in self.pmdp.variables.items()})


def _each(
    column: Sequence[Any], convert: Callable[[Any], int], reason: Callable[[Any], str], reasons: dict[int, str]
) -> np.ndarray:
    """(n,) int64 value by value; one that cannot be converted gets a reason and -1."""
    if isinstance(column, Coded):
        wrong: dict[int, str] = {}
        found = _each(column.values, convert, reason, wrong)[column.codes]
        for k in np.flatnonzero(np.isin(column.codes, list(wrong))).tolist() if wrong else ():
            reasons.setdefault(k, wrong[int(column.codes[k])])
        return np.asarray(found)
    values = column.tolist() if isinstance(column, np.ndarray) else column
    is_plain = any(set(map(type, values)) <= {kind} for kind in (str, int))  # equal values of one type mean the same
    distinct = set(values) if is_plain else values
    known, bad = {}, set()
    for key, value in enumerate(distinct):
        place = value if is_plain else key
        try:
            known[place] = int(np.int64(convert(value)))
        except (TypeError, ValueError, OverflowError, KeyError):
            known[place] = _UNKNOWN
            bad.add(place)
    places = values if is_plain else range(len(values))
    for k, place in enumerate(places if bad else ()):
        if place in bad:
            reasons.setdefault(k, reason(values[k]))
    return np.fromiter(map(known.__getitem__, places), np.int64, len(values))


def _whole(value: Any) -> int:
    """An int from an int, a boolean word or the text of an integer (``"3.0"`` included)."""
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
    path: str | Path,
    pmdp: ParametricMDP,
    theta: np.ndarray | Sequence[float] | Mapping[str, float],
    *,
    episodes: int,
    max_steps: int,
    seed: int = 0,
    stop: np.ndarray | None = None,
    policy: Policy | None = None,
) -> int:
    """Write a CSV log of simulated episodes, as a plant would; return its rows.

    ``stop`` (S,) bool are states in which an episode ends; ``policy`` is uniform by default.
    """
    mdp = pmdp.instantiate(theta)
    weights = (policy or Policy.uniform(pmdp)).as_weights(pmdp)
    rng = np.random.default_rng(seed)
    columns = [np.asarray(c).tolist() for c in pmdp.variables.values()] or [
        [pmdp.state_value(s) for s in range(pmdp.num_states)]
    ]
    names = list(pmdp.variables) or ["state"]
    rows = 0
    marks = [] if EPISODE in names else [EPISODE]
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*names, "action", *(f"next_{n}" for n in names), *marks])
        for episode in range(episodes):
            state = pmdp.initial_state
            for draw in rng.random((max_steps, 2)).tolist():
                if stop is not None and stop[state]:
                    break
                row = _pick(draw[0], weights, int(pmdp.state_ptr[state]), int(pmdp.state_ptr[state + 1]))
                t = _pick(draw[1], mdp.probability, int(pmdp.row_ptr[row]), int(pmdp.row_ptr[row + 1]))
                successor = int(pmdp.visible_successor[t])
                if not pmdp.is_silent[state]:  # drawing a random start is not a step
                    action = pmdp.action_names[pmdp.action[row]]
                    values = [*(c[state] for c in columns), action, *(c[successor] for c in columns)]
                    writer.writerow([*values, *([episode] if marks else [])])
                    rows += 1
                state = successor
    return rows


def _pick(draw: float, weights: np.ndarray, first: int, last: int) -> int:
    """The index in first..last-1 at which the running sum of weights exceeds ``draw`` (never one of weight 0)."""
    chosen = first
    for k in range(first, last):
        if weights[k] > 0:
            chosen = k
            draw -= weights[k]
            if draw < 0:
                break
    return chosen
