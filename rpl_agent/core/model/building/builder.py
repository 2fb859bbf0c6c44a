"""`build`: a model from a function that returns, for one state, its actions with successor → expression.

`build_vectorized` (array_builder.py) is for large regular models: a function expands a whole frontier with numpy. Both
explore breadth-first, number the states level by level (sorted within a level), merge equal successors, drop zero
polynomials and sort Λ by coefficients, so equal descriptions give equal models.

An action's *key* is what the user wrote: a name, a number, an enum member, anything hashable. User code gets the key
back; messages and files show its *name*, ``str(key)``. Equal keys are one action, whatever their types.

Random starts and successor rewards are encoded with extra *silent* states that the environment never shows and that
take no step:

- a random start is one state before the first, whose only row draws the first visible state;
- rewards r(s, a, s') that differ within a row: the row pays the least of them, and the rest is paid by a state between
  the row and its successor. Its expectation then needs no new theory, even if probabilities are unknown. If
  one row of a model needs that, all transitions get such a state, most of which pay nothing: then every step of an
  environment is two solver steps, so that discounts and horizons can be expressed in solver time. (Exceptions are
  states that are never left and pay nothing, whose value does not depend on time.)
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any

import numpy as np

from rpl_agent.core.errors import ModelError, RPLWarning, front_door, listed
from rpl_agent.core.model.building.arguments import (
    called,
    label_holds,
    require_functions,
    require_names,
    require_start,
    reward_amount,
)
from rpl_agent.core.model.building.validation import Defect, raise_problems, require_valid
from rpl_agent.core.model.domain import Domain
from rpl_agent.core.model.expressions import ExpressionTable
from rpl_agent.core.model.pmdp import UNNAMED, ParametricMDP, Reward, nearest
from rpl_agent.core.model.polynomial import Number, Polynomial, as_polynomial
from rpl_agent.core.model.states import START, Paid


@dataclass(frozen=True)
class ActionOrder:
    """``keys`` and ``names`` (A,) in the order of the environment's action space."""

    keys: tuple[Hashable, ...]
    names: tuple[str, ...]
    is_known: bool  # whether no other order is possible; if not, the match with an environment's actions is open


def action_order(listed: Iterable[Sequence[Hashable]], declared: Sequence[Hashable] | None, model: str) -> ActionOrder:
    """The order of all actions of a model.

    It is given by ``declared`` (keys or names), by the actions' numbers, or by the orders in which states list their
    actions (``listed``), if only one order of all actions fits them.
    """
    listed = list(listed)
    keys = tuple(dict.fromkeys(key for order in listed for key in order))
    numbers = whole_numbers(keys)
    if declared is not None:
        return _declared(keys, numbers, declared)
    if numbers is not None:
        return named_actions(range(min(numbers), max(numbers) + 1))
    before: dict[Hashable, set[Hashable]] = {key: set() for key in keys}
    for order in listed:
        for key, following in pairwise(order):
            before[following].add(key)
    try:
        sorted_keys = tuple(TopologicalSorter(before).static_order())
    except CycleError:
        found = named_actions(keys, is_known=False)
        warnings.warn(
            f"{model}: states list their actions in different orders; the model uses {found.names}: pass "
            "action_names=[...] in the order of the environment's action space",
            RPLWarning,
            stacklevel=3,
        )
        return found
    only = all(key in before[following] for key, following in pairwise(sorted_keys))
    return named_actions(sorted_keys if only else keys, is_known=only)


def named_actions(keys: Iterable[Hashable], is_known: bool = True) -> ActionOrder:
    """Keys in a given order, named by their texts; two keys with one text are an error."""
    keys = tuple(keys)
    first: dict[str, Hashable] = {}
    for key in keys:
        if first.setdefault(str(key), key) != key:
            raise ModelError(f"the actions {first[str(key)]!r} and {key!r} would have one name, {str(key)!r}")
    return ActionOrder(keys, tuple(first), is_known)


