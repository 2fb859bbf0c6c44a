"""Events that a row observes as several of its outcomes together.

At a wall, several outcomes of one die lead to the same place, so a row carries the sum of their chances. Elsewhere the
outcomes are told apart, and the same event is observed there: one of them came. A row that does not carry an event f on
a transition of its own, or 1 − f, observes f if all its expressions that consist of terms of f add up to f; or, where
they do not, if those that consist of terms of 1 − f add up to that. This rule knows the model alone: data do not choose
the rows that count for an event.
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

#: Numerators by monomial.
Terms = dict[int, int]


class Union(NamedTuple):
    """Outcomes of a row that are an event, or its complement."""

    event: int
    places: list[int]
    happened: bool


class UnionTable:
    """All unions of a model; rows with the same expressions are of one kind and pool their counts first.

    slot : (T,) the place of a transition in its kind of rows, counted over all kinds; 0 where nothing is observed
    """

    def __init__(self, pmdp: ParametricMDP, of_kind: list[tuple[list[int], list[Union]]], events: int):
        self.slot = np.zeros(pmdp.num_transitions, dtype=np.int32)
        entries = []  # (event, slot, whether a visit there is a success)
        self.slots = 1
        for rows, unions in of_kind:
            length = int(pmdp.row_ptr[rows[0] + 1] - pmdp.row_ptr[rows[0]])
            own = self.slots + np.arange(length)
            self.slot[pmdp.row_ptr[rows][:, None] + np.arange(length)] = own
            for event, places, happened in unions:
                entries += [(event, self.slots + k, (k in places) == happened) for k in range(length)]
            self.slots += length
        event, slot, success = np.array(entries, dtype=np.int64).T
        shape = (events, self.slots)
        self._trials = scipy.sparse.csr_array((np.ones_like(event), (event, slot)), shape=shape)
        self._successes = scipy.sparse.csr_array((success, (event, slot)), shape=shape)

    def pool(self, transitions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Successes and trials (E,) from counts (T,)."""
        seen = np.zeros(self.slots, dtype=np.int64)
        np.add.at(seen, self.slot, transitions)
        return self._successes @ seen, self._trials @ seen


def find_unions(pmdp: ParametricMDP, events: list[Terms], carried: np.ndarray) -> UnionTable | None:
    """The unions of a model; None if there are none.

    events : their polynomials. carried : (T,) the event that a transition is on its own, or that it is the complement
    of; −1 for none.
    """
    search = _PartsOfEvents(pmdp.table, events)
    if not search.of_part:
        return None
    kinds: dict[bytes, list[int]] = {}
    starts = pmdp.row_ptr.tolist()
    for row, (begin, end) in enumerate(pairwise(starts)):
        kinds.setdefault(pmdp.expression[begin:end].tobytes(), []).append(row)
    found = []
    for rows in kinds.values():
        own = slice(starts[rows[0]], starts[rows[0] + 1])
        unions = list(search.unions(pmdp.expression[own].tolist(), set(carried[own].tolist())))
        found += [(rows, unions)] if unions else []
    return UnionTable(pmdp, found, len(events)) if found else None


class _PartsOfEvents:
    """Events and complements by the expressions that consist of some of their terms."""

    def __init__(self, table: ExpressionTable, events: list[Terms]):
        self.table, self.one = table, table.denominators[0]
        self.labels = [terms_of(table, f) for f in range(len(table.indptr) - 1)]
        self.wanted: dict[tuple[int, bool], Terms] = {}
        self.of_part: dict[int, list[tuple[int, bool]]] = {}
        often = Counter(term for terms in self.labels for term in terms.items())
        by_rarest: dict[tuple[int, int], list[int]] = {}
        for f, terms in enumerate(self.labels):
            if terms:
                by_rarest.setdefault(min(terms.items(), key=often.__getitem__), []).append(f)
        for event, terms in enumerate(events):
            for happened in (True, False):
                wanted = terms if happened else complement(terms, self.one)
                near = [f for term in wanted.items() for f in by_rarest.get(term, ())]
                parts = [f for f in near if self.labels[f].items() <= wanted.items()]
                if len(parts) > 1:
                    self.wanted[event, happened] = wanted
                    for f in parts:
                        self.of_part.setdefault(f, []).append((event, happened))

    def unions(self, labels: list[int], carried: set[int]) -> Iterator[Union]:
        """Of a row with these expressions that carries some events."""
        places: dict[tuple[int, bool], list[int]] = {}
        for k, f in enumerate(labels):
            for key in self.of_part.get(f, ()):
                places.setdefault(key, []).append(k)
        done = set(carried)
        for key in sorted(places, reverse=True):  # an event before its complement
            event, happened = key
            if event not in done and self._sum(labels, places[key]) == self.wanted[key]:
                done.add(event)
                yield Union(event, places[key], happened)

    def _sum(self, labels: list[int], places: list[int]) -> Terms:
        total: Terms = {}
        for k in places:
            for i, n in self.labels[labels[k]].items():
                total[i] = total.get(i, 0) + n
        return {i: n for i, n in total.items() if n}


def terms_of(table: ExpressionTable, f: int, multiple: int = 1) -> Terms:
    """An expression of a table, or a multiple of it."""
    span = slice(table.indptr[f], table.indptr[f + 1])
    return {int(i): multiple * int(n) for i, n in zip(table.indices[span], table.data[span])}


def complement(terms: Terms, one: int) -> Terms:
    """1 − f; ``one`` is the denominator of the constant."""
    found = {i: -n for i, n in terms.items()}
    found[0] = found.get(0, 0) + one
    return {i: n for i, n in found.items() if n}
