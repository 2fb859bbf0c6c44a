"""Two ways to build a `ParametricMDP`, one numbering.

`build` is for people: a function returns, for one state, its actions with successor → expression.
`build_arrays` is for large regular models: a function expands a whole frontier with numpy.
Both explore breadth-first, number the states level by level (sorted within a level), merge equal
successors, drop zero polynomials and sort Λ by coefficients, so equal descriptions give equal models.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from rpl_agent.errors import ModelError
from rpl_agent.model.domain import Domain
from rpl_agent.model.expressions import ExpressionTable
from rpl_agent.model.pmdp import ParametricMDP, Reward
from rpl_agent.model.polynomial import Number, Polynomial, as_polynomial
from rpl_agent.model.validation import Problem, raise_problems, require_valid

State = Hashable
Row = Mapping[State, "Polynomial | Number"]


def build(
    initial_state: State,
    actions: Callable[[Any], Mapping[str, Row]],
    *,
    domain: Domain | Sequence[str] | Mapping[str, tuple[float, float]],
    labels: Mapping[str, Callable[[Any], bool]] | None = None,
    rewards: Mapping[str, Callable[[Any, str], float]] | None = None,
    variables: Sequence[str] | None = None,
    action_names: Sequence[str] | None = None,
    name: str = "model",
    validate: bool = True,
    max_states: int = 5_000_000,
) -> ParametricMDP:
    """Explore from ``initial_state`` and return a validated model.

    Parameters
    ----------
    actions : state -> {action name: {successor: expression}}; expressions are strings such as
        ``"0.5*p + 0.0004*12"``, numbers or Polynomial objects. Successors may repeat under equal keys only.
    domain : a Domain, a mapping from names to (lower, upper), or names alone (every parameter lies in [0, 1]).
    labels : name -> predicate on states.
    rewards : name -> function of (state, action name), paid on leaving the state.
    variables : names of the components when states are tuples of integers.
    """
    domain = domain if isinstance(domain, Domain) else Domain.box(domain)
    number: dict[State, int] = {initial_state: 0}
    order: list[State] = [initial_state]
    rows: list[list[tuple[str, dict[int, Polynomial]]]] = []
    names: dict[str, None] = dict.fromkeys(action_names or ())
    known = set(domain.parameters)
    problems: list[Problem] = []
    level = [initial_state]
    while level:
        found: dict[State, None] = {}
        described = []
        for state in level:
            choices = actions(state)
            if not isinstance(choices, Mapping):
                kind = type(choices).__name__
                raise ModelError(f"state {state!r}: actions must be a mapping from names to rows, got {kind}")
            checked = []
            for action, row in choices.items():
                names.setdefault(str(action))
                if not isinstance(row, Mapping):
                    kind = type(row).__name__
                    raise ModelError(
                        f"state {state!r}, action {action!r}: a row must map successors to expressions, got {kind}"
                    )
                polynomials: dict[State, Polynomial] = {}
                for successor, expression in row.items():
                    place = f"state {state!r}, action {action!r}, successor {successor!r}"
                    try:
                        polynomial = as_polynomial(expression)
                    except ModelError as error:
                        problems.append(Problem("expression", f"{place}: {error}"))
                        continue
                    if not polynomial.parameters <= known:
                        unknown = sorted(polynomial.parameters - known)
                        message = f"{place}: expression {polynomial} uses unknown parameters {unknown}"
                        problems.append(Problem("unknown-parameter", message))
                    polynomials[successor] = polynomial
                    if polynomial.terms and successor not in number:
                        found.setdefault(successor)
                checked.append((str(action), polynomials))
            described.append(checked)
        level = _sorted_if_possible(list(found))
        for state in level:
            number[state] = len(number)
            order.append(state)
        if len(number) > max_states:
            raise ModelError(f"more than {max_states} states: raise max_states or use build_arrays")
        for checked in described:
            rows.append([(a, {number[s]: p for s, p in ps.items() if p.terms}) for a, ps in checked])

    raise_problems(name, problems)  # of single expressions; those of whole rows are found below
    all_names = tuple(names)
    action_id = {a: i for i, a in enumerate(all_names)}
    distinct: dict[Polynomial, int] = {}
    state_ptr, row_ptr = [0], [0]
    row_action: list[int] = []
    successors: list[int] = []
    expressions: list[int] = []
    for state_rows in rows:
        for a, ps in sorted(state_rows, key=lambda item: action_id[item[0]]):
            row_action.append(action_id[a])
            for s, p in sorted(ps.items()):
                successors.append(s)
                expressions.append(distinct.setdefault(p, len(distinct)))
            row_ptr.append(len(successors))
        state_ptr.append(len(row_action))
    table = ExpressionTable.from_polynomials(list(distinct), domain.parameters)
    table, rank = table.sorted()
    state_reward = np.zeros(len(order))
    reward_arrays = {}
    for reward_name, function in (rewards or {}).items():
        row_state = np.repeat(np.arange(len(order)), np.diff(state_ptr))
        values = [function(order[s], all_names[a]) for s, a in zip(row_state, row_action)]
        reward_arrays[reward_name] = Reward(state_reward, np.array(values, dtype=float))
    columns = _variables(order, variables)
    integers = bool(columns) and all(c.ndim == 1 and c.dtype.kind in "iu" for c in columns.values())
    model = ParametricMDP(
        np.array(state_ptr), np.array(row_action), np.array(row_ptr), np.array(successors),
        rank[np.array(expressions, dtype=np.int64)], table, domain, 0,
        {k: np.array([bool(f(s)) for s in order]) for k, f in (labels or {}).items()}, reward_arrays, all_names,
        columns, name, None if integers else tuple(order),  # columns of integers say it in less memory
    )  # fmt: skip
    if validate:
        require_valid(model)
    return model


def _sorted_if_possible(states: list) -> list:
    try:
        return sorted(states)
    except TypeError:
        return states  # states without an order keep the order of discovery


def _variables(order: list, names: Sequence[str] | None) -> dict[str, np.ndarray]:
    if names is None:
        return {}
    if any(not isinstance(s, tuple) or len(s) != len(names) for s in order):
        raise ModelError(f"states must be tuples of {len(names)} components to carry the variables {tuple(names)}")
    return {n: np.array([s[i] for s in order]) for i, n in enumerate(names)}
