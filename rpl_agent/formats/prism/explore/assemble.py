"""From an explored graph to a `ParametricMDP`: rows sorted, equal successors merged, labels and rewards evaluated.

Rewards of states and rows are numbers; those that contain a parameter are functions of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from rpl_agent.core.model import Domain, ParametricMDP, Reward
from rpl_agent.core.model.pmdp import nearest
from rpl_agent.core.model.polynomial import Number
from rpl_agent.formats.prism.explore.code import column_of
from rpl_agent.formats.prism.explore.explorer import DEADLOCK, Graph
from rpl_agent.formats.prism.explore.lower import Machine
from rpl_agent.formats.prism.explore.probability import (
    IntervalBounds,
    Pool,
    attainable_ends,
    probability_ids,
    skeleton,
)
from rpl_agent.formats.prism.language.grammar import Position, PrismError
from rpl_agent.formats.prism.language.scope import Program, RewardItem


@dataclass
class RewardTable:
    """Evaluates reward structures over states and rows (in a DTMC a row has the mean over its choices)."""

    program: Program
    columns: list[np.ndarray]  # (S,) for each variable
    states: int  # S
    choice_state: np.ndarray  # (C,) the state of each choice, sorted
    label_index: np.ndarray  # (C,) into ``labels``, or beyond them for an added self-loop, which earns nothing
    labels: list[str | None]
    row_of_sorted: np.ndarray  # (C,) the row of each choice
    rows: np.ndarray  # (R,) the rows in their final order

    def polynomials(self, items: tuple[RewardItem, ...], pool: Pool) -> tuple[np.ndarray, np.ndarray]:
        """(S,), (R,) pool ids of a reward structure."""
        state, choice = np.zeros(self.states, dtype=np.int32), np.zeros(len(self.choice_state), dtype=np.int32)
        for item in items:
            total, of = (choice, self.choice_state) if item.on_transition else (state, np.arange(self.states))
            holds = column_of(item.guard, self.program.variables, self.columns, self.states)[of]
            if item.on_transition:
                mine = [i for i, label in enumerate(self.labels) if label == item.action]
                holds = holds & np.isin(self.label_index, mine)
            at = np.flatnonzero(holds)
            here = [c[of[at]] for c in self.columns]
            total[at] = pool.add(total[at], probability_ids(item.value, self.program.variables, pool, here, len(at)))
        order = np.argsort(self.row_of_sorted, kind="stable")
        sizes = np.bincount(self.row_of_sorted, minlength=len(self.rows))
        per_row = pool.sums(choice[order], np.cumsum(sizes) - sizes)
        several = np.flatnonzero(sizes > 1)
        if len(several):  # a DTMC: the mean over its choices
            per_row[several] = pool.scale(per_row[several], sizes[several])
        return state, per_row[self.rows]

    def at(self, items: tuple[RewardItem, ...], theta: np.ndarray) -> Reward:
        """The numbers of a reward structure at values of the program's parameters."""
        pool = Pool()
        return rewards_at(pool, *self.polynomials(items, pool), self.program.parameters, theta)


def rewards_at(pool: Pool, states: np.ndarray, rows: np.ndarray, names: Sequence[str], theta: np.ndarray) -> Reward:
    """The numbers of rewards with these pool ids (S,), (R,) at values of the named parameters."""
    point: dict[str, Number] = dict(zip(names, np.asarray(theta, dtype=float).tolist(), strict=True))
    distinct, of = np.unique(np.concatenate([states, rows]), return_inverse=True)
    try:
        numbers, errors = nearest(pool[i].at(point) for i in distinct)
    except OverflowError:
        raise PrismError("a reward is too large for a floating-point number") from None
    first, second = of[: len(states)], of[len(states) :]
    if errors is None:
        return Reward(numbers[first], numbers[second])
    return Reward(numbers[first], numbers[second], errors[first], errors[second])


DEADLOCK_ACTION = "deadlock"


@dataclass(frozen=True)
class Assembled:
    """The model and what the reader needs besides."""

    model: ParametricMDP
    program: Program  # with the parameters of the model
    row_combination: np.ndarray  # (R,) combination of commands that gave each row (DEADLOCK for added self-loops)
    bounds: IntervalBounds | None  # of an interval model
    parametric_rewards: dict[str, Callable[[np.ndarray], Reward]]  # as in `PrismModel`


