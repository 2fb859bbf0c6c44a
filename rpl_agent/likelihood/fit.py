"""Maximum a-posteriori points by damped Newton steps inside the domain.

The point need not be exact: every bound built on it holds at any interior point of the domain; a better
point only makes it tighter. It minimises

    g(z) − τ Σ_i ln(b_i − a_i·z),      g(z) = −Σ_f K_f ln f[x(z)],

over the rows A z ≤ b of the domain. The barrier keeps z inside, where the confidence set's mixture needs a
ball around it, and bounds the Hessian in directions without data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rpl_agent._core import core
from rpl_agent.likelihood.chart import Observations, ParameterChart

#: Weight of the barrier: as strong as one pseudo-observation per domain row.
BARRIER = 1.0
MAX_STEPS = 100
#: Newton stops when the predicted decrease (nats) is below this, far less than what moves a region.
TOLERANCE = 1e-9


def inverse_factor(matrix: np.ndarray) -> np.ndarray:
    """The inverse of the lower triangular L with LL' = ``matrix`` (k, k); LinAlgError if it has no such root."""
    out = np.empty(matrix.shape)
    if not core.inverse_factor(len(matrix), np.ascontiguousarray(matrix), out):
        raise np.linalg.LinAlgError("the matrix is not positive definite")
    return out


@dataclass(frozen=True)
class Fit:
    """A point near the optimum: z, x(z), and the curvature there in z (likelihood part and with barrier)."""

    z: np.ndarray
    x: np.ndarray
    information: np.ndarray  # (k, k) Σ K_f ∇f∇f'/f², positive semidefinite
    precision: np.ndarray  # (k, k) information + barrier, positive definite
    decrement: float  # predicted distance (nats, doubled) to the optimum; the rule's own error estimate


def fit(
    observed: Observations, chart: ParameterChart, start: np.ndarray | None = None, barrier: float = BARRIER
) -> Fit:
    """Minimise the penalised negative log-likelihood of one window; ``start`` (k,) is used if it is strictly inside."""
    observed = observed.used
    r, k = observed.weights.shape[1], chart.dimension
    model, x = (chart.struct, observed.struct, barrier), np.empty(r)
    z = np.array(chart.start if start is None or np.shape(start) != (k,) else start, dtype=float)
    if start is not None and not np.isfinite(core.penalised(*model, z, x)):
        z = chart.start.copy()
    information, precision = np.empty((k, k)), np.empty((k, k))
    scratch = np.empty(3 * k + k * k + r + r * r + r * k)
    decrement = core.newton(*model, MAX_STEPS, TOLERANCE, scratch, z, x, information, precision)
    return Fit(z, x, information, precision, decrement)
