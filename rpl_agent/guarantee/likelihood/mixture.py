"""Lower bounds on ln Q, the mixture likelihood ∫ e^{−g} dW of one window.

Any lower bound on ln Q gives a sound region, so the best of several lower bounds *on the same Q* may be
taken. W itself must not be chosen after the fact: it is a function of the data before the window.

Two are used, derived in docs/guarantees.md ("Which W"): a closed form for a Gaussian W (affine models), and finite sums
over particles (any model), either those that matter or, with much data, all of them through a cubic polynomial that
bounds g (`LikelihoodExpansion`: with e_f = b_f·(x' − x), b_f the gradient of ln f at x,
g(x') = g(x) − Σ K_f ln(1 + e_f)). Affine models use W = PARTICLE_SHARE · particles + the rest · Gaussian: particles
are better near the domain's boundary, the Gaussian where no particle is near.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import scipy

from rpl_agent.core.model import cached_fact
from rpl_agent.core.native import Struct, core
from rpl_agent.guarantee.likelihood.chart import Fit, Observations, ParameterChart, fit, inverse_factor

#: Expand up to this rank (there are rank³ coefficients). Particles count up to this squared distance from
#: the centre in units of the information, and expansions are used if they bound the likelihood of all of these.
EXPANDED_RANK = 6
EXPANDED = 20.0


@dataclass(frozen=True, eq=False)
class LikelihoodExpansion:
    """Taylor coefficients at x of g_j for J windows, with bounds on the remainder."""

    x: np.ndarray
    value: np.ndarray  # (J,), as `expand_likelihoods` writes it and the next three
    linear: np.ndarray  # (J, r)
    quadratic: np.ndarray  # (J, r, r)
    cubic: np.ndarray  # (J, r, r, r)
    metric: np.ndarray  # (r, r): (x'−x)'metric(x'−x) · ratio ≥ (f[x']/f[x] − 1)² for every expression f
    near: np.ndarray  # (k, k) the metric at the centre in the chart's coordinates z
    ratio: float
    error: float  # bound on the rounding error of every g_j at x
    drift: np.ndarray  # (r,) bound on the rounding error of the expansion per unit of |x' − x|

    @cached_property
    def struct(self) -> Struct:
        """The struct passed to C."""
        windows, r = self.linear.shape
        fields = {name: value for name, value in vars(self).items() if name != "error"}
        return core.LikelihoodExpansion(windows=windows, r=r, reach=self.reach, **fields)

    @property
    def reach(self) -> float:
        """Largest (x'−x)'metric(x'−x) at which a particle counts; the metric sums the information of all windows."""
        return EXPANDED * len(self.value)

    @property
    def spread(self) -> float:
        """Bound on |f[x']/f[x] − 1| within reach: how far the likelihood is from a Gaussian."""
        return float(np.sqrt(self.ratio * self.reach))


def expand(observed: Observations, chart: ParameterChart, center: Fit) -> LikelihoodExpansion | None:
    """Expansions of all windows at the centre; None if they would cost more than they save."""
    (n, r), x = observed.weights.shape, center.x
    if r > EXPANDED_RANK:
        return None
    windows = len(observed.counts)
    value, linear, size = np.empty(windows), np.empty((windows, r)), np.empty(r)
    quadratic, cubic = np.empty((windows, r, r)), np.empty((windows, r, r, r))
    core.expand_likelihoods(observed.struct, x, np.empty(r + windows), value, linear, quadratic, cubic, size)
    metric = quadratic.sum(axis=0)
    # Directions in which no expression varies: any positive number will do.
    metric.flat[:: r + 1] += 1e-9 * np.trace(metric) / r
    factor = _root(metric)
    ratio = np.inf if factor is None else 1.01 * core.largest_ratio(observed.struct, x, factor)
    error = rounding(observed.largest, x)
    drift = 4.0 * np.finfo(float).eps * (n + 16.0) * size
    jacobian = chart.jacobian(center.z)
    near = metric if jacobian is None else np.ascontiguousarray(jacobian.T @ metric @ jacobian)
    return LikelihoodExpansion(x, value, linear, quadratic, cubic, metric, near, ratio, error, drift)


def _root(metric: np.ndarray) -> np.ndarray | None:
    """L with |L b|² ≥ 0.995 b' metric⁻¹ b; None if rounding prevents it."""
    try:
        factor = inverse_factor(metric)
    except np.linalg.LinAlgError:
        return None
    return factor if core.factor_defect(len(metric), metric, factor, np.empty(2 * len(metric))) < 4e-3 else None


def rounding(observed: Observations, x: np.ndarray) -> float:
    """Bound on the floating-point error of g near x (nats), with room to spare.

    Relative error of f: its summands' rounding over f. Of the sum of n terms: n units of Σ K|ln f|.
    """
    return (8.0 + len(observed.counts)) * np.finfo(float).eps * core.rounding_size(observed.struct, x) + 1e-9


#: Largest ε² = (f/m_f − 1)² allowed on the support of ρ.
LARGEST_RATIO = 0.9
LOG_2PI = float(np.log(2 * np.pi))
#: Particles per window by dimension (last entry: and above). Two dimensions include the polynomial models, which have
#: no Gaussian to fall back on if the data before the mark were unlucky; only particles near the fit are expensive.
PARTICLES = (128, 128, 2048, 2048, 4096, 16384)
#: Weight of the particles in the mixture with the closed form.
PARTICLE_SHARE = 0.97
#: Number of particles per dimension with exact likelihoods: those that a quadratic model ranks highest.
EVALUATED = 64
#: If the likelihoods of all particles sum to this many times the largest, the closed form would add little.
ENOUGH_PARTICLES = 8.0


@dataclass(frozen=True, eq=False)
class Gaussian:
    """W = N(mean, precision⁻¹) restricted to the domain: a sub-probability."""

    mean: np.ndarray
    precision: np.ndarray


@dataclass(frozen=True)
class Uniform:
    """W uniform on the domain; ``log_volume`` may be any upper bound."""

    log_volume: float


def closed_form(prior: Gaussian | Uniform, observed: Observations, chart: ParameterChart, center: Fit) -> float:
    """Lower bound on ln Q for f affine in z, all of ``observed`` seen; the ball is around the point m of ``center``."""
    m, d = center.z, chart.dimension
    constant, weights, counts = observed.constant, observed.weights, observed.counts
    values = constant + weights @ m
    squares = values**2
    own = prior.precision if isinstance(prior, Gaussian) else center.precision - center.information  # D is bounded
    precision = (weights * (counts / squares)[:, None]).T @ weights + own
    inverse = np.linalg.inv(precision)
    q = quadratic_forms(weights, inverse) / squares
    reach = quadratic_forms(chart.A, inverse)
    slack = chart.b - chart.A @ m
    with np.errstate(divide="ignore"):
        limit = min(float((slack**2 / reach).min(initial=np.inf)), LARGEST_RATIO / float(q.max(initial=1e-300)))
    log_det, whole = float(np.linalg.slogdet(precision)[1]), d * LOG_2PI
    likelihood, q2, best = float(counts @ np.log(values)), q**2, -np.inf
    if isinstance(prior, Gaussian):
        offset, density = m - prior.mean, 0.5 * (float(np.linalg.slogdet(own)[1]) - whole)
        distance, spread = float(offset @ own @ offset), float(np.sum(own * inverse))
    else:
        density, distance, spread = -prior.log_volume, 0.0, 0.0
    for radius2 in sorted({min(limit * (1 - 1e-9), r2) for r2 in (d + 2.0, d + 6.0, 2.0 * d + 14.0, 3.0 * d + 30.0)}):
        log_mass, mu2, mu4 = _truncated_moments(d, radius2)
        entropy = 0.5 * whole + log_mass + 0.5 * d * mu2 - 0.5 * log_det
        curvature = 0.5 * float(counts @ (q * mu2 + q2 * mu4 / (2.0 * (1.0 - q * radius2))))
        log_w = density - 0.5 * (distance + mu2 * spread)
        best = max(best, likelihood - curvature + log_w + entropy)
    return best - rounding(observed, m)


def particle_set(prior: Gaussian | Uniform, chart: ParameterChart) -> tuple[np.ndarray, int]:
    """Particles z (M, k) inside the domain, and M ≥ 1.

    The points are a fixed low-discrepancy set pushed through the prior, so they depend only on the
    data before the window.
    """
    if isinstance(prior, Uniform):
        inside = _uniform_particles(chart)
        return inside, max(len(inside), 1)
    factor = inverse_factor(prior.precision)
    normals, longest2 = _normals(chart.dimension)
    points, near = np.empty(normals.shape), np.empty(len(chart.b), dtype=bool)
    number = core.particles_inside(chart.struct, len(normals), normals, longest2, prior.mean, factor, near, points)
    return points[:number], max(number, 1)


@cached_fact
def _uniform_particles(chart: ParameterChart) -> np.ndarray:
    """(M, k) points of the domain, spread over its box."""
    low, high = bounding_box(chart)
    points = low + _cube(chart.dimension) * (high - low)
    return points[chart.contains(points)]


def particles(
    prior: Gaussian | Uniform,
    observed: Observations,
    chart: ParameterChart,
    center: Fit,
    expansion: LikelihoodExpansion | None = None,
    window: int = 0,
) -> tuple[float, float]:
    """Lower bound on ln Q for the law of `particle_set`, any model; also the likelihoods' sum over the largest."""
    points, count = particle_set(prior, chart)
    if expansion is not None and expansion.spread <= 0.5:
        g, e, scratch = np.empty(len(points)), expansion, np.empty(len(center.z) + len(center.x))
        core.likelihood_bounds(chart.struct, e.struct, window, center.z, len(points), points, scratch, g)
        error = e.error
    else:
        g = _exact(points, observed, chart, center)
        error = rounding(observed, center.x)
    least = np.empty(1)
    total = core.exponential_sum(len(g), g, least)
    if total == 0.0:
        return -np.inf, 0.0
    return float(np.log(total) - least[0] - np.log(count) - error), total


def _exact(points: np.ndarray, observed: Observations, chart: ParameterChart, center: Fit) -> np.ndarray:
    """g of the particles that the quadratic model at the centre ranks highest."""
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
    count = PARTICLES[min(d, len(PARTICLES) - 1)]
    primes: list[int] = []
    candidate = 2
    while len(primes) < d:
        if all(candidate % prime for prime in primes):
            primes.append(candidate)
        candidate += 1
    return np.arange(1.0, count + 1.0)[:, None] * np.sqrt(primes) % 1.0


@lru_cache
def _normals(d: int) -> tuple[np.ndarray, float]:
    """The same points with standard normal coordinates, and slightly more than their largest squared length."""
    normals = scipy.special.ndtri(np.clip(_cube(d), 1e-12, 1 - 1e-12))
    return normals, 1.001 * float(np.square(normals).sum(axis=1).max())


def quadratic_forms(vectors: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """(n,) v'Mv for rows v of (n, k); plain loops, because threaded products of such slim matrices are slower."""
    return np.einsum("ij,ij->i", np.einsum("ij,jk->ik", vectors, matrix), vectors)


def log_mixture(
    prior: Gaussian | Uniform,
    observed: Observations,
    chart: ParameterChart,
    center: Fit,
    expansion: LikelihoodExpansion | None = None,
    window: int = 0,
) -> float:
    """Lower bound on ln Q for the window's law W, for any model.

    The ``expansion`` of g at the centre (row ``window`` of it) saves evaluating g particle by particle.
    """
    bound, total = particles(prior, observed, chart, center, expansion, window)
    if chart.reduction is not None:
        return bound
    bound += np.log(PARTICLE_SHARE)
    if total >= ENOUGH_PARTICLES:
        return bound
    observed = observed.used
    around = fit(observed, chart, center.z)
    other = closed_form(prior, observed, chart, around) + np.log(1.0 - PARTICLE_SHARE)
    return float(np.logaddexp(bound, other))


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