def assemble(
    program: Program, graph: Graph, machine: Machine, pool: Pool, ends: list[np.ndarray], domain: Domain, name: str
) -> Assembled:
    """Assemble a model; `ends` are the pool ids of the transitions, or of both ends of their intervals."""
    states = len(graph.keys)
    if program.kind == "dtmc":
        ends = [_uniform(graph, graph.transition_choice, ids, states, pool) for ids in ends]
    rows = _sorted_rows(program, graph, machine)
    row = rows.of_choice[graph.transition_choice]
    row, successor, ends, merged = _merge(row, graph.successor, ends, states, pool)
    columns = machine.codec.columns(graph.keys)
    label_index = _actions_of(graph, machine)[rows.sorted_combination]
    earned = (rows.sorted_state, label_index, machine.actions, rows.of_sorted, rows.order)
    rewards, later = _rewards(program, RewardTable(program, columns, states, *earned))
    bounds = None
    if len(ends) == 2:
        low, high = attainable_ends(pool, row, *ends)
        table, domain, expression, bounds = skeleton(pool, low, high, merged, program.parameters, domain)
    else:
        table, expression = pool.table(program.parameters, ends[0])
    variables = {
        v.name: column.astype(np.int32) if max(abs(v.low), abs(v.high)) < 2**31 else column
        for v, column in zip(program.variables, columns, strict=True)
    }
    model = ParametricMDP(
        np.searchsorted(rows.state, np.arange(states + 1)),
        rows.action,
        np.searchsorted(row, np.arange(len(rows.order) + 1)),
        successor,
        expression,
        table,
        domain,
        int(graph.initial[0]),
        _labels(program, graph, columns),
        rewards,
        tuple(rows.action_names),
        variables,
        name,
    )
    return Assembled(model, program, rows.combination, bounds, later)


@dataclass(frozen=True)
class _SortedRows:
    """The rows of a model, by state and action, and which of the C choices each has: one, in a DTMC all of a state."""

    state: np.ndarray  # (R,)
    action: np.ndarray  # (R,) into ``action_names``
    action_names: list[str]
    combination: np.ndarray  # (R,) of commands
    order: np.ndarray  # (R,) the rows by their number among the sorted choices
    of_choice: np.ndarray  # (C,) int32, the row of each choice
    sorted_state: np.ndarray  # (C,) of the choices, sorted by state, action and combination
    sorted_combination: np.ndarray  # (C,)
    of_sorted: np.ndarray  # (C,) the row of each, before rows are sorted by their final action names


def _sorted_rows(program: Program, graph: Graph, machine: Machine) -> _SortedRows:
    is_chain = program.kind == "dtmc"
    names = ["step"] if is_chain else _actions(program, machine)
    action = np.zeros(len(graph.choice_state), dtype=np.int64)
    if not is_chain:
        action = _actions_of(graph, machine)[graph.choice_combination]
    order = np.lexsort((graph.choice_combination, action, graph.choice_state))
    choice_state, action, combination = graph.choice_state[order], action[order], graph.choice_combination[order]
    if is_chain:
        first = np.concatenate([[True], np.diff(choice_state) != 0])
        row_of_sorted = np.cumsum(first) - 1
        row_state, row_action, row_combination = choice_state[first], action[first], combination[first]
    else:
        row_of_sorted = np.arange(len(order))
        row_state, row_combination = choice_state, combination
        row_action, names = _distinguish(choice_state, action, names)
    row_of_choice = np.empty(len(order), dtype=np.int64)
    row_of_choice[order] = row_of_sorted
    used = np.unique(row_action)
    if len(used) < len(names):  # actions that no reachable state enables
        row_action = np.searchsorted(used, row_action)
        names = [names[i] for i in used]
    # Rows of one state are sorted by action; new names of duplicates come last, so sort once more.
    rows = np.lexsort((row_action, row_state))
    place = np.empty(len(rows), dtype=np.int64)
    place[rows] = np.arange(len(rows))
    return _SortedRows(
        row_state[rows],
        row_action[rows],
        names,
        row_combination[rows],
        rows,
        place[row_of_choice].astype(np.int32),
        choice_state,
        combination,
        row_of_sorted,
    )


def _actions_of(graph: Graph, machine: Machine) -> np.ndarray:
    """The action of each combination of commands; DEADLOCK = −1 reads the last entry, which is beyond all actions."""
    return np.array([*graph.combination_action.tolist(), len(machine.actions)])


