"""Lower a resolved program to the compiled explorer's arrays: state codes, bytecode of guards and updates, actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from rpl_agent.core.native import core
from rpl_agent.formats.prism.explore.code import LIMIT, Bytecode, NotVectorisable, Projection, column_of, exact_values
from rpl_agent.formats.prism.explore.probability import polynomial_terms
from rpl_agent.formats.prism.language.grammar import PrismError
from rpl_agent.formats.prism.language.scope import Command, Program, StateVariable, Update
from rpl_agent.formats.prism.language.typed import Node

#: a word of a key stays below this
WORD = LIMIT


class BitFields:
    """Encodes states as rows of W int64 words, in bit fields that preserve the order of the variables."""

    def __init__(self, variables: Sequence[StateVariable]):
        self.variables = variables
        self.word, self.shift = [0] * len(variables), [0] * len(variables)
        self.mask = [(1 << (v.size - 1).bit_length()) - 1 for v in variables]
        groups: list[list[int]] = [[]]
        size = 1
        for i, mask in enumerate(self.mask):
            if groups[-1] and size * (mask + 1) >= WORD:
                groups.append([])
                size = 1
            groups[-1].append(i)
            size *= mask + 1
        for word, group in enumerate(groups):
            shift = 0
            for i in reversed(group):
                self.word[i], self.shift[i] = word, shift
                shift += self.mask[i].bit_length()
        self.words = len(groups)

    def encode(self, states: np.ndarray) -> np.ndarray:
        """(n, W) keys of (n, V) values."""
        keys = np.zeros((len(states), self.words), dtype=np.int64)
        for v, word, shift in zip(self.variables, self.word, self.shift, strict=True):
            keys[:, word] += (states[:, v.index] - v.low) << shift
        return keys

    def columns(self, keys: np.ndarray) -> list[np.ndarray]:
        return [
            ((keys[:, word] >> shift) & mask) + v.low
            for v, word, shift, mask in zip(self.variables, self.word, self.shift, self.mask, strict=True)
        ]

    def name(self, key: np.ndarray) -> str:
        shown = []
        for v, column in zip(self.variables, self.columns(key[None, :]), strict=True):
            value = str(bool(column[0])).lower() if v.is_boolean else str(int(column[0]))
            shown.append(f"{v.name}={value}")
        return "(" + ", ".join(shown) + ")"


@dataclass(frozen=True)
class Lookup:
    """An expression for the plain evaluator; for a probability the answer is whether it is nonzero."""

    node: Node
    projection: Projection
    is_chance: bool

    def value(self, key: int) -> int:
        state = self.projection.columns(np.array([key]))
        value = exact_values(self.node, self.projection.variables, state, 1)[0]
        return int(value != 0) if self.is_chance else int(value)


class Machine:
    """The arrays, and their meaning.

    commands : all commands, module by module.
    actions : names in order of appearance; None for an unlabelled command, which is its own action.
    alphabet : per action one list of commands per participating module.
    """

    def __init__(self, program: Program):
        self.program = program
        self.codec = BitFields(program.variables)
        self.commands: list[Command] = [c for module in program.modules for c in module]
        self.actions, self.alphabet = _synchronise(program)
        self.lookups: list[Lookup] = []
        bytecodes = [Bytecode(program.variables)]
        guards = [self._step(c.guard, bytecodes[0]) for c in self.commands]
        chance: list[list[int]] = []
        assign: list[list[tuple[int, int]]] = []
        for command in self.commands:
            bytecode = Bytecode(program.variables)
            for update in command.updates:
                chance.append(self._chance(update, bytecode))
                assign.append([(index, self._step(value, bytecode)) for index, value in update.assignments])
            bytecodes.append(bytecode)
        modules = [group for groups in self.alphabet for group in groups]
        lookups = [list(zip(k.projection.indices, _radices(k.projection), strict=True)) for k in self.lookups]
        self.code = core.Program(
            variables=len(program.variables),
            words=self.codec.words,
            commands=len(self.commands),
            actions=len(self.actions),
            parts=max(map(len, self.alphabet), default=0),
            var_word=_ints(self.codec.word),
            var_shift=_ints(self.codec.shift),
            var_mask=_ints(self.codec.mask),
            var_size=_ints([v.size for v in program.variables]),
            var_low=_ints([v.low for v in program.variables]),
            step=_ints([s for t in bytecodes for s in t.steps]),
            code_ptr=_pointers([t.steps for t in bytecodes]),
            guard=_ints(guards),
            update_ptr=_pointers([c.updates for c in self.commands]),
            chance_ptr=_pointers(chance),
            chance=_ints([s for steps in chance for s in steps]),
            assign_ptr=_pointers(assign),
            assign=_ints([a for pairs in assign for a in pairs]).reshape(-1, 2),
            action_ptr=_pointers(self.alphabet),
            member_ptr=_pointers(modules),
            member=_ints([c for group in modules for c in group]),
            lookup_ptr=_pointers(lookups),
            lookup=_ints([p for pairs in lookups for p in pairs]),
        )

    def _step(self, node: Node, bytecode: Bytecode) -> int:
        try:
            return bytecode.value(node).slot
        except NotVectorisable:
            return self._lookup(node, bytecode, False)

    def _lookup(self, node: Node, bytecode: Bytecode, is_chance: bool) -> int:
        projection = Projection(node.support, self.program.variables)
        if projection.size >= LIMIT:
            raise PrismError("this expression needs exact arithmetic over too many variables", node.position)
        self.lookups.append(Lookup(node, projection, is_chance))
        return bytecode.emit(core.OP_LOOKUP, len(self.lookups) - 1)

    def _chance(self, update: Update, bytecode: Bytecode) -> list[int]:
        """Steps that are all zero iff the update's probability is zero; none if it never is."""
        node = update.probability if update.upper is None else update.upper
        if node is None or (node.is_literal and node.value != 0):
            return []
        try:
            terms = polynomial_terms(node, bytecode)
        except NotVectorisable:
            return [self._lookup(node, bytecode, True)]
        return [t.slot for t in terms.values()]


