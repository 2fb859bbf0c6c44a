"""Breadth-first exploration of a compiled program, one state at a time, in compiled loops.

A state is W int64 words, in which each variable has some bits (`Code.var_word`, `Code.var_shift`). States found are
kept in a hash table. `explore` stops where it needs Python: an array is full, a value of the plain evaluator is
missing, an assignment leaves its range. The state at which it stopped is then taken back and expanded anew: stopping
costs time and nothing else.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rpl_agent.formats.prism.explore.operations import Op
from rpl_agent.jit import Ints, int64, njit

# Why `explore` came back.
DONE, PAUSED, FULL_STATES, FULL_CHOICES, FULL_TRANSITIONS, FULL_COMBINATIONS, NEEDS_VALUE, OUTSIDE = range(8)
# Places in `StateStore.counts`.
STATES, NEXT, CHOICES, TRANSITIONS, COMBINATIONS, MEMBERS, VALUES = range(7)
DEADLOCK = -1

_CONSTANT, _COLUMN, _LOOKUP, _ADD, _MULTIPLY = (
    int(Op.CONSTANT), int(Op.COLUMN), int(Op.LOOKUP), int(Op.ADD), int(Op.MULTIPLY)
)  # fmt: skip
_MINIMUM, _MAXIMUM, _FLOOR, _CEIL, _MOD = int(Op.MINIMUM), int(Op.MAXIMUM), int(Op.FLOOR), int(Op.CEIL), int(Op.MOD)
_POWER, _IF, _AND, _OR, _NOT = int(Op.POWER), int(Op.IF), int(Op.AND), int(Op.OR), int(Op.NOT)
_EQUAL, _NOT_EQUAL, _LESS = int(Op.EQUAL), int(Op.NOT_EQUAL), int(Op.LESS)


class Code(NamedTuple):
    """A program as arrays. V variables, C commands, U updates; ``x_ptr`` holds ranges of what x has."""

    var_word: np.ndarray  # (V,) which word of the key
    var_shift: np.ndarray  # (V,)
    var_mask: np.ndarray  # (V,)
    var_size: np.ndarray  # (V,)
    var_low: np.ndarray  # (V,)
    step: np.ndarray  # (K, 4) all tapes, one after the other
    tape_ptr: np.ndarray  # (C+2,) tape 0: the guards; tape c+1: the updates of command c
    guard: np.ndarray  # (C,) step of its guard
    update_ptr: np.ndarray  # (C+1,)
    chance_ptr: np.ndarray  # (U+1,)
    chance: np.ndarray  # steps whose values are all 0 where the update has probability 0
    assign_ptr: np.ndarray  # (U+1,)
    assign: np.ndarray  # (A, 2) variable, step of the new value
    action_ptr: np.ndarray  # (actions+1,) modules that take part in an action
    member_ptr: np.ndarray  # (.+1,) commands of such a module
    member: np.ndarray
    lookup_ptr: np.ndarray  # (L+1,)
    lookup: np.ndarray  # (., 2) variable, radix of the combination's number


class StateStore(NamedTuple):
    """What exploration has found."""

    counts: np.ndarray  # (7,) int64
    keys: np.ndarray  # (states, W)
    level: np.ndarray  # (states,) int32
    table: np.ndarray  # hash table of states, int32, -1 where free
    choice_state: np.ndarray  # (choices,) int32
    choice_combination: np.ndarray  # (choices,) int32
    choice_end: np.ndarray  # (choices,) int64: one past its last transition
    successor: np.ndarray  # (transitions,) int32
    branch: np.ndarray  # (transitions,) int64: which update of each command, mixed radix, last command fastest
    combination_ptr: np.ndarray  # (combinations+1,)
    combination_action: np.ndarray  # (combinations,)
    combined: np.ndarray  # commands taken together
    combination_table: np.ndarray  # hash table of combinations
    value_owner: np.ndarray  # (values,) lookup number of a value known from the plain evaluator
    value_key: np.ndarray
    value: np.ndarray
    value_table: np.ndarray


class ExploreScratch(NamedTuple):
    column: np.ndarray  # (V,)
    guards: np.ndarray  # steps of tape 0
    steps: np.ndarray  # steps of the longest other tape
    stamp: np.ndarray  # (C,) the state for which a command's updates were last computed
    possible: np.ndarray  # (U,) bool
    delta: np.ndarray  # (U, W)
    outside: np.ndarray  # (U,) assignment that leaves its range, or -1
    enabled: np.ndarray  # (C,) enabled commands of an action, by module
    enabled_ptr: np.ndarray
    pick: np.ndarray
    turn: np.ndarray
    target: np.ndarray  # (W,)
    report: np.ndarray  # (4,) what Python has to know: lookup and its key, or command and assignment


@njit(allocates=False)
def _hash(h: int, word: int) -> int:
    h = (h ^ word) * int64(-7046029254386353131)
    return h ^ (h >> int64(29))


@njit(allocates=False)
def find_state(target: Ints, keys: Ints, table: Ints) -> tuple[int, int]:
    """(place in the table, number of the state or -1)."""
    h = int64(1)
    for w in range(len(target)):
        h = _hash(h, target[w])
    mask = len(table) - 1
    place = h & mask
    while table[place] >= 0:
        at = table[place]
        same = True
        for w in range(len(target)):
            if keys[at, w] != target[w]:
                same = False
                break
        if same:
            return place, int64(at)
        place = (place + 1) & mask
    return place, int64(-1)


@njit(allocates=False)
def find_value(owner: int, key: int, store: StateStore) -> tuple[int, int]:
    mask = len(store.value_table) - 1
    place = _hash(_hash(int64(1), owner), key) & mask
    while store.value_table[place] >= 0:
        at = store.value_table[place]
        if store.value_owner[at] == owner and store.value_key[at] == key:
            return place, int64(at)
        place = (place + 1) & mask
    return place, int64(-1)


@njit(allocates=False, error_model="numpy")
def run_tape(tape: int, code: Code, store: StateStore, scratch: ExploreScratch, out: Ints) -> bool:
    """Run a tape on the state in scratch.column; False where a value of the plain evaluator is missing."""
    start, column, step = code.tape_ptr[tape], scratch.column, code.step
    for k in range(code.tape_ptr[tape + 1] - start):
        at = np.uint64(start + k)  # unsigned: no check for places counted from the end
        op, a, b, c = step[at, 0], np.uint64(step[at, 1]), np.uint64(step[at, 2]), np.uint64(step[at, 3])
        if op == _CONSTANT:
            out[k] = int64(a)
        elif op == _COLUMN:
            out[k] = column[a]
        elif op == _EQUAL:
            out[k] = out[a] == out[b]
        elif op == _AND:
            out[k] = (out[a] != 0) and (out[b] != 0)
        elif op == _ADD:
            out[k] = out[a] + out[b]
        elif op == _MULTIPLY:
            out[k] = out[a] * out[b]
        elif op == _LESS:
            out[k] = out[a] < out[b]
        elif op == _OR:
            out[k] = (out[a] != 0) or (out[b] != 0)
        elif op == _NOT:
            out[k] = out[a] == 0
        elif op == _NOT_EQUAL:
            out[k] = out[a] != out[b]
        elif op == _IF:
            out[k] = out[b] if out[a] != 0 else out[c]
        elif op == _MINIMUM:
            out[k] = min(out[a], out[b])
        elif op == _MAXIMUM:
            out[k] = max(out[a], out[b])
        elif op == _FLOOR:
            out[k] = out[a] // int64(b)
        elif op == _CEIL:
            out[k] = -((-out[a]) // int64(b))
        elif op == _MOD:
            out[k] = out[a] % out[b]
        elif op == _POWER:
            power = int64(1)
            for _ in range(out[b]):
                power *= out[a]
            out[k] = power
        elif op == _LOOKUP:
            key = int64(0)
            for i in range(code.lookup_ptr[a], code.lookup_ptr[a + 1]):
                v = code.lookup[i, 0]
                key += (column[v] - code.var_low[v]) * code.lookup[i, 1]
            _, known = find_value(int64(a), key, store)
            if known < 0:
                scratch.report[0], scratch.report[1] = int64(a), key
                return False
            out[k] = store.value[known]
        else:  # LESS_EQUAL
            out[k] = out[a] <= out[b]
    return True


@njit(allocates=False)
def _updates(command: int, code: Code, store: StateStore, scratch: ExploreScratch) -> bool:
    """Possibility, change of the key and range violations of every update of a command."""
    if not run_tape(command + 1, code, store, scratch, scratch.steps):
        return False
    for u in range(code.update_ptr[command], code.update_ptr[command + 1]):
        possible = code.chance_ptr[u] == code.chance_ptr[u + 1]
        for i in range(code.chance_ptr[u], code.chance_ptr[u + 1]):
            if scratch.steps[code.chance[i]] != 0:
                possible = True
        scratch.possible[u], scratch.outside[u] = possible, -1
        for w in range(scratch.delta.shape[1]):
            scratch.delta[u, w] = 0
        for i in range(code.assign_ptr[u], code.assign_ptr[u + 1]):
            v = code.assign[i, 0]
            new = scratch.steps[code.assign[i, 1]] - code.var_low[v]
            if new < 0 or new >= code.var_size[v]:
                if scratch.outside[u] < 0:
                    scratch.outside[u] = i
                continue
            scratch.delta[u, code.var_word[v]] += (new + code.var_low[v] - scratch.column[v]) << code.var_shift[v]
    return True


@njit(allocates=False)
def _combination(action: int, size: int, store: StateStore, scratch: ExploreScratch) -> int:
    """Number of the combination of commands in scratch.pick; -1 if there is no room for a new one."""
    h = _hash(int64(1), action)
    for k in range(size):
        h = _hash(h, scratch.pick[k])
    mask = len(store.combination_table) - 1
    place = h & mask
    while store.combination_table[place] >= 0:
        at = store.combination_table[place]
        start = store.combination_ptr[at]
        same = store.combination_action[at] == action and store.combination_ptr[at + 1] - start == size
        if same:
            for k in range(size):
                if store.combined[start + k] != scratch.pick[k]:
                    same = False
                    break
        if same:
            return int64(at)
        place = (place + 1) & mask
    new, start = store.counts[COMBINATIONS], store.counts[MEMBERS]
    full = start + size > len(store.combined) or 2 * (new + 2) > len(store.combination_table)
    if full or new + 1 >= len(store.combination_ptr):
        return int64(-1)
    store.combination_table[place] = new
    store.combination_action[new] = action
    for k in range(size):
        store.combined[start + k] = scratch.pick[k]
    store.combination_ptr[new + 1] = start + size
    store.counts[COMBINATIONS], store.counts[MEMBERS] = new + 1, start + size
    return new


@njit(allocates=False)
def _reach(state: int, code: Code, store: StateStore, scratch: ExploreScratch) -> int:
    """Number of the state in scratch.target, found or new; -1 if there is no room."""
    place, number = find_state(scratch.target, store.keys, store.table)
    if number >= 0:
        return number
    number = store.counts[STATES]
    if number >= len(store.keys) or 2 * number >= len(store.table):
        return int64(-1)
    for w in range(len(scratch.target)):
        store.keys[number, w] = scratch.target[w]
    store.level[number] = store.level[state] + 1
    store.table[place] = number
    store.counts[STATES] = number + 1
    return number


@njit(allocates=False)
def _outcomes(state: int, size: int, code: Code, store: StateStore, scratch: ExploreScratch) -> int:
    """All transitions of the combination in scratch.pick: every choice of one update per command."""
    for k in range(size):
        scratch.turn[k] = code.update_ptr[scratch.pick[k]]
    branch = int64(0)
    while True:
        possible = True
        for k in range(size):
            possible = possible and scratch.possible[scratch.turn[k]]
        if possible:
            for w in range(len(scratch.target)):
                scratch.target[w] = store.keys[state, w]
            for k in range(size):
                u = scratch.turn[k]
                if scratch.outside[u] >= 0:
                    scratch.report[0], scratch.report[1] = scratch.pick[k], scratch.outside[u]
                    return OUTSIDE
                for w in range(len(scratch.target)):
                    scratch.target[w] += scratch.delta[u, w]
            successor = _reach(state, code, store, scratch)
            if successor < 0:
                return FULL_STATES
            t = store.counts[TRANSITIONS]
            if t >= len(store.successor):
                return FULL_TRANSITIONS
            store.successor[t], store.branch[t] = successor, branch
            store.counts[TRANSITIONS] = t + 1
        branch += 1
        k = size - 1
        while k >= 0:
            scratch.turn[k] += 1
            if scratch.turn[k] < code.update_ptr[scratch.pick[k] + 1]:
                break
            scratch.turn[k] = code.update_ptr[scratch.pick[k]]
            k -= 1
        if k < 0:
            return DONE


@njit(allocates=False)
def _choice(state: int, combination: int, store: StateStore) -> bool:
    """Close a choice whose transitions have been written; False if there is no room."""
    number = store.counts[CHOICES]
    if number >= len(store.choice_state):
        return False
    store.choice_state[number], store.choice_combination[number] = state, combination
    store.choice_end[number] = store.counts[TRANSITIONS]
    store.counts[CHOICES] = number + 1
    return True


@njit(allocates=False)
def _gather(action: int, code: Code, scratch: ExploreScratch) -> int:
    """Enabled commands of an action by module; how many modules take part, 0 if one of them has none enabled."""
    size = int64(0)
    end = int64(0)
    scratch.enabled_ptr[0] = 0
    for module in range(code.action_ptr[action], code.action_ptr[action + 1]):
        for i in range(code.member_ptr[module], code.member_ptr[module + 1]):
            if scratch.guards[code.guard[code.member[i]]] != 0:
                scratch.enabled[end] = code.member[i]
                end += 1
        if end == scratch.enabled_ptr[size]:
            return int64(0)
        size += 1
        scratch.enabled_ptr[size] = end
    return size


@njit(allocates=False)
def _action(state: int, action: int, code: Code, store: StateStore, scratch: ExploreScratch) -> int:
    """All choices of an action: one enabled command of every module that takes part."""
    size = _gather(action, code, scratch)
    if size == 0:
        return DONE
    for i in range(scratch.enabled_ptr[size]):
        command = scratch.enabled[i]
        if scratch.stamp[command] != state:
            if not _updates(command, code, store, scratch):
                return NEEDS_VALUE
            scratch.stamp[command] = state
    for k in range(size):
        scratch.pick[k] = scratch.enabled[scratch.enabled_ptr[k]]
        scratch.turn[size + k] = scratch.enabled_ptr[k]
    while True:
        combination = _combination(action, size, store, scratch)
        if combination < 0:
            return FULL_COMBINATIONS
        status = _outcomes(state, size, code, store, scratch)
        if status != DONE:
            return status
        if not _choice(state, combination, store):
            return FULL_CHOICES
        k = size - 1
        while k >= 0:
            scratch.turn[size + k] += 1
            if scratch.turn[size + k] < scratch.enabled_ptr[k + 1]:
                scratch.pick[k] = scratch.enabled[scratch.turn[size + k]]
                break
            scratch.turn[size + k] = scratch.enabled_ptr[k]
            scratch.pick[k] = scratch.enabled[scratch.enabled_ptr[k]]
            k -= 1
        if k < 0:
            return DONE


@njit(allocates=False)
def _expand(state: int, code: Code, store: StateStore, scratch: ExploreScratch) -> int:
    for v in range(len(code.var_word)):
        digits = (store.keys[state, code.var_word[v]] >> code.var_shift[v]) & code.var_mask[v]
        scratch.column[v] = digits + code.var_low[v]
    if not run_tape(0, code, store, scratch, scratch.guards):
        return NEEDS_VALUE
    before = store.counts[CHOICES]
    for action in range(len(code.action_ptr) - 1):
        status = _action(state, action, code, store, scratch)
        if status != DONE:
            return status
    if store.counts[CHOICES] == before:
        t = store.counts[TRANSITIONS]
        if t >= len(store.successor):
            return FULL_TRANSITIONS
        store.successor[t], store.branch[t] = state, 0
        store.counts[TRANSITIONS] = t + 1
        if not _choice(state, DEADLOCK, store):
            return FULL_CHOICES
    return DONE


@njit(allocates=False)
def explore(code: Code, store: StateStore, scratch: ExploreScratch, max_states: int, pause: int) -> int:
    """Expand states until none is left, more than max_states are known, or `pause` of them were expanded."""
    stop = store.counts[NEXT] + pause
    while store.counts[NEXT] < store.counts[STATES]:
        if store.counts[NEXT] >= stop or store.counts[STATES] > max_states:
            return PAUSED
        state = store.counts[NEXT]
        choices, transitions = store.counts[CHOICES], store.counts[TRANSITIONS]
        scratch.report[2] = state
        status = _expand(state, code, store, scratch)
        if status != DONE:
            store.counts[CHOICES], store.counts[TRANSITIONS] = choices, transitions
            for command in range(len(scratch.stamp)):
                scratch.stamp[command] = -1
            return status
        store.counts[NEXT] = state + 1
    return DONE


@njit(allocates=False)
def rehash(keys: Ints, count: int, table: Ints) -> None:
    """Fill an empty hash table with the first `count` states."""
    for number in range(count):
        place, _ = find_state(keys[number], keys, table)
        table[place] = number


@njit(allocates=False)
def rehash_combinations(count: int, store: StateStore) -> None:
    """Fill an empty table of combinations."""
    mask = len(store.combination_table) - 1
    for number in range(count):
        h = _hash(int64(1), store.combination_action[number])
        for k in range(store.combination_ptr[number], store.combination_ptr[number + 1]):
            h = _hash(h, store.combined[k])
        place = h & mask
        while store.combination_table[place] >= 0:
            place = (place + 1) & mask
        store.combination_table[place] = number


@njit(allocates=False)
def remember(owner: int, key: int, value: int, store: StateStore) -> None:
    """Keep a value of the plain evaluator; the caller sees to it that there is room."""
    place, at = find_value(owner, key, store)
    if at < 0:
        at = store.counts[VALUES]
        store.counts[VALUES] = at + 1
        store.value_table[place] = at
    store.value_owner[at], store.value_key[at], store.value[at] = owner, key, value
