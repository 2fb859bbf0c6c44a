"""The joint likelihood region as a `Region`: tangent cuts, a closed-form ellipsoid, and the anytime intervals.

δ is split once, before any data (`evidence.ledger`): a small share to the union-bounded anytime intervals, the rest to
the level set of the mixture likelihood. On the event that both hold, the truth lies in both, so every query may take
the better bound of the two outer approximations, and the intervals may sharpen the ellipsoid.
"""

from __future__ import annotations

import numpy as np

from rpl_agent.core.evidence.counts import Counts
from rpl_agent.core.evidence.intervals import confidence_intervals, event_intervals
from rpl_agent.core.evidence.ledger import check_delta, per_event, split_main
from rpl_agent.core.model import Objective, ParametricMDP, cached_on
from rpl_agent.core.model.algebra.ranges import coordinate_box
from rpl_agent.core.regions.base import Region
from rpl_agent.core.regions.blocks import JointBlock, factorisation, is_blockwise, product_region
from rpl_agent.core.regions.lifting import build_region, lies_inside, linear_dimension
from rpl_agent.core.regions.parameter_region import interval_parameters
from rpl_agent.core.regions.polytope import GRAPH_DIMENSION
from rpl_agent.core.regions.product import Hull
from rpl_agent.guarantee.likelihood.bets.slabs import shares_of, side_rows, slab_rows, tightest_slabs
from rpl_agent.guarantee.likelihood.chart import Observations, parameter_chart
from rpl_agent.guarantee.likelihood.level_set import SHALLOW, outer_region
from rpl_agent.guarantee.likelihood.polynomial.parameters import curved_region
from rpl_agent.guarantee.likelihood.windows import MAX_RANK, likelihood_set, supports


def likelihood_region(
    pmdp: ParametricMDP,
    counts: Counts,
    delta: float,
    *,
    warm: np.ndarray | None = None,
    objective: Objective | None = None,
) -> Region:
    """The region that contains the truth at all times simultaneously with probability ≥ 1 − delta.

    warm : (d,) a point estimate of θ to start Newton's method from.
    objective : whose value is to be bounded, chosen before the data; None places no bets.
    """
    check_delta(delta)
    if not pmdp.table.is_affine and parameter_chart(pmdp).has_interior:
        return curved_region(pmdp, counts, delta, warm, objective)
    if is_blockwise(pmdp):
        share = per_event(delta, factorisation(pmdp).num_sets)  # one for each set of each block
        bounds = event_intervals(pmdp, counts, "anytime", share)
        return product_region(pmdp, *bounds, lambda block: likelihood_region(block.model, block.counts(counts), share))
    if not supports(pmdp):
        return interval_region(pmdp, *confidence_intervals(pmdp, counts, "anytime", delta))
    parts = split_main(delta, shares_of(pmdp, counts, objective))
    slabs = tightest_slabs(pmdp, counts, objective, parts.bets)
    bets = None if slabs is None else side_rows(*(slab_rows(pmdp, slab) for slab in slabs))
    lower, upper = confidence_intervals(pmdp, counts, "anytime", parts.intervals)
    chart = parameter_chart(pmdp)
    start = None
    if warm is not None:
        start = np.asarray(warm, dtype=float)
        if chart.reduction is None:
            start = pmdp.table.reduction.coordinates(start)[0]
    level_set = likelihood_set(counts, parts.level_set, chart, start)
    if level_set is None:
        return build_region(pmdp, lower, upper, extra=bets)
    return outer_region(
        level_set,
        upper[level_set.expressions],
        _diameter(pmdp),
        lambda rows: build_region(pmdp, lower, upper, extra=rows),
        lambda ellipsoid: lies_inside(pmdp, lower, upper, ellipsoid, SHALLOW),
        bets,
    )


def interval_region(pmdp: ParametricMDP, lower: np.ndarray, upper: np.ndarray) -> Region:
    """U = D with lower_f ≤ f ≤ upper_f, in blocks if there are many; a huge block keeps only its bounds."""
    if not pmdp.table.is_affine and linear_dimension(pmdp.table) > GRAPH_DIMENSION:
        return interval_parameters(pmdp, lower, upper)
    if is_blockwise(pmdp):

        def joint(block: JointBlock) -> Region:
            return interval_region(block.model, lower[block.expressions], upper[block.expressions])

        return product_region(pmdp, lower, upper, joint)
    if pmdp.table.reduction.rank > MAX_RANK:
        used = np.flatnonzero(~pmdp.table.is_constant)
        observed = Observations.of(pmdp, used, np.zeros(len(used)))
        return Hull(
            observed.constant, observed.weights, lower[used], upper[used], coordinate_box(pmdp.table, pmdp.domain)
        )
    return build_region(pmdp, lower, upper)


def _diameter(pmdp: ParametricMDP) -> float:
    """An upper bound on |x − z| over the domain."""
    return cached_on(pmdp, "diameter", lambda p: float(np.linalg.norm(np.subtract(*coordinate_box(p.table, p.domain)))))