def _rewards(
    program: Program, reward_table: RewardTable
) -> tuple[dict[str, Reward], dict[str, Callable[[np.ndarray], Reward]]]:
    """(reward structures without parameters, the others as functions of the parameters)."""
    numbers: dict[str, Reward] = {}
    functions: dict[str, Callable[[np.ndarray], Reward]] = {}
    anywhere = np.zeros(len(program.parameters))
    for key, items in program.rewards.items():
        if any(item.value.parametric for item in items):
            functions[key] = partial(reward_table.at, items)
        else:
            numbers[key] = reward_table.at(items, anywhere)
    return numbers, functions


def _labels(program: Program, graph: Graph, columns: list[np.ndarray]) -> dict[str, np.ndarray]:
    states = len(graph.keys)
    labels = {key: column_of(node, program.variables, columns, states) for key, node in program.labels.items()}
    labels["init"] = np.isin(np.arange(states), graph.initial)
    labels["deadlock"] = np.zeros(states, dtype=bool)
    labels["deadlock"][graph.choice_state[graph.choice_combination == DEADLOCK]] = True
    return labels


def _actions(program: Program, machine: Machine) -> list[str]:
    """Names of the actions (unlabelled commands are called module.number), the added self-loop last."""
    commands = [c for module in program.modules for c in module]
    taken = {c.action for c in commands}
    names: list[str] = []
    for label, group in zip(machine.actions, machine.alphabet, strict=True):
        if label is None:
            command = commands[group[0][0]]
            label = f"{command.module}.{command.number}"
        names.append(label)
    deadlock = DEADLOCK_ACTION
    while deadlock in taken:
        deadlock += "_"
    return [*names, deadlock]


def _uniform(
    graph: Graph, transition_choice: np.ndarray, expression: np.ndarray, states: int, pool: Pool
) -> np.ndarray:
    """A DTMC takes one of the enabled commands at random: divide by their number."""
    number = np.bincount(graph.choice_state, minlength=states)[graph.choice_state[transition_choice]]
    several = np.flatnonzero(number > 1)
    if len(several):
        expression = expression.copy()
        expression[several] = pool.scale(expression[several], number[several])
    return expression


def _distinguish(state: np.ndarray, action: np.ndarray, names: list[str]) -> tuple[np.ndarray, list[str]]:
    """Name several choices of one state under one action a, a#2, a#3 …, so that an agent can pick each."""
    same = np.concatenate([[False], (np.diff(state) == 0) & (np.diff(action) == 0)])
    if not same.any():
        return action, names
    starts = np.flatnonzero(~same)
    rank = np.arange(len(state)) - np.repeat(starts, np.diff(np.concatenate([starts, [len(state)]])))
    names, action = list(names), action.copy()
    for pair in np.unique(np.column_stack([action, rank])[rank > 0], axis=0):
        action[(action == pair[0]) & (rank == pair[1])] = len(names)
        names.append(f"{names[pair[0]]}#{pair[1] + 1}")
    return action, names


def _merge(
    row: np.ndarray, successor: np.ndarray, ends: list[np.ndarray], states: int, pool: Pool
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray], np.ndarray]:
    """One transition per (row, successor): add the polynomials of equal ones, drop those that cancel to zero.

    The last result (T,) says which are sums of several.
    """
    key = row.astype(np.int64)  # in place: this is when most memory is in use
    key *= states
    key += successor
    order = np.argsort(key, kind="stable")
    key = key[order]
    same = np.concatenate([[False], key[1:] == key[:-1]])
    del key
    row, successor, ends = row[order], successor.astype(np.int32)[order], [ids[order] for ids in ends]
    merged = np.zeros(len(row), dtype=bool)
    if same.any():
        starts = np.flatnonzero(~same)
        merged = np.append(same[1:], False)[starts]
        row, successor, ends = row[starts], successor[starts], [pool.sums(ids, starts) for ids in ends]
        keep = ends[-1] != 0
        if not keep.all():
            row, successor, ends, merged = row[keep], successor[keep], [ids[keep] for ids in ends], merged[keep]
    return row, successor, ends, merged


def row_position(row: int, row_combination: np.ndarray, graph: Graph, machine: Machine) -> Position | None:
    """The position of a row's command in the file."""
    combination = int(row_combination[row])
    return None if combination == DEADLOCK else machine.commands[graph.combinations[combination][0]].position
