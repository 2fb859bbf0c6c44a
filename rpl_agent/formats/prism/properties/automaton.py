"""Linear-time formulas that are decided in finite time, as deterministic automata, and their products with models.

A formula is kept in negation normal form: atoms and their negations, and, or, X, U[i,j] and R[i,j] (F, G and W are
special cases). Reading one letter *progresses* it: what has to hold from the next letter on is a positive combination
of formulas, kept as the antichain of its smallest sets of obligations. That antichain is unique,
so equal obligations are equal states and the automaton is finite and deterministic.

A formula without unbounded R is co-safe: a word satisfies it exactly if some prefix progresses it to true. The negation
of a formula without unbounded U is co-safe. Both become reachability of one automaton state in the product
with the model. Formulas that are neither (G F a) need acceptance conditions on infinite words and are refused.

Why not a library: the packages that translate all of LTL (Spot) are not on PyPI; this needs no dependency.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rpl_agent.core.errors import ModelError
from rpl_agent.core.model import ParametricMDP, gather, reached

# ("ap", i), ("not", i), ("and", …), ("or", …), ("X", f), ("U", f, g, low, high), ("R", f, g, low, high);
# high None means unbounded
Formula = tuple
Clauses = frozenset[frozenset[Formula]]  # sets of obligations, any of which suffices

TRUE: Clauses = frozenset([frozenset()])
FALSE: Clauses = frozenset()
MAX_STATES = 20_000
MAX_CLAUSES = 512


class TooLarge(Exception):
    """The automaton has too many states."""


def negated(f: Formula) -> Formula:
    """The negation, in negation normal form."""
    kind = f[0]
    if kind in ("ap", "not"):
        return ("not" if kind == "ap" else "ap", f[1])
    if kind in ("and", "or"):
        return ("or" if kind == "and" else "and", *map(negated, f[1:]))
    if kind == "X":
        return ("X", negated(f[1]))
    return ("R" if kind == "U" else "U", negated(f[1]), negated(f[2]), f[3], f[4])


def is_cosafe(f: Formula) -> bool:
    """Whether every word that satisfies it has a prefix that already decides so."""
    if f[0] in ("ap", "not"):
        return True
    if f[0] == "R" and f[4] is None:
        return False
    return all(is_cosafe(g) for g in f[1:] if isinstance(g, tuple))


def _either(a: Clauses, b: Clauses) -> Clauses:
    return _smallest(a | b)


def _both(a: Clauses, b: Clauses) -> Clauses:
    return _smallest(frozenset(x | y for x in a for y in b))


def _smallest(clauses: frozenset[frozenset[Formula]]) -> Clauses:
    """Only the sets that contain no other one."""
    if frozenset() in clauses:
        return TRUE
    if len(clauses) > MAX_CLAUSES:
        raise TooLarge
    return frozenset(c for c in clauses if not any(d < c for d in clauses))


def _progress(f: Formula, letter: Sequence[bool]) -> Clauses:
    """What has to hold from the next letter on if f holds from this one."""
    kind = f[0]
    if kind in ("ap", "not"):
        return TRUE if bool(letter[f[1]]) == (kind == "ap") else FALSE
    if kind in ("and", "or"):
        result = TRUE if kind == "and" else FALSE
        for g in f[1:]:
            result = (_both if kind == "and" else _either)(result, _progress(g, letter))
        return result
    if kind == "X":
        return frozenset([frozenset([f[1]])])
    _, left, right, low, high = f
    # U: right now, or left now and the rest later; before `low` steps right does not count. R is its dual.
    first, second = (_either, _both) if kind == "U" else (_both, _either)
    if high is not None and high < low:
        return FALSE if kind == "U" else TRUE
    if low > 0:
        later = (kind, left, right, low - 1, None if high is None else high - 1)
        return second(_progress(left, letter), frozenset([frozenset([later])]))
    now = _progress(right, letter)
    if high == 0:
        return now
    later = (kind, left, right, 0, None if high is None else high - 1)
    return first(now, second(_progress(left, letter), frozenset([frozenset([later])])))


@dataclass(frozen=True)
class Automaton:
    """A deterministic automaton; state 0 is the initial one."""

    step: np.ndarray  # (Q, letters) int32, the state after reading a letter
    accepting: int  # the state from which everything is accepted, or -1 if it is never reached


def build(f: Formula, letters: Sequence[Sequence[bool]]) -> Automaton:
    """The automaton of a co-safe formula over the letters (valuations of its atoms) that occur."""
    start: Clauses = frozenset([frozenset([f])])
    number: dict[Clauses, int] = {start: 0}
    order, rows = [start], []
    memo: dict[tuple[Formula, int], Clauses] = {}

    def obligation(g: Formula, k: int) -> Clauses:
        if (g, k) not in memo:
            memo[g, k] = _progress(g, letters[k])
        return memo[g, k]

    at = 0
    while at < len(order):
        rows.append([_number(_read(order[at], k, obligation), number, order) for k in range(len(letters))])
        if len(order) > MAX_STATES:
            raise TooLarge
        at += 1
    return Automaton(np.array(rows, dtype=np.int32).reshape(len(order), len(letters)), number.get(TRUE, -1))


def _read(state: Clauses, k: int, obligation: Callable[[Formula, int], Clauses]) -> Clauses:
    result = FALSE
    for clause in state:
        all_of = TRUE
        for g in clause:
            all_of = _both(all_of, obligation(g, k))
        result = _either(result, all_of)
    return result


def _number(state: Clauses, number: dict[Clauses, int], order: list[Clauses]) -> int:
    if state not in number:
        number[state] = len(order)
        order.append(state)
    return number[state]


MAX_TRANSITIONS = 2**31 - 2


def product(
    pmdp: ParametricMDP, automaton: Automaton, letter: np.ndarray, starts: np.ndarray, label: str
) -> tuple[ParametricMDP, np.ndarray]:
    """The part of the product that is reachable from the start states, and where these are in it.

    letter : (S,) what the automaton reads on entering a state (start states included).
    starts : states of the model; the first one is the product's initial state.
    label : name of the new label that holds where the automaton accepts.
    """
    number = len(automaton.step)
    if pmdp.num_states * number > MAX_TRANSITIONS or pmdp.num_transitions * number > MAX_TRANSITIONS:
        raise ModelError(f"the product of {pmdp.num_states} states with an automaton of {number} is too large")
    pairs = _reachable(pmdp, automaton, letter, starts)
    state, memory = np.divmod(pairs, number)
    place = np.full(pmdp.num_states * number, -1, dtype=np.int64)
    place[pairs] = np.arange(len(pairs))
    rows, state_ptr = gather(pmdp.state_ptr, state)
    row_memory = np.repeat(memory, np.diff(state_ptr))
    transitions, row_ptr = gather(pmdp.row_ptr, rows)
    lengths = np.diff(row_ptr)
    target = pmdp.successor[transitions].astype(np.int64)
    successor = place[target * number + automaton.step[np.repeat(row_memory, lengths), letter[target]]]
    labels = {name: mask[state] for name, mask in pmdp.labels.items()}
    begin = place[starts * number + automaton.step[0, letter[starts]]]
    labels["init"] = np.isin(np.arange(len(pairs)), begin)
    labels[label] = memory == automaton.accepting
    row_of = np.repeat(np.arange(len(rows)), lengths)
    order = np.lexsort((successor, row_of))
    made = ParametricMDP(
        state_ptr,
        pmdp.action[rows],
        row_ptr,
        successor[order],
        pmdp.expression[transitions][order],
        pmdp.table,
        pmdp.domain,
        int(begin[0]),
        labels,
        {name: r.taken(state, rows) for name, r in pmdp.rewards.items()},
        pmdp.action_names,
        {**{name: values[state] for name, values in pmdp.variables.items()}, "automaton": memory},
        pmdp.name,
    )
    return made, begin


def _reachable(pmdp: ParametricMDP, automaton: Automaton, letter: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Numbers (state * Q + memory) of the reachable pairs, sorted."""
    number = len(automaton.step)
    source, target = pmdp.row_state[pmdp.transition_row].astype(np.int64), pmdp.successor.astype(np.int64)
    before = np.tile(np.arange(number), (len(source), 1))
    tails = (source[:, None] * number + before).ravel()
    heads = (target[:, None] * number + automaton.step[before, letter[target][:, None]]).ravel()
    begin = starts * number + automaton.step[0, letter[starts]]
    return np.flatnonzero(reached(tails, heads, begin, pmdp.num_states * number))
