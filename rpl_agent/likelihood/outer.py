"""Outer approximations of the level set as regions: tangent cuts, a closed-form ellipsoid, or both."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from rpl_agent.likelihood.level_set import LevelSet, boundary, cuts, ellipsoid, interval, rays_of
from rpl_agent.regions.base import Region
from rpl_agent.regions.ellipsoid import Ellipsoid
from rpl_agent.regions.intersection import Intersection
from rpl_agent.regions.polytope import Polytope

#: Tangent cuts by dimension of the mixture's coordinates: 2 enclose the set within 0.5 %; beyond that, the ellipsoid is
#: usually better and cuts only help with few data.
CUTS = {1: 2, 2: 32, 3: 60, 4: 60}
MANY_DIMENSIONS_CUTS = 4
#: Up to here the cuts are so tight that the ellipsoid never gives the better bound.
EXACT_DIMENSION = 2
#: Use the ellipsoid alone if no expression varies by more than this share over the set, which makes it
#: less than 2 % too wide, and no row of the domain or of the intervals cuts off more than this share of its width.
GAUSSIAN_SPREAD = 0.1
SHALLOW = 0.01


#: Rows (A, b): A x ≤ b.
Rows = tuple[np.ndarray, np.ndarray]


def outer_region(
    level_set: LevelSet,
    upper: np.ndarray,
    diameter: float,
    build: Callable[[Rows], Region],
    holds: Callable[[Ellipsoid], bool],
    more: Rows | None = None,
) -> Region:
    """Outer approximation of a convex level set C within other constraints.

    Parameters
    ----------
    upper : (n,) bounds on the observed forms that hold on C or on the event that C is built for
    diameter : an upper bound on |x − z| over the domain
    build : builds the other constraints, cut by given rows
    holds : whether the other constraints cut off no more than `SHALLOW` of an ellipsoid's width
    more : further rows, which are always added
    """
    if more is None:
        more = np.zeros((0, level_set.dimension)), np.zeros(0)
    if level_set.dimension == 1 and level_set.chart.reduction is None:
        # One coordinate: find the ends exactly, searching slightly beyond the domain.
        low, high = interval(level_set, *(end + 1e-6 * side for end, side in zip(_ends(level_set), (-1.0, 1.0))))
        return build(_joined(more, (np.array([[1.0], [-1.0]]), np.array([high, -low]))))
    rays = rays_of(level_set, cut_directions(level_set.chart.dimension))
    found = None
    if level_set.chart.dimension > EXACT_DIMENSION:
        mixing = rays.shares.mean(axis=0)
        found = ellipsoid(level_set, upper, mixing / mixing.sum(), diameter)
    around = None if found is None else Ellipsoid(*found)
    if around is not None and _is_gaussian(level_set) and holds(around):
        (A, b), (least, most) = more, around.box()
        return Intersection([Polytope(A, b, least, most), around]) if len(b) else around
    polytope = build(_joined(more, cuts(level_set, boundary(level_set, rays), diameter)))
    return polytope if around is None else Intersection([polytope, around])


def _joined(one: Rows, other: Rows) -> Rows:
    return np.vstack([one[0], other[0]]), np.concatenate([one[1], other[1]])


def _is_gaussian(level_set: LevelSet) -> bool:
    """Whether the likelihood is so close to a Gaussian that its ellipsoid is practically exact."""
    return level_set.expansion is not None and level_set.expansion.spread <= GAUSSIAN_SPREAD


def _ends(level_set: LevelSet) -> tuple[float, float]:
    """The domain's interval in one coordinate."""
    a, b = level_set.chart.A[:, 0], level_set.chart.b
    return float((b[a < 0] / a[a < 0]).max()), float((b[a > 0] / a[a > 0]).min())


@cache
def cut_directions(dimension: int) -> np.ndarray:
    """(k, dimension) evenly spread unit vectors, always the same."""
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