def whole_numbers(keys: Sequence[Hashable]) -> list[int] | None:
    """The keys as integers, if all of them are (booleans are not); None otherwise."""
    if not keys or not all(isinstance(key, (int, np.integer)) and not isinstance(key, bool) for key in keys):
        return None
    return [int(key) for key in keys]  # type: ignore[call-overload]


def _declared(keys: tuple[Hashable, ...], numbers: list[int] | None, declared: Sequence[Hashable]) -> ActionOrder:
    called = {str(key): key for key in keys}
    found = tuple(key if key in keys else called.get(str(key), key) for key in declared)
    if numbers is not None and not set(found) & set(keys):  # other names for numbered actions
        if not 0 <= min(numbers) <= max(numbers) < len(found) or len(set(found)) < len(found):
            raise ModelError(f"{len(found)} names for the actions {min(numbers)} to {max(numbers)}: {found}")
        return ActionOrder(tuple(range(len(found))), tuple(map(str, found)), True)
    return named_actions(dict.fromkeys((*found, *keys)), is_known=set(keys) <= set(found))


State = Hashable
Row = Mapping[State, "Polynomial | Number"]
#: rows of all states in order: per state (action as the user wrote it, successor index -> polynomial)
Described = list[list[tuple[Hashable, dict[int, Polynomial]]]]
#: The action of a silent state's only row.
_NO_ACTION = object()


@front_door
def build(
    initial_state: Any,
    actions: Callable[[Any], Mapping[Any, Row]],
    *,
    domain: Domain | Sequence[str] | Mapping[str, tuple[float, float]],
    labels: Mapping[str, Callable[[Any], bool]] | None = None,
    rewards: Mapping[str, Callable[..., float]] | None = None,
    variables: Sequence[str] | None = None,
    action_names: Sequence[Hashable] | None = None,
    name: str = UNNAMED,
    validate: bool = True,
    max_states: int = 5_000_000,
) -> ParametricMDP:
    """Explore from the start and return a validated model.

    Parameters
    ----------
    initial_state : a state, or a mapping from states to expressions: the start is drawn from that distribution, which
        may be known (numbers) or unknown (parameters, learned like all others).
    actions : state -> {action: {successor: expression}}; expressions are strings such as
        ``"0.5*p + 0.0004*12"``, numbers or Polynomial objects. Successors may repeat under equal keys only. Actions are
        names, the integers of the environment's action space, or anything hashable.
    domain : a Domain, a mapping from names to (lower, upper), or names alone (every parameter lies in [0, 1]).
    labels : name -> predicate on states.
    rewards : name -> function of (state, action), paid on leaving the state, or of (state, action, successor). It gets
        states and actions exactly as ``actions`` wrote them.
    variables : names of the components when states are tuples.
    action_names : all actions in the order of the environment's action space; needed if the orders in which states
        list them are ambiguous, and the environment does not name its actions itself. For actions
        that are the numbers 0, 1, … these may be display names.

    >>> def actions(state):
    ...     return {"flip": {"heads": "p", "tails": "1 - p"}} if state == "start" else {"stay": {state: 1}}
    >>> build("start", actions, domain={"p": (0.1, 0.9)}, labels={"won": lambda state: state == "heads"}, name="coin")
    ParametricMDP('coin', states=3, transitions=4, expressions=3, parameters=('p',))
    """
    require_functions(labels, rewards, actions, variables)
    require_start(initial_state)
    domain = domain if isinstance(domain, Domain) else Domain.box(require_names(domain))
    explorer = _Explorer(actions, domain, name, max_states)
    explorer.run(initial_state)
    order_of_actions = action_order(explorer.listed, action_names, name)
    payments = _Payments(explorer, rewards or {})
    pieces = DescribedRows(explorer.rows, order_of_actions.keys)
    table, rank = ExpressionTable.from_polynomials(list(pieces.distinct), domain.parameters).sorted()
    order, silent = explorer.order, np.array([s is START or isinstance(s, Paid) for s in explorer.order])
    columns = _variables(order, variables)
    integers = all(c.ndim == 1 and c.dtype.kind in "iu" for c in columns.values())
    model = ParametricMDP(
        np.array(pieces.state_ptr),
        np.array(pieces.action),
        np.array(pieces.row_ptr),
        np.array(pieces.successors),
        rank[np.array(pieces.expressions, dtype=np.int64)],
        table,
        domain,
        0,
        {
            k: np.array([not quiet and label_holds(k, f, s) for s, quiet in zip(order, silent)])
            for k, f in (labels or {}).items()
        },
        payments.arrays(pieces),
        order_of_actions.names,
        columns,
        name,
        None if columns and integers and not silent.any() else tuple(order),  # integer columns take less memory
        silent if silent.any() else None,
        order_of_actions.is_known,
        order_of_actions.keys,
    )
    if validate:
        require_valid(model)
    return model


