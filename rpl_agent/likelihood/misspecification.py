"""Evidence against the model itself: an e-value, valid at any time under any sampling.

    E = Π_(s,a) Dirichlet(½)-multinomial probability of the observed successors / max_{v ∈ D} likelihood.

The numerator is a mixture over *all* transition probabilities on the model's graph, tied by nothing. If
the model is right, dividing by the likelihood of the truth gives a supermartingale that starts at 1, and the
maximum over v is at least that, so P(E ever ≥ 1/α) ≤ α: at 1/α the model is refuted. Constants are part of
the model and are tested too. A model with nothing wrong has a very negative log E: the numerator pays about
(k−1)/2 · ln n for every visited row of k successors.

The maximum is bounded from above, wherever the search for it ended: g = −ln likelihood is convex in the reduced
coordinates x, so on a box [l, u] that contains the domain g(y) ≥ g(x) + ∇g(x)·(y − x), and the right side is least in a
corner. At the search's own optimum that costs what its barrier costs; a search that stopped early costs more.
"""

from __future__ import annotations

import numpy as np
from scipy import special

from rpl_agent._core import core
from rpl_agent.evidence.coordinates import coordinate_box
from rpl_agent.evidence.counts import Counts
from rpl_agent.likelihood.blocks import Factorisation, factorisation
from rpl_agent.likelihood.chart import ParameterChart, domain_chart
from rpl_agent.likelihood.expansion import rounding
from rpl_agent.likelihood.fit import BARRIER as PRIOR
from rpl_agent.likelihood.fit import fit
from rpl_agent.likelihood.observations import Observations, observed_expressions
from rpl_agent.model.pmdp import ParametricMDP
from rpl_agent.model.unused import used_parameters, without_unused

#: Barrier of the inner optimisation; each of the 2r box rows costs at most this many nats.
BARRIER = 1e-2
MAX_RANK = 64
MAX_PARAMETERS = 200


def log_e_value(pmdp: ParametricMDP, counts: Counts, estimate: np.ndarray | None = None) -> float:
    """ln E; at ln 1/α or more the model is refuted at level α. 0 (no evidence) where it is not computed.

    ``estimate`` is a point estimate θ (d,), used as a warm start.
    """
    table = pmdp.table
    blocks = factorisation(pmdp)
    if counts.total == 0 or (table.reduction.rank > MAX_RANK and not blocks.pays):
        return 0.0
    numerator = core.dirichlet_log_marginal(pmdp.num_rows, pmdp.row_ptr, counts.transitions)
    observed = np.flatnonzero(counts.successes)
    fixed = observed[table.is_constant[observed]]
    likelihood = float(counts.successes[fixed] @ np.log(table.constant[fixed]))
    free = observed[~table.is_constant[observed]]
    if blocks.pays:
        likelihood += _largest_by_blocks(blocks, counts)
    elif len(free):
        seen = Observations.of(pmdp, free, counts.successes[free])
        chart = _box_chart(pmdp)
        start = None if estimate is None else table.reduction.coordinates(estimate)[0]
        best = fit(seen, chart, start, barrier=BARRIER)
        likelihood += _largest_likelihood(seen, best.x, chart)
    return numerator - likelihood


def _largest_by_blocks(blocks: Factorisation, counts: Counts) -> float:
    """The same over independent blocks: the maximum of a product is the product of the maxima.

    Of a block that is one distribution it is that of the frequencies, Σ K_f ln(K_f / N); a smaller domain lowers it.
    """
    single = np.flatnonzero(blocks.single[blocks.block_of_expression] & (blocks.block_of_expression >= 0))
    successes = counts.successes[single].astype(float)
    trials = np.bincount(blocks.block_of_expression[single], successes, blocks.num_blocks)
    total = float(special.xlogy(successes, successes).sum() - special.xlogy(trials, trials).sum())
    size = float(special.xlogy(trials, trials + 1.0).sum())
    total += 8.0 * np.finfo(float).eps * (len(single) + 8.0) * size
    for block in blocks.others:
        if block.model.table.reduction.rank > MAX_RANK:
            return np.inf  # no bound: no claim
        part = block.counts(counts)
        free = observed_expressions(block.model, part.successes)
        if len(free):
            seen, chart = Observations.of(block.model, free, part.successes[free]), _box_chart(block.model)
            total += _largest_likelihood(seen, fit(seen, chart, None, barrier=BARRIER).x, chart)
    return total


