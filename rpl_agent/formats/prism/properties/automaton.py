"""Linear-time formulas that are decided in finite time, as deterministic automata.

A formula is kept in negation normal form: atoms and their negations, and, or, X, U[i,j] and R[i,j] (F, G and W are
cases of these). Reading one letter *progresses* it: what has to hold from the next letter on is a positive combination
of formulas, kept as the antichain of its smallest sets of obligations. Positive combinations have exactly one such
antichain, so equal obligations are equal states and the automaton is finite and deterministic.

A formula without unbounded R is co-safe: a word satisfies it exactly if some prefix progresses it to true. The negation
of a formula without unbounded U is co-safe. Both questions become reachability of one automaton state in the product
with the model. Formulas that are neither (G F a) need acceptance conditions on infinite words and are refused.

Why not a library: the packages that translate all of LTL (Spot) are not on PyPI; this needs no dependency.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

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
    """State 0 has read nothing.

    step : (Q, letters) int32, the state after reading a letter.
    accepting : the state from which everything is accepted, or -1 if it is never reached.
    """

    step: np.ndarray
    accepting: int


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
