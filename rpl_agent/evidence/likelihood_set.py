"""The level set C = {x : G(x) ≤ level} of a mixture of windows, and outer approximations of it.

    G(x) = ln Σ_j w_j Q_j e^{g_j(x)},   g_j(x) = −Σ_f K_jf ln f[x],   level = ln 1/α.

Each g_j is convex in x because f is affine in x, and log-sum-exp keeps that: C is convex. Outer
approximations, each a superset of C:

- *cuts* ∇G(z)·(x − z) ≤ level − G(z), at any z;
- an *ellipsoid*. For any weights λ on the windows, log-sum-exp ≥ Σ λ_j a_j + entropy(λ), so C lies in the
  level set of g = −Σ K_f ln f with K = Σ λ_j K_j. With u_f ≥ max_C f, ε = u_f/m_f − 1 and
  φ(ε) = 2(ε − ln(1+ε))/ε², which decreases in ε, −ln(1+e) ≥ −e + ½ φ(ε) e² for −1 < e ≤ ε. Hence

      g(x) ≥ g(m) + ∇g(m)·(x−m) + ½ (x−m)'H(x−m),   H = Σ K_f φ(ε_f) b_f b_f' / m_f²,

  and completing the square gives centre c = m − H⁻¹∇g(m) and r² = 2(b − g(m)) + ‖∇g(m)‖²_{H⁻¹}. The
  ellipsoid bounds every f from above, which sharpens u_f: iterate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from rpl_agent.evidence import _kernels
from rpl_agent.evidence.likelihood_map import Chart, Fit, fit
from rpl_agent.evidence.likelihood_mixture import quadratic_forms, rounding

ELLIPSOID_ROUNDS = 15
#: Beyond this the data leave a direction unbounded, up to rounding: no ellipsoid.
MAX_CONDITION = 1e10
#: A boundary point is sharp enough when G is this close to the level (nats): a cut there loses nothing.
BOUNDARY_TOLERANCE = 1e-4


@dataclass(frozen=True)
class LevelSet:
    """C = {x : G(x) ≤ level}; only observed expressions are kept.

    Attributes
    ----------
    constant, weights : (n,), (n, r) of the expressions with K_f > 0 in some window
    counts : (J, n) K_f per window
    offsets : (J,) ln w_j + a lower bound on ln Q_j
    level : ln 1/α
    center : a fit to the windows' mixture, in the interior of C unless C is empty
    expressions : (n,) ids of the kept expressions in Λ
    """

    constant: np.ndarray
    weights: np.ndarray
    counts: np.ndarray
    offsets: np.ndarray
    level: float
    chart: Chart
    center: Fit
    expressions: np.ndarray

    @property
    def dimension(self) -> int:
        return self.weights.shape[1]

    @property
    def slack(self) -> float:
        """Nats by which every bound is loosened to cover floating-point error."""
        return 2.0 * rounding(self.constant, self.weights, self.counts.max(axis=0), self.center.x)

    def terms(self, points: np.ndarray) -> np.ndarray:
        """(k, J) ln(w_j Q_j) + g_j at points x (k, r)."""
        points = np.ascontiguousarray(np.atleast_2d(points), dtype=float)
        out = np.empty((len(points), len(self.offsets)))
        _kernels.log_likelihoods(self.constant, self.weights, self.counts, points, out)
        return out + self.offsets

    def values(self, points: np.ndarray) -> np.ndarray:
        """(k,) G at points x (k, r)."""
        return _log_sum_exp(self.terms(points))

    def contains(self, points: np.ndarray) -> np.ndarray:
        """(k,) whether G ≤ level, with the rounding slack given to the set."""
        return self.values(points) <= self.level + self.slack

    def values_and_gradients(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(k,) G and (k, r) ∇G."""
        points = np.ascontiguousarray(np.atleast_2d(points), dtype=float)
        terms = self.terms(points)
        values = _log_sum_exp(terms)
        gradients = np.empty(points.shape)
        with np.errstate(invalid="ignore"):
            mixing = np.nan_to_num(np.exp(terms - values[:, None]))
        _kernels.likelihood_gradients(self.constant, self.weights, self.counts, points, mixing, gradients)
        return values, gradients


def _log_sum_exp(terms: np.ndarray) -> np.ndarray:
    """ln Σ_j e^{terms[:, j]} (k,), inf where a term is."""
    largest = terms.max(axis=1)
    with np.errstate(invalid="ignore"):
        return np.where(np.isinf(largest), largest, largest + np.log(np.exp(terms - largest[:, None]).sum(axis=1)))


