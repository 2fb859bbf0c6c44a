"""Lower bounds on ln Q, Q = ∫ e^{−g} dW the likelihood of some data mixed uniformly over a chart's domain.

Two are used, derived in docs/guarantees.md ("When the model is wrong"): a closed form, where expressions are affine in
the chart's coordinates, and a finite sum over points of the domain, for any model.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy

from rpl_agent.core.model import cached_fact
from rpl_agent.core.native import core
from rpl_agent.guarantee.likelihood.chart import Fit, Observations, ParameterChart, rounding

#: Largest ε² = (f/m_f − 1)² allowed on the support of ρ.
LARGEST_RATIO = 0.9
LOG_2PI = float(np.log(2 * np.pi))
#: Number of points by dimension (the last entry: for all larger ones too), and how many points per dimension have exact
#: likelihoods: those that a quadratic model ranks highest.
POINTS = (128, 128, 2048, 2048, 4096, 16384)
EVALUATED = 64


@dataclass(frozen=True)
class Uniform:
    """W uniform on the domain; ``log_volume`` may be any upper bound."""

    log_volume: float


@cached_fact
def uniform_prior(chart: ParameterChart) -> Uniform:
    """Uniform prior with an upper bound on the domain's volume: that of its box, or of its hull where cheap."""
    low, high = bounding_box(chart)
    log_volume = float(np.log(high - low).sum())
    if 2 <= chart.dimension <= 5 and len(chart.b) <= 200:
        from scipy.spatial import ConvexHull, HalfspaceIntersection, QhullError

        try:
            halves = HalfspaceIntersection(np.hstack([chart.A, -chart.b[:, None]]), chart.start)
            log_volume = min(log_volume, float(np.log(ConvexHull(halves.intersections).volume)) + 1e-6)
        except (QhullError, ValueError):
            pass  # the box bounds the volume
    return Uniform(log_volume)


def closed_form(prior: Uniform, observed: Observations, chart: ParameterChart, center: Fit) -> float:
    """Lower bound on ln Q for f affine in z, all of ``observed`` seen; the ball is around the point m of ``center``."""
    m, d = center.z, chart.dimension
    constant, weights, counts = observed.constant, observed.weights, observed.counts
    values = constant + weights @ m
    squares = values**2
    own = center.precision - center.information  # D is bounded
    precision = (weights * (counts / squares)[:, None]).T @ weights + own
    inverse = np.linalg.inv(precision)
    q = quadratic_forms(weights, inverse) / squares
    reach = quadratic_forms(chart.A, inverse)
    slack = chart.b - chart.A @ m
    with np.errstate(divide="ignore"):
        limit = min(float((slack**2 / reach).min(initial=np.inf)), LARGEST_RATIO / float(q.max(initial=1e-300)))
    log_det, whole = float(np.linalg.slogdet(precision)[1]), d * LOG_2PI
    likelihood, q2, best = float(counts @ np.log(values)), q**2, -np.inf
    for radius2 in sorted({min(limit * (1 - 1e-9), r2) for r2 in (d + 2.0, d + 6.0, 2.0 * d + 14.0, 3.0 * d + 30.0)}):
        log_mass, mu2, mu4 = _truncated_moments(d, radius2)
        entropy = 0.5 * whole + log_mass + 0.5 * d * mu2 - 0.5 * log_det
        curvature = 0.5 * float(counts @ (q * mu2 + q2 * mu4 / (2.0 * (1.0 - q * radius2))))
        best = max(best, likelihood - curvature - prior.log_volume + entropy)
    return best - rounding(observed, m)


@cached_fact
def _points(chart: ParameterChart) -> np.ndarray:
    """(M, k) points of the domain, spread over its box."""
    low, high = bounding_box(chart)
    points = low + _cube(chart.dimension) * (high - low)
    return points[chart.contains(points)]


def finite_sum(observed: Observations, chart: ParameterChart, center: Fit) -> float:
    """Lower bound on ln Q for W uniform on points of the domain that were chosen before any data; any model."""
    points = _points(chart)
    g = _exact(points, observed, chart, center)
    least = np.empty(1)
    total = core.exponential_sum(len(g), g, least)
    if total == 0.0:
        return -np.inf
    return float(np.log(total) - least[0] - np.log(max(len(points), 1)) - rounding(observed, center.x))


def _exact(points: np.ndarray, observed: Observations, chart: ParameterChart, center: Fit) -> np.ndarray:
    """g of the points that the quadratic model at the centre ranks highest."""
    evaluated = EVALUATED * chart.dimension
    if len(points) > evaluated:
        score = quadratic_forms(points - center.z, center.precision)
        points = points[np.argpartition(score, evaluated)[:evaluated]]
    g = np.empty(len(points))
    core.log_likelihoods(observed.struct, len(points), chart.coordinates(points), g)
    return g


@lru_cache
def _cube(d: int) -> np.ndarray:
    """A low-discrepancy point set in the unit cube, always the same: Richtmyer's sequence k √p mod 1, p prime.

    Gaps of certificates differ by at most 0.2 % from those with scrambled Sobol points, whose generator costs a second
    of processor time to import (scipy.stats).
    """
    count = POINTS[min(d, len(POINTS) - 1)]
    primes: list[int] = []
    candidate = 2
    while len(primes) < d:
        if all(candidate % prime for prime in primes):
            primes.append(candidate)
        candidate += 1
    return np.arange(1.0, count + 1.0)[:, None] * np.sqrt(primes) % 1.0


def quadratic_forms(vectors: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """(n,) v'Mv for rows v of (n, k); plain loops, because threaded products of such slim matrices are slower."""
    return np.einsum("ij,ij->i", np.einsum("ij,jk->ik", vectors, matrix), vectors)


@lru_cache
def _truncated_moments(d: int, radius2: float) -> tuple[float, float, float]:
    """ln P(|u|² ≤ R²) and the second and fourth moment of a coordinate given that, u standard Gaussian."""
    mass, second, fourth = (scipy.special.chdtr(d + more, radius2) for more in (0, 2, 4))
    return float(np.log(mass)), float(second / mass), float(3.0 * fourth / mass)


def bounding_box(chart: ParameterChart) -> tuple[np.ndarray, np.ndarray]:
    """Bounds on the chart's domain from its axis-parallel rows, which every domain lists."""
    low, high = np.full(chart.dimension, -np.inf), np.full(chart.dimension, np.inf)
    for row, bound in zip(chart.A, chart.b):
        used = np.flatnonzero(row)
        if len(used) == 1:
            j, c = used[0], row[used[0]]
            if c > 0:
                high[j] = min(high[j], bound / c)
            else:
                low[j] = max(low[j], bound / c)
    return low, high
