"""Maximum a-posteriori points by damped Newton inside the domain.

The point need not be exact: every bound built on it holds at any interior point of the domain, a better
point only makes it tighter. It minimises

    g(z) − τ Σ_i ln(b_i − a_i·z),      g(z) = −Σ_f K_f ln f[x(z)],

over the rows A z ≤ b of the domain. The barrier keeps z inside, where the confidence set's mixture needs a
ball around it, and bounds the Hessian where data say nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rpl_agent.model.expressions import Reduction
from rpl_agent.model.pmdp import ParametricMDP

#: Weight of the barrier: as strong as one pseudo-observation per domain row.
BARRIER = 1.0
MAX_STEPS = 100
#: Newton stops when the predicted decrease (nats) is below this: far below what moves a region.
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Chart:
    """Coordinates z in which probabilities over parameters live, with the domain's rows A z ≤ b there.

    Affine models: z = x, the reduced coordinates (``reduction`` is None). Polynomial models: z = θ, and
    x(z) are the reduced monomials; g is not convex in z, yet every bound remains one.
    """

    A: np.ndarray  # (m, k)
    b: np.ndarray  # (m,)
    start: np.ndarray  # (k,) interior point
    reduction: Reduction | None = None

    @property
    def dimension(self) -> int:
        return len(self.start)

    def coordinates(self, z: np.ndarray) -> np.ndarray:
        """x (n, r) of points z (n, k)."""
        return np.atleast_2d(z) if self.reduction is None else self.reduction.coordinates(z)

    def jacobian(self, z: np.ndarray) -> np.ndarray | None:
        """∂x/∂z (r, k) at one point, None for the identity."""
        if self.reduction is None:
            return None
        exponents, k = self.reduction.exponents, self.dimension
        columns = []
        for j in range(k):
            lowered = exponents.copy()
            lowered[:, j] = np.maximum(lowered[:, j] - 1, 0)
            columns.append(exponents[:, j] * np.prod(z[None, :] ** lowered, axis=1))
        return np.asarray(self.reduction.matrix @ np.stack(columns, axis=1))

    def contains(self, z: np.ndarray) -> np.ndarray:
        """Whether each z (n, k) satisfies the domain's rows, exactly as computed."""
        return (np.atleast_2d(z) @ self.A.T <= self.b).all(axis=1)


def domain_chart(pmdp: ParametricMDP) -> Chart:
    """z = θ with the domain's own rows, for any model."""
    A, b = pmdp.domain.constraints()
    reduction = pmdp.table.reduction
    return Chart(A, b, pmdp.domain.center(), None if reduction.is_identity else reduction)


@dataclass(frozen=True)
class Fit:
    """A point near the optimum: z, x(z), and the curvature there in z (likelihood part and with barrier)."""

    z: np.ndarray
    x: np.ndarray
    information: np.ndarray  # (k, k) Σ K_f ∇f∇f'/f², positive semidefinite
    precision: np.ndarray  # (k, k) information + barrier, positive definite
    decrement: float  # predicted distance (nats, doubled) to the optimum; the rule's own error estimate


def fit(
    constant: np.ndarray,
    weights: np.ndarray,
    counts: np.ndarray,
    chart: Chart,
    start: np.ndarray | None = None,
    barrier: float = BARRIER,
) -> Fit:
    """Minimise the penalised negative log-likelihood.

    Parameters
    ----------
    constant, weights, counts : (n,), (n, r), (n,) expressions f = constant + weights·x and K_f ≥ 0
        (real numbers: mixtures of windows are allowed).
    start : warm start (k,); ignored unless it is strictly inside.
    """
    used = counts > 0
    constant, weights, counts = constant[used], weights[used], counts[used]
    z = chart.start if start is None or not _interior(start, chart, constant, weights) else np.asarray(start, float)
    value = _objective(z, chart, constant, weights, counts, barrier)
    gradient, information, precision = _derivatives(z, chart, constant, weights, counts, barrier)
    decrease = np.inf
    for _ in range(MAX_STEPS):
        step = -np.linalg.solve(precision, gradient)
        decrease = -float(gradient @ step)
        if decrease < TOLERANCE:
            break
        length = 1.0
        while length > 1e-12:
            candidate = z + length * step
            trial = _objective(candidate, chart, constant, weights, counts, barrier)
            if trial <= value - 1e-4 * length * decrease:
                break
            length *= 0.5
        else:
            break  # rounding: no further decrease can be resolved
        z, value = candidate, trial
        gradient, information, precision = _derivatives(z, chart, constant, weights, counts, barrier)
    return Fit(z, chart.coordinates(z)[0], information, precision, decrease)


def _interior(z, chart: Chart, constant, weights) -> bool:
    z = np.asarray(z, dtype=float)
    if z.shape != chart.start.shape or not (chart.b - chart.A @ z > 0).all():
        return False
    return bool((constant + weights @ chart.coordinates(z)[0] > 0).all())


def _objective(z, chart: Chart, constant, weights, counts, barrier: float) -> float:
    slack = chart.b - chart.A @ z
    values = constant + weights @ chart.coordinates(z)[0]
    if (slack <= 0).any() or (values <= 0).any():
        return np.inf
    return -float(counts @ np.log(values)) - barrier * float(np.log(slack).sum())


def _derivatives(z, chart: Chart, constant, weights, counts, barrier: float):
    slack = chart.b - chart.A @ z
    values = constant + weights @ chart.coordinates(z)[0]
    gradient = -(weights.T @ (counts / values))
    information = (weights * (counts / values**2)[:, None]).T @ weights
    jacobian = chart.jacobian(z)
    if jacobian is not None:
        gradient = jacobian.T @ gradient
        information = jacobian.T @ information @ jacobian
    scaled = chart.A / slack[:, None]
    gradient = gradient + barrier * scaled.sum(axis=0)
    return gradient, information, information + barrier * scaled.T @ scaled
