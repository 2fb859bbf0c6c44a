"""Reachable states and transitions of a resolved program, many states at a time.

A state is one int64 key, the mixed-radix number of its variables. `Stepper.expand` computes all choices and
transitions of a block of states with one numpy call per operation of the file. Two strategies share it:

- small state spaces (all combinations of the variables fit in `PRODUCT_LIMIT`): expand every combination in a few
  blocks, then keep what is reachable; a model with thousands of thin breadth-first levels costs no more than a wide
  one;
- otherwise breadth-first, level by level.

Both number the states alike: by breadth-first level, and by variables within a level.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product as cartesian

import numpy as np

from rpl_agent.formats.prism.errors import NOWHERE, Position, PrismError
from rpl_agent.formats.prism.probability import Pool, Source
from rpl_agent.formats.prism.scope import Command, Program, StateVariable
from rpl_agent.formats.prism.vector import Batch

PRODUCT_LIMIT = 1 << 20
DENSE_VISITED = 1 << 28
BLOCK = 1 << 16
DEADLOCK = -1


class Codec:
    """States as int64 keys and back."""

    def __init__(self, variables: Sequence[StateVariable]):
        self.variables = variables
        self.radix = [1] * len(variables)
        for i in range(len(variables) - 2, -1, -1):
            self.radix[i] = self.radix[i + 1] * variables[i + 1].size
        self.initial = sum((v.initial - v.low) * r for v, r in zip(variables, self.radix, strict=True))

    def columns(self, keys: np.ndarray) -> list[np.ndarray]:
        return [(keys // r) % v.size + v.low for v, r in zip(self.variables, self.radix, strict=True)]

    def name(self, key: int) -> str:
        shown = []
        for v, column in zip(self.variables, self.columns(np.array([key])), strict=True):
            shown.append(
                f"{v.name}={bool(column[0]) if v.is_boolean else int(column[0])}".replace("True", "true").replace(
                    "False", "false"
                )
            )
        return "(" + ", ".join(shown) + ")"


@dataclass
class Expansion:
    """Choices and transitions of a block of states (arrays of equal length per group)."""

    choice_state: list[np.ndarray] = field(default_factory=list)  # index into the block
    choice_combination: list[np.ndarray] = field(default_factory=list)
    transition_choice: list[np.ndarray] = field(default_factory=list)
    target: list[np.ndarray] = field(default_factory=list)
    factors: list[tuple[np.ndarray, ...]] = field(default_factory=list)
    choices: int = 0


@dataclass(frozen=True)
class Graph:
    """What exploration found; states are numbered, choices and transitions are not yet sorted or merged."""

    keys: np.ndarray  # (S,) in the final numbering
    choice_state: np.ndarray  # (C,) int64
    choice_combination: np.ndarray  # (C,) int32, DEADLOCK for an added self-loop
    transition_choice: np.ndarray  # (T',) int64
    successor: np.ndarray  # (T',) int64
    expression: np.ndarray  # (T',) int32 ids into the pool


class _Compiled:
    """A command with its updates compiled."""

    def __init__(self, command: Command, codec: Codec, pool: Pool):
        self.command = command
        self.codec = codec
        self.sources = [Source(u.probability, codec.variables, pool) for u in command.updates]
        self.batch = Batch([value for u in command.updates for _, value in u.assignments], codec.variables)

    @property
    def vectorised(self) -> bool:
        return self.batch.vectorised and all(s.vectorised for s in self.sources)

    def outcomes(self, columns: list[np.ndarray], n: int) -> Iterator[tuple[np.ndarray, np.ndarray, list]]:
        """Per update: pool ids (n,), change of the key (n,), and violations [(mask, variable index, values)]."""
        values = iter(zip(self.batch(columns, n), self.batch.values, strict=True))
        for update, source in zip(self.command.updates, self.sources, strict=True):
            delta, violations = np.zeros(n, dtype=np.int64), []
            for index, _ in update.assignments:
                v, (new, bounds) = self.codec.variables[index], next(values)
                new = new.astype(np.int64)
                if bounds is None or bounds.low < v.low or bounds.high > v.high:
                    outside = (new < v.low) | (new > v.high)
                    if outside.any():
                        violations.append((outside, index, new))
                        new = np.where(outside, columns[index], new)
                delta += (new - columns[index]) * self.codec.radix[index]
            yield source.ids(columns, n), delta, violations


class Stepper:
    """All transitions of blocks of states."""

    def __init__(self, program: Program, pool: Pool):
        self.program = program
        self.pool = pool
        self.codec = Codec(program.variables)
        self.commands = [_Compiled(c, self.codec, pool) for module in program.modules for c in module]
        self.guards = Batch([c.command.guard for c in self.commands], program.variables)
        self.actions, self._alphabet = self._synchronise()
        self.combinations: list[tuple[int, ...]] = []  # command numbers taken together
        self.combination_action: list[int] = []
        self._combination_index: dict[tuple[int, ...], int] = {}
        self.violations: list[tuple[np.ndarray, PrismError]] = []

    @property
    def vectorised(self) -> bool:
        return self.guards.vectorised and all(c.vectorised for c in self.commands)

    def _synchronise(self) -> tuple[list[str | None], list[list[list[int]]]]:
        """Actions in order of appearance, each with one list of commands per module that takes part."""
        actions: list[str | None] = []
        groups: list[list[list[int]]] = []
        place: dict[str, int] = {}
        number = 0
        for module in self.program.modules:
            seen: dict[str, list[int]] = {}
            for command in module:
                if command.action is None:
                    actions.append(None)
                    groups.append([[number]])
                elif command.action in seen:
                    seen[command.action].append(number)
                else:
                    seen[command.action] = [number]
                    if command.action not in place:
                        place[command.action] = len(actions)
                        actions.append(command.action)
                        groups.append([])
                    groups[place[command.action]].append(seen[command.action])
                number += 1
        return actions, groups

    def expand(self, keys: np.ndarray) -> Expansion:
        columns = self.codec.columns(keys)
        n = len(keys)
        guards = self.guards(columns, n)
        found = Expansion()
        enabled = np.zeros(n, dtype=bool)
        for action, group in enumerate(self._alphabet):
            for combination, mask in self._combinations(group, guards, 0, (), None):
                enabled |= mask
                self._choose(action, combination, np.flatnonzero(mask), keys, columns, found)
        stuck = np.flatnonzero(~enabled)
        if len(stuck):
            found.choice_state.append(stuck)
            found.choice_combination.append(np.full(len(stuck), DEADLOCK, dtype=np.int32))
            found.transition_choice.append(found.choices + np.arange(len(stuck)))
            found.target.append(keys[stuck])
            found.factors.append((np.ones(len(stuck), dtype=np.int32),))
            found.choices += len(stuck)
        return found

    def _combinations(self, group, guards, depth, chosen, mask) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
        """One command per module, all guards true somewhere: depth-first, cut where no state is left."""
        for number in group[depth]:
            both = guards[number] if mask is None else mask & guards[number]
            if not both.any():
                continue
            if depth + 1 == len(group):
                yield (*chosen, number), both
            else:
                yield from self._combinations(group, guards, depth + 1, (*chosen, number), both)

    def _choose(
        self, action: int, combination: tuple[int, ...], rows: np.ndarray, keys, columns, found: Expansion
    ) -> None:
        if combination not in self._combination_index:
            self._combination_index[combination] = len(self.combinations)
            self.combinations.append(combination)
            self.combination_action.append(action)
        n = len(rows)
        here = [c[rows] for c in columns]
        choice = found.choices + np.arange(n)
        found.choice_state.append(rows)
        found.choice_combination.append(np.full(n, self._combination_index[combination], dtype=np.int32))
        found.choices += n
        source = keys[rows]
        parts = [list(self.commands[number].outcomes(here, n)) for number in combination]
        for outcome in cartesian(*parts):
            possible = outcome[0][0] != 0
            for ids, _, _ in outcome[1:]:
                possible = possible & (ids != 0)
            target = source.copy()
            for _, delta, _ in outcome:
                target += delta
            if any(violations for _, _, violations in outcome):
                possible = self._violated(combination, outcome, possible, source)
            keep = slice(None) if possible.all() else possible
            found.transition_choice.append(choice[keep])
            found.target.append(target[keep])
            found.factors.append(tuple(ids[keep] for ids, _, _ in outcome))

    def _violated(self, combination, outcome, possible: np.ndarray, source: np.ndarray) -> np.ndarray:
        """Note states where an assignment leaves its range: an error if they are reachable."""
        for number, (_, _, violations) in zip(combination, outcome, strict=True):
            for outside, index, new in violations:
                bad = np.flatnonzero(outside & possible)
                if len(bad):
                    v = self.program.variables[index]
                    command = self.commands[number].command
                    position = next(
                        node.position for u in command.updates for i, node in u.assignments if i == index
                    ) if len(command.updates) == 1 else command.position  # fmt: skip
                    reason = (
                        f"'{v.name}' would become {int(new[bad[0]])}, outside [{v.low}..{v.high}], "
                        f"in state {self.codec.name(int(source[bad[0]]))}"
                    )
                    self.violations.append((source[bad], PrismError(reason, position)))
                    possible = possible & ~outside
        return possible


def explore(program: Program, pool: Pool, max_states: int) -> tuple[Graph, Stepper]:
    """The reachable part of a program."""
    stepper = Stepper(program, pool)
    if program.size <= PRODUCT_LIMIT and stepper.vectorised:
        return _explore_product(stepper, program.size, max_states), stepper
    return _explore_levels(stepper, program.size, max_states), stepper


def _too_many(max_states: int) -> PrismError:
    return PrismError(f"more than {max_states} states: raise max_states, or make the ranges smaller", NOWHERE)


class _Collected:
    """Blocks put together: (offset of the block's states, expansion) each."""

    def __init__(self, parts: list[tuple[int, Expansion]]):
        choice_state, combination, transition_choice, target = [], [], [], []
        self._groups: dict[int, list[tuple[tuple[np.ndarray, ...], int]]] = {}  # by number of factors
        self._total = start = 0
        for offset, e in parts:
            choice_state += [s + offset for s in e.choice_state]
            combination += e.choice_combination
            transition_choice += [c + start for c in e.transition_choice]
            target += e.target
            start += e.choices
            for factors in e.factors:
                self._groups.setdefault(len(factors), []).append((factors, self._total))
                self._total += len(factors[0])
        self.choice_state = _joined(choice_state, np.int64)
        self.combination = _joined(combination, np.int32)
        self.transition_choice = _joined(transition_choice, np.int64)
        self.target = _joined(target, np.int64)

    def expressions(self, pool: Pool, live: np.ndarray | None = None) -> np.ndarray:
        """Pool ids of the (live) transitions: products of synchronised probabilities, once per distinct pair."""
        expression = np.zeros(self._total, dtype=np.int32)
        for group in self._groups.values():
            places = np.concatenate([np.arange(at, at + len(factors[0])) for factors, at in group])
            keep = slice(None) if live is None else live[places]
            ids = np.concatenate([factors[0] for factors, _ in group])[keep]
            for k in range(1, len(group[0][0])):
                ids = pool.multiply(ids, np.concatenate([factors[k] for factors, _ in group])[keep])
            expression[places[keep]] = ids
        return expression if live is None else expression[live]


def _joined(arrays: list[np.ndarray], kind) -> np.ndarray:
    return np.concatenate(arrays).astype(kind, copy=False) if arrays else np.zeros(0, dtype=kind)


def _explore_levels(stepper: Stepper, size: int, max_states: int) -> Graph:
    """Breadth-first."""
    visited = _Visited(size)
    frontier = np.array([stepper.codec.initial], dtype=np.int64)
    visited.add(frontier)
    levels, parts, count = [frontier], [], 0
    while len(frontier):
        targets = []
        for at in range(0, len(frontier), BLOCK):
            block = frontier[at : at + BLOCK]
            expansion = stepper.expand(block)
            if stepper.violations:
                raise stepper.violations[0][1]
            parts.append((count, expansion))
            targets += expansion.target
            count += len(block)
        new = np.unique(np.concatenate(targets)) if targets else np.zeros(0, dtype=np.int64)
        frontier = new[~visited.contains(new)]
        visited.add(frontier)
        if count + len(frontier) > max_states:
            raise _too_many(max_states)
        levels.append(frontier)
    keys = np.concatenate(levels)
    found = _Collected(parts)
    successor = _index_of(keys, found.target)
    return Graph(
        keys, found.choice_state, found.combination, found.transition_choice, successor, found.expressions(stepper.pool)
    )


def _explore_product(stepper: Stepper, size: int, max_states: int) -> Graph:
    """Every combination of the variables in blocks, then the reachable ones."""
    parts = []
    for start in range(0, size, BLOCK):
        block = np.arange(start, min(start + BLOCK, size), dtype=np.int64)
        parts.append((start, stepper.expand(block)))
    found = _Collected(parts)
    choice_state, choice, target = found.choice_state, found.transition_choice, found.target
    source = choice_state[choice]
    order = np.argsort(source, kind="stable")
    sorted_target = target[order]
    pointer = np.searchsorted(source[order], np.arange(size + 1))
    number = np.full(size, -1, dtype=np.int64)
    frontier = np.array([stepper.codec.initial])
    number[frontier] = 0
    levels, count = [frontier], 1
    while len(frontier):
        lengths = pointer[frontier + 1] - pointer[frontier]
        offsets = np.repeat(pointer[frontier] - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths)
        reached = sorted_target[offsets + np.arange(lengths.sum())]
        frontier = np.unique(reached[number[reached] < 0])
        number[frontier] = count + np.arange(len(frontier))
        count += len(frontier)
        levels.append(frontier)
    if count > max_states:
        raise _too_many(max_states)
    for sources, error in stepper.violations:
        if (number[sources] >= 0).any():
            # the message names the first state of the block: name a reachable one
            state = stepper.codec.name(int(sources[np.argmax(number[sources] >= 0)]))
            raise PrismError(
                error.reason.split(", in state")[0] + f", in state {state}", Position(error.line, error.column)
            )
    kept = number[choice_state] >= 0
    renumber = np.cumsum(kept) - 1
    live = kept[choice]
    return Graph(
        np.concatenate(levels), number[choice_state[kept]], found.combination[kept], renumber[choice[live]],
        number[target[live]], found.expressions(stepper.pool, live),
    )  # fmt: skip


def _index_of(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    order = np.argsort(keys)
    return order[np.searchsorted(keys[order], wanted)]


class _Visited:
    """A set of keys: a bitmap while it is small, else a sorted array."""

    def __init__(self, size: int):
        self.dense = np.zeros(size, dtype=bool) if size <= DENSE_VISITED else None
        self.keys = np.zeros(0, dtype=np.int64)

    def contains(self, keys: np.ndarray) -> np.ndarray:
        if self.dense is not None:
            return self.dense[keys]
        if not len(self.keys):
            return np.zeros(len(keys), dtype=bool)
        where = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return self.keys[where] == keys

    def add(self, keys: np.ndarray) -> None:
        if self.dense is not None:
            self.dense[keys] = True
        else:
            self.keys = np.insert(self.keys, np.searchsorted(self.keys, keys), keys)
