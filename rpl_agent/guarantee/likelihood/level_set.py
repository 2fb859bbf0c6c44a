"""The level set C = {x : G(x) ≤ level} of a mixture of windows, and outer approximations of it.

    G(x) = ln Σ_j w_j Q_j e^{g_j(x)},   g_j(x) = −Σ_f K_jf ln f[x],   level = ln 1/α.

C is convex. Outer approximations, each a superset of C: *cuts* ∇G(z)·(x − z) ≤ level − G(z), at any z, and an
*ellipsoid* (docs/guarantees.md, "What is computed from C"); as regions either of them, or both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
import scipy

from rpl_agent.core.native import core
from rpl_agent.core.regions.base import Region
from rpl_agent.core.regions.intersection import Ellipsoid, Intersection
from rpl_agent.core.regions.polytope import Polytope
from rpl_agent.guarantee.likelihood.chart import Fit, Observations, ParameterChart, fit, inverse_factor
from rpl_agent.guarantee.likelihood.mixture import LikelihoodExpansion, expand, rounding

ELLIPSOID_ROUNDS = 15
#: Accept a boundary point if G is this close to the level (nats). Where G is quadratic and rises by h, the
#: tangent at a point that is off by the share s = 0.2 / 2h of its distance lies s²/2 too far out: 0.01 % at h = 7.
BOUNDARY_TOLERANCE, BOUNDARY_STEPS = 0.2, 6
#: The same in one dimension, where the tangents are the whole region: then only 1e-11 of the distance is lost.
END_TOLERANCE, END_STEPS = 1e-4, 50


@dataclass(frozen=True, eq=False)
class LevelSet:
    """C = {x : G(x) ≤ level}; only observed expressions are kept."""

    observed: Observations  # the n expressions with K_f > 0 in some window, counts (J, n) per window
    offsets: np.ndarray  # (J,) ln w_j + a lower bound on ln Q_j
    level: float  # ln 1/α
    chart: ParameterChart
    center: Fit  # a fit to the data, in the interior of C unless C is empty
    expressions: np.ndarray  # (n,) ids of the kept expressions in Λ
    expansion: LikelihoodExpansion | None = None  # of the windows' g_j at the centre; None if it is too large

    @property
    def dimension(self) -> int:
        return self.observed.weights.shape[1]

    @cached_property
    def slack(self) -> float:
        """Nats by which every bound is loosened to cover floating-point error."""
        if self.expansion is not None:
            return 2.0 * self.expansion.error
        return 2.0 * rounding(self.observed.largest, self.center.x)

    @cached_property
    def center_value(self) -> float:
        """G at the centre."""
        return float(self.values(self.center.x)[0])

    def terms(self, points: np.ndarray) -> np.ndarray:
        """(k, J) ln(w_j Q_j) + g_j at points x (k, r)."""
        points = np.ascontiguousarray(np.atleast_2d(points), dtype=float)
        out = np.empty((len(points), len(self.offsets)))
        core.log_likelihoods(self.observed.struct, len(points), points, out)
        return out + self.offsets

    def values(self, points: np.ndarray) -> np.ndarray:
        """(k,) G at points x (k, r)."""
        return _log_sum_exp(self.terms(points))

    def contains(self, points: np.ndarray) -> np.ndarray:
        """(k,) whether G ≤ level, with the rounding slack in favour of the set."""
        return self.values(points) <= self.level + self.slack

    def tangents(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(k,) G, (k, r) ∇G and (k, J) the share of each window in the mixture."""
        points = np.ascontiguousarray(np.atleast_2d(points), dtype=float)
        values, gradients = np.empty(len(points)), np.empty(points.shape)
        shares = np.empty((len(points), len(self.offsets)))
        core.tangents(self.observed.struct, self.offsets, len(points), points, values, gradients, shares)
        return values, gradients, shares


def _log_sum_exp(terms: np.ndarray) -> np.ndarray:
    """ln Σ_j e^{terms[:, j]} (k,), inf where some term is."""
    largest = terms.max(axis=1)
    with np.errstate(invalid="ignore"):
        return np.where(np.isinf(largest), largest, largest + np.log(np.exp(terms - largest[:, None]).sum(axis=1)))


