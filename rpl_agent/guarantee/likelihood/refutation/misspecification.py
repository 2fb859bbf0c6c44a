"""Evidence against the model itself: an e-value, valid at any time under any sampling.

ln E is a lower bound on ln inf A over the domain (`alternatives`). Constants are part of the model and are tested too.
ln E of a correct model is very negative. Then only the first alternative is computed,

    Π_(s,a) Dirichlet(½)-multinomial probability of the observed successors / max_{v ∈ D} likelihood.

The maximum in it is bounded from above wherever the search ended: g = −ln likelihood is convex in the reduced
coordinates x (for products, in those of their factors), so on a box that contains the domain a tangent is least in a
corner.

Over independent blocks (`blocks`) A is a sum of functions of one block each, so it is at least their largest infimum.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy

from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.model import Domain, ExpressionTable, ParametricMDP, cached_fact, without_unused
from rpl_agent.core.model.algebra.factors import factors
from rpl_agent.core.model.algebra.ranges import coordinate_box
from rpl_agent.core.model.unused import used_parameters
from rpl_agent.core.regions.blocks import Factorisation, JointBlock, blocks_pay, factorisation, single_block
from rpl_agent.guarantee.likelihood.chart import (
    MAX_RANK,
    Observations,
    ParameterChart,
    largest_likelihood,
    observed_expressions,
    parameter_chart,
)
from rpl_agent.guarantee.likelihood.estimate import excess, point_estimate
from rpl_agent.guarantee.likelihood.polynomial.parameters import ParameterBlock, parameter_blocks
from rpl_agent.guarantee.likelihood.refutation.alternatives import (
    Alternatives,
    Doubt,
    Weights,
    known_rows,
    marginal_error,
    row_marginals,
)

#: Barrier of the inner optimisation; each of the 2r box rows costs at most this many nats.
REFIT_BARRIER = 1e-2
#: Ignore sums of monomials that are smaller than their terms by more than this factor.
MAX_CANCELLATION = 1e8


def log_e_value(pmdp: ParametricMDP, counts: Counts, estimate: np.ndarray | None = None) -> float:
    """ln E; the model is refuted at level α if it reaches ln 1/α. 0 (no evidence) if it is not computed."""
    return doubt(pmdp, counts, estimate).log_e_value


def doubt(pmdp: ParametricMDP, counts: Counts, estimate: np.ndarray | None = None) -> Doubt:
    """ln E and the strongest evidence against the model; ``estimate`` θ (d,) is a point estimate for a warm start."""
    table = pmdp.table
    pays = blocks_pay(pmdp)
    if counts.total == 0 or (table.is_affine and table.reduction.rank > MAX_RANK and not pays):
        return Doubt(0.0)
    observed = np.flatnonzero(counts.successes)
    fixed = observed[table.is_constant[observed]]
    likelihood = float(counts.successes[fixed] @ np.log(table.constant[fixed]))
    weights = Weights.of(pmdp, factorisation(pmdp).num_blocks if pays else 1)
    visited = counts.visited[0]
    marginals = row_marginals(pmdp, counts, visited)
    if pays:
        blocks = factorisation(pmdp)
        most, found = _largest_by_blocks(blocks, counts, weights)
        of_rows = np.zeros(pmdp.num_rows)
        of_rows[visited] = marginals
        found += known_rows(pmdp, counts, weights) + _single_blocks(pmdp, blocks, counts, weights, of_rows)
    else:
        most, found = _largest(pmdp, counts, weights, estimate, marginals)
    joint = Doubt(weights.all_rows + float(marginals.sum()) - marginal_error(counts) - likelihood - most)
    return max([joint, *found], key=lambda doubt: doubt.log_e_value)


def _largest(
    pmdp: ParametricMDP,
    counts: Counts,
    weights: Weights,
    estimate: np.ndarray | None = None,
    marginals: np.ndarray | None = None,
) -> tuple[float, list[Doubt]]:
    """For one block: an upper bound on the log-likelihood of its parametric part, and doubts."""
    if pmdp.table.is_affine:
        most, x = _largest_of_affine(pmdp, counts.successes, estimate)
    else:
        most, x = _largest_of_products(pmdp, counts, estimate)
    if x is None:
        return most, []
    alternatives = Alternatives(pmdp, counts, x, weights, marginals)
    return most, [alternatives.doubt(domain_rows(pmdp))] if alternatives.evidence() > 0.0 else []


def _largest_of_affine(
    pmdp: ParametricMDP, successes: np.ndarray, estimate: np.ndarray | None
) -> tuple[float, np.ndarray | None]:
    """(an upper bound on Σ K_f ln f over the domain, its maximiser in the coordinates x)."""
    chart, free = _box_chart(pmdp.table, pmdp.domain), observed_expressions(pmdp, successes)
    if not len(free):
        return 0.0, chart.start
    start = None if estimate is None else pmdp.table.reduction.coordinates(estimate)[0]
    seen = Observations.of(pmdp, free, successes[free])
    return largest_likelihood(seen, chart, start, REFIT_BARRIER)


def _largest_of_products(
    pmdp: ParametricMDP, counts: Counts, estimate: np.ndarray | None
) -> tuple[float, np.ndarray | None]:
    """`_largest_of_affine` for expressions that are products of forms: one bound per block of parameters.

    Alternatives use the coordinates x of the monomials; None instead of x if there are too many, or they cancel.
    """
    reduced, theta = without_unused(pmdp), point_estimate(pmdp, counts) if estimate is None else estimate
    assert theta is not None
    own = observed_expressions(pmdp, counts.successes)
    total = factors(reduced).scale(own, counts.successes[own])[1]
    start = theta if reduced is pmdp else theta[used_parameters(pmdp.table)]
    for block, chart in _form_boxes(reduced):
        if chart is None:
            return np.inf, None
        seen = chart.seen(counts.successes)
        if len(seen.counts):
            warm = start[block.parameters] if chart.forms.is_affine else None
            total += largest_likelihood(seen, chart, warm, REFIT_BARRIER)[0]
    if pmdp.table.num_monomials - 1 > MAX_RANK and pmdp.table.reduction.rank > MAX_RANK:
        return total, None
    x, seen = pmdp.table.reduction.coordinates(theta)[0], Observations.of(pmdp, own, counts.successes[own])
    reliable = (seen.values(x) > 0.0).all() and (not len(own) or seen.cancellation(x) < MAX_CANCELLATION)
    return total, x if reliable else None


@cached_fact
def _form_boxes(reduced: ParametricMDP) -> list[tuple[ParameterBlock, ParameterChart | None]]:
    """The box of every block in the coordinates of its forms; None if there are too many."""
    found: list[tuple[ParameterBlock, ParameterChart | None]] = []
    for block in parameter_blocks(reduced):
        forms, box = block.chart.forms, None
        if forms.is_affine:  # x = θ
            box = _box(block.domain.lower, block.domain.upper, block.domain.center())
        elif forms.reduction.rank <= MAX_RANK:
            box = _box_chart(forms, block.domain)
        if box is not None:
            chart = block.chart
            box = replace(box, factors=chart.factors, constant=chart.constant, weights=chart.weights)
        found.append((block, box))
    return found


def _largest_by_blocks(blocks: Factorisation, counts: Counts, weights: Weights) -> tuple[float, list[Doubt]]:
    """`_largest` over independent blocks: the maximum of a product is the product of the maxima.

    For a single distribution the maximum is attained at the frequencies, Σ K_f ln(K_f / N); a smaller domain lowers it.
    """
    single = np.flatnonzero(blocks.single[blocks.block_of_expression] & (blocks.block_of_expression >= 0))
    successes = counts.successes[single].astype(float)
    trials = np.bincount(blocks.block_of_expression[single], successes, blocks.num_blocks)
    total = float(scipy.special.xlogy(successes, successes).sum() - scipy.special.xlogy(trials, trials).sum())
    size = float(scipy.special.xlogy(trials, trials + 1.0).sum())
    total += 8.0 * np.finfo(float).eps * (len(single) + 8.0) * size
    found: list[Doubt] = []
    for block in blocks.others:
        table = block.model.table
        if table.is_affine and table.reduction.rank > MAX_RANK:
            total = np.inf  # no bound: no claim
            continue
        most, doubts = _largest(block.model, block.counts(counts), weights)
        total += most
        found += [_in_model(block, doubt) for doubt in doubts]
    return total, found


def _single_blocks(
    pmdp: ParametricMDP, blocks: Factorisation, counts: Counts, weights: Weights, marginals: np.ndarray
) -> list[Doubt]:
    """Doubts about suspicious single-distribution blocks: parts of the data differ, or frequencies leave the bounds.

    marginals : (R,) `row_marginals` of all rows
    """
    found = []
    for k in np.flatnonzero(blocks.single & _suspicious(pmdp, blocks, counts, weights, marginals)).tolist():
        block = single_block(pmdp, k)
        found += [_in_model(block, d) for d in _largest(block.model, block.counts(counts), weights)[1]]
    return found


def _suspicious(
    pmdp: ParametricMDP, blocks: Factorisation, counts: Counts, weights: Weights, marginals: np.ndarray
) -> np.ndarray:
    """(B,) bool: blocks in which an alternative may matter, at the frequencies of all data.

    A window gains at most what its own frequencies do; a mixture pays a nat for each free one from a dozen steps on.
    """
    label, size = blocks.block_of_expression, blocks.num_blocks
    own = np.flatnonzero((label >= 0) & (counts.successes > 0))
    of, total = label[own], counts.successes[own].astype(float)
    log_share = np.zeros(pmdp.num_expressions)
    log_share[own] = np.log(total / np.bincount(of, total, size)[of])

    def gain(part: np.ndarray) -> np.ndarray:
        """(B,) nats, for successes (n,) of the observed expressions."""
        steps = np.bincount(of, part, size)
        terms = scipy.special.xlogy(part, part) - part * log_share[own]
        return np.bincount(of, terms, size) - scipy.special.xlogy(steps, steps)

    score = marginals - np.add.reduceat(counts.transitions * log_share[pmdp.expression], pmdp.row_ptr[:-1])
    of_row = label[pmdp.expression[pmdp.row_ptr[:-1]]]
    rows = np.flatnonzero(of_row >= 0)
    found = np.bincount(of_row[rows], score[rows], size) + weights.rows > 0.0
    found[of_row[rows[score[rows] + weights.row > 0.0]]] = True
    window, free = np.zeros(size), np.bincount(of, minlength=size) - 1.0
    for mark in counts.marks:
        before = mark.successes[own].astype(float)
        window = np.maximum(window, np.maximum(gain(before), gain(total - before)))
    found |= window - free + max(weights.before, weights.after) > 0.0
    _, outside, coordinates = excess(pmdp, counts)
    found[label[blocks.first[coordinates[outside + weights.domain > 0.0]]]] = True
    return found


def _in_model(block: JointBlock, found: Doubt) -> Doubt:
    """Translate a doubt about a block's own small model to the ids of the whole model."""
    if found.kind == "row":
        return Doubt(found.log_e_value, "row", int(block.rows[found.number]))
    if found.kind == "expression":
        return Doubt(found.log_e_value, "expression", int(block.expressions[found.number]))
    return found


def _box_chart(table: ExpressionTable, domain: Domain) -> ParameterChart:
    """Coordinates x of a table, with bounds that every point of the domain satisfies strictly."""
    return _box(*coordinate_box(table, domain), table.reduction.coordinates(domain.center())[0])


def _box(lower: np.ndarray, upper: np.ndarray, start: np.ndarray) -> ParameterChart:
    eye = np.eye(len(lower))
    # A margin keeps the domain's points inside the barrier; a larger box only lowers E.
    return ParameterChart(np.vstack([eye, -eye]), np.concatenate([upper + 1e-6, 1e-6 - lower]), start)


@cached_fact
def domain_rows(pmdp: ParametricMDP) -> ParameterChart:
    """The domain as a slightly enlarged polytope in the coordinates x; its box if it is not a polytope there."""
    chart = parameter_chart(pmdp)
    if chart.reduction is not None or not pmdp.table.is_affine or not chart.has_interior:
        return _box_chart(pmdp.table, pmdp.domain)
    return ParameterChart(chart.A, chart.b + 1e-6 * (1.0 + np.abs(chart.b)), chart.start)
