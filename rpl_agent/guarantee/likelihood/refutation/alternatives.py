"""Alternatives to the model: one e-process for each way in which a model can be wrong.

With N_a the probability that an alternative assigns to the outcomes of a part a of the data, and L_a(v) the likelihood
of the same outcomes at v, the model is refuted if the infimum over the domain of A = Σ_a w_a N_a / L_a reaches 1/α
(theorem and table of alternatives: docs/guarantees.md, "When the model is wrong"). Omitting alternatives, as is done
with all negligible ones, only lowers A. ln A is convex in the reduced coordinates x (log-sum-exp of −ln L_a), so a
tangent bounds its infimum wherever the search ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.intervals import multiplicities
from rpl_agent.core.evidence.marks import MAX_MARKS
from rpl_agent.core.model import ParametricMDP, cached_on, gather, owners
from rpl_agent.core.model.algebra.ranges import coordinate_box
from rpl_agent.core.native import core
from rpl_agent.guarantee.likelihood.chart import Observations, ParameterChart, fit, observed_expressions, wider_chart
from rpl_agent.guarantee.likelihood.estimate import edge
from rpl_agent.guarantee.likelihood.refutation.infimum import lowest_tangent
from rpl_agent.guarantee.likelihood.refutation.uniform import closed_form, finite_sum, uniform_prior

#: Shares of the kinds of alternatives; members of one kind have equal weights.
SHARE = 0.2
#: Keep this many rows, and expressions, with the largest e-values.
KEPT = 8
#: (kind, number, ln(w N) minus the log-likelihood of outcomes with known probabilities, counts of expressions); −1 − f
#: stands for 1 − f.
Part = tuple[str, int, float, dict[int, float]]
#: Skip parts of the data before or after a mark that are smaller than this share of all.
EARLIEST = 0.01
#: Windows that gain fewer nats than this are left out: they add next to nothing where the likelihood is largest.
NEGLIGIBLE = -2.0


@dataclass(frozen=True)
class Weights:
    """ln w_a for each kind of alternative."""

    all_rows: float
    rows: float
    row: float
    expression: float
    before: float
    after: float
    domain: float

    @classmethod
    def of(cls, pmdp: ParametricMDP, blocks: int = 1) -> Weights:
        """Weights for each of this many blocks of a model; rows and expressions are counted over the whole model.

        ``all_rows`` is for the whole model at once, ``rows`` for one block.
        """
        windows = blocks * 2 * MAX_MARKS
        sizes = (2, 2 * blocks, pmdp.num_rows, pmdp.num_expressions, windows, windows, blocks)
        return cls(*(float(np.log(SHARE / max(size, 1))) for size in sizes))


@dataclass(frozen=True)
class Doubt:
    """A lower bound on ln inf A, and the alternative that dominates there."""

    log_e_value: float
    kind: str = "rows"  # as in docs/guarantees.md
    number: int = -1  # of the row, expression or mark concerned, −1 for none

    def text(self, pmdp: ParametricMDP, counts: Counts) -> str:
        """What is wrong with the model, as a sentence."""
        about = "its rows differ from what their expressions say"
        if self.kind == "row":
            about = f"{pmdp.row_name(self.number)} has other probabilities than {_row_text(pmdp, self.number)}"
        elif self.kind == "expression":
            about = f"the expression {pmdp.table.polynomial(self.number)} has another value than the rest allows"
        elif self.kind == "domain":
            at_edge = edge(pmdp, counts)
            about = f"{'parameters outside the domain' if at_edge is None else at_edge.about} would be far likelier"
        elif self.kind == CONTRADICTION:
            return "the model is refuted: two certificates of this run contradict each other"
        elif self.kind == EMPTY:
            return "the model is refuted: at one time in this run no parameter fitted the data"
        elif self.kind == REPEATED:
            return f"the same chance was counted more than once: {REPEATS[WAYS[self.number]]}"
        elif self.kind in IN_TIME:
            total = f" (looked at after {counts.marks[self.number].total:,})" if self.number < len(counts.marks) else ""
            about = f"probabilities changed in the course of time{total}, or steps were not counted in their order"
        return f"the model is refuted by the data (log e-value {self.log_e_value:.1f}): {about}"


NO_DOUBT = Doubt(-np.inf)
#: Kinds of alternatives with changing parameters.
IN_TIME = ("before", "after")
#: Not an alternative: bounds that hold simultaneously with probability 1 − δ if the model is right, but contradict
#: each other.
CONTRADICTION = "contradiction"
#: Not an alternative: a set was empty that contains the truth at all times, with probability 1 − δ.
EMPTY = "empty"
#: Not an alternative either: outcomes that are not independent given state and action; its kinds, with remedies.
REPEATED = "repeated"
SEEDING = "reset() must not seed the environment by itself, and reset(seed=...) must seed every copy apart"
REPEATS = {
    "row": "an outcome predicts the next one of the same state and action",
    "step": f"episodes repeat the outcomes of others step by step; {SEEDING}",
    "episode": f"episodes that begin alike continue alike; {SEEDING}",
    "tick": f"copies of the environment draw the same random numbers; {SEEDING}",
    "reset": "the environment reseeds its generator in reset(), not only in reset(seed=...)",
    "window": f"runs of steps that occurred before continue as they did then; {SEEDING}",
}
WAYS = tuple(REPEATS)


def strongest(*doubts: Doubt) -> Doubt:
    """The doubt to report: repeated chance before all others, because it makes all data unusable."""
    return max(doubts, key=lambda doubt: (doubt.kind == REPEATED, doubt.log_e_value))


class Alternatives:
    """The alternatives to one model (or block), given its data so far.

    x : (r,) the parameter of largest likelihood in the domain, in reduced coordinates.
    marginals : (k,) `row_marginals` of the visited rows, if known.
    """

    def __init__(
        self, pmdp: ParametricMDP, counts: Counts, x: np.ndarray, weights: Weights, marginals: np.ndarray | None = None
    ):
        self.pmdp, self.counts, self.weights = pmdp, counts, weights
        table = pmdp.table
        self._constant = table.constant
        self._slopes = table.reduction.dense()
        seen = counts.seen
        self._expression, self._count = pmdp.expression[seen], counts.transitions[seen].astype(float)
        self._known = table.is_constant[self._expression]
        self._rows, self._row_ptr = cached_on(seen, "rows", lambda seen: owners(pmdp.row_ptr, seen))
        self._row_marginal = row_marginals(pmdp, counts, self._rows) if marginals is None else marginals
        self._tried, self._hits, self._trials = _single_events(pmdp, counts)
        self._event_marginal = scipy.special.betaln(self._hits + 0.5, self._trials - self._hits + 0.5) - np.log(np.pi)
        self.columns = observed_expressions(pmdp, counts.successes)  # of every likelihood
        self.best = x

    # ------------------------------------------------------------------ which alternatives count
    def _values(self, x: np.ndarray) -> np.ndarray:
        return self._constant + self._slopes @ x

    def row_scores(self, x: np.ndarray) -> np.ndarray:
        """(R',) ln w E for each visited row at x."""
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = self._count * np.log(self._values(x))[self._expression]
        return self.weights.row + self._row_marginal - np.add.reduceat(terms, self._row_ptr[:-1])

    def event_scores(self, x: np.ndarray) -> np.ndarray:
        """(F',) ln w E for each expression that occurs once in a visited row, at x."""
        p = self._values(x)[self._tried]
        with np.errstate(divide="ignore", invalid="ignore"):
            likelihood = scipy.special.xlogy(self._hits, p) + scipy.special.xlogy(self._trials - self._hits, 1.0 - p)
        return self.weights.expression + self._event_marginal - np.where(np.isnan(likelihood), np.inf, likelihood)

    @cached_property
    def window_scores(self) -> list[float]:
        """For each window, ln w plus what its own parameters gain over the best ones for all data (by the score test),
        minus one per parameter: a mixture pays more than that from a dozen steps on.
        """
        windows, x = self._windows, self.best
        if not windows:
            return []
        steps = self._slopes[self.columns] / self._values(x)[self.columns, None]
        successes = np.array([counted for _, _, counted in windows])
        slopes, curvatures = successes @ steps, (steps.T * successes[:, None, :]) @ steps
        sizes, axes = np.linalg.eigh(curvatures)  # a direction without data has no curvature and no slope
        along = np.einsum("wij,wi->wj", axes, slopes)
        seen = sizes > len(x) * np.finfo(float).eps * sizes[:, -1:]
        gains = 0.5 * (along**2 / np.where(seen, sizes, np.inf)).sum(axis=1)
        return [getattr(self.weights, kind) + gain - len(x) for (kind, _, _), gain in zip(windows, gains.tolist())]

    def evidence(self) -> float:
        """An approximate upper bound on ln A at the best point: 0 or less if nothing speaks against the model."""
        rows, events = self.row_scores(self.best), self.event_scores(self.best)
        together = self.weights.rows + float((rows - self.weights.row).sum())
        windows = max(self.window_scores, default=-np.inf)
        return max(rows.max(initial=-np.inf), events.max(initial=-np.inf), together, windows)

    # ------------------------------------------------------------------ all of them together
    def doubt(self, domain: ParameterChart) -> Doubt:
        """A lower bound on the infimum of A over a chart in the coordinates x that contains the domain."""
        x = _moved_inside(self.best, domain)
        box = cached_on(self.pmdp, "coordinate box", lambda pmdp: coordinate_box(pmdp.table, pmdp.domain))
        totals = dict(zip(self.columns.tolist(), self.counts.successes[self.columns].astype(float).tolist()))
        offset = self.weights.rows + self._row_marginal.sum() - self._of_known(slice(None))
        rows: Part = ("rows", -1, float(offset), totals)
        always, found, tried = [rows, *self._window_parts()], Doubt(-np.inf), set[tuple[str, int]]()
        for _ in range(2):  # the second round uses the rows that matter where the first ended
            parts = [*always, *self._worst_rows(x), *self._worst_events(x)]
            named = {part[:2] for part in parts}
            if named == tried:
                break
            tried = named
            observed, offsets = self._joined(parts)
            x, bound, shares = lowest_tangent(observed, offsets, domain, x, box)
            bound -= marginal_error(self.counts)
            if bound > found.log_e_value:
                kind, number = parts[int(shares.argmax())][:2]
                found = Doubt(bound, kind, number)
        return found

    def _worst_rows(self, x: np.ndarray) -> list[Part]:
        parts: list[Part] = []
        for k in np.argsort(-self.row_scores(x))[:KEPT].tolist():
            steps, totals = slice(*self._row_ptr[k : k + 2].tolist()), dict[int, float]()
            offset = self.weights.row + self._row_marginal[k] - self._of_known(steps)
            for f, known, count in zip(*(a[steps].tolist() for a in (self._expression, self._known, self._count))):
                if not known:
                    totals[f] = totals.get(f, 0.0) + count
            parts.append(("row", int(self._rows[k]), float(offset), totals))
        return parts

    def _of_known(self, steps: slice) -> float:
        """The log-likelihood of those observed transitions in ``steps`` whose probabilities are known."""
        known = self._known[steps]
        if not known.any():
            return 0.0
        return float(self._count[steps][known] @ np.log(self._constant[self._expression[steps][known]]))

    def _worst_events(self, x: np.ndarray) -> list[Part]:
        parts: list[Part] = []
        for k in np.argsort(-self.event_scores(x))[:KEPT].tolist():
            f, hits, misses = int(self._tried[k]), float(self._hits[k]), float(self._trials[k] - self._hits[k])
            offset, totals = self.weights.expression + float(self._event_marginal[k]), {f: hits, -1 - f: misses}
            if self.pmdp.table.is_constant[f]:
                p, totals = float(self._constant[f]), {}
                offset -= float(scipy.special.xlogy(hits, p) + scipy.special.xlogy(misses, 1.0 - p))
            parts.append(("expression", f, offset, totals))
        return parts

    @cached_property
    def _windows(self) -> list[tuple[str, int, np.ndarray]]:
        """(kind, mark, successes (n,) of the columns) of all steps, and of those before and after each mark."""
        total = self.counts.successes[self.columns].astype(float)
        found: list[tuple[str, int, np.ndarray]] = [("domain", -1, total)]
        for j, mark in enumerate(self.counts.marks[:MAX_MARKS]):
            before = mark.successes[self.columns].astype(float)
            if EARLIEST * self.counts.total <= mark.total <= (1.0 - EARLIEST) * self.counts.total:
                found += [("before", j, before), ("after", j, total - before)]
        return [window for window in found if window[2].any()]

    def _window_parts(self) -> list[Part]:
        chart = wider_chart(self.pmdp) if len(self.columns) else None
        if chart is None or not chart.has_interior:
            return []
        prior, parts = uniform_prior(chart), list[Part]()
        scored = zip(self.window_scores, self._windows)
        for kind, mark, successes in (window for gain, window in scored if gain >= NEGLIGIBLE):
            whole = np.zeros(self.pmdp.num_expressions)
            whole[self.columns] = successes
            data = chart.seen(whole)
            center = fit(data, chart)
            if chart.reduction is None:
                log_mixture = closed_form(prior, data, chart, center)
            else:
                log_mixture = finite_sum(data, chart, center)
            if np.isfinite(log_mixture):
                used = successes > 0
                column = dict(zip(self.columns[used].tolist(), successes[used].tolist()))
                scale = 0.0 if chart.factors is None else chart.factors.scale(self.columns, successes)[0]
                offset = getattr(self.weights, kind) + float(log_mixture) + scale
                parts.append((kind, mark, offset, column))
        return parts

    def _joined(self, parts: list[Part]) -> tuple[Observations, np.ndarray]:
        """One column per expression or complement that some alternative involves."""
        entries = [(j, column, count) for j, part in enumerate(parts) for column, count in part[3].items()]
        row, named, amount = np.array(entries).reshape(-1, 3).T
        columns, place = np.unique(named.astype(np.int64), return_inverse=True)
        number, is_own = np.where(columns >= 0, columns, -1 - columns), columns >= 0
        counts = np.zeros((len(parts), len(columns)))
        counts[row.astype(np.int64), place] = amount
        constant = np.where(is_own, self._constant[number], 1.0 - self._constant[number])
        slopes = np.ascontiguousarray(np.where(is_own, 1.0, -1.0)[:, None] * self._slopes[number])
        return Observations(constant, slopes, counts), np.array([part[2] for part in parts])


def _row_text(pmdp: ParametricMDP, row: int) -> str:
    """The expressions of a row."""
    span = pmdp.expression[pmdp.row_ptr[row] : pmdp.row_ptr[row + 1]]
    shown = ", ".join(str(pmdp.table.polynomial(int(f))) for f in span[:4])
    return shown + (", …" if len(span) > 4 else "")


def _moved_inside(x: np.ndarray, domain: ParameterChart) -> np.ndarray:
    """x, or the first point on the way to the chart's start that lies strictly inside."""
    for share in (0.0, 0.01, 0.1, 0.5):
        point = x + share * (domain.start - x)
        if (domain.b - domain.A @ point > 0.0).all():
            return point
    return domain.start


def marginal_error(counts: Counts) -> float:
    """Bound on the rounding error of the marginals: lgamma is accurate to a few units in n ln n."""
    return 1e-13 * counts.total * (1.0 + float(np.log1p(counts.total))) + 1e-9


def row_marginals(pmdp: ParametricMDP, counts: Counts, rows: np.ndarray) -> np.ndarray:
    """(k,) ln of the Dirichlet(½)-multinomial probability of the successors' sequence of rows (k,)."""
    found, (moves, first) = np.empty(len(rows)), gather(pmdp.row_ptr, rows)
    core.dirichlet_log_marginals(len(rows), first, counts.transitions[moves], found)
    return found


def _single_events(pmdp: ParametricMDP, counts: Counts) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(expressions, hits, trials), (F',) each: how often f occurred in the visited rows that carry it once.

    Omits expressions that equal 1 or were never tried.
    """
    (rows, totals), size = counts.visited, pmdp.num_expressions
    moves, first = gather(pmdp.row_ptr, rows)
    once = multiplicities(first, pmdp.expression[moves], size) == 1
    expression = pmdp.expression[moves[once]]
    totals = np.repeat(totals, np.diff(first))[once]
    hits = np.bincount(expression, counts.transitions[moves[once]], size)
    trials = np.bincount(expression, totals, size)
    certain = pmdp.table.is_constant & (pmdp.table.constant >= 1.0)
    tried = np.flatnonzero((trials > 0) & ~certain)
    return tried, hits[tried], trials[tried]


def known_rows(pmdp: ParametricMDP, counts: Counts, weights: Weights) -> list[Doubt]:
    """Doubts from rows without unknowns, each by itself, in a model of independent blocks."""
    known = np.logical_and.reduceat(pmdp.table.is_constant[pmdp.expression], pmdp.row_ptr[:-1])
    seen = np.flatnonzero((counts.transitions > 0) & known[pmdp.transition_row])
    if not len(seen):
        return []
    rows, row_ptr = owners(pmdp.row_ptr, seen)
    count = counts.transitions[seen].astype(float)
    terms = count * np.log(pmdp.table.constant[pmdp.expression[seen]])
    scores = weights.row + row_marginals(pmdp, counts, rows) - np.add.reduceat(terms, row_ptr[:-1])
    total = float(np.logaddexp.reduce(scores)) - marginal_error(counts)
    return [Doubt(total, "row", int(rows[scores.argmax()]))] if total > 0.0 else []