def interval(target: LevelSet, low: float, high: float) -> tuple[float, float]:
    """Exact ends of C ∩ [low, high] in one dimension, by bisection on the convex G, ends outside C.

    If even the best point found does not reach the level, C may be empty; (inf, -inf) is returned only if
    the tangent at that point proves it.
    """
    level = target.level + target.slack
    inside = float(target.center.x[0])
    if target.values(np.array([[inside]]))[0] > level:
        inside = _minimum_1d(target, low, high)
        if target.values(np.array([[inside]]))[0] > level:
            return np.inf, -np.inf
    ends = []
    for outside in (low, high):
        a, b = inside, outside
        if target.values(np.array([[b]]))[0] > level:
            while abs(b - a) > 1e-14 + 1e-13 * abs(b):
                middle = 0.5 * (a + b)
                if middle in (a, b):
                    break
                if target.values(np.array([[middle]]))[0] <= level:
                    a = middle
                else:
                    b = middle
        ends.append(b)
    return ends[0], ends[1]


def _minimum_1d(target: LevelSet, low: float, high: float) -> float:
    """Minimiser of the convex G on [low, high] by bisection on its slope."""
    for _ in range(100):
        middle = 0.5 * (low + high)
        value, gradient = target.values_and_gradients(np.array([[middle]]))
        if not np.isfinite(value[0]):
            return middle
        low, high = (middle, high) if gradient[0, 0] < 0 else (low, middle)
    return 0.5 * (low + high)


def boundary_points(target: LevelSet, directions: np.ndarray, steps: int = 6) -> np.ndarray:
    """Points near the boundary of C on rays from its centre, (k', r); rays that leave the domain first are dropped.

    ``directions`` (k, dim of the chart) are in coordinates where the curvature at the centre is the
    identity. Newton on the ray; the points only decide where cuts are placed, not whether they are valid.
    """
    chart, z = target.chart, target.center.z
    rays = directions @ np.linalg.inv(np.linalg.cholesky(target.center.precision))
    slope, room = rays @ chart.A.T, chart.b - chart.A @ z
    with np.errstate(divide="ignore", invalid="ignore"):
        exits = np.where(slope > 0, room / slope, np.inf).min(axis=1)
    base = float(target.values(chart.coordinates(z))[0])
    gap = max(target.level - base, 1e-6)
    t = np.minimum(np.full(len(rays), np.sqrt(2.0 * gap)), 0.999 * exits)
    active = np.ones(len(rays), dtype=bool)
    low, high = np.zeros(len(rays)), 0.999999 * exits
    for _ in range(steps):
        index = np.flatnonzero(active)
        if not len(index):
            break
        x = chart.coordinates(z + t[index, None] * rays[index])
        values, gradients = target.values_and_gradients(x)
        over = ~(values <= target.level)
        high[index[over]] = np.minimum(high[index[over]], t[index[over]])
        low[index[~over]] = np.maximum(low[index[~over]], t[index[~over]])
        along = _ray_slopes(chart, z, t[index], rays[index], gradients)
        with np.errstate(divide="ignore", invalid="ignore"):
            proposal = t[index] + (target.level - values) / along
        middle = 0.5 * (low[index] + np.minimum(high[index], 4.0 * np.maximum(t[index], 1e-12)))
        good = np.isfinite(proposal) & (proposal > low[index]) & (proposal < high[index])
        done = np.abs(values - target.level) < BOUNDARY_TOLERANCE
        t[index] = np.where(done, t[index], np.where(good, proposal, middle))
        active[index[done]] = False
    return chart.coordinates(z + t[:, None] * rays)


