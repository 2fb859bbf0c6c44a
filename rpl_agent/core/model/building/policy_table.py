"""Policies as tables of state, action and weight: names become rows of a model.

A table has one rule for all steps, or one for each step of a horizon (the column `time_step`, from 0).

A state is named by its value (or the text of it), by the values of the model's variables, or by its number where no
value is a number itself; an action by its name, by the user's own key, or by its number where no key is one.
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rpl_agent.core.errors import DataError, ModelError, listed, text_of
from rpl_agent.core.model.building.builder import whole_numbers
from rpl_agent.core.model.csr import reached
from rpl_agent.core.model.pmdp import ParametricMDP
from rpl_agent.core.model.states import StateIndex

#: names of the column of weights; without one every weight is 1
WEIGHTS = ("weight", "probability")
#: name of the column of steps
STEP = "time_step"

#: state, action, weight
Entry = tuple[Any, Any, float]


class RowNames:
    """Finds states and actions of a model by what a table calls them."""

    def __init__(self, pmdp: ParametricMDP) -> None:
        self.pmdp = pmdp
        shown = np.flatnonzero(~pmdp.is_silent).tolist()
        values = [] if pmdp.states is None else [pmdp.state_value(s) for s in shown]
        texts = [*zip(map(str, values), shown), *zip(map(repr, values), shown)]
        times = Counter(text for text, _ in set(texts))
        self._states = {text: s for text, s in texts if times[text] == 1}  # a text of two states names neither
        self._state_numbers = not any(isinstance(value, int) for value in values)
        keys = whole_numbers(pmdp.action_keys)
        numbers: Iterable[int] = range(pmdp.num_actions) if keys is None else keys
        self._actions = {str(number): a for a, number in enumerate(numbers)}
        self._actions |= {str(key): a for a, key in enumerate(pmdp.action_keys)}
        self._actions |= {name: a for a, name in enumerate(pmdp.action_names)}

    def state(self, given: Any) -> int:
        if str(given) in self._states and not isinstance(given, StateIndex):
            return self._states[str(given)]
        if self._state_numbers or isinstance(given, StateIndex):
            try:
                number = int(given)
            except (TypeError, ValueError):
                number = -1
            if 0 <= number < self.pmdp.num_states:
                return number
        return self.pmdp.state_index(given)

    def row(self, state: int, action: Any) -> int:
        known = self._actions.get(str(action))
        if known is None:
            raise ModelError(f"the model has no action {action!r}; it has {listed(self.pmdp.action_names)}")
        row = self.pmdp.find_row(state, known)
        if row < 0:
            name = self.pmdp.action_names[known]
            raise ModelError(f"action {name!r} is not enabled in state {state} = {self.pmdp.state_name(state)}")
        return row


def read_table(pmdp: ParametricMDP, path: str | Path) -> dict[int | None, list[Entry]]:
    """The entries of a CSV file by their step, or under None where it has no column of steps; errors name the line."""
    path = Path(path)
    lines = csv.DictReader(io.StringIO(text_of(path), newline=""))
    columns = lines.fieldnames or []
    variables = list(pmdp.variables)
    by_variables = bool(variables) and all(name in columns for name in variables)
    state = "value" if "value" in columns else "state"
    weight = next((name for name in WEIGHTS if name in columns), None)
    if "action" not in columns or not (by_variables or state in columns):
        raise DataError(f"{path}: needs the columns state, action, weight; it has {listed(columns)}")
    found: dict[int | None, list[Entry]] = {} if STEP in columns else {None: []}
    named: set[tuple[int | None, str]] = set()
    for line in lines:
        step = _whole(line[STEP], path, lines.line_num) if STEP in columns else None
        values = tuple(_whole(line[name], path, lines.line_num) for name in variables) if by_variables else ()
        given = str(values) if by_variables else (line[state] or "").strip()
        if weight is None and (step, given) in named:
            second = f"a second action of state {given}, and no column weight or probability"
            raise DataError(f"{path}, line {lines.line_num}: {second}; it has {listed(columns)}")
        named.add((step, given))
        share = _number(line[weight] if weight else "1", path, lines.line_num)
        found.setdefault(step, []).append((given, (line["action"] or "").strip(), share))
    return found


def _number(text: str | None, path: Path, line: int) -> float:
    if not text:
        raise DataError(f"{path}, line {line}: no weight")
    try:
        return float(text)
    except ValueError:
        raise DataError(f"{path}, line {line}: the weight {text!r} is not a number") from None


def _whole(text: str | None, path: Path, line: int) -> int:
    try:
        return int(text or "")
    except ValueError:
        raise DataError(f"{path}, line {line}: {text!r} is not a whole number") from None


def table_weights(pmdp: ParametricMDP, entries: Iterable[Entry]) -> np.ndarray:
    """(R,) the weights of a table, divided by their sum in every state.

    A state that the table does not name needs no choice if it has one action or is never left; it gets equal weights
    if the policy cannot reach it. Any other is an error.
    """
    weights, named = _given(RowNames(pmdp), entries)
    _require_all(pmdp, named, _reach(pmdp, weights, named), "the table says nothing about")
    return weights


def rows_by_step(pmdp: ParametricMDP, tables: Mapping[int | None, Iterable[Entry]]) -> np.ndarray:
    """(H, S) the row that each step's table takes in each state; a table needs the states of its own step only."""
    missing = min(set(range(max(len(tables), 1))) - set(tables), default=None)
    if missing is not None:
        raise ModelError(f"the rules per step count from 0 without a gap: step {missing} is missing")
    names, rules = RowNames(pmdp), list[np.ndarray]()
    here = np.arange(pmdp.num_states) == pmdp.initial_state
    if pmdp.has_random_start:
        here = _next_states(pmdp, here, np.ones(pmdp.num_rows))
    for step in range(len(tables)):
        weights, named = _given(names, tables[step])
        _require_all(pmdp, named, here, f"the rule of step {step} says nothing about")
        rules.append(_single_rows(pmdp, weights, named, step))
        for _ in range(pmdp.solver_steps_per_step):
            here = _next_states(pmdp, here, weights)
    return np.array(rules)


