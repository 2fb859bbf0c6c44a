"""Reachable states and transitions of a resolved program.

The compiled explorer (`_explore_kernels`) walks breadth-first; this file feeds it: it makes room, answers what needs
the plain evaluator, ends what would not fit in memory, and gives the transitions their polynomials afterwards, many at
a time. States are numbered by breadth-first level, and by variables within a level.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from rpl_agent.formats.prism.explore import _explore_kernels as kernels
from rpl_agent.formats.prism.explore._explore_kernels import DEADLOCK, ExploreScratch, StateStore
from rpl_agent.formats.prism.explore.lower import Machine
from rpl_agent.formats.prism.explore.probability import Pool, ProbabilityColumn
from rpl_agent.formats.prism.language.errors import NOWHERE, PrismError
from rpl_agent.formats.prism.language.scope import Program
from rpl_agent.formats.prism.language.typed import Node
from rpl_agent.model.polynomial import Polynomial

#: bytes that one state, choice or transition needs at the peak of reading, arrays of the finished model included
BYTES_PER_STATE, BYTES_PER_CHOICE, BYTES_PER_TRANSITION = 120, 150, 130
#: states expanded between two looks at the clock
PAUSE = 1 << 17
#: answers of the plain evaluator are asked for all at once up to so many combinations of variables
EAGER = 1 << 12

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Graph:
    """What exploration found; states are numbered, choices and transitions are not yet sorted or merged.

    The transitions of choice c are ``choice_ptr[c]:choice_ptr[c+1]``; ``branch`` says which update of each command of
    the combination a transition takes (mixed radix, last command fastest).
    """

    keys: np.ndarray  # (S, W) in the final numbering
    initial: np.ndarray  # numbers of the initial states
    choice_state: np.ndarray  # (C,) int64
    choice_combination: np.ndarray  # (C,) int64, DEADLOCK for an added self-loop
    choice_ptr: np.ndarray  # (C+1,) int64
    successor: np.ndarray  # (T',) int64
    branch: np.ndarray  # (T',) int64
    combinations: list[tuple[int, ...]]  # commands taken together
    combination_action: np.ndarray

    @property
    def transition_choice(self) -> np.ndarray:
        return np.repeat(np.arange(len(self.choice_state)), np.diff(self.choice_ptr))


def default_limit() -> int:
    """Bytes that reading a model may take: half of what the machine has free and this process may use."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            free = next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        try:
            free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (OSError, ValueError):
            free = 8 << 30
    return max(0, min(free, _allowed())) // 2


def _allowed() -> int:
    """Bytes that this process may still ask for: what `ulimit -v` and the control group leave."""
    left = sys.maxsize
    try:
        import resource

        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        if most != resource.RLIM_INFINITY:
            with open("/proc/self/statm", encoding="ascii") as file:
                left = most - int(file.read().split()[0]) * resource.getpagesize()
    except (ImportError, OSError):  # not a Unix, or no /proc
        pass
    try:
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as bound:
            with open("/sys/fs/cgroup/memory.current", encoding="ascii") as used:
                left = min(left, int(bound.read()) - int(used.read()))
    except (OSError, ValueError):  # no control group, or one without a bound ("max")
        pass
    return left


