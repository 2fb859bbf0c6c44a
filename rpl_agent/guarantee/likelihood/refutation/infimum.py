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

from rpl_agent.core.native import core
from rpl_agent.guarantee.likelihood.chart import Observations, ParameterChart, rounding

#: The total price of all rows of the polytope (nats).
BARRIER_PRICE = 0.05
MAX_STEPS = 60
#: Newton stops when the predicted decrease (nats) is below this.
TOLERANCE = 1e-8


def lowest_tangent(
    observed: Observations,
    offsets: np.ndarray,
    chart: ParameterChart,
    start: np.ndarray,
    box: tuple[np.ndarray, np.ndarray],
) -> tuple[np.ndarray, float, np.ndarray]:
    """(x (r,), a lower bound on G over the chart's polytope, (J,) the share of each term at x).

    observed : counts (J, n) of the J terms, with ``offsets`` (J,)
    start : (r,) a point of the polytope; if G is not finite there, the bound is −∞
    box : (lower, upper), (r,) each, around the polytope
    """
    x, barrier, target = np.array(start, dtype=float), 1.0, BARRIER_PRICE / len(chart.b) if len(chart.b) else 1.0
    # points between powers of one unknown belong to no parameter
    if not np.isfinite(_tangent(observed, offsets, x)[0]):
        return x, -np.inf, np.zeros(len(offsets))
    scratch = np.empty(len(x) * (5 * len(x) + 4) + sum(observed.counts.shape))
    while len(observed.constant):  # otherwise nothing depends on x
        core.newton_of_sum(chart.struct, observed.struct, offsets, barrier, MAX_STEPS, TOLERANCE, scratch, x)
        if barrier <= target:
            break
        barrier = max(0.05 * barrier, target)
    value, slope, shares = _tangent(observed, offsets, x)
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


def _tangent(observed: Observations, offsets: np.ndarray, x: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """G, ∇G (r,) and the terms' shares (J,); G is infinite if an expression is not positive."""
    values = observed.values(x)
    if not (values > 0.0).all():
        return np.inf, x, offsets
    terms = offsets - observed.counts @ np.log(values)
    shares = np.exp(terms - terms.max())
    value, shares = float(terms.max() + np.log(shares.sum())), shares / shares.sum()
    return value, shares @ (-observed.counts @ (observed.weights / values[:, None])), shares
