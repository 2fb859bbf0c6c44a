"""Pooling (parameter tying): which observations are repetitions of one Bernoulli event.

All transitions labelled f are repetitions of one experiment of success probability f (the paper's
App. C). Two refinements:

- f and 1 − f are one event, so one interval serves both and the union bound halves.
- A row that carries f on k successors observes one event of probability k·f, not k independent ones.

A *group* is a pair (expression, multiplicity); groups whose probabilities are equal, or complementary, as
exact polynomials are one *event*. Constant expressions are not events: nothing about them is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rpl_agent._core import core, read_only
from rpl_agent.evidence.counts import Counts
from rpl_agent.model import ExpressionTable, ParametricMDP, cached_on


@dataclass(frozen=True)
class Evidence:
    """Pooled data: per event ``successes``, ``trials`` (E,) and per expression ``observed`` K_f (F,)."""

    successes: np.ndarray
    trials: np.ndarray
    observed: np.ndarray
    total: int


class EventTable:
    """The distinct non-constant events of one model, computed once (use `event_table`).

    Attributes
    ----------
    num_events : E, the size of the union bound
    group_of : (T,) group of every transition
    expression, multiplicity : (G,) the pair that defines a group
    event_of : (G,) event of a group, −1 for constants
    positive : (G,) whether the group is its event or the complement
    """

    def __init__(self, pmdp: ParametricMDP):
        table, multiplicity = pmdp.table, multiplicities(pmdp.row_ptr, pmdp.expression, pmdp.num_expressions)
        if multiplicity.max(initial=1) == 1 and multiplicity.min(initial=1) == 1:
            self.group_of = pmdp.expression
            self.expression = np.arange(table.num_expressions)
            self.multiplicity = np.ones(table.num_expressions, dtype=np.int64)
            present = np.zeros(table.num_expressions, dtype=bool)
            present[pmdp.expression] = True
            self.event_of, self.positive = _simple_events(table, present)
        else:
            self._number_groups(pmdp, multiplicity)
            self.event_of, self.positive = _exact_events(table, self.expression, self.multiplicity)
        self.num_events = int(self.event_of.max(initial=-1)) + 1
        self.row_ptr = pmdp.row_ptr

    def _number_groups(self, pmdp: ParametricMDP, multiplicity: np.ndarray) -> None:
        first = np.flatnonzero(multiplicity)
        width = int(multiplicity.max()) + 1
        keys, group = np.unique(
            pmdp.expression[first].astype(np.int64) * width + multiplicity[first], return_inverse=True
        )
        self.expression, self.multiplicity = keys // width, keys % width
        group_of = np.full(pmdp.num_transitions, -1)
        group_of[first] = group
        # Later occurrences of an expression in a row join the group of its first.
        row = np.repeat(np.arange(pmdp.num_rows), np.diff(pmdp.row_ptr))
        pair = row * np.int64(pmdp.num_expressions) + pmdp.expression
        order = np.argsort(pair[first])
        later = np.flatnonzero(multiplicity == 0)
        group_of[later] = group[order[np.searchsorted(pair[first][order], pair[later])]]
        self.group_of = read_only(group_of, np.int32)

    def pool(self, counts: Counts) -> Evidence:
        """Pool counts in one compiled pass over the model."""
        successes, trials = np.zeros(self.num_events, dtype=np.int64), np.zeros(self.num_events, dtype=np.int64)
        scratch = np.zeros(len(self.expression), dtype=np.int64), np.full(self.num_events, -1)
        core.pool_events(
            len(self.row_ptr) - 1, self.row_ptr, self.group_of, counts.transitions, self.event_of, self.positive,
            *scratch, successes, trials,
        )  # fmt: skip
        return Evidence(successes, trials, counts.successes.copy(), counts.total)

    def per_expression(
        self, lower: np.ndarray, upper: np.ndarray, table: ExpressionTable
    ) -> tuple[np.ndarray, np.ndarray]:
        """Event intervals (E,) as expression intervals (F,): exact for constants, [0, 1] if never in a row."""
        least, most = table.constant_bounds
        low, high = np.where(table.is_constant, least, 0.0), np.where(table.is_constant, most, 1.0)
        used = np.flatnonzero(self.event_of >= 0)
        e, k = self.event_of[used], self.multiplicity[used]
        event_low = np.where(self.positive[used], lower[e], 1.0 - upper[e])
        event_high = np.where(self.positive[used], upper[e], 1.0 - lower[e])
        # An expression with several multiplicities satisfies the intervals of all its events.
        np.maximum.at(low, self.expression[used], np.where(k > 1, np.nextafter(event_low / k, 0.0), event_low))
        np.minimum.at(high, self.expression[used], np.where(k > 1, np.nextafter(event_high / k, 1.0), event_high))
        return low, high


def multiplicities(row_ptr: np.ndarray, expression: np.ndarray, size: int) -> np.ndarray:
    """(T,) how many successors of its row carry a transition's expression < size, at its first occurrence; else 0."""
    multiplicity, scratch = np.empty(len(expression), np.int32), (np.full(size, -1), np.empty(size, np.int64))
    core.multiplicities(len(row_ptr) - 1, row_ptr, expression, *scratch, multiplicity)
    return multiplicity


def event_table(pmdp: ParametricMDP) -> EventTable:
    """The model's `EventTable`, cached with the model."""
    return cached_on(pmdp, "event table", EventTable)


def pool(counts: Counts) -> Evidence:
    """Pooled successes and trials per event, and successes per expression."""
    return event_table(counts.pmdp).pool(counts)


def _simple_events(table: ExpressionTable, present: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Events if every multiplicity is 1: pair each expression with its complement."""
    ids = np.arange(table.num_expressions)
    complement = table.complement
    partner = np.where((complement >= 0) & present[complement], complement, ids)
    leader = np.minimum(ids, partner)
    event_of = np.full(table.num_expressions, -1, dtype=np.int64)
    unknown = np.flatnonzero(present & ~table.is_constant)
    _, event_of[unknown] = np.unique(leader[unknown], return_inverse=True)
    return event_of, leader == ids


def _exact_events(
    table: ExpressionTable, expression: np.ndarray, multiplicity: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Events of groups (f, k) by exact comparison of k·f and 1 − k·f as polynomials."""
    event_of = np.full(len(expression), -1, dtype=np.int64)
    positive = np.ones(len(expression), dtype=bool)
    known: dict[tuple, tuple[int, bool]] = {}
    one, events = table.denominators[0], 0
    for g, (f, k) in enumerate(zip(expression.tolist(), multiplicity.tolist())):
        if table.is_constant[f]:
            continue
        span = slice(table.indptr[f], table.indptr[f + 1])
        terms = {int(i): k * int(v) for i, v in zip(table.indices[span], table.data[span])}
        key = tuple(sorted(terms.items()))
        if key not in known:
            other = {i: -v for i, v in terms.items()}
            other[0] = other.get(0, 0) + one
            known[key] = (events, True)
            known[tuple(sorted((i, v) for i, v in other.items() if v))] = (events, False)
            events += 1
        event_of[g], positive[g] = known[key]
    return event_of, positive