class _StateSearch:
    """The store that the kernels fill, and what happens where they stop."""

    def __init__(self, machine: Machine, initial: np.ndarray, max_states: int | None, progress: Progress | None):
        self.machine, self.progress = machine, progress
        self.max_states = max_states if max_states is not None else 2**31 - 2
        self.max_bytes = default_limit()
        words, combinations = machine.codec.words, max(1 << 10, len(machine.commands))
        room = max(1 << 10, len(initial))

        def ints(n: int, kind: type = np.int64) -> np.ndarray:
            return np.empty(n, dtype=kind)

        self.store = StateStore(
            np.zeros(7, dtype=np.int64), np.empty((room, words), dtype=np.int64), ints(room, np.int32), _table(room),
            ints(room, np.int32), ints(room, np.int32), ints(room), ints(room, np.int32), ints(room),
            np.zeros(combinations + 1, dtype=np.int64), ints(combinations), ints(4 * combinations),
            _table(combinations), ints(16), ints(16), ints(16), _table(16),
        )  # fmt: skip
        self.scratch = _scratch(machine)
        self.store.keys[: len(initial)] = initial
        self.store.level[: len(initial)] = 0
        self.store.counts[kernels.STATES] = len(initial)
        kernels.rehash(self.store.keys, len(initial), self.store.table)

    def run(self) -> StateStore:
        counts = self.store.counts
        while True:
            status = kernels.explore(self.machine.code, self.store, self.scratch, self.max_states, PAUSE)
            counts = self.store.counts
            self._limits(counts)
            if status == kernels.DONE:
                return self.store
            if status == kernels.NEEDS_VALUE:
                self._answer(int(self.scratch.report[0]), int(self.scratch.report[1]))
            elif status == kernels.OUTSIDE:
                raise self._outside()
            elif status == kernels.PAUSED:
                if self.progress is not None:
                    self.progress(int(counts[kernels.NEXT]), int(counts[kernels.STATES]))
            else:
                self._grow(status)

    def _limits(self, count: np.ndarray) -> None:
        states, choices, transitions = (int(count[i]) for i in (kernels.STATES, kernels.CHOICES, kernels.TRANSITIONS))
        if states > self.max_states:
            raise PrismError(
                f"more than {self.max_states} states: raise max_states (--max-states), or make the ranges smaller",
                NOWHERE,
            )
        width = 8 * self.machine.codec.words
        needed = (BYTES_PER_STATE + width) * len(self.store.keys) + BYTES_PER_CHOICE * len(self.store.choice_state)
        needed += BYTES_PER_TRANSITION * len(self.store.successor) + 40 * len(self.store.combined)
        if needed > self.max_bytes:
            raise PrismError(
                f"the model does not fit in memory: {states} states, {choices} choices and {transitions} transitions "
                f"after {int(count[kernels.NEXT])} states were expanded, and {self.max_bytes >> 20} MiB to use: make "
                "the ranges smaller",
                NOWHERE,
            )

    def _grow(self, status: int) -> None:
        store = self.store
        if status == kernels.FULL_STATES:
            keys = _longer(store.keys)
            table = _table(len(keys))
            kernels.rehash(keys, store.counts[kernels.STATES], table)
            self.store = store._replace(keys=keys, level=_longer(store.level), table=table)
        elif status == kernels.FULL_CHOICES:
            names = ("choice_state", "choice_combination", "choice_end")
            self.store = store._replace(**{name: _longer(getattr(store, name)) for name in names})
        elif status == kernels.FULL_TRANSITIONS:
            self.store = store._replace(successor=_longer(store.successor), branch=_longer(store.branch))
        else:
            names = ("combination_ptr", "combination_action", "combined")
            longer = {name: _longer(getattr(store, name)) for name in names}
            table = _table(len(longer["combination_ptr"]))
            self.store = store._replace(**longer, combination_table=table)
            kernels.rehash_combinations(store.counts[kernels.COMBINATIONS], self.store)

    def _answer(self, number: int, key: int) -> None:
        """Ask the plain evaluator, for all combinations of the variables if they are few and it has all answers."""
        lookup = self.machine.lookups[number]
        values = {key: lookup.value(key)}
        if lookup.projection.size <= EAGER:
            for other in range(lookup.projection.size):
                try:
                    values[other] = lookup.value(other)
                except PrismError:  # a state that may never be reached
                    continue
        for place, value in values.items():
            if self.store.counts[kernels.VALUES] + 1 >= len(self.store.value):
                self._more_values()
            kernels.remember(number, place, value, self.store)

    def _more_values(self) -> None:
        old, count = self.store, int(self.store.counts[kernels.VALUES])
        names = ("value_owner", "value_key", "value")
        longer = {name: _longer(getattr(old, name)) for name in names}
        self.store = old._replace(**longer, value_table=_table(len(longer["value"])))
        self.store.counts[kernels.VALUES] = 0
        for i in range(count):
            kernels.remember(old.value_owner[i], old.value_key[i], old.value[i], self.store)

    def _outside(self) -> PrismError:
        command, assignment, state = (int(self.scratch.report[i]) for i in range(3))
        index = int(self.machine.code.assign[assignment, 0])
        v, found = self.machine.program.variables[index], self.machine.commands[command]
        update = int(np.searchsorted(self.machine.code.assign_ptr, assignment, side="right")) - 1
        update -= int(self.machine.code.update_ptr[command])
        node = next(node for i, node in found.updates[update].assignments if i == index)
        new = int(self.scratch.steps[self.machine.code.assign[assignment, 1]])
        position = node.position if len(found.updates) == 1 else found.position
        return PrismError(
            f"'{v.name}' would become {new}, outside [{v.low}..{v.high}], in state "
            f"{self.machine.codec.name(self.store.keys[state])}",
            position,
        )


