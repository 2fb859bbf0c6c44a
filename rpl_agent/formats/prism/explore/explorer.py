"""Reachable states and transitions of a resolved program.

The compiled explorer (explore.c) searches breadth-first; this file feeds it: it reserves memory, calls
the plain evaluator where needed, stops before memory runs out, and computes the transitions' polynomials afterwards,
in batches. States are numbered by breadth-first level, and by variables within a level.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rpl_agent.core.native import Struct, core, threads
from rpl_agent.formats.prism.explore.lower import Machine
from rpl_agent.formats.prism.explore.probability import Pool, probability_ids
from rpl_agent.formats.prism.language.grammar import NOWHERE, PrismError
from rpl_agent.formats.prism.language.scope import Program
from rpl_agent.formats.prism.language.typed import Node

#: peak bytes per state, choice or transition, including arrays of the finished model
BYTES_PER_STATE, BYTES_PER_CHOICE, BYTES_PER_TRANSITION = 120, 150, 130
#: states expanded between two checks of the clock
PAUSE = 1 << 17
#: the plain evaluator is called for all combinations at once up to this many
EAGER = 1 << 12
#: limits of what a thread finds before it is numbered: states, choices and transitions
BUFFER_STATES, BUFFER = 1 << 10, 1 << 14
DEADLOCK: int = core.DEADLOCK
#: arrays that grow, with the counter of each
FOUND = {
    "level": ("states", np.int32),
    "choice_state": ("choices", np.int32),
    "choice_combination": ("choices", np.int32),
    "choice_end": ("choices", np.int64),
    "successor": ("transitions", np.int32),
    "branch": ("transitions", np.int64),
}

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Graph:
    """The result of exploration; states are numbered, choices and transitions are not yet sorted or merged.

    The transitions of choice c are ``choice_ptr[c]:choice_ptr[c+1]``; ``branch`` has the update that a transition takes
    in each command of the combination (mixed radix, last command fastest).
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
        return np.repeat(np.arange(len(self.choice_state), dtype=np.int32), np.diff(self.choice_ptr))


def default_limit() -> int:
    """Bytes for reading a model: half of the free memory that this process may use."""
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
    """Bytes that this process may still allocate under `ulimit -v` and the control group."""
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
    except (OSError, ValueError):  # no control group, or one without a limit ("max")
        pass
    return left


class KeyTable:
    """Distinct rows of integers, numbered in order of arrival (`key_table` of core.h)."""

    def __init__(self, width: int, rows: np.ndarray | None = None):
        self.rows = np.zeros((0, width), dtype=np.int64) if rows is None else np.ascontiguousarray(rows)
        self._count = np.array([len(self.rows)], dtype=np.int64)
        self._index()

    def __len__(self) -> int:
        return int(self._count[0])

    def add(self, *row: int) -> int:
        self.reserve(1)
        return core.insert_row(self.struct, np.array(row, dtype=np.int64))

    def reserve(self, more: int) -> None:
        """Make room for this many more rows."""
        if len(self) + more > len(self.rows):
            self.rows = _longer(self.rows, len(self) + more)
            self._index()

    def _index(self) -> None:
        room, width = self.rows.shape
        table = np.full(1 << (2 * room + 1).bit_length(), -1, dtype=np.int32)  # at most half full
        self.struct = core.KeyTable(
            width=width, room=room, count=self._count, row=self.rows, slots=len(table), slot=table
        )
        core.rehash(self.struct)


def _longer(array: np.ndarray, size: int) -> np.ndarray:
    """A copy at least twice as long, with only the beginning filled."""
    copy = np.empty((max(2 * len(array), size), *array.shape[1:]), dtype=array.dtype)
    copy[: len(array)] = array
    return copy