def _single_rows(pmdp: ParametricMDP, weights: np.ndarray, named: np.ndarray, step: int) -> np.ndarray:
    """(S,) the one row of positive weight in each named state, the first row in others."""
    taken = np.flatnonzero((weights > 0.0) & named[pmdp.row_state])
    states = pmdp.row_state[taken]
    again = np.flatnonzero(states[1:] == states[:-1])
    if len(again):
        state = pmdp.state_name(int(states[again[0]]))
        raise ModelError(f"a policy with a rule per step takes one action; step {step} has several in {state}")
    rows = pmdp.state_ptr[:-1].copy()
    rows[states] = taken
    return rows


def _next_states(pmdp: ParametricMDP, here: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(S,) bool, where a step from some states can lead."""
    taken = (weights > 0.0) & here[pmdp.row_state]
    after = np.zeros(pmdp.num_states, bool)
    after[pmdp.successor[taken[pmdp.transition_row]]] = True
    return after


def _given(names: RowNames, entries: Iterable[Entry]) -> tuple[np.ndarray, np.ndarray]:
    """(R,) the weights, divided by their sum in every state and equal where none are given; (S,) where they are."""
    pmdp = names.pmdp
    weights, given = np.zeros(pmdp.num_rows), np.zeros(pmdp.num_rows, bool)
    for state, action, weight in entries:
        row = names.row(names.state(state), action)
        if not (weight >= 0.0 and math.isfinite(weight)):
            raise ModelError(f"the policy has weight {weight} at {pmdp.row_name(row)}")
        if given[row]:
            raise ModelError(f"the table names {pmdp.row_name(row)} twice")
        weights[row], given[row] = weight, True
    named = np.logical_or.reduceat(given, pmdp.state_ptr[:-1])
    totals = np.add.reduceat(weights, pmdp.state_ptr[:-1])
    if (named & (totals <= 0.0)).any():
        state = int(np.flatnonzero(named & (totals <= 0.0))[0])
        raise ModelError(f"the weights of state {state} = {pmdp.state_name(state)} sum to 0")
    known, shares = named[pmdp.row_state], weights / np.where(named, totals, 1.0)[pmdp.row_state]
    return np.where(known, shares, 1.0 / np.diff(pmdp.state_ptr)[pmdp.row_state]), named


def _require_all(pmdp: ParametricMDP, named: np.ndarray, reached_states: np.ndarray, says_nothing: str) -> None:
    """Raise for a state with a choice that the policy can reach and that is not named."""
    missing = np.flatnonzero(~named & (np.diff(pmdp.state_ptr) > 1) & ~_never_left(pmdp) & reached_states)
    if len(missing):
        state = int(missing[0])
        raise ModelError(
            f"{says_nothing} state {state} = {pmdp.state_name(state)}, which the policy can reach: "
            "add its actions and their weights"
        )


def _never_left(pmdp: ParametricMDP) -> np.ndarray:
    """(S,) bool, states whose every action leads back to them."""
    leaves = pmdp.successor != pmdp.row_state[pmdp.transition_row]
    return ~np.logical_or.reduceat(leaves, pmdp.row_ptr[pmdp.state_ptr[:-1]])


def _reach(pmdp: ParametricMDP, weights: np.ndarray, named: np.ndarray) -> np.ndarray:
    """(S,) bool, states that a policy can reach, where it is known; states that are not named are left by any row."""
    played = (weights > 0.0) | ~named[pmdp.row_state]
    moves = played[pmdp.transition_row]
    source = pmdp.row_state[pmdp.transition_row]
    return reached(source[moves], pmdp.successor[moves], np.array([pmdp.initial_state]), pmdp.num_states)