def _synchronise(program: Program) -> tuple[list[str | None], list[list[list[int]]]]:
    """Actions in order of appearance, each with one list of commands per participating module."""
    actions: list[str | None] = []
    groups: list[list[list[int]]] = []
    place: dict[str, int] = {}
    number = 0
    for module in program.modules:
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


def _radices(projection: Projection) -> list[int]:
    sizes = [projection.variables[i].size for i in projection.indices]
    return [prod(sizes[k + 1 :]) for k in range(len(sizes))]


def _ints(values: Sequence[int] | Sequence[tuple[int, ...]]) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def _pointers(groups: Sequence[Sequence]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum([len(g) for g in groups])]).astype(np.int64)


# -- initial states --------------------------------------------------------------------------------------------------
#: partial assignments in memory while searching for initial states
MAX_CANDIDATES = 1 << 23


def initial_states(program: Program) -> np.ndarray:
    """(n, V) values of the variables in the initial states, sorted.

    Variables get their values one after the other; each conjunct of the predicate is tested as soon as its variables
    have values, which avoids trying all combinations of many variables.
    """
    variables = program.variables
    if program.initial is None:
        return np.array([[v.initial for v in variables]], dtype=np.int64).reshape(1, -1)
    conjuncts = _conjuncts(program.initial)
    # most constrained first: variables of conjuncts with few variables
    weight = {v.index: min((len(c.support) for c in conjuncts if v.index in c.support), default=99) for v in variables}
    order = sorted((v.index for v in variables), key=lambda i: (weight[i], variables[i].size))
    found = np.array([[v.low for v in variables]], dtype=np.int64)
    known: set[int] = set()
    pending = list(conjuncts)
    for i in [-1, *order]:
        if i >= 0:
            known.add(i)
            if len(found) * variables[i].size > MAX_CANDIDATES:
                raise PrismError(
                    f"init … endinit leaves more than {MAX_CANDIDATES} combinations to try", program.initial.position
                )
            values = np.arange(variables[i].low, variables[i].high + 1)
            found = np.repeat(found, len(values), axis=0)
            found[:, i] = np.tile(values, len(found) // len(values))
        ready = [c for c in pending if c.support <= known]
        pending = [c for c in pending if not c.support <= known]
        for c in ready:
            found = found[column_of(c, variables, list(found.T), len(found))]
    if not len(found):
        raise PrismError("no state satisfies init … endinit", program.initial.position)
    return found[np.lexsort(found.T[::-1])] if len(variables) else found


def _conjuncts(node: Node) -> list[Node]:
    if node.operator == "&":
        return [c for a in node.arguments for c in _conjuncts(a)]
    return [node]