def _largest_likelihood(seen: Observations, x: np.ndarray, chart: ParameterChart) -> float:
    """A number that Σ K_f ln f[y] does not exceed for any y in the chart's box; x (r,) is any point inside."""
    rank, values = len(x), seen.values(x)
    if not (values > 0).all():
        return np.inf  # no bound from here: no claim
    terms = (seen.counts / values)[:, None] * seen.weights
    slope = terms.sum(axis=0)  # of the log-likelihood
    above, below = chart.b[:rank] - x, x + chart.b[rank:]  # x ≤ b[:r] and −x ≤ b[r:]
    gain = np.maximum(slope * above, -slope * below).sum()
    size = np.abs(terms).sum(axis=0) @ np.maximum(above, below)
    error = (8.0 + len(values)) * np.finfo(float).eps * (1.0 + _cancellation(seen, x)) * size
    return float(seen.counts @ np.log(values) + gain + error) + rounding(seen, x)


def _cancellation(seen: Observations, x: np.ndarray) -> float:
    """How many times larger the summands of an expression are than its value, at most."""
    summands = np.abs(seen.constant) + np.abs(seen.weights) @ np.abs(x)
    return float((summands / seen.values(x)).max())


def point_estimate(
    pmdp: ParametricMDP, counts: Counts, warm: np.ndarray | None = None, barrier: float = PRIOR
) -> np.ndarray | None:
    """θ (d,) of largest penalised likelihood, inside the domain; None for models with very many parameters.

    Where parameters are not identifiable one by one this is one of many equally likely points. ``barrier`` is the
    number of pseudo-observations per bound of the domain: near 0 gives the maximum-likelihood estimate.
    """
    if factorisation(pmdp).pays:
        return _estimate_by_blocks(pmdp, counts, barrier)
    if not 0 < pmdp.num_parameters <= MAX_PARAMETERS or pmdp.table.reduction.rank > MAX_RANK:
        return None
    core = without_unused(pmdp)
    if core is not pmdp and not pmdp.domain.A[:, ~used_parameters(pmdp.table)].any():
        # Data say nothing about the others: the middle of their bounds.
        used, whole = used_parameters(pmdp.table), (pmdp.domain.lower + pmdp.domain.upper) / 2
        found = point_estimate(core, counts, None if warm is None else warm[used], barrier)
        assert found is not None
        whole[used] = found
        return whole
    chart = domain_chart(pmdp)
    if not chart.has_interior:
        return chart.start
    kept = observed_expressions(pmdp, counts.successes)
    return fit(Observations.of(pmdp, kept, counts.successes[kept]), chart, warm, barrier).z


def _estimate_by_blocks(pmdp: ParametricMDP, counts: Counts, barrier: float) -> np.ndarray | None:
    """Block by block; of one distribution the frequencies with ``barrier`` / 2 observations more of each outcome."""
    blocks, domain = factorisation(pmdp), pmdp.domain
    successes = counts.successes + 0.5 * barrier
    theta, place = (domain.lower + domain.upper) / 2, {name: j for j, name in enumerate(domain.parameters)}
    own = np.flatnonzero(blocks.block_of_expression >= 0)
    trials = np.bincount(blocks.block_of_expression[own], successes[own], blocks.num_blocks)
    of_coordinate = np.empty(len(blocks.order), dtype=np.int64)
    of_coordinate[blocks.order] = np.repeat(np.arange(blocks.num_blocks), np.diff(blocks.block_ptr))
    known = np.flatnonzero(blocks.first >= 0)
    columns = known if pmdp.table.is_plain else _parameter_of_coordinate(pmdp)[known]
    theta[columns] = successes[blocks.first[known]] / trials[of_coordinate[known]]
    for block in blocks.others:
        found = point_estimate(block.model, block.counts(counts), barrier=barrier)
        if found is None:
            return None
        theta[[place[name] for name in block.model.table.parameters]] = found
    theta = np.clip(theta, domain.lower, domain.upper)
    return theta if domain.contains(theta) else None


def _parameter_of_coordinate(pmdp: ParametricMDP) -> np.ndarray:
    """(r,) the parameter of the first monomial of each coordinate."""
    pivots = np.array(pmdp.table.reduction.pivots, dtype=np.int64)
    return (pmdp.table.monomials[1:][pivots] != 0).argmax(axis=1)


def _box_chart(pmdp: ParametricMDP) -> ParameterChart:
    """Coordinates x with bounds that every point of the domain satisfies strictly."""
    lower, upper = coordinate_box(pmdp)
    eye = np.eye(len(lower))
    start = pmdp.table.reduction.coordinates(pmdp.domain.center())[0]
    # a margin keeps the domain's own points inside the barrier; a larger box only lowers E
    return ParameterChart(np.vstack([eye, -eye]), np.concatenate([upper + 1e-6, 1e-6 - lower]), start)
