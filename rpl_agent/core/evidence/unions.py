"""Unions: events that a row observes as several of its outcomes together.

Example. A die decides where a step leads: ahead with probability a, left with b, right with 1 − a − b. At a wall, ahead
and left lead to the same place, so the row there has an outcome of probability a + b. The interval of this event uses
visits at walls. It uses visits in the open as well: there, "a + b" happened if the step led ahead or left.

A row carries f if f or 1 − f is the expression of one of its transitions, or the sum of several with the same
expression. It then observes f by these transitions alone. Any other row observes f as follows:

1. Take all its transitions with parts of f: with expressions all of whose terms, coefficients included, are terms of f.
   If they add up to f, then f happened whenever one of them came.
2. Otherwise, take all its transitions with parts of 1 − f. If they add up to 1 − f, then f happened whenever none of
   them came.

The model alone decides which rows observe an event: if the data did, intervals would not be valid.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy

from rpl_agent.core.model import ExpressionTable, ParametricMDP

#: Models with more expressions hardly share any, and are not searched.
MOST_SHARED = 1_000

#: A polynomial: numerators by monomial.
Terms = dict[int, int]
#: An event and whether it happened; with False, its complement.
Sought = tuple[int, bool]


class Union(NamedTuple):
    """Outcomes of a row that together are an event, or its complement (``happened`` is False)."""

    event: int
    places: list[int]  # of the transitions in their row
    happened: bool


class AlikeRows(NamedTuple):
    """Rows with the same expressions, so with the same unions."""

    rows: list[int]
    unions: list[Union]


class UnionTable:
    """All unions of a model, ready to pool counts.

    Every place of every kind of rows has a slot: rows of a kind add up their counts there first.

    slot : (T,) of each transition; 0 if its row has no union
    """

    def __init__(self, pmdp: ParametricMDP, kinds: list[AlikeRows], events: int):
        self.slot = np.zeros(pmdp.num_transitions, dtype=np.int32)
        self.slots = 1
        entries = list[tuple[np.ndarray, ...]]()  # by union: event, slots, and whether a visit there is a success
        for rows, unions in kinds:
            first = pmdp.row_ptr[rows]
            length = int(pmdp.row_ptr[rows[0] + 1] - first[0])
            self.slot[first[:, None] + np.arange(length)] = self.slots + np.arange(length)
            for event, places, happened in unions:
                success = np.full(length, int(not happened))
                success[places] = int(happened)
                entries.append((np.full(length, event), self.slots + np.arange(length), success))
            self.slots += length
        event_of, slot, success = (np.concatenate(column) for column in zip(*entries))
        shape = (events, self.slots)
        self._trials = scipy.sparse.csr_array((np.ones_like(event_of), (event_of, slot)), shape=shape)
        self._successes = scipy.sparse.csr_array((success, (event_of, slot)), shape=shape)

    def pool(self, transitions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Successes and trials (E,) from counts (T,)."""
        seen = np.zeros(self.slots, dtype=np.int64)
        np.add.at(seen, self.slot, transitions)
        return self._successes @ seen, self._trials @ seen


def find_unions(pmdp: ParametricMDP, events: list[Terms], carried: np.ndarray) -> UnionTable | None:
    """The unions of a model; None if there are none.

    events : their polynomials. carried : (T,) the event that each transition carries, or whose complement; −1 for none.
    """
    search = _UnionSearch(pmdp.table, events)
    if not search.part_of:
        return None
    rows_of: dict[bytes, list[int]] = {}
    starts = pmdp.row_ptr.tolist()
    for row, (begin, end) in enumerate(pairwise(starts)):
        rows_of.setdefault(pmdp.expression[begin:end].tobytes(), []).append(row)
    kinds = []
    for rows in rows_of.values():
        own = slice(starts[rows[0]], starts[rows[0] + 1])
        unions = list(search.unions(pmdp.expression[own].tolist(), set(carried[own].tolist())))
        if unions:
            kinds.append(AlikeRows(rows, unions))
    return UnionTable(pmdp, kinds, len(events)) if kinds else None


class _UnionSearch:
    """Finds the unions of a row from its expressions.

    part_of : by expression, the events and complements that it is a part of
    """

    def __init__(self, table: ExpressionTable, events: list[Terms]):
        self.terms = [terms_of(table, f) for f in range(len(table.indptr) - 1)]
        # at the point of ones, where most sums can be told from what is sought without adding polynomials
        self.at_ones = [sum(terms.values()) for terms in self.terms]
        self.sought: dict[Sought, Terms] = {}
        self.sought_at_ones: dict[Sought, int] = {}
        self.part_of: dict[int, list[Sought]] = {}
        by_term = _by_rarest_term(self.terms)
        for event, terms in enumerate(events):
            for happened in (True, False):
                whole = terms if happened else complement(terms, table.denominators[0])
                near = [f for term in whole.items() for f in by_term.get(term, ())]
                parts = [f for f in near if self.terms[f].items() <= whole.items()]
                if len(parts) > 1:  # one part alone is the whole, which a row carries, or less
                    self.sought[event, happened] = whole
                    self.sought_at_ones[event, happened] = sum(whole.values())
                    for f in parts:
                        self.part_of.setdefault(f, []).append((event, happened))

    def unions(self, expressions: list[int], carried: set[int]) -> Iterator[Union]:
        """The unions of a row with these expressions; none for events that it carries."""
        places: dict[Sought, list[int]] = {}
        for k, f in enumerate(expressions):
            for key in self.part_of.get(f, ()):
                places.setdefault(key, []).append(k)
        done = set(carried)
        for event, happened in sorted(places, reverse=True):  # an event before its complement
            found = [expressions[k] for k in places[event, happened]]
            if event not in done and self._is_sum((event, happened), found):
                done.add(event)
                yield Union(event, places[event, happened], happened)

    def _is_sum(self, sought: Sought, expressions: list[int]) -> bool:
        """Whether these expressions add up to what is sought."""
        if sum(self.at_ones[f] for f in expressions) != self.sought_at_ones[sought]:
            return False
        total: Terms = {}
        for f in expressions:
            for i, n in self.terms[f].items():
                total[i] = total.get(i, 0) + n
        return {i: n for i, n in total.items() if n} == self.sought[sought]


def _by_rarest_term(polynomials: list[Terms]) -> dict[tuple[int, int], list[int]]:
    """Each polynomial under the rarest of its terms, so that few have to be compared with an event of that term."""
    often = Counter(term for terms in polynomials for term in terms.items())
    found: dict[tuple[int, int], list[int]] = {}
    for f, terms in enumerate(polynomials):
        if terms:
            found.setdefault(min(terms.items(), key=often.__getitem__), []).append(f)
    return found


def terms_of(table: ExpressionTable, f: int, multiple: int = 1) -> Terms:
    """An expression of a table, or a multiple of it."""
    span = slice(table.indptr[f], table.indptr[f + 1])
    return {int(i): multiple * int(n) for i, n in zip(table.indices[span], table.data[span])}


def complement(terms: Terms, one: int) -> Terms:
    """1 − f; ``one`` is the denominator of the constant."""
    found = {i: -n for i, n in terms.items()}
    found[0] = found.get(0, 0) + one
    return {i: n for i, n in found.items() if n}