def _table(size: int) -> np.ndarray:
    """An empty hash table for so many entries, at most half full."""
    return np.full(1 << max(5, int(2 * size + 1).bit_length()), -1, dtype=np.int32)


def _longer(array: np.ndarray) -> np.ndarray:
    longer = np.empty((2 * len(array), *array.shape[1:]), dtype=array.dtype)
    longer[: len(array)] = array
    return longer


def _scratch(machine: Machine) -> ExploreScratch:
    code = machine.code
    commands, updates, words = len(code.guard), len(code.chance_ptr) - 1, machine.codec.words
    tapes = np.diff(code.tape_ptr)
    modules = int(np.diff(code.action_ptr).max(initial=0))

    def ints(n: int) -> np.ndarray:
        return np.zeros(n, dtype=np.int64)

    return ExploreScratch(
        ints(len(code.var_word)), ints(int(tapes[0])), ints(int(tapes[1:].max(initial=0))), np.full(commands, -1),
        np.zeros(updates, dtype=bool), np.zeros((updates, words), dtype=np.int64), ints(updates), ints(commands),
        ints(modules + 1), ints(modules), ints(2 * modules), ints(words), ints(4),
    )  # fmt: skip


def explore(
    program: Program, initial: np.ndarray, max_states: int | None = None, progress: Progress | None = None
) -> tuple[Graph, Machine]:
    """The part of a program that can be reached from the initial states, (n, V) values of the variables."""
    machine = Machine(program)
    store = _StateSearch(machine, machine.codec.encode(initial), max_states, progress).run()
    states, choices, transitions = (
        int(store.counts[i]) for i in (kernels.STATES, kernels.CHOICES, kernels.TRANSITIONS)
    )
    keys, level = store.keys[:states], store.level[:states]
    order = np.lexsort((*keys.T[::-1], level))
    number = np.empty(states, dtype=np.int64)
    number[order] = np.arange(states)
    count, flat = int(store.counts[kernels.COMBINATIONS]), store.combined.tolist()
    ends = store.combination_ptr[: count + 1].tolist()
    graph = Graph(
        keys[order], np.sort(number[: len(initial)]), number[store.choice_state[:choices]],
        store.choice_combination[:choices].astype(np.int64),
        np.concatenate([[0], store.choice_end[:choices]]).astype(np.int64), number[store.successor[:transitions]],
        store.branch[:transitions].copy(), [tuple(flat[a:b]) for a, b in pairwise(ends)],
        store.combination_action[:count].copy(),
    )  # fmt: skip
    return graph, machine