@dataclass(frozen=True, eq=False)
class Rays:
    """Rays from the centre (k, dim of the chart), the distances (k,) at which they leave the domain and, as estimated
    without evaluating G, C; the windows' shares there (k, J).
    """

    rays: np.ndarray
    exits: np.ndarray
    lengths: np.ndarray
    shares: np.ndarray


def rays_of(target: LevelSet, directions: np.ndarray) -> Rays:
    """Rays in ``directions`` (k, dim of the chart), given in coordinates where the curvature at the centre is 1."""
    chart, z = target.chart, target.center.z
    rays = directions @ inverse_factor(target.center.precision)
    slope, room = rays @ chart.A.T, chart.b - chart.A @ z
    with np.errstate(divide="ignore", invalid="ignore"):
        exits = 0.999999 * np.where(slope > 0, room / slope, np.inf).min(axis=1)
    gap = max(target.level - target.center_value, 1e-6)
    lengths = np.minimum(np.sqrt(2.0 * gap), exits)
    e = target.expansion
    if e is None:
        shares = scipy.special.softmax(target.terms(target.center.x), axis=1)
        return Rays(rays, exits, lengths, np.repeat(shares, len(rays), axis=0))
    shares, longest = np.empty((len(rays), len(target.offsets))), np.minimum(4.0 * lengths, exits)
    core.ray_lengths(
        chart.struct,
        e.struct,
        z,
        target.offsets,
        target.level,
        target.level - gap,
        len(rays),
        rays,
        longest,
        np.empty(chart.dimension + target.dimension),
        lengths,
        shares,
    )
    return Rays(rays, exits, lengths, shares)