class _Explorer:
    """Breadth-first search: states in order of their numbers, and the rows of each."""

    def __init__(self, actions: Callable[[Any], Any], domain: Domain, name: str, max_states: int):
        self._actions, self._known, self._name, self._max_states = actions, set(domain.parameters), name, max_states
        self.number: dict[State, int] = {}
        self.order: list[State] = []
        self.rows: Described = []
        self.listed: dict[tuple[Any, ...], None] = {}  # the orders in which states list their actions
        self._problems: list[Defect] = []
        self._read: dict[tuple[type, Hashable], tuple[Polynomial, list[str]]] = {}

    def run(self, initial: Any) -> None:
        random = isinstance(initial, Mapping)
        if any(isinstance(state, Paid) for state in (initial if random else [initial])):
            raise ModelError("the start must be a state, not paying(...): nothing is paid before the first step")
        level = [START if random else initial]
        self._add(level)
        while level:
            found: dict[State, None] = {}
            described = [self._describe(s, self._choices(s, initial), found) for s in level]
            level = _sorted_if_possible(list(found))
            self._add(level)
            if len(self.number) > self._max_states:
                raise ModelError(f"more than {self._max_states} states: raise max_states or use build_vectorized")
            for rows in described:
                self.rows.append([(a, {self.number[s]: p for s, p in ps.items() if p.terms}) for a, ps in rows])
        raise_problems(self._name, self._problems)  # problems of single expressions; whole rows are checked later

    def _choices(self, state: Any, initial: Any) -> Any:
        if state is START:
            return {_NO_ACTION: initial}
        if isinstance(state, Paid):
            return {_NO_ACTION: {state.successor: 1}}
        return called(self._actions, "actions(state)", f"state {state!r}", state)

    def _add(self, states: list[Any]) -> None:
        for state in states:
            self.number[state] = len(self.number)
            self.order.append(state)

    def _describe(
        self, state: Any, choices: Any, found: dict[State, None]
    ) -> list[tuple[Hashable, dict[Any, Polynomial]]]:
        if not isinstance(choices, Mapping):
            kind = type(choices).__name__
            raise ModelError(f"state {state!r}: actions must be a mapping from names to rows, got {kind}")
        if state is not START and not isinstance(state, Paid):
            self.listed.setdefault(tuple(choices))
        rows = []
        for action, row in choices.items():
            if not isinstance(row, Mapping):
                kind = type(row).__name__
                raise ModelError(
                    f"state {state!r}, action {action!r}: a row must map successors to expressions, got {kind}"
                )
            rows.append((action, self._polynomials(state, action, row)))
            found.update({s: None for s, p in rows[-1][1].items() if p.terms and s not in self.number})
        return rows

    def _polynomials(self, state: Any, action: Any, row: Row) -> dict[Any, Polynomial]:
        polynomials: dict[Any, Polynomial] = {}
        for successor, expression in row.items():
            try:
                polynomial, unknown = self._expression(expression)
            except ModelError as error:
                place = f"state {state!r}, action {action!r}, successor {successor!r}"
                self._problems.append(Defect("expression", f"{place}: {error}"))
                continue
            if unknown:
                place = f"state {state!r}, action {action!r}, successor {successor!r}"
                declared = f"the domain has {listed(sorted(self._known))}"
                message = f"{place}: expression {polynomial} uses unknown parameters {unknown}; {declared}"
                self._problems.append(Defect("unknown-parameter", message))
            polynomials[successor] = polynomial
        return polynomials

    def _expression(self, expression: Any) -> tuple[Polynomial, list[str]]:
        """An expression and its unknown parameters; a text or number is read once, however often it is written."""
        key = (type(expression), expression) if isinstance(expression, (str, int, float, Fraction)) else None
        if key is not None and key in self._read:
            return self._read[key]
        polynomial = as_polynomial(expression)
        found = polynomial, sorted(polynomial.parameters - self._known)
        if key is not None:
            self._read[key] = found
        return found


