"""Pooled Bernoulli events, and confidence intervals for them, every bound rounded outward.

Pooling (parameter tying): all transitions labelled f are repetitions of one experiment of success probability f (the
paper's App. C). Three refinements:

- f and 1 − f are one event, so one interval serves both and the union bound halves.
- A row that carries f on k successors observes one event of probability k·f, not k independent ones.
- A row whose outcomes, some of them together, have probability f observes f as well (`unions`).

A *group* is a pair (expression, multiplicity); groups whose probabilities are equal, or complementary, as
exact polynomials are one *event*. Constant expressions are not events: nothing about them is unknown.

K successes in N trials, γ the error allowed for one interval:

- ``clopper-pearson`` (the paper's choice): exact beta quantiles, γ/2 per side. *Fixed N only*: not valid
  when the data decide how much data there is, as with an adaptive agent.
- ``anytime`` (the default for intervals): {p : log M(p) < ln 1/γ} for the Beta(½, ½) mixture martingale

      log M(p) = ln B(K+½, N−K+½) − ln B(½, ½) − K ln p − (N−K) ln(1−p).

  M is a non-negative martingale under p whatever rule decides on the next trial, so by Ville's
  inequality the interval holds at all times simultaneously. Price: 1.15-1.3 times the width.
- ``hoeffding``: p̂ ± √(ln(2/γ) / 2N). Fixed N only.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy
from numpy.typing import ArrayLike

from rpl_agent.core.errors import DataError
from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.ledger import check_delta, per_event
from rpl_agent.core.evidence.unions import MOST_SHARED, Terms, UnionTable, complement, find_unions, terms_of
from rpl_agent.core.model import ExpressionTable, ParametricMDP, cached_fact
from rpl_agent.core.native import core, read_only


class EventTable:
    """The distinct non-constant events of one model, computed once (use `event_table`).

    num_events : E, the size of the union bound
    group_of : (T,) group of every transition
    expression, multiplicity : (G,) the pair that defines a group
    event_of : (G,) event of a group, −1 for constants and pairs that no row has
    positive : (G,) whether the group is its event or the complement
    """

    def __init__(self, pmdp: ParametricMDP):
        size = pmdp.num_expressions
        last = np.full(size, -1)
        if core.multiplicities(pmdp.num_rows, pmdp.row_ptr, pmdp.expression, last, None, None):
            self._group_repeated(pmdp)
        else:  # no row has an expression twice: expressions are the groups, and large models need no other array
            self.expression, self.multiplicity, self.group_of = np.arange(size), np.ones(size, int), pmdp.expression
        self.event_of, self.positive = _exact_events(pmdp.table, self.expression, self.multiplicity, last >= 0)
        self.num_events = int(self.event_of.max(initial=-1)) + 1
        self.row_ptr = pmdp.row_ptr
        self.unions = self._unions(pmdp) if size <= MOST_SHARED else None

    def _unions(self, pmdp: ParametricMDP) -> UnionTable | None:
        """Events that rows observe as several outcomes."""
        table, events = pmdp.table, dict[int, Terms]()
        for event, f, k, positive in zip(self.event_of, self.expression, self.multiplicity, self.positive):
            if event >= 0 and int(event) not in events:
                terms = terms_of(table, int(f), int(k))
                events[int(event)] = terms if positive else complement(terms, table.denominators[0])
        return find_unions(pmdp, [events[k] for k in range(len(events))], self.event_of[self.group_of])

    def _group_repeated(self, pmdp: ParametricMDP) -> None:
        multiplicity = multiplicities(pmdp.row_ptr, pmdp.expression, pmdp.num_expressions)
        later = np.flatnonzero(multiplicity < 0)
        multiplicity[later] = multiplicity[later + multiplicity[later]]
        width = int(multiplicity.max()) + 1
        kind = np.int32 if pmdp.num_expressions * width < 2**31 else np.int64  # models can be as large as memory
        keys = pmdp.expression.astype(kind, copy=False) * width + multiplicity
        present = np.zeros(pmdp.num_expressions * width, dtype=bool)
        present[keys] = True
        self.expression, self.multiplicity = np.divmod(np.flatnonzero(present), width)
        self.group_of = read_only((np.cumsum(present) - 1).astype(np.int32)[keys], np.int32)

    def pool(self, counts: Counts) -> tuple[np.ndarray, np.ndarray]:
        """Successes and trials (E,) of the events: a compiled pass over the visited rows, and unions of outcomes."""
        successes, trials = np.zeros(self.num_events, dtype=np.int64), np.zeros(self.num_events, dtype=np.int64)
        scratch = np.zeros(len(self.expression), dtype=np.int64), np.full(self.num_events, -1)
        rows = counts.visited[0]
        core.pool_events(
            len(rows),
            rows,
            self.row_ptr,
            self.group_of,
            counts.transitions,
            self.event_of,
            self.positive,
            *scratch,
            successes,
            trials,
        )
        if self.unions is not None:
            more_successes, more_trials = self.unions.pool(counts.transitions)
            successes, trials = successes + more_successes, trials + more_trials
        return successes, trials

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
    """(T,) how many successors of a row carry an expression < size, at the first of them; offsets to that at others."""
    multiplicity, scratch = np.empty(len(expression), np.int32), (np.full(size, -1), np.empty(size, np.int64))
    core.multiplicities(len(row_ptr) - 1, row_ptr, expression, *scratch, multiplicity)
    return multiplicity


#: The model's `EventTable`, computed once.
event_table = cached_fact(EventTable)


def _exact_events(
    table: ExpressionTable, expression: np.ndarray, multiplicity: np.ndarray, used: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Events of groups (f, k) by exact comparison of k·f and 1 − k·f as polynomials; used (F,): f that rows have."""
    event_of = np.full(len(expression), -1, dtype=np.int64)
    positive = np.ones(len(expression), dtype=bool)
    known: dict[tuple, tuple[int, bool]] = {}
    one, events = table.denominators[0], 0
    for g, (f, k) in enumerate(zip(expression.tolist(), multiplicity.tolist())):
        if table.is_constant[f] or not used[f]:
            continue
        terms = terms_of(table, f, k)
        key = tuple(sorted(terms.items()))
        if key not in known:
            known[key] = (events, True)
            known[tuple(sorted(complement(terms, one).items()))] = (events, False)
            events += 1
        event_of[g], positive[g] = known[key]
    return event_of, positive