def _ray_slopes(chart: Chart, z: np.ndarray, t: np.ndarray, rays: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    """d/dt G(x(z + t·ray)) per ray."""
    if chart.reduction is None:
        return (gradients * rays).sum(axis=1)
    slopes = [g @ (chart.jacobian(z + s * ray) @ ray) for s, ray, g in zip(t, rays, gradients)]
    return np.array(slopes)


def cuts(target: LevelSet, points: np.ndarray, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows (A, b) with A x ≤ b for every x in C, tangent to G at ``points`` (k, r); unit-norm rows.

    ``radius`` bounds |x − z| over the domain: the rounding error of the gradient is paid with it.
    """
    values, gradients = target.values_and_gradients(points)
    norms = np.linalg.norm(gradients, axis=1)
    keep = np.isfinite(values) & np.isfinite(norms) & (norms > 0)
    points, values, gradients, norms = points[keep], values[keep], gradients[keep], norms[keep]
    total = target.counts.max(axis=0)
    observed = target.constant + target.weights @ target.center.x
    gradient_size = float(total @ (np.abs(target.weights).sum(axis=1) / np.maximum(observed, 1e-12)))
    error = target.slack + 64.0 * np.finfo(float).eps * gradient_size * radius
    offset = (gradients * points).sum(axis=1) + target.level - values + error
    return gradients / norms[:, None], offset / norms


def mixed(target: LevelSet, mixing: np.ndarray) -> tuple[np.ndarray, float]:
    """K (n,) and b such that C ⊂ {−Σ K_f ln f ≤ b}, for window weights λ = ``mixing`` (J,)."""
    used = mixing > 0
    entropy = -float(mixing[used] @ np.log(mixing[used]))
    return mixing @ target.counts, target.level + target.slack - float(mixing[used] @ target.offsets[used]) - entropy


def ellipsoid(
    target: LevelSet, upper: np.ndarray, mixing: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float] | None:
    """(centre c, H, r²) with C ∩ {f ≤ upper} ⊂ {(x−c)'H(x−c) ≤ r²}; None if the data leave it unbounded.

    ``upper`` (n,) are bounds on the kept expressions that hold on C or on the event that C is built for.
    """
    counts, bound = mixed(target, mixing)
    used = counts > 0
    counts, weights = counts[used], target.weights[used]
    m = target.center.x
    values = target.constant[used] + weights @ m
    upper = np.maximum(upper[used], values * (1 + 1e-12))
    room = bound + float(counts @ np.log(values))
    gradient = -(weights.T @ (counts / values))
    for _ in range(ELLIPSOID_ROUNDS):
        scale = counts * curvature(upper / values - 1.0) / values**2
        H = (weights * scale[:, None]).T @ weights
        if not np.isfinite(H).all() or np.linalg.cond(H) > MAX_CONDITION:
            return None
        inverse = np.linalg.inv(H)
        step = inverse @ gradient
        center, radius2 = m - step, max(2.0 * room + float(gradient @ step), 0.0)
        spread = np.sqrt(radius2 * np.maximum(quadratic_forms(weights, inverse), 0.0))
        tighter = np.minimum(upper, target.constant[used] + weights @ center + spread * (1 + 1e-9) + 1e-12)
        moved = float(np.max((upper - tighter) / upper, initial=0.0))
        upper = np.maximum(tighter, values * (1 + 1e-12))
        if moved < 1e-4:
            break
    return center, H, radius2 * (1.0 + 1e-9)


def curvature(excess: np.ndarray) -> np.ndarray:
    """φ(ε) = 2(ε − ln(1+ε))/ε², rounded down; φ(0) = 1."""
    small = np.abs(excess) < 1e-3
    safe = np.where(small, 1.0, excess)
    exact = 2.0 * (safe - np.log1p(safe)) / safe**2
    series = 1.0 - excess * (2.0 / 3.0 - 0.5 * excess * (1.0 - 0.8 * excess))
    return np.where(small, series, exact) * (1.0 - 1e-9)


def typical_mixing(target: LevelSet, points: np.ndarray) -> np.ndarray:
    """(J,) the windows' average share of the mixture at points near the boundary."""
    terms = target.terms(points)
    terms = terms[np.isfinite(terms).all(axis=1)]
    if not len(terms):
        return np.full(len(target.offsets), 1.0 / len(target.offsets))
    shares = special.softmax(terms, axis=1).mean(axis=0)
    return shares / shares.sum()


def center_of(
    constant: np.ndarray, weights: np.ndarray, counts: np.ndarray, offsets: np.ndarray, chart: Chart, start: np.ndarray
) -> Fit:
    """A fit to the windows' mixture: counts averaged with the windows' shares at the start."""
    g = np.empty((1, len(offsets)))
    _kernels.log_likelihoods(constant, weights, counts, np.ascontiguousarray(chart.coordinates(start)), g)
    shares = special.softmax(g[0] + offsets)
    return fit(constant, weights, shares @ counts, chart, start)