class DescribedRows:
    """CSR arrays of the rows, sorted by action and successor."""

    def __init__(self, rows: Described, actions: tuple[Hashable, ...]):
        action_id = {a: i for i, a in enumerate(actions)} | {_NO_ACTION: 0}  # silent rows need no action
        self.key: list[Hashable] = []  # of each row, as written
        self.distinct: dict[Polynomial, int] = {}
        self.state_ptr, self.row_ptr = [0], [0]
        self.action: list[int] = []
        self.successors: list[int] = []
        self.expressions: list[int] = []
        for state_rows in rows:
            for a, ps in sorted(state_rows, key=lambda item: action_id[item[0]]):
                self.key.append(a)
                self.action.append(action_id[a])
                for s, p in sorted(ps.items()):
                    self.successors.append(s)
                    self.expressions.append(self.distinct.setdefault(p, len(self.distinct)))
                self.row_ptr.append(len(self.successors))
            self.state_ptr.append(len(self.action))


class _Payments:
    """Rewards of rows; a silent state in between pays what a successor pays above the least of its row."""

    def __init__(self, explorer: _Explorer, rewards: Mapping[str, Callable[..., float]]):
        self._rewards = {name: (function, _takes_successor(function)) for name, function in rewards.items()}
        self._row: dict[tuple[int, Hashable], list[float | Fraction]] = {}
        self._off = dict.fromkeys(rewards, 0.0)  # the largest rounding error of what a silent state pays
        self._explorer = explorer
        pays_between = any(isinstance(s, Paid) for s in explorer.order)
        if not rewards and not pays_between:
            return
        shown = [i for i, s in enumerate(explorer.order) if s is not START and not isinstance(s, Paid)]
        if not pays_between and not any(arrival for _, arrival in self._rewards.values()):
            self._pay_rows(shown)  # nothing depends on successors: half of the time of large models
            return
        between = {
            (index, action): self._pay(index, action, successors)
            for index in shown
            for action, successors in explorer.rows[index]
        }
        if not any(silent.extra for row in between.values() for silent in row.values()):
            return
        for index in shown:
            if self._rests(index):
                continue
            for action, successors in explorer.rows[index]:
                passed: dict[int, Polynomial] = {}
                for s, silent in between[index, action].items():
                    number = self._silent(silent)
                    passed[number] = passed.get(number, Polynomial({})) + successors[s]
                successors.clear()
                successors.update(passed)

    def _pay_rows(self, shown: list[int]) -> None:
        """Record the rewards of all rows, where none depends on the successor."""
        for index in shown:
            state = self._explorer.order[index]
            for action, _ in self._explorer.rows[index]:
                self._row[index, action] = [
                    reward_amount(name, function, state, action) for name, (function, _) in self._rewards.items()
                ]

    def _pay(self, index: int, action: Hashable, successors: dict[int, Polynomial]) -> dict[int, Paid]:
        """Record the least reward of each name; return successor -> the silent state that pays the rest."""
        state, order = self._explorer.order[index], self._explorer.order
        ends = {s: order[s] for s in successors}
        extras = {s: dict(end.extra) if isinstance(end, Paid) else {} for s, end in ends.items()}
        ends = {s: end.successor if isinstance(end, Paid) else end for s, end in ends.items()}
        least = self._row[index, action] = []
        for name, (function, arrival) in self._rewards.items():
            if not arrival:
                least.append(reward_amount(name, function, state, action))
                continue
            paid = {s: float(reward_amount(name, function, state, action, end)) for s, end in ends.items()}
            smallest = min(paid.values(), default=0.0)
            least.append(smallest)
            for s, amount in paid.items():
                extras[s][name], off = _sum(extras[s].get(name, 0.0), amount, -smallest)
                self._off[name] = max(self._off[name], off)
        amounts = {s: tuple((n, a) for n, a in sorted(extra.items()) if a) for s, extra in extras.items()}
        return {s: Paid(end, amounts[s]) for s, end in ends.items()}

    def _rests(self, index: int) -> bool:
        """Whether a state is never left and pays nothing."""
        return all(
            list(successors) == [index] and not any(self._row[index, action])
            for action, successors in self._explorer.rows[index]
        )

    def _silent(self, between: Paid) -> int:
        explorer = self._explorer
        if between not in explorer.number:
            explorer._add([between])
            explorer.rows.append([(_NO_ACTION, {explorer.number[between.successor]: Polynomial.constant(1)})])
        return explorer.number[between]

    def arrays(self, pieces: DescribedRows) -> dict[str, Reward]:
        """Rewards of all rows, silent ones included."""
        order = self._explorer.order
        found: list[list[float | Fraction]] = []
        for index, state in enumerate(order):
            for row in range(pieces.state_ptr[index], pieces.state_ptr[index + 1]):
                if isinstance(state, Paid):
                    found.append([dict(state.extra).get(name, 0.0) for name in self._rewards])
                else:
                    found.append(self._row.get((index, pieces.key[row]), [0.0] * len(self._rewards)))
        rewards = {}
        for k, name in enumerate(self._rewards):
            numbers, errors = nearest(values[k] for values in found)
            if self._off[name]:
                silent = np.repeat([isinstance(state, Paid) for state in order], np.diff(pieces.state_ptr))
                more = np.where(silent & (numbers != 0.0), self._off[name], 0.0)
                errors = more if errors is None else errors + more
            rewards[name] = Reward(np.zeros(len(order)), numbers, row_error=errors)
        return rewards