#: Absolute outward rounding; larger than the error of the quantile routines and of the bisection.
ROUNDING = 1e-12
#: Methods whose intervals hold at every time, under any adaptive sampling.
ANYTIME_METHODS = ("anytime",)


def clopper_pearson(successes: ArrayLike, trials: ArrayLike, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """Exact binomial interval for N fixed in advance; (lower, upper) of the shape of the inputs."""
    k, n = _check(successes, trials, gamma)
    lower, upper = np.zeros(k.shape), np.ones(k.shape)
    some = k > 0
    lower[some] = scipy.special.betaincinv(k[some], n[some] - k[some] + 1.0, gamma / 2.0)
    some = k < n
    # The complementary inverse keeps a small γ accurate where 1 − γ/2 would round it away.
    upper[some] = scipy.special.betainccinv(k[some] + 1.0, n[some] - k[some], gamma / 2.0)
    # Quantiles below 1e-150 may not be found: use the trivial bound on that side.
    return _outward(np.nan_to_num(lower, nan=0.0), np.nan_to_num(upper, nan=1.0))


def anytime(successes: ArrayLike, trials: ArrayLike, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """Interval valid at all times simultaneously; l = 0 if K = 0 and u = 1 if K = N."""
    k, n = _check(successes, trials, gamma)
    lower, upper = np.empty(k.shape), np.empty(k.shape)
    core.anytime_bounds(k.size, k, n, -np.log(gamma), lower, upper)
    return _outward(lower, upper)


def hoeffding(successes: ArrayLike, trials: ArrayLike, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """Interval from Hoeffding's inequality for N fixed in advance."""
    k, n = _check(successes, trials, gamma)
    safe = np.maximum(n, 1.0)
    radius = np.where(n > 0, np.sqrt(np.log(2.0 / gamma) / (2.0 * safe)), 1.0)
    return _outward(np.where(n > 0, k / safe, 0.5) - radius, np.where(n > 0, k / safe, 0.5) + radius)


_FUNCTIONS = {"anytime": anytime, "clopper-pearson": clopper_pearson, "hoeffding": hoeffding}
METHODS = tuple(_FUNCTIONS)


def confidence_intervals(
    pmdp: ParametricMDP, counts: Counts, method: str = "anytime", delta: float = 1e-3
) -> tuple[np.ndarray, np.ndarray]:
    """Simultaneous intervals per expression, (lower, upper) each (F,).

    δ is divided over the distinct non-constant events of the model; constants are exact, and expressions that
    were never observed get [0, 1].
    """
    check_delta(delta)
    return event_intervals(pmdp, counts, method, per_event(delta, event_table(pmdp).num_events))


def event_intervals(pmdp: ParametricMDP, counts: Counts, method: str, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """Intervals per expression, (lower, upper) each (F,), each with error probability γ per event."""
    function = _function(method)
    table = event_table(pmdp)
    if table.num_events == 0:
        least, most = pmdp.table.constant_bounds
        return least.copy(), most.copy()
    return table.per_expression(*function(*table.pool(counts), gamma), pmdp.table)


def untied_intervals(
    pmdp: ParametricMDP, counts: Counts, method: str = "anytime", delta: float = 1e-3
) -> tuple[np.ndarray, np.ndarray]:
    """Intervals per transition, (lower, upper) each (T,), that rely only on the model's graph.

    The fallback if the data refute the expressions: every row with two or more successors is
    learned separately, constants included; a two-successor row is one event.
    """
    function = _function(method)
    check_delta(delta)
    length = np.diff(pmdp.row_ptr)
    row = np.repeat(np.arange(pmdp.num_rows), length)
    trials = counts.row_totals[row]
    events = int(length[length > 2].sum() + (length == 2).sum())
    lower, upper = function(counts.transitions, trials, per_event(delta, events))
    single = length[row] == 1
    lower[single], upper[single] = 1.0, 1.0
    return lower, upper


def _function(method: str) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    if method not in _FUNCTIONS:
        raise DataError(f"interval method {method!r} is not one of {METHODS}")
    return _FUNCTIONS[method]


def _check(successes: ArrayLike, trials: ArrayLike, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    check_delta(gamma)
    k = np.atleast_1d(np.array(successes, dtype=float, order="C"))
    n = np.atleast_1d(np.array(trials, dtype=float, order="C"))
    if k.shape != n.shape:
        raise DataError(f"successes have shape {k.shape}, trials {n.shape}: give one number of trials for each")
    if not (np.isfinite(n).all() and (k >= 0).all() and (k <= n).all()):
        raise DataError("counts must be finite with 0 ≤ successes ≤ trials")
    return k, n


def _outward(lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.clip(lower - ROUNDING, 0.0, 1.0), np.clip(upper + ROUNDING, 0.0, 1.0)