def boundary(target: LevelSet, guess: Rays) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points x (k, r) near the boundary of C on rays from its centre, with G (k,) and ∇G (k, r) there.

    Newton's method on the ray from the guess, stopped at the domain's boundary. The points' positions affect how tight
    the cuts are, not whether they are valid.
    """
    chart, z, is_end = target.chart, target.center.z, target.dimension == 1
    tolerance, steps = (END_TOLERANCE, END_STEPS) if is_end else (BOUNDARY_TOLERANCE, BOUNDARY_STEPS)
    rays, exits, t = guess.rays, guess.exits, guess.lengths.copy()
    low, high = np.zeros(len(rays)), exits.copy()
    x = chart.coordinates(z + t[:, None] * rays)
    values, gradients, _ = target.tangents(x)
    for _ in range(steps - 1):
        done = (np.abs(values - target.level) < tolerance) | ((t >= exits) & (values < target.level))
        i = np.flatnonzero(~done)
        if not len(i):
            break
        over = ~(values[i] <= target.level)
        high[i] = np.where(over, np.minimum(high[i], t[i]), high[i])
        low[i] = np.where(over, low[i], np.maximum(low[i], t[i]))
        along = _ray_slopes(chart, z, t[i], rays[i], gradients[i])
        with np.errstate(divide="ignore", invalid="ignore"):
            proposal = np.minimum(t[i] + (target.level - values[i]) / along, exits[i])
        good = np.isfinite(proposal) & (proposal > low[i]) & ((proposal < high[i]) | (proposal == exits[i]))
        t[i] = np.where(good, proposal, 0.5 * (low[i] + np.minimum(high[i], 4.0 * t[i])))
        x[i] = chart.coordinates(z + t[i, None] * rays[i])
        values[i], gradients[i], _ = target.tangents(x[i])
    keep = np.isfinite(values)
    return x[keep], values[keep], gradients[keep]


def _ray_slopes(
    chart: ParameterChart, z: np.ndarray, t: np.ndarray, rays: np.ndarray, gradients: np.ndarray
) -> np.ndarray:
    """d/dt G(x(z + t·ray)) per ray."""
    if chart.reduction is None:
        return (gradients * rays).sum(axis=1)
    velocities = np.empty(gradients.shape)
    scratch = np.empty(rays.shape[1] + gradients.shape[1])
    core.velocities(chart.struct, z, len(rays), t, np.ascontiguousarray(rays), scratch, velocities)
    return (gradients * velocities).sum(axis=1)


def cuts(
    target: LevelSet, points: np.ndarray, values: np.ndarray, gradients: np.ndarray, radius: float
) -> tuple[np.ndarray, np.ndarray]:
    """Rows (A, b) with A x ≤ b for every x in C, unit norm, from tangents at points.

    ``radius`` bounds |x − z| over the domain; it scales the slack for the gradient's rounding error.
    """
    norms = np.linalg.norm(gradients, axis=1)
    keep = np.isfinite(norms) & (norms > 0)
    points, values, gradients, norms = points[keep], values[keep], gradients[keep], norms[keep]
    weights, counts = target.observed.weights, target.observed.largest.counts
    probable = target.observed.values(target.center.x)
    size = float(counts @ (np.abs(weights).sum(axis=1) / np.maximum(probable, 1e-12)))
    error = target.slack + (64.0 + len(probable)) * np.finfo(float).eps * size * radius
    offset = (gradients * points).sum(axis=1) + target.level - values + error
    return gradients / norms[:, None], offset / norms


def mixed(target: LevelSet, mixing: np.ndarray) -> tuple[np.ndarray, float]:
    """K (n,) and b such that C ⊂ {−Σ K_f ln f ≤ b}, for window weights λ = ``mixing`` (J,)."""
    used = mixing > 0
    entropy = -float(mixing[used] @ np.log(mixing[used]))
    bound = target.level + target.slack - float(mixing[used] @ target.offsets[used]) - entropy
    return mixing @ target.observed.counts, bound


def ellipsoid(
    target: LevelSet, upper: np.ndarray, mixing: np.ndarray, radius: float
) -> tuple[np.ndarray, np.ndarray, float] | None:
    """(centre c, H, r²) with C ∩ {f ≤ upper} ⊂ {(x−c)'H(x−c) ≤ r²}; None if the data do not bound it.

    ``upper`` (n,) bounds the kept expressions on C or on the event that C is built for; ``radius`` as
    in `cuts`.
    """
    counts, bound = mixed(target, mixing)
    seen, m = counts > 0, target.center.x
    observed = target.observed.counted(counts).used
    room = bound + float(observed.counts @ np.log(observed.values(m)))
    (n, r), u = observed.weights.shape, np.array(upper[seen], dtype=float)
    center, H, scratch = np.empty(r), np.empty((r, r)), np.empty(3 * n + 5 * r + r * r)
    radius2 = core.enclose(observed.struct, m, room, radius, ELLIPSOID_ROUNDS, scratch, u, center, H)
    return (center, H, radius2) if radius2 >= 0.0 else None


def recentred(target: LevelSet, useful: np.ndarray) -> LevelSet:
    """The set of the ``useful`` windows (a superset), around a fit to their mixture with the weights they have in G."""
    part = replace(target, observed=target.observed.window(useful), offsets=target.offsets[useful], expansion=None)
    shares = scipy.special.softmax(part.terms(target.center.x)[0])
    mixture = part.observed.counted(shares @ part.observed.counts)
    center = fit(mixture, part.chart, target.center.z)
    expansion = expand(part.observed, part.chart, center)
    return replace(part, center=center, expansion=expansion)


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

    upper : (n,) bounds on the observed forms that hold on C or on the event that C is built for
    diameter : an upper bound on |x − z| over the domain
    build : builds the other constraints, cut by given rows
    holds : whether the other constraints cut off no more than `SHALLOW` of an ellipsoid's width
    more : further rows, which are always added
    """
    if more is None:
        more = np.zeros((0, level_set.dimension)), np.zeros(0)
    rays = rays_of(level_set, cut_directions(level_set.chart.dimension))
    found = None
    if level_set.chart.dimension > EXACT_DIMENSION:
        mixing = rays.shares.mean(axis=0)
        found = ellipsoid(level_set, upper, mixing / mixing.sum(), diameter)
    around = None if found is None else Ellipsoid(*found)
    gaussian = level_set.expansion is not None and level_set.expansion.spread <= GAUSSIAN_SPREAD
    if around is not None and gaussian and holds(around):
        (A, b), (least, most) = more, around.box()
        return Intersection([Polytope(A, b, least, most), around]) if len(b) else around
    polytope = build(_joined(more, cuts(level_set, *boundary(level_set, rays), diameter)))
    return polytope if around is None else Intersection([polytope, around])


def _joined(one: Rows, other: Rows) -> Rows:
    return np.vstack([one[0], other[0]]), np.concatenate([one[1], other[1]])


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