class _StateSearch:
    """The arrays that the compiled explorer fills, and the handling of its stops."""

    def __init__(self, machine: Machine, initial: np.ndarray, max_states: int | None, progress: Progress | None):
        self.machine, self.progress = machine, progress
        self.max_states = max_states if max_states is not None else 2**31 - 2
        self.max_bytes = default_limit()
        self.states = KeyTable(machine.code.words, initial)
        self.combinations = KeyTable(machine.code.parts + 1)
        self.values, self.value = KeyTable(2), np.empty(0, dtype=np.int64)
        self.counts = np.zeros(3, dtype=np.int64)
        self.arrays = {name: np.zeros(0, dtype=kind) for name, (_, kind) in FOUND.items()}
        self._reserve(BUFFER)
        self.arrays["level"][: len(initial)] = 0
        self._allocate(BUFFER)

    def run(self) -> None:
        while True:
            status = core.explore(self.machine.code, self._store(), self.buffers, self.max_states, PAUSE)
            report = self.buffers.report[0].tolist()
            self._limits()
            if status == core.EXPLORE_DONE:
                return
            if status == core.EXPLORE_NEEDS_VALUE:
                self._answer(report[2], report[3])
            elif status == core.EXPLORE_OUTSIDE:
                raise self._outside(*report[2:])
            elif status == core.EXPLORE_FULL:
                self._reserve(report[1] * self.buffers.transitions)
            elif status == core.EXPLORE_SLAB_TOO_SMALL:
                self._allocate(2 * self.buffers.transitions)
            elif self.progress is not None:
                self.progress(int(self.counts[core.COUNT_NEXT]), len(self.states))

    @property
    def choices(self) -> int:
        return int(self.counts[core.COUNT_CHOICES])

    @property
    def transitions(self) -> int:
        return int(self.counts[core.COUNT_TRANSITIONS])

    def _store(self) -> Struct:
        return core.Store(
            states=self.states.struct,
            combinations=self.combinations.struct,
            values=self.values.struct,
            value=self.value,
            counts=self.counts,
            choice_room=len(self.arrays["choice_end"]),
            transition_room=len(self.arrays["branch"]),
            **self.arrays,
        )

    def _used(self, name: str) -> int:
        return {"states": len(self.states), "choices": self.choices, "transitions": self.transitions}[FOUND[name][0]]

    def found(self, name: str) -> np.ndarray:
        """The filled part of an array."""
        return self.arrays[name][: self._used(name)]

    def _reserve(self, more: int) -> None:
        """Reserve room for this many more states, combinations, choices and transitions."""
        self.states.reserve(more)
        self.combinations.reserve(more)
        for name, array in self.arrays.items():
            of_states = len(self.states.rows) if FOUND[name][0] == "states" else 0  # for every state there is room for
            needed = max(self._used(name) + more, of_states)
            if len(array) < needed:
                self.arrays[name] = _longer(array, needed)

    def _allocate(self, size: int) -> None:
        """Allocate the threads' output, with room for this many choices and transitions each."""
        code, chunks = self.machine.code, threads()

        def ints(*shape: int) -> np.ndarray:
            return np.empty((chunks, *shape), dtype=np.int64)

        self.buffers = core.Buffers(
            chunks=chunks,
            states=BUFFER_STATES,
            choices=size,
            transitions=size,
            scratch=ints(core.explore_scratch(code)),
            state_end=ints(BUFFER_STATES),
            choice=ints(size, code.parts + 3),
            transition=ints(size, code.words + 2),
            report=ints(5),
        )

    def _limits(self) -> None:
        if len(self.states) > self.max_states:
            raise PrismError(
                f"more than {self.max_states} states: raise max_states (--max-states), or make the ranges smaller",
                NOWHERE,
            )
        width, arrays = 8 * self.machine.codec.words, self.arrays
        needed = (BYTES_PER_STATE + width) * len(arrays["level"]) + BYTES_PER_CHOICE * len(arrays["choice_end"])
        needed += BYTES_PER_TRANSITION * len(arrays["branch"]) + 40 * self.combinations.rows.size
        if self.buffers.transitions > BUFFER:  # a single state has that many
            needed += self.buffers.choice.nbytes + self.buffers.transition.nbytes
        if needed > self.max_bytes:
            raise PrismError(
                f"the model does not fit in memory: {len(self.states)} states, {self.choices} choices and "
                f"{self.transitions} transitions after {int(self.counts[core.COUNT_NEXT])} states were expanded, and "
                f"{self.max_bytes >> 20} MiB available: make the ranges smaller",
                NOWHERE,
            )

    def _answer(self, number: int, key: int) -> None:
        """Evaluate a lookup for a key; if its variables have few combinations, for all that can be evaluated."""
        lookup = self.machine.lookups[number]
        values = {key: lookup.value(key)}
        if lookup.projection.size <= EAGER:
            for other in range(lookup.projection.size):
                try:
                    values[other] = lookup.value(other)
                except PrismError:  # a state that may never be reached
                    continue
        for place, value in values.items():
            at = self.values.add(number, place)
            if at >= len(self.value):
                self.value = _longer(self.value, at + 1)
            self.value[at] = value

    def _outside(self, command: int, assignment: int, new: int) -> PrismError:
        code, state = self.machine.code, self.states.rows[self.counts[core.COUNT_NEXT]]
        index = int(code.assign[assignment, 0])
        v, found = self.machine.program.variables[index], self.machine.commands[command]
        update = int(np.searchsorted(code.assign_ptr, assignment, side="right")) - 1 - int(code.update_ptr[command])
        node = next(node for i, node in found.updates[update].assignments if i == index)
        position = node.position if len(found.updates) == 1 else found.position
        return PrismError(
            f"'{v.name}' would become {new}, outside [{v.low}..{v.high}], in state {self.machine.codec.name(state)}",
            position,
        )