def _sum(*terms: float) -> tuple[float, float]:
    """(the nearest double of a sum, a bound on its error)."""
    if not all(map(math.isfinite, terms)):
        return sum(terms), 0.0  # refused where it is used
    exact = sum(map(Fraction, terms))
    off = abs(exact - Fraction(float(exact)))
    return float(exact), math.nextafter(float(off), math.inf) if off else 0.0


def _takes_successor(function: Callable[..., float]) -> bool:
    """Whether a reward is a function of (state, action, successor)."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return sum(p.default is p.empty for p in positional) == 3


def _sorted_if_possible(states: list) -> list:
    try:
        return sorted(states)
    except TypeError:
        return states  # states without an order keep the order of discovery


def _variables(order: list, names: Sequence[str] | None) -> dict[str, np.ndarray]:
    """Columns of the components; silent states have those of their successor, or 0 before the start."""
    if names is None:
        return {}
    shown: list[Any] = [s.successor if isinstance(s, Paid) else s for s in order]
    if any(s is not START and (not isinstance(s, tuple) or len(s) != len(names)) for s in shown):
        raise ModelError(f"states must be tuples of {len(names)} components to have the variables {tuple(names)}")
    first = next(s for s in shown if s is not START)
    return {n: np.array([(first if s is START else s)[i] for s in shown]) for i, n in enumerate(names)}