def expressions(graph: Graph, machine: Machine, pool: Pool, chances: list[list[Node | None]]) -> np.ndarray:
    """(T',) pool ids of the transitions: products of the probabilities of their updates, by command and update."""
    flat = _sources([node for nodes in chances for node in nodes], machine, pool)
    factors = [tuple(c for c in members if not _is_one(chances[c])) for members in graph.combinations]
    depth = max(map(len, factors), default=0)
    result = np.ones(len(graph.successor), dtype=np.int32)
    if not depth:
        return result
    combination = np.repeat(graph.choice_combination, np.diff(graph.choice_ptr))
    state = np.repeat(graph.choice_state, np.diff(graph.choice_ptr))
    first, width = _digits(graph, factors, chances, depth)
    offset = np.concatenate([[0], np.cumsum([len(nodes) for nodes in chances])])
    for k in range(depth):
        mine = np.flatnonzero(first[combination, k] >= 0)  # DEADLOCK is the last row, without factors
        at = combination[mine]
        stride = width[at, k]
        command = first[at, k]
        update = offset[command] + graph.branch[mine] // stride % np.diff(offset)[command]
        ids = _ids(flat, update, state[mine], graph.keys, machine)
        result[mine] = ids if k == 0 else pool.multiply(result[mine], ids)
    return result


def _is_one(chances: list[Node | None]) -> bool:
    return len(chances) == 1 and (chances[0] is None or (chances[0].is_literal and chances[0].value == 1))


def _digits(
    graph: Graph, factors: list[tuple[int, ...]], chances: list[list[Node | None]], depth: int
) -> tuple[np.ndarray, np.ndarray]:
    """Per combination (DEADLOCK last) and factor: its command (-1: none), and the stride of its digit in `branch`."""
    first = np.full((len(factors) + 1, depth), -1, dtype=np.int64)
    width = np.ones((len(factors) + 1, depth), dtype=np.int64)
    for i, members in enumerate(factors):
        stride = 1
        for k in range(len(members) - 1, -1, -1):  # commands left out have one update: no digit
            first[i, k], width[i, k] = members[k], stride
            stride *= len(chances[members[k]])
    return first, width


def _sources(nodes: list[Node | None], machine: Machine, pool: Pool) -> list[ProbabilityColumn | int]:
    """Where the pool ids of probabilities come from; of a number it is known, and all numbers are interned at once."""
    literals = {node.value: Polynomial.constant(node.value) for node in nodes if node is not None and node.is_literal}
    known = dict(zip(literals, pool.intern_all(list(literals.values())).tolist())) if literals else {}
    return [
        known[node.value] if node is not None and node.is_literal
        else ProbabilityColumn(node, machine.codec.variables, pool)
        for node in nodes
    ]  # fmt: skip


def _ids(
    sources: list[ProbabilityColumn | int], update: np.ndarray, state: np.ndarray, keys: np.ndarray, machine: Machine
) -> np.ndarray:
    """(n,) pool ids of the probabilities of updates in states: constants by table, others by their source."""
    used = np.unique(update)
    table = np.full(len(sources), -1, dtype=np.int32)
    no_columns = [np.zeros(1, dtype=np.int64) for _ in machine.codec.variables]
    varying = []
    for u in used.tolist():
        source = sources[u]
        if isinstance(source, int):
            table[u] = source
        elif source.projection.indices:
            varying.append((u, source))
        else:
            table[u] = source.ids(no_columns, 1)[0]
    ids = table[update]
    if varying:
        order = np.argsort(update, kind="stable")
        numbers = [u for u, _ in varying]
        low = np.searchsorted(update[order], numbers)
        high = np.searchsorted(update[order], numbers, side="right")
        for (_, source), a, b in zip(varying, low.tolist(), high.tolist(), strict=True):
            mine = order[a:b]
            ids[mine] = source.ids(machine.codec.columns(keys[state[mine]]), len(mine))
    return ids


__all__ = ["DEADLOCK", "Graph", "Machine", "Progress", "default_limit", "explore", "expressions"]
