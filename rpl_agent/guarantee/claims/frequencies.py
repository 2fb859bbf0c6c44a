"""A baseline of which only the log is known: its action frequencies are unknowns as well.

The model gets an action "as in the log" in every state with a choice: it draws one of the state's actions with unknown
probabilities, one binary choice after the other, each with a parameter of its own, and then takes that action. The log
counts these choices. So the baseline is a policy of the larger model, and everything is bounded over one region of all
unknowns. This assumes that the choices in the log depend on the state alone; no propensities are needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rpl_agent.core.errors import ModelError
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Domain, Objective, ParametricMDP, Policy, Polynomial, build

#: The action that plays the baseline.
AS_LOGGED = "as in the log"
#: More rows are refused: one parameter for each would take too long.
MOST_ROWS = 5_000


@dataclass(frozen=True, eq=False)
class LoggedBaseline:
    """The larger model with its data; a policy of the model is `lifted` into it."""

    pmdp: ParametricMDP
    counts: Counts
    policy: Policy  # the baseline
    original: ParametricMDP
    places: np.ndarray  # (R,) the larger model's row for each row of the model; −1 if it has none

    def lifted(self, policy: Policy) -> Policy:
        """A policy of the model in the larger one, which it never leaves."""
        weights = self.policy.as_weights(self.pmdp).copy()
        known = self.places >= 0
        weights[np.isin(self.pmdp.row_state, self.pmdp.row_state[self.places[known]])] = 0.0
        weights[self.places[known]] = policy.as_weights(self.original)[known]
        return Policy.of_weights(self.pmdp, weights)


def logged_baseline(pmdp: ParametricMDP, counts: Counts, objective: Objective) -> LoggedBaseline:
    """The larger model of a log's own policy.

    Raises
    ------
    ModelError
        Steps are counted (a discount, a horizon), or the model has silent states, or too many rows.
    """
    if objective.discount < 1.0 or objective.horizon is not None:
        raise ModelError("action frequencies are for objectives without a discount or horizon: use the log's returns")
    if pmdp.is_silent.any():
        raise ModelError("action frequencies are for models without random starts and rewards on arrival")
    if pmdp.num_rows > MOST_ROWS:
        raise ModelError(f"action frequencies of {pmdp.num_rows:,} rows take too long: use the log's returns")
    made = _larger(pmdp)
    number = {value: made.state_index(value) for value in made.state_values or ()}
    places = np.array(
        [
            made.find_row(number["at", s], a) if ("at", s) in number else -1
            for s, a in zip(pmdp.row_state.tolist(), pmdp.action.tolist())
        ]
    )
    observed = np.zeros(made.num_transitions, np.int64)
    for row in np.flatnonzero(places >= 0).tolist():
        place = int(places[row])
        for t in range(pmdp.row_ptr[row], pmdp.row_ptr[row + 1]):
            target = number["at", int(pmdp.successor[t])]
            observed[made.find_transition(place, target)] += int(counts.transitions[t])
    rows, last = counts.row_totals, made.num_actions - 1
    for s in [s for s in np.flatnonzero(np.diff(pmdp.state_ptr) > 1).tolist() if ("at", s) in number]:
        first, end = int(pmdp.state_ptr[s]), int(pmdp.state_ptr[s + 1])
        for row in range(first, end - 1):
            asked = number[("at", s) if row == first else ("choose", row)]
            place = made.find_row(asked, last if row == first else 0)
            other = ("take", row + 1) if row == end - 2 else ("choose", row + 1)
            taken, rest = int(rows[row]), int(rows[row + 1 : end].sum())
            observed[made.find_transition(place, number["take", row])] += taken
            observed[made.find_transition(place, number[other])] += rest
    larger = Counts(made)
    larger.add_batch(observed)
    return LoggedBaseline(made, larger, _baseline(made), pmdp, places)


def _baseline(made: ParametricMDP) -> Policy:
    """The policy that plays as in the log wherever there is a choice: the last row of every state."""
    return Policy.deterministic(made.state_ptr[1:] - 1)


def _larger(pmdp: ParametricMDP) -> ParametricMDP:
    choices = [row for row in range(pmdp.num_rows) if row + 1 < pmdp.state_ptr[pmdp.row_state[row] + 1]]
    names = {row: f"logged_{row}" for row in choices}
    old = pmdp.domain
    domain = Domain(
        (*old.parameters, *names.values()),
        np.append(old.lower, np.zeros(len(choices))),
        np.append(old.upper, np.ones(len(choices))),
    )
    if len(old.b):
        rows = old.A.toarray() if hasattr(old.A, "toarray") else np.asarray(old.A)
        domain = domain.with_constraints(np.hstack([rows, np.zeros((len(rows), len(choices)))]), old.b)

    def outcomes(row: int) -> dict[Any, Polynomial]:
        moves = range(pmdp.row_ptr[row], pmdp.row_ptr[row + 1])
        found: dict[Any, Polynomial] = {}
        for t in moves:
            key = ("at", int(pmdp.successor[t]))
            found[key] = found.get(key, Polynomial.constant(0)) + pmdp.table.polynomial(int(pmdp.expression[t]))
        return found

    def choice(row: int) -> dict[Any, Polynomial]:
        share, end = Polynomial.parameter(names[row]), pmdp.state_ptr[pmdp.row_state[row] + 1]
        other = ("take", row + 1) if row == end - 2 else ("choose", row + 1)
        return {("take", row): share, other: 1 - share}

    def actions(state: Any) -> dict[str, dict[Any, Polynomial]]:
        kind, number = state
        if kind == "take":
            return {pmdp.action_names[pmdp.action[number]]: outcomes(number)}
        if kind == "choose":
            return {pmdp.action_names[0]: choice(number)}
        first, end = int(pmdp.state_ptr[number]), int(pmdp.state_ptr[number + 1])
        found = {pmdp.action_names[pmdp.action[row]]: outcomes(row) for row in range(first, end)}
        return found if end - first == 1 else {**found, AS_LOGGED: choice(first)}

    paid = {name: pmdp.row_reward(name) for name in pmdp.rewards}

    def reward(name: str) -> Any:
        def of(state: Any, action: str) -> float:
            kind, number = state
            if kind == "choose" or action == AS_LOGGED:
                return 0.0
            row = number if kind == "take" else pmdp.find_row(number, pmdp.action_names.index(action))
            return float(paid[name][row])

        return of

    def label(mask: np.ndarray) -> Any:
        return lambda state: state[0] == "at" and bool(mask[state[1]])

    return build(
        ("at", pmdp.initial_state),
        actions,
        domain=domain,
        labels={name: label(mask) for name, mask in pmdp.labels.items()},
        rewards={name: reward(name) for name in paid},
        action_names=(*pmdp.action_names, AS_LOGGED),
        name=f"{pmdp.name}, with the log's policy",
    )