def explore(
    program: Program, initial: np.ndarray, max_states: int | None = None, progress: Progress | None = None
) -> tuple[Graph, Machine]:
    """Explore a program from its initial states, given as (n, V) values of the variables."""
    machine = Machine(program)
    search = _StateSearch(machine, machine.codec.encode(initial), max_states, progress)
    search.run()
    keys = search.states.rows[: len(search.states)]
    order = np.lexsort((*keys.T[::-1], search.found("level")))
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.arange(len(order))
    combinations = search.combinations.rows[: len(search.combinations)]
    graph = Graph(
        keys[order],
        np.sort(number[: len(initial)]),
        number[search.found("choice_state")],
        search.found("choice_combination").astype(np.int64),
        np.concatenate([[0], search.found("choice_end")]),
        number[search.found("successor")],
        search.found("branch").copy(),
        [tuple(c for c in row if c >= 0) for row in combinations[:, 1:].tolist()],
        combinations[:, 0].copy(),
    )
    return graph, machine


def expressions(graph: Graph, machine: Machine, pool: Pool, chances: list[list[Node | None]]) -> np.ndarray:
    """(T',) pool ids of the transitions: products of the probabilities of their updates, by command and update."""
    flat = [node for nodes in chances for node in nodes]
    factors = [tuple(c for c in members if not _is_one(chances[c])) for members in graph.combinations]
    depth = max(map(len, factors), default=0)
    result = np.ones(len(graph.successor), dtype=np.int32)
    if not depth:
        return result
    lengths = np.diff(graph.choice_ptr)
    combination = np.repeat(graph.choice_combination.astype(np.int32), lengths)
    state = np.repeat(graph.choice_state.astype(np.int32), lengths)
    first, width = _digits(graph, factors, chances, depth)
    offset = np.concatenate([[0], np.cumsum([len(nodes) for nodes in chances])])
    for k in range(depth):
        mine = np.flatnonzero(first[combination, k] >= 0)  # DEADLOCK is the last row, without factors
        at = combination[mine]
        stride = width[at, k]
        command = first[at, k]
        update = offset[command] + graph.branch[mine] // stride % np.diff(offset)[command]
        ids = _ids(flat, update, state[mine], graph, machine, pool)
        result[mine] = ids if k == 0 else pool.multiply(result[mine], ids)
    return result


def _is_one(chances: list[Node | None]) -> bool:
    return len(chances) == 1 and (chances[0] is None or (chances[0].is_literal and chances[0].value == 1))


def _digits(
    graph: Graph, factors: list[tuple[int, ...]], chances: list[list[Node | None]], depth: int
) -> tuple[np.ndarray, np.ndarray]:
    """Per combination (DEADLOCK last) and factor: its command (-1: none), and the stride of its digit in `branch`."""
    first = np.full((len(factors) + 1, depth), -1, dtype=np.int32)
    width = np.ones((len(factors) + 1, depth), dtype=np.int64)
    for i, members in enumerate(factors):
        stride = 1
        for k in range(len(members) - 1, -1, -1):  # commands left out have one update: no digit
            first[i, k], width[i, k] = members[k], stride
            stride *= len(chances[members[k]])
    return first, width


def _ids(
    nodes: list[Node | None], update: np.ndarray, state: np.ndarray, graph: Graph, machine: Machine, pool: Pool
) -> np.ndarray:
    """(n,) pool ids of the probabilities of updates in states: constants by table, others update by update."""
    variables, table = machine.codec.variables, np.full(len(nodes), -1, dtype=np.int32)
    nowhere = [np.zeros(1, dtype=np.int64) for _ in variables]
    for u in np.unique(update).tolist():
        node = nodes[u]
        if node is None or not node.support:
            table[u] = probability_ids(node, variables, pool, nowhere, 1)[0]
    ids = table[update]
    varying = np.flatnonzero(ids < 0)
    order = varying[np.argsort(update[varying], kind="stable")]
    numbers, starts = np.unique(update[order], return_index=True)
    for u, mine in zip(numbers.tolist(), np.split(order, starts[1:])):
        columns = machine.codec.columns(graph.keys[state[mine]])
        ids[mine] = probability_ids(nodes[u], variables, pool, columns, len(mine))
    return ids
