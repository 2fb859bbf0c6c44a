"""A lower bound on the infimum of a log-sum-exp of likelihoods over a polytope.

    G(x) = ln Σ_j e^{o_j + g_j(x)},   g_j(x) = −Σ_f K_jf ln f[x],   over {x : A x ≤ b}.

Apply Newton's method to G(x) − τ Σ_i ln(b_i − a_i·x). G is convex, so for any final x, every y of the polytope and
every λ ≥ 0

    G(y) ≥ G(x) + ∇G(x)·(y − x) ≥ G(x) − λ·(b − A x) + (∇G(x) + A'λ)·(y − x),

and the last term is smallest in a corner of any box around the polytope. With λ_i = τ / (b_i − a_i·x) it nearly
vanishes, at a price of τ per row.
"""

from __future__ import annotations

import numpy as np
import scipy

from rpl_agent.likelihood.chart import Observations, ParameterChart
from rpl_agent.likelihood.mixture import rounding

#: The total price of all rows of the polytope (nats).
BARRIER_PRICE = 0.05
MAX_STEPS = 60


def lowest_tangent(
    observed: Observations, offsets: np.ndarray, chart: ParameterChart, start: np.ndarray,
    box: tuple[np.ndarray, np.ndarray],
) -> tuple[np.ndarray, float, np.ndarray]:  # fmt: skip
    """(x (r,), a lower bound on G over the chart's polytope, (J,) the share of each term at x).

    observed : counts (J, n) of the J terms, with ``offsets`` (J,)
    start : (r,) a point of the polytope; if G is not finite there, the bound is −∞
    box : (lower, upper), (r,) each, around the polytope
    """
    x, barrier, target = np.array(start, dtype=float), 1.0, BARRIER_PRICE / len(chart.b) if len(chart.b) else 1.0
    # points between powers of one unknown belong to no parameter
    if not np.isfinite(_derivatives(observed, offsets, x)[0]):
        return x, -np.inf, np.zeros(len(offsets))
    while len(observed.constant):  # otherwise nothing depends on x
        x = _newton(observed, offsets, chart, x, barrier)
        if barrier <= target:
            break
        barrier = max(0.05 * barrier, target)
    value, slope, _, shares = _derivatives(observed, offsets, x)
    slack = chart.b - chart.A @ x
    rest = slope + chart.A.T @ (barrier / slack)
    low, high = np.minimum(box[0] - 1e-6 - x, 0.0), np.maximum(box[1] + 1e-6 - x, 0.0)
    bound = value - barrier * len(slack) + float(np.minimum(rest * low, rest * high).sum())
    if not len(observed.constant):
        return x, bound, shares
    values = observed.values(x)
    terms = shares @ ((observed.counts / values) @ np.abs(observed.weights)) + np.abs(chart.A).T @ (barrier / slack)
    summands = np.abs(observed.constant) + np.abs(observed.weights) @ np.abs(x)
    unit = (16.0 + len(values)) * np.finfo(float).eps * (1.0 + float((summands / values).max()))
    return x, bound - unit * float(terms @ (high - low)) - rounding(observed.largest, x), shares


def _derivatives(
    observed: Observations, offsets: np.ndarray, x: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    """G, ∇G (r,), its Hessian (r, r) and the terms' shares (J,); G is infinite if an expression is not positive."""
    values = observed.values(x)
    if not (values > 0.0).all():
        return np.inf, x, np.empty((0, 0)), offsets
    terms, steps = offsets - observed.counts @ np.log(values), observed.weights / values[:, None]
    shares = np.exp(terms - terms.max())
    value, shares = float(terms.max() + np.log(shares.sum())), shares / shares.sum()
    slopes = -observed.counts @ steps
    slope, mixed = shares @ slopes, shares @ observed.counts
    centred = slopes - slope
    return value, slope, (steps * mixed[:, None]).T @ steps + (centred * shares[:, None]).T @ centred, shares


def _newton(
    observed: Observations, offsets: np.ndarray, chart: ParameterChart, x: np.ndarray, barrier: float
) -> np.ndarray:
    """A point near the minimum of G plus the barrier, strictly inside."""

    def penalised(point: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        slack = chart.b - chart.A @ point
        if not (slack > 0).all():
            return np.inf, point, np.empty((0, 0))
        value, slope, hessian, _ = _derivatives(observed, offsets, point)
        if value == np.inf:
            return value, slope, hessian
        rows = chart.A / slack[:, None]
        penalty = -barrier * float(np.log(slack).sum())
        return value + penalty, slope + barrier * rows.sum(axis=0), hessian + barrier * rows.T @ rows

    current = penalised(x)
    for _ in range(MAX_STEPS):
        step = -_solved(current[2], current[1])
        decrease, length = -float(current[1] @ step), _largest_step(observed, chart, x, step)
        if not decrease > 1e-8:
            break
        following = penalised(x + length * step)
        while following[0] > current[0] - 0.25 * length * decrease and length > 1e-12:
            length *= 0.5
            following = penalised(x + length * step)
        if length <= 1e-12:
            break
        x, current = x + length * step, following
    return x


def _solved(hessian: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """hessian⁻¹ slope, the shortest solution where directions without data or rows have no curvature."""
    try:
        return scipy.linalg.solve(hessian, slope, assume_a="pos")
    except scipy.linalg.LinAlgError:
        return np.linalg.lstsq(hessian, slope, rcond=None)[0]


def _largest_step(observed: Observations, chart: ParameterChart, x: np.ndarray, step: np.ndarray) -> float:
    """At most 1, and nearly as far as x + length · step stays in the polytope with positive expressions."""
    left = np.concatenate([chart.b - chart.A @ x, observed.values(x)])
    used = np.concatenate([chart.A @ step, -(observed.weights @ step)])
    return min(1.0, 0.99 * float((left[used > 0.0] / used[used > 0.0]).min(initial=np.inf)))
