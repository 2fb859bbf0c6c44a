"""The joint likelihood region as a `Region`: tangent cuts, a closed-form ellipsoid, and the anytime intervals.

δ is split once, before any data (`evidence.ledger`): a little to the union-bounded anytime intervals, the rest to the
level set of the mixture likelihood. On the event that both hold the truth lies in both, so every query may take the
better bound of the two outer approximations, and the intervals may sharpen the ellipsoid.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from rpl_agent.evidence.coordinates import coordinate_box
from rpl_agent.evidence.counts import Counts
from rpl_agent.evidence.intervals import confidence_intervals, event_intervals
from rpl_agent.evidence.ledger import check_delta, per_event, split_main
from rpl_agent.likelihood.blocks import JointBlock, factorisation, product_region
from rpl_agent.likelihood.chart import parameter_chart
from rpl_agent.likelihood.level_set import LevelSet, boundary, cuts, ellipsoid, interval, rays_of
from rpl_agent.likelihood.observations import Observations
from rpl_agent.likelihood.windows import MAX_RANK, likelihood_set, supports
from rpl_agent.model.caching import cached_on
from rpl_agent.model.pmdp import ParametricMDP
from rpl_agent.model.unused import used_parameters
from rpl_agent.regions.base import Region
from rpl_agent.regions.ellipsoid import Ellipsoid
from rpl_agent.regions.hull import Hull
from rpl_agent.regions.intersection import Intersection
from rpl_agent.regions.lifting import build_region, lies_inside
from rpl_agent.regions.product import Product

#: Tangent cuts by dimension of the mixture's coordinates: 2 enclose the set within 0.5 %; beyond, the ellipsoid is the
#: better half and cuts only serve small data.
CUTS = {1: 2, 2: 32, 3: 60, 4: 60}
MANY_DIMENSIONS_CUTS = 4
#: Up to here the cuts enclose the set so closely that the ellipsoid never gives the better bound.
EXACT_DIMENSION = 2
#: The ellipsoid alone is the region where no expression moves by more than this share over the set, which makes it
#: less than 2 % too wide, and no row of the domain or of the intervals cuts off more than this share of its width.
GAUSSIAN_SPREAD = 0.1
SHALLOW = 0.01


def likelihood_region(pmdp: ParametricMDP, counts: Counts, delta: float, *, warm: np.ndarray | None = None) -> Region:
    """The region that holds the truth at all times together with probability ≥ 1 − delta.

    Parameters
    ----------
    warm : (d,) a point estimate of θ to start Newton's method from.
    """
    check_delta(delta)
    if factorisation(pmdp).pays:
        return blockwise_region(pmdp, counts, delta, "anytime", likelihood_region)
    if not supports(pmdp):
        return interval_region(pmdp, *confidence_intervals(pmdp, counts, "anytime", delta))
    level_share, interval_share = split_main(delta)
    lower, upper = confidence_intervals(pmdp, counts, "anytime", interval_share)
    chart = parameter_chart(pmdp)
    start = None
    if warm is not None:
        start = np.asarray(warm, dtype=float)
        if chart.reduction is None:
            start = pmdp.table.reduction.coordinates(start)[0]
        elif chart.dimension < len(start):  # the chart of a polynomial model has the parameters in use
            start = start[used_parameters(pmdp.table)]
    level_set = likelihood_set(pmdp, counts, level_share, chart, start)
    if level_set is None:
        return build_region(pmdp, lower, upper)
    return outer_region(pmdp, level_set, lower, upper)


def blockwise_region(
    pmdp: ParametricMDP,
    counts: Counts,
    delta: float,
    method: str,
    joint: Callable[[ParametricMDP, Counts, float], Region],
) -> Product:
    """The product of the regions of independent blocks (the theorem in `blocks`), each with an equal share of δ.

    ``method`` makes the intervals of blocks that are one distribution; ``joint`` (model, counts, δ) any other's region.
    """
    blocks = factorisation(pmdp)
    share = per_event(delta, blocks.num_sets)
    lower, upper = event_intervals(pmdp, counts, method, share)
    return product_region(pmdp, lower, upper, lambda block: joint(block.model, block.counts(counts), share))


def interval_region(pmdp: ParametricMDP, lower: np.ndarray, upper: np.ndarray) -> Region:
    """U = D with lower_f ≤ f ≤ upper_f, in blocks where there are many; of a huge block only its bounds are kept."""
    if factorisation(pmdp).pays:

        def joint(block: JointBlock) -> Region:
            return interval_region(block.model, lower[block.expressions], upper[block.expressions])

        return product_region(pmdp, lower, upper, joint)
    if pmdp.table.reduction.rank > MAX_RANK:
        used = np.flatnonzero(~pmdp.table.is_constant)
        observed = Observations.of(pmdp, used, np.zeros(len(used)))
        return Hull(observed.constant, observed.weights, lower[used], upper[used], coordinate_box(pmdp))
    return build_region(pmdp, lower, upper)


def outer_region(pmdp: ParametricMDP, level_set: LevelSet, lower: np.ndarray, upper: np.ndarray) -> Region:
    """Outer approximation of {x in C : lower_f ≤ f ≤ upper_f}."""
    if level_set.dimension == 1 and level_set.chart.reduction is None:
        # one coordinate: the ends are found exactly, searched for on a little more than the domain
        low, high = interval(level_set, *(end + 1e-6 * side for end, side in zip(_ends(level_set), (-1.0, 1.0))))
        return build_region(pmdp, lower, upper, extra=(np.array([[1.0], [-1.0]]), np.array([high, -low])))
    rays = rays_of(level_set, cut_directions(level_set.chart.dimension))
    found = None
    if level_set.chart.dimension > EXACT_DIMENSION:
        mixing = rays.shares.mean(axis=0)
        found = ellipsoid(level_set, upper[level_set.expressions], mixing / mixing.sum(), _diameter(pmdp))
    around = None if found is None else Ellipsoid(*found)
    if around is not None and _is_gaussian(level_set) and lies_inside(pmdp, lower, upper, around, SHALLOW):
        return around
    polytope = build_region(pmdp, lower, upper, extra=cuts(level_set, boundary(level_set, rays), _diameter(pmdp)))
    return polytope if around is None else Intersection([polytope, around])


def _is_gaussian(level_set: LevelSet) -> bool:
    """Whether the likelihood is so close to a Gaussian that its ellipsoid is as good as exact."""
    return level_set.expansion is not None and level_set.expansion.spread <= GAUSSIAN_SPREAD


def _ends(level_set: LevelSet) -> tuple[float, float]:
    """The domain's interval in one coordinate."""
    a, b = level_set.chart.A[:, 0], level_set.chart.b
    return float((b[a < 0] / a[a < 0]).max()), float((b[a > 0] / a[a > 0]).min())


@cache
def cut_directions(dimension: int) -> np.ndarray:
    """(k, dimension) unit vectors, spread evenly; always the same."""
    count = CUTS.get(dimension, MANY_DIMENSIONS_CUTS * dimension)
    if dimension == 1:
        return np.array([[1.0], [-1.0]])
    if dimension == 2:
        angle = 2.0 * np.pi * np.arange(count) / count
        return np.stack([np.cos(angle), np.sin(angle)], axis=1)
    eye = np.eye(dimension)
    half = np.random.default_rng(5).normal(size=(max(count // 2 - dimension, 0), dimension))
    half = np.vstack([eye, half / np.linalg.norm(half, axis=1)[:, None]])
    return np.vstack([half, -half])


def _diameter(pmdp: ParametricMDP) -> float:
    """A bound on |x − z| over the domain."""
    return cached_on(pmdp, "diameter", lambda p: float(np.linalg.norm(np.subtract(*coordinate_box(p)))))
